"""Token shards for pretraining an encoder: documents packed into rows and masked anew in each epoch, for PyTorch and others.

A document becomes sequences [CLS] tokens [SEP], and several of them a row of `seq` tokens with its boundaries. Documents of
some 4 million consecutive tokens, a window, are packed together, once; of an epoch the windows come in permuted order, and the
rows of 16 of them are shuffled together, so rows are as far from their neighbors as 64 million tokens, and what is in memory is
bounded. Order and masks are pure functions of seed, epoch and row: any batch of any epoch can be had at once, and batch
size, readers and resuming change no row. A row of 1,024 tokens takes about 10 microseconds (`benchmarks data encoders`).

    dataset = TokenDataset("tokens", seq=1024, masked_lm_prob=0.3)
    DataLoader(dataset, batch_size=64, collate_fn=dataset.collate)  # an epoch; dataset.set_epoch(1) takes the next
    StatefulDataLoader(dataset.stream(64), batch_size=None)  # all epochs, without an end
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import read_mask_as
from bertprep.errors import BertprepError, UsageError
from bertprep.instances.document_tokenizer import MANY_LONG_WORDS, MAX_WORD_TOKENS, share_in_long_words
from bertprep.kernels import numbers as n
from bertprep.records.columns import Columns
from bertprep.records.record_dataset import ColumnDataset, RecordBatch, Row, stack_rows
from bertprep.terminal import warn
from bertprep.tokens.documents import open_token_documents
from bertprep.tokens.order import RowIds, ShardOrder, check_epoch, locate_batches, whole_numbers
from bertprep.tokens.packed_models import PackedModel, attention_masks, packed_model
from bertprep.tokens.packing import Windows
from bertprep.work.layout import TRAINING

if TYPE_CHECKING:
    from bertprep.tokens.stream import TokenStream

SEQUENTIAL = (
    "rows come shuffled already: take TrainingArguments(train_sampling_strategy='sequential'), or DataLoader(shuffle=False)"
)
"""What to do about a sampler that shuffles."""
Batch: TypeAlias = dict[str, Any]
"""Columns of (rows, seq), and of packed rows `cu_seqlens` and `max_seqlen`."""
WINDOWS_IN_GROUP = 16
"""Windows whose rows are shuffled together."""
_ROW_BITS = 32  # of a window, in the key of a row's masks
_SPAN_PROBABILITY = 0.2
_SETTINGS = "seq", "masked_lm_prob", "mask_as", "whole_word", "span", "packed", "objective", "first_position", "seed"
"""What rows depend on, besides the documents."""
_MAX_POSITION = (1 << 31) - 1
_FIRST_TOKENS = 1 << 16  # in which long words are counted


class TokenRows(ColumnDataset):
    """Rows of token sequences in the order of an epoch: batches of them, as arrays, as tensors, and as a stream."""

    seq: int
    packed: bool
    first_position: int
    """The position id of the first token of a sequence."""
    objective: Literal["mlm", "clm"] = "mlm"
    epoch: int
    _settled: frozenset[str] = frozenset()
    """What cannot be changed any more: rows were, or may have been, made with it."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Raise `AttributeError` for a setting, which would have no effect, or on some of the rows alone."""
        if name in self._settled:
            advice = "set_epoch takes another" if name == "epoch" else "make another with it"
            raise AttributeError(f"{name} of a {type(self).__name__} cannot be changed; {advice}")
        super().__setattr__(name, value)

    def _settle(self, *names: str) -> None:
        """Let these attributes be as they are for ever; `epoch` changes by `set_epoch` alone."""
        self._settled = frozenset((*names, "epoch"))

    def set_epoch(self, epoch: int) -> None:
        """Let `dataset[position]` be of another epoch; raises `ValueError` for one that there cannot be."""
        self.__dict__["epoch"] = check_epoch(epoch, self)

    @property
    def _where(self) -> str:
        return repr(self)

    @property
    def made_of(self) -> dict[str, Any]:
        """All that rows depend on."""
        raise NotImplementedError

    def row_ids(self, positions: NDArray[np.int64]) -> Any:
        """Return which rows come at positions, counted over all epochs, an array of any shape."""
        raise NotImplementedError

    def rows(self, ids: Any) -> Columns:
        """Return the columns of some rows, which `row_ids` gives."""
        raise NotImplementedError

    def __getitems__(self, rows: Sequence[int] | NDArray[Any]) -> RecordBatch:
        """Return the rows at these positions: what a `DataLoader` asks for, in ascending order unless it shuffles."""
        positions = self._select(rows)
        if np.count_nonzero(positions[1:] < positions[:-1]) > 1:  # once is where a sampler begins again to fill a batch
            self._take_in_random_order(positions)
        return RecordBatch(self._read(positions))

    def _take_in_random_order(self, positions: NDArray[np.int64]) -> None:
        """Refuse, or remark on, positions of a batch in random order; rows come shuffled already."""

    def batches(
        self, size: int, *, first: int = 0, stop: int | None = None, step: int = 1, rows: range | None = None
    ) -> Iterator[Batch]:
        """Return an iterator of batches first, first + step ... below `stop`, or endlessly; of each its `rows`, or all.

        Batch n has the positions from n * size on, counted over all epochs. Raises `ValueError` where none is `first`.
        """
        batches = locate_batches(self.row_ids, size, first=first, stop=stop, step=step, rows=rows)
        return (self._with_boundaries(self.rows(ids)) for ids in batches)

    def stream(self, batch_size: int, *, rank: int = 0, world: int = 1) -> TokenStream:
        """Return an IterableDataset of batches of tensors for `rank` of `world`; needs PyTorch.

        Batch n is rows rank * batch_size to (rank + 1) * batch_size - 1 of batch n of `batches(batch_size * world)`.
        """
        from bertprep.tokens.stream import TokenStream  # which imports torch

        return TokenStream(self, batch_size, rank=rank, world=world)

    def collate(self, batch: RecordBatch | Sequence[Row]) -> Batch:
        """Return rows as a batch of tensors: `DataLoader(dataset, batch_size=64, collate_fn=dataset.collate)`."""
        return self.to_tensors(self._with_boundaries(stack_rows(batch)))

    def collate_for(self, config: Any) -> Callable[..., Batch]:
        """Return the collator for a model of transformers, given it or its config: its arguments, packed sequences kept apart.

        Positions begin where the model's own do, whatever `first_position` is. Raises `UsageError` for types of models, and
        kinds of attention, with which packed rows were not tested.
        """
        if not self.packed:
            return self.collate
        model = packed_model(getattr(config, "config", config), seq=self.seq, objective=self.objective)
        return partial(self._collate_for, model)

    def _collate_for(self, model: PackedModel, rows: RecordBatch | Sequence[Row]) -> Batch:
        batch = self.collate(rows)
        return model.arguments(batch, first_position=self.first_position, is_causal=self.objective == "clm")

    @staticmethod
    def to_tensors(batch: Batch) -> Batch:
        """Return a batch with tensors in place of arrays, which share their memory."""
        import torch

        return {name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in batch.items()}

    def attention_masks(self, batch: Mapping[str, Any], sliding_window: int | None = None) -> Any:
        """Return which tokens of packed rows attend to which, those of their sequence: bool, (rows, 1, seq, seq).

        Encoders of transformers take it as `attention_mask` unless they use FlashAttention. With the `sliding_window` of a
        ModernBERT's config it is a dict of the two masks that this model takes.
        """
        starts = batch["position_ids"] == self.first_position
        return attention_masks(starts, is_causal=self.objective == "clm", sliding_window=sliding_window)

    def _with_boundaries(self, columns: Columns) -> Batch:
        if not self.packed:
            return columns
        positions = columns["position_ids"].ravel()
        boundaries = np.append(np.flatnonzero(positions == self.first_position), positions.size).astype(np.int32)
        return {**columns, "cu_seqlens": boundaries, "max_seqlen": int(np.diff(boundaries).max(initial=0))}


class TokenDataset(TokenRows):
    """The rows of an epoch of a split of token shards, as the columns that transformers' models take; any thread may read.

    Columns are int64: `input_ids`, `labels` (-100 where nothing is predicted); of packed rows `position_ids`, which restart
    with each sequence, and `sequence_ids`, which count them, padding as one of its own; else `attention_mask`.
    `dataset[position]` is a row in the order of an epoch, the first or that of `set_epoch`, or of those that follow. All epochs
    have as many.
    """

    def __init__(
        self,
        data: Path | str,
        split: str = TRAINING,
        *,
        seq: int = 1024,
        masked_lm_prob: float = 0.3,
        mask_as: tuple[float, float, float] = (0.8, 0.1, 0.1),
        whole_word: bool = False,
        span: int | None = None,
        packed: bool = True,
        objective: Literal["mlm", "clm"] = "mlm",
        first_position: int = 0,
        epochs: int = 1,
        seed: int = 12345,
        vocab: Path | str | None = None,
        verify: bool = False,
    ) -> None:
        """`mask_as` are the shares of predicted tokens that become [MASK], become a random token, and stay as they are.

        `span` is the most whole words that are masked together, 10 for SpanBERT. `collate_for` sets `first_position`. The
        objective "clm" gives the labels of causal language models. `len` counts `epochs`, each masked anew, for what does not
        call `set_epoch`. `vocab` is for token shards of sentences without one. `verify` reads all files first, and raises
        `BertprepError` for one whose checksum is not that of the manifest.
        """
        self.documents = open_token_documents(data, split, vocab, verify=verify)
        self.folder, self.split, self.seq, self.packed, self.seed = self.documents.folder, split, seq, packed, seed
        self.objective, self.first_position = objective, first_position
        self.masked_lm_prob, self.mask_as, self.epochs = masked_lm_prob, mask_as, epochs
        self.whole_word, self.span = whole_word or span is not None, span
        self._check_numbers()
        self._check_settings()
        self.epoch = 0
        self._open()
        if self.masks_words and (share := self._share_in_long_words) > MANY_LONG_WORDS:
            warn(
                f"{self.folder}: {share:.0%} of its first tokens are in words of more than {MAX_WORD_TOKENS} tokens "
                f"by the rule {self.documents.tokenizer.words}, so they are masked token by token"
            )
        self._settle(*_SETTINGS, "documents", "folder", "split", "epochs")

    def _check_numbers(self) -> None:
        for name, least in (("seq", 1), ("span", 1), ("epochs", 1), ("first_position", 0), ("seed", 0)):
            value = getattr(self, name)
            if name == "span" and value is None:
                continue
            if not isinstance(value, Integral):
                raise UsageError(f"{name} {value!r}: expected a whole number")
            if value < least:
                raise UsageError(f"{name} {value}: must be at least {least}")
            if name == "first_position" and int(value) > _MAX_POSITION:
                raise UsageError(f"{name} {value}: must be at most {_MAX_POSITION:,}")
            setattr(self, name, int(value))
        if not isinstance(self.masked_lm_prob, Real) or not 0 < self.masked_lm_prob < 1:
            raise UsageError(f"masked_lm_prob {self.masked_lm_prob!r}: expected a share above 0 and below 1")
        self.masked_lm_prob = float(self.masked_lm_prob)
        self.mask_as = read_mask_as(self.mask_as, f"mask_as {self.mask_as}")

    def _check_settings(self) -> None:
        tokenizer, where = self.documents.tokenizer, f"{self.folder}: its tokenizer {self.documents.tokenizer.name}"
        self._longest = self.seq - tokenizer.added_tokens
        if self._longest < 1:
            raise UsageError(f"seq {self.seq}: must be at least {tokenizer.added_tokens + 1}")
        if self.objective not in ("mlm", "clm"):
            raise UsageError(f"objective {self.objective!r}: expected 'mlm' or 'clm'")
        if self.objective == "mlm" and tokenizer.mask is None:
            raise UsageError(
                f"{where} has no mask token, which masked LM needs; take one that has, or objective='clm' of TokenDataset"
            )
        if self.objective == "mlm" and len(tokenizer.special) >= tokenizer.width:
            raise UsageError(f"{where} has special tokens alone; expected others, which can be masked")

    def _open(self) -> None:
        self._windows = Windows(self.documents, seq=self.seq, packed=self.packed)
        self._order = ShardOrder(len(self._windows), self._windows.counts, seed=self.seed, group=WINDOWS_IN_GROUP)
        self._row_settings, self._of_thread = self._make_row_settings(), threading.local()

    def __getstate__(self) -> dict[str, Any]:
        own = "_windows", "_order", "_row_settings", "_of_thread"
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def __repr__(self) -> str:
        documents = self.documents.documents
        return f"TokenDataset({self.folder}: {documents:,} documents, rows of {self.seq} tokens, {self.masks})"

    def close(self) -> None:
        """Give the memory of windows back; what is asked for later is made again."""
        self._windows.close()

    def __len__(self) -> int:
        return self.epochs * self._order.rows_in_epoch

    @property
    def masks_words(self) -> bool:
        """Whether labels are of whole words, as far as words fit."""
        return self.whole_word and self.objective == "mlm"

    @property
    def masks(self) -> str:
        """What is masked, in words: tokens, or whole words and by which rule they were found."""
        if self.objective == "clm":
            return "no masks"
        if not self.whole_word:
            return f"{self.masked_lm_prob:.3g} of the tokens masked"
        rule = self.documents.tokenizer.words
        found = f"{self.masked_lm_prob:.3g} of the tokens masked by whole words (rule {rule})"
        share = self._share_in_long_words
        return f"{found}, {share:.0%} token by token" if share > MANY_LONG_WORDS else found

    @cached_property
    def _share_in_long_words(self) -> float:
        """The share of the first tokens that are in words too long to be masked as such."""
        shard, table = self.documents.shards[0], self.documents.begins_word
        first = min(_FIRST_TOKENS, shard.sizes[1])
        if table is not None:
            return share_in_long_words(table.take(shard.mapped[:first], mode="clip"))  # which are not checked yet
        assert shard.words is not None
        return share_in_long_words(np.unpackbits(shard.words[: -(-first // 8)], count=first, bitorder="little") == 1)

    @property
    def most_predictions(self) -> int:
        """The most labels of a row other than -100."""
        return self.seq - 1 if self.objective == "clm" else int(self._row_settings["predictions"][self._longest])

    @property
    def made_of(self) -> dict[str, Any]:
        """All that rows depend on."""
        settings = {name: getattr(self, name) for name in _SETTINGS}
        return {"rows": 2 if self.masks_words else 1, "documents": self.documents.sha256, "settings": settings}

    @property
    def sha256(self) -> str:
        """Of all that rows depend on."""
        return hashlib.sha256(json.dumps(self.made_of, sort_keys=True).encode()).hexdigest()

    # --- rows

    def _make_row_settings(self) -> dict[str, Any]:
        """Return the arguments of the kernel that are the same for all rows."""
        tokenizer = self.documents.tokenizer
        is_special = np.zeros(tokenizer.width, np.uint8)
        is_special[list(tokenizer.special)] = 1
        table = self.documents.begins_word
        predictions = np.rint(self.masked_lm_prob * np.arange(self.seq + 1)).astype(np.int32)
        predictions[1:] = np.maximum(predictions[1:], 1)
        up_to = 1 - (1 - _SPAN_PROBABILITY) ** np.arange(1, (self.span or 1) + 1)
        masked, random, _ = self.mask_as
        ids = {name: n.NO_TOKEN if (found := getattr(tokenizer, name)) is None else found for name in ("cls", "sep", "mask")}
        return {
            **ids,
            "pad": tokenizer.pad if tokenizer.pad is not None else max(ids["sep"], 0),  # any will do: nothing attends to it
            "seq": self.seq,
            "first_position": self.first_position,
            "is_causal": int(self.objective == "clm"),
            "width": tokenizer.width,
            "is_special": is_special,
            "predictions": predictions,
            "whole_words": int(self.whole_word),
            "longest_word": MAX_WORD_TOKENS,
            "begins_word": is_special if table is None else table.view(np.uint8),  # read only where there is a table
            "mask_below": round(masked * 2**32),
            "random_below": round((masked + random) * 2**32),
            "longest_span": self.span or 1,
            "span_below": np.rint(up_to / up_to[-1] * 2**32).astype(np.int64),
        }

    def _take_in_random_order(self, positions: NDArray[np.int64]) -> None:
        epochs = np.unique(positions // (len(self) // self.epochs)).tolist()
        if len(epochs) > 1:
            raise UsageError(f"{self}: a batch has rows of the epochs {', '.join(map(str, epochs))}, mixed; {SEQUENTIAL}")

    def row_ids(self, positions: NDArray[np.int64]) -> RowIds:
        """Return which rows come at positions, counted over all epochs."""
        return self._order.locate(positions)

    def _read(self, numbers: NDArray[np.int64]) -> Columns:
        return self.rows(self._order.locate(numbers + self.epoch * self._order.rows_in_epoch))

    def rows(self, ids: RowIds) -> Columns:
        """Return the columns of some rows, of arrays of one dimension; raises `IndexError` for one that there is not."""
        if not isinstance(ids, RowIds):
            raise TypeError(f"{self}: rows are named by RowIds, which row_ids of positions gives; found {type(ids).__name__}")
        epochs, shards, rows = (whole_numbers(each, "rows of a TokenDataset") for each in (ids.epochs, ids.shards, ids.rows))
        if not epochs.shape == shards.shape == rows.shape == (rows.size,):
            raise TypeError(f"{self}: rows are named by arrays of one dimension; found the shape {rows.shape}")
        of_batch, indices = np.unique(shards, return_inverse=True)
        windows = [self._windows.get(window) if window < len(self._windows) else None for window in of_batch.tolist()]
        is_wrong = rows >= np.array([len(window or ()) for window in windows], np.int64)[indices]
        if is_wrong.any():
            raise IndexError(
                f"{self}: there is no row {rows[is_wrong][0]:,} of window {shards[is_wrong][0]:,}; dataset.row_ids gives all"
            )
        table = np.array([window.addresses for window in windows if window], np.int64).reshape(-1, n.WINDOW_WIDTH)
        input_ids, labels, position_ids, sequence_ids = (np.empty((len(rows), self.seq), np.int64) for _ in range(4))
        keys = self._keys(epochs, shards, rows)
        filled = self._fill_rows(
            table, indices.astype(np.int64), rows, keys, len(rows), input_ids, labels, position_ids, sequence_ids
        )
        if filled < len(rows):
            self._check_ids(int(shards[filled]), int(rows[filled]))
            raise BertprepError(f"{self}: its settings were changed after it was made; make another")
        if not self.packed:
            return {"input_ids": input_ids, "attention_mask": (sequence_ids == 0).astype(np.int64), "labels": labels}
        return {"input_ids": input_ids, "labels": labels, "position_ids": position_ids, "sequence_ids": sequence_ids}

    @property
    def _fill_rows(self) -> Callable[..., int]:
        """The kernel with the settings of all rows, and scratch memory of this thread."""
        if not hasattr(self._of_thread, "fill_rows"):
            scratch = {"words": np.empty((3, self.seq + 1), np.int32), "state": np.empty(1, np.uint64)}
            self._of_thread.fill_rows = kernels.load().fill_rows.bind({**self._row_settings, **scratch})
        return cast(Callable[..., int], self._of_thread.fill_rows)

    def _keys(self, epochs: NDArray[np.int64], windows: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the key of each row's masks: a hash of the epoch, with window and row, which the kernel hashes."""
        keys = ((windows << _ROW_BITS) + rows).astype(np.uint64)
        for epoch in np.unique(epochs).tolist():
            digest = hashlib.sha256(f"{self.seed} {epoch}".encode()).digest()
            keys[epochs == epoch] ^= np.uint64(int.from_bytes(digest[:8], "little"))
        return keys

    def _check_ids(self, number: int, row: int) -> None:
        window, shard = self._windows.get(number), self._windows.shard_of(number)
        for sequence in range(window.row_starts[row], window.row_starts[row + 1]):
            begin, size = int(window.begins[sequence]), int(window.sizes[sequence])
            shard.check_ids(window.tokens[begin : begin + size], begin)
