"""Rows of token sequences as batches: arrays for any framework, tensors and streams for PyTorch, arguments of transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import UsageError
from bertprep.records.columns import Columns
from bertprep.records.order import Order, numbers_of_batches
from bertprep.records.record_dataset import ColumnDataset, RecordBatch, Row, stack_rows

if TYPE_CHECKING:
    import torch

    from bertprep.records.token_stream import TokenStream

Batch: TypeAlias = dict[str, Any]
"""Columns of (rows, seq), and of packed rows `cu_seqlens` and `max_seqlen`."""


class TokenRows(ColumnDataset):
    """Rows of token sequences in the order of an epoch: batches of them, as arrays, as tensors, and as a stream."""

    seq: int
    packed: bool
    first_position: int
    """The position id of the first token of a sequence."""
    objective: Literal["mlm", "clm"] = "mlm"
    order: Order
    """Which row comes at a position, counted over all epochs."""

    def rows(self, numbers: NDArray[np.int64]) -> Columns:
        """Return the columns of the rows of these numbers, which `order` gives."""
        raise NotImplementedError

    def batches(
        self, size: int, *, first: int = 0, stop: int | None = None, step: int = 1, rows: range | None = None
    ) -> Iterator[Batch]:
        """Yield batches first, first + step ... below `stop`, or endlessly, over all epochs; of each its `rows`, or all.

        Batch n has the positions from n * size on, counted over all epochs.
        """
        for numbers in numbers_of_batches(self.order, size, first=first, stop=stop, step=step, rows=rows):
            yield self._with_boundaries(self.rows(numbers))

    def stream(self, batch_size: int, *, rank: int = 0, world: int = 1) -> TokenStream:
        """Return an IterableDataset of batches of tensors for `rank` of `world`; needs PyTorch.

        Batch n is rows rank * batch_size to (rank + 1) * batch_size - 1 of batch n of `batches(batch_size * world)`.
        """
        from bertprep.records.token_stream import TokenStream  # which imports torch

        return TokenStream(self, batch_size, rank=rank, world=world)

    def collate(self, batch: RecordBatch | Sequence[Row]) -> Batch:
        """Return rows as a batch of tensors: `DataLoader(dataset, batch_size=64, collate_fn=dataset.collate)`."""
        return self.to_tensors(self._with_boundaries(stack_rows(batch)))

    def collate_for(self, config: Any) -> Callable[..., Batch]:
        """Return the collator for a model of transformers, by `model.config`: its arguments, packed sequences kept apart.

        That needs masks, or boundaries for FlashAttention: without them a model attends across sequences, and does not say so.
        """
        attention = str(config._attn_implementation)  # None before there is a model
        if self.packed and attention not in ("sdpa", "eager") and "flash" not in attention:
            raise UsageError(
                f"attention {attention}: no packed sequences for it; give model.config of a model with "
                "attn_implementation='sdpa', or take packed=False"
            )
        window = config.sliding_window if config.model_type == "modernbert" else None
        return partial(self._collate_for, attention, window)

    def _collate_for(self, attention: str, sliding_window: int | None, rows: RecordBatch | Sequence[Row]) -> Batch:
        batch = self.collate(rows)
        if not self.packed:
            return batch
        inputs = {name: batch[name] for name in ("input_ids", "labels", "position_ids")}
        if "flash" in attention:
            boundaries, longest = batch["cu_seqlens"], batch["max_seqlen"]
            return {
                **inputs, "cu_seq_lens_q": boundaries, "cu_seq_lens_k": boundaries,
                "max_length_q": longest, "max_length_k": longest,
            }  # fmt: skip
        masks = self.attention_masks(batch, sliding_window)
        if attention == "eager":
            masks = {name: _to_scores(mask) for name, mask in masks.items()} if sliding_window else _to_scores(masks)
        return {**inputs, "attention_mask": masks}

    @staticmethod
    def to_tensors(batch: Batch) -> Batch:
        """Return a batch with tensors in place of arrays, which share their memory."""
        import torch

        return {name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in batch.items()}

    def attention_masks(self, batch: Mapping[str, Any], sliding_window: int | None = None) -> Any:
        """Return which tokens of packed rows attend to which, those of their sequence: bool, (rows, 1, seq, seq).

        transformers' models take it as `attention_mask` unless they use FlashAttention. With the `sliding_window` of a
        ModernBERT's config it is a dict of the two masks that this model takes.
        """
        sequence_ids = (batch["position_ids"] == self.first_position).cumsum(1)
        full = sequence_ids[:, None, :, None] == sequence_ids[:, None, None, :]
        distances = np.arange(self.seq)[:, None] - np.arange(self.seq)
        if self.objective == "clm":
            full = full & _like(distances >= 0, full)
        if sliding_window is None:
            return full
        return {"full_attention": full, "sliding_attention": full & _like(abs(distances) <= sliding_window, full)}

    def _with_boundaries(self, columns: Columns) -> Batch:
        if not self.packed:
            return columns
        positions = columns["position_ids"].ravel()
        boundaries = np.append(np.flatnonzero(positions == self.first_position), positions.size).astype(np.int32)
        return {**columns, "cu_seqlens": boundaries, "max_seqlen": int(np.diff(boundaries).max(initial=0))}


def _like(mask: NDArray[np.bool_], other: Any) -> Any:
    """Return a mask as what another is: an array, or a tensor on its device."""
    if isinstance(other, np.ndarray):
        return mask
    import torch

    return torch.from_numpy(mask).to(other.device)


def _to_scores(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask as eager attention takes it, which adds it to the scores."""
    import torch

    return torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
