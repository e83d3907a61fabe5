"""Read rows of tokens as batches, as a stream or as the arguments of a model: the base class of `TokenDataset` and `Mixture`.

Batch n of a run has the rows at positions n * size to (n + 1) * size - 1; `bertprep.tokens.order` defines positions. Any number
of readers can therefore start at any batch. Positions are looked up some 4,096 at a time, since a lookup takes 80 microseconds
plus 0.1 per position.

`data_set[i]` is not the row at position i: an index has the same documents in every epoch, and a position has not.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bertprep.errors import UsageError
from bertprep.records.columns import Columns
from bertprep.records.record_dataset import ColumnDataset, RecordBatch, Row, stack_rows
from bertprep.records.records import Selection, select_records
from bertprep.tokens.epoch import Epoch
from bertprep.tokens.order import check_epoch, checked_positions
from bertprep.tokens.packed_models import SEQUENCE_IDS, Boundaries, attention_masks, check_sizes, models_in, prepare
from bertprep.tokens.row_state import check_rows, check_state, state_of_rows
from bertprep.tokens.sampler import Position, TokenSampler
from bertprep.work.format import FORMAT

if TYPE_CHECKING:
    from bertprep.tokens.stream import TokenStream

Batch: TypeAlias = dict[str, Any]
"""Columns of shape (rows, seq); packed rows also have `cu_seqlens` and `max_seqlen`."""
_POSITIONS_AT_ONCE = 4096
MAX_BATCH_TOKENS = 1 << 28
"""The largest accepted batch: its arrays have 8 bytes per token, so a larger number is probably a typo."""


def batch_positions(
    size: int, *, first: int = 0, stop: int | None = None, step: int = 1, rows: range | None = None, start: int = 0
) -> Iterator[NDArray[np.int64]]:
    """Return an iterator over the positions in batches first, first + step ... below `stop`, or endless without `stop`.

    Batch 0 begins at position `start`. Each array covers several batches: (batches, rows). With `rows`, it has only these rows
    of each batch. Raises `ValueError` if there can be no batch `first`.

    >>> next(batch_positions(4, first=10, stop=13, rows=range(2))).tolist()
    [[40, 41], [44, 45], [48, 49]]
    """
    for name, number in (("batch size", size), ("first batch", first)):
        if not isinstance(number, Integral):
            raise ValueError(f"{name} {number!r:.80}: expected a whole number")
    if size < 1 or first < 0:
        raise ValueError(f"batch size {size:,}, first batch {first:,}: expected at least 1 and at least 0")
    most = (sys.maxsize - start) // size  # positions of later batches would overflow int64
    if first >= most:
        raise ValueError(f"first batch {first:,}: expected a number below {most:,} for batches of {size:,} rows")
    batches = range(first, most if stop is None else min(stop, most), step)
    own = np.arange(size) if rows is None else np.arange(size)[rows.start : rows.stop]
    at_once = max(1, _POSITIONS_AT_ONCE // size)
    blocks = (np.array(batches[block : block + at_once]) for block in range(0, len(batches), at_once))
    return (start + block[:, None] * size + own for block in blocks)


def _as_wide(values: NDArray[Any], longest: int) -> NDArray[Any]:
    """Trim a column (rows, seq) to the longest row, contiguous so that tensors can have views; return (rows,) unchanged."""
    return values if values.ndim == 1 else np.ascontiguousarray(values[:, :longest])


class TokenRows(ColumnDataset):
    """Rows of `seq` tokens, by index in the current epoch, which `set_epoch` changes, or by position in the run."""

    seq: int
    packed: bool
    first_position: int
    """The position id of the first token of a sequence."""
    objective: Literal["mlm", "clm"] = "mlm"
    _epoch: Epoch
    _fixed: frozenset[str] = frozenset()
    """The attributes that can no longer be changed, since rows may have been made with them."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; raise `AttributeError` for a setting, since a change would affect no rows or only some of them."""
        if name in self._fixed:
            advice = "call set_epoch" if name == "epoch" else "make another with it"
            raise AttributeError(f"{name} of a {type(self).__name__} cannot be changed; {advice}")
        super().__setattr__(name, value)

    def _fix(self, *names: str) -> None:
        """Make these attributes read-only, and `epoch` too, which only `set_epoch` changes from then on."""
        self._fixed = frozenset((*names, "epoch"))

    @property
    def epoch(self) -> int:
        """The current epoch; copies of a data set and the workers of a DataLoader share it."""
        return self._epoch.number

    def set_epoch(self, epoch: int) -> None:
        """Give `data_set[i]` the masks of this epoch, and samplers its order; it counts passes over all `len` rows.

        Raises `ValueError` for a negative or too large number.
        """
        self._epoch.choose(check_epoch(epoch, self))

    # --- what a subclass defines

    @property
    def made_of(self) -> dict[str, Any]:
        """Everything that the rows depend on, as plain data."""
        raise NotImplementedError

    @cached_property
    def sha256(self) -> str:
        """The sha256 of everything that the rows depend on."""
        return hashlib.sha256(json.dumps(self.made_of, sort_keys=True).encode()).hexdigest()

    @property
    def rows_in_epoch(self) -> int:
        raise NotImplementedError

    @property
    def _tokenizer_width(self) -> int:
        """The largest id that a token can have, plus one."""
        raise NotImplementedError

    def _read(self, positions: NDArray[np.int64]) -> Columns:
        """Return the columns of the rows at these positions: (n,)."""
        raise NotImplementedError

    def _lengths(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of tokens, without padding, in each of the rows at these positions: (n,); not for packed rows."""
        raise NotImplementedError

    @property
    def _use_of_order(self) -> str:
        """What another order of an epoch's rows would destroy, so that they have no plain indices; empty if nothing."""
        raise NotImplementedError

    def _read_indices(self, indices: NDArray[np.int64]) -> Columns:
        """Return the columns of the rows with these indices: (n,); called only if any order will do."""
        raise NotImplementedError

    def _read_batches(self, positions: NDArray[np.int64]) -> Iterator[Columns]:
        """Yield the columns of one batch after another, given their positions: (batches, rows)."""
        return map(self._read, positions)

    @property
    def column_names(self) -> list[str]:
        """The names of the columns in their order; `batches` of packed rows also have `cu_seqlens` and `max_seqlen`."""
        return [*self._read(np.empty(0, np.int64))]

    # --- the state of a data set

    def state_dict(self) -> dict[str, Any]:
        """Return the format, the epoch and what the rows depend on (documents, masks, seed); the sampler has the position."""
        return {"format": FORMAT, "epoch": self.epoch, "rows": state_of_rows(self.made_of)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the epoch to that of a state; {"epoch": n} alone is enough.

        The state of a checkpoint does not take back a later epoch that `set_epoch` has chosen: a loader may restore it after
        the program has said which epoch comes. Raises `UsageError` for a state of other rows or a value that is not a state,
        `FormatError` for a state of another format, and `ValueError` for an impossible epoch.
        """
        check_state(state, "epoch")
        epoch = state.get("epoch") if isinstance(state, Mapping) else None
        if not isinstance(epoch, int | np.integer):
            raise UsageError(f"state {state!r:.200}: expected the state of a data set, such as {{'epoch': 1}}")
        check_rows(state, state_of_rows(self.made_of))
        if "rows" in state:
            self._epoch.restore(check_epoch(int(epoch), self))
        else:
            self.set_epoch(int(epoch))

    # --- rows by position or index

    def rows(self, positions: ArrayLike) -> Columns:
        """Return the columns of the rows at `positions`, in the given order; positions count over all epochs."""
        return self._read(checked_positions(positions, f"{self}: rows"))

    @overload
    def __getitem__(self, rows: int | Position) -> Row: ...
    @overload
    def __getitem__(self, rows: Selection) -> Columns: ...
    def __getitem__(self, rows: int | Position | Selection) -> Row | Columns:
        """Return one row for an index or a sampler's position, or columns for a slice, a mask, or several indices."""
        if isinstance(rows, Position):
            return self.__getitems__([rows])[0]
        return super().__getitem__(rows)

    def __getitems__(self, rows: Sequence[int] | Sequence[Position] | NDArray[Any]) -> RecordBatch:
        """Return the rows with these indices or positions; `DataLoader` passes them to its `collate_fn`."""
        # A DataLoader does not tell a data set its collator, and a wrong one masks the rows again without an error. Only the
        # fetcher that calls this method has it.
        self._check_collator(getattr(sys._getframe(1).f_locals.get("self"), "collate_fn", None))
        if isinstance(rows, Position):
            raise UsageError(f"{self}: its sampler gives single rows; give it as sampler=, beside a batch_size")
        if len(rows) and isinstance(rows[0], Position):
            return RecordBatch(self.rows(self._in_run(cast(Sequence[Position], rows))))
        return super().__getitems__(cast(Sequence[int], rows))

    def _in_run(self, batch: Sequence[Position]) -> NDArray[np.int64]:
        """Return the positions of a batch in the run; raise `UsageError` if they are of other rows, or shuffled again."""
        if batch[0].rows != self.sha256:
            raise UsageError(f"{self}: is read with the sampler of another data set; give its DataLoader its own sampler()")
        positions = np.array([position.in_run for position in batch])
        is_back = positions[1:] < positions[:-1]  # once is a framework that fills a last batch from the beginning
        if np.count_nonzero(is_back) > 1 and self._use_of_order:
            raise UsageError(
                f"{self}: has {self._use_of_order}, and something shuffles the rows of its sampler again; with several "
                "processes of Lightning, give its Trainer use_distributed_sampler=False, and "
                "sampler(rank=trainer.global_rank, world=trainer.world_size) to the DataLoader"
            )
        return positions

    def _check_collator(self, collator: Any) -> None:
        """Raise `UsageError` for a collator of transformers, which would mask rows again, or lose where sequences end."""
        collator = getattr(collator, "data_collator", collator)  # the Trainer's own is around it
        is_function = hasattr(collator, "__qualname__")
        kinds = [collator] if is_function else type(collator).__mro__
        names = [kind.__name__ for kind in kinds if kind.__module__ == "transformers.data.data_collator"]
        if not names or names[0] == "DataCollatorMixin" or (names[0] == "default_data_collator" and not self.packed):
            return
        raise UsageError(
            f"{self}: its rows have masks and labels already, and {names[0]} would mask them again, or lose where sequences "
            "end; give the Trainer data_collator=dataset.collate_for(model)"
        )

    def _columns(self, rows: Selection) -> Columns:
        indices = select_records(rows, len(self), repr(self))
        if self._use_of_order:
            raise UsageError(
                f"{self}: has {self._use_of_order}, which needs the order of an epoch, and an index has none; use stream(), or "
                "DataLoader(dataset, sampler=dataset.sampler(), ...)"
            )
        return self._read_indices(indices)

    def sampler(self, *, rank: int = 0, world: int = 1) -> TokenSampler:
        """Return a sampler of the current epoch's rows in its order, for `DataLoader(sampler=...)`.

        Its indices know their epoch, so workers need not. With rank `rank` of `world` ranks, it has every `world`-th row.
        """
        return TokenSampler(self, rank=rank, world=world)

    # --- batches

    def batches(
        self, size: int, *, first: int = 0, stop: int | None = None, step: int = 1, rows: range | None = None, start: int = 0
    ) -> Iterator[Batch]:
        """Return an iterator over batches first, first + step ... below `stop`, or endless without `stop`.

        Batch n begins at position start + n * size, counted over all epochs. With `rows`, each batch has only these of its
        rows. Raises `ValueError` if there can be no batch `first`.
        """
        blocks = batch_positions(size, first=first, stop=stop, step=step, rows=rows, start=start)
        return (self._with_boundaries(columns) for block in blocks for columns in self._read_batches(block))

    def batches_of_tokens(
        self, tokens: int, *, first: int = 0, step: int = 1, start: int = 0, end: int | None = None
    ) -> Iterator[Batch]:
        """Return an iterator over batches first, first + step ... of at most `tokens` tokens each, padding included.

        A batch takes rows in order as long as their number times the longest of them is at most `tokens`. Rows begin at
        position `start`, and end before `end`, if there is one. All earlier batches are planned first, which takes some 20
        microseconds each. Raises `UsageError` for packed rows, which all have the same length, and if a row may have more than
        `tokens`.
        """
        if not isinstance(tokens, int | np.integer):
            raise UsageError(f"tokens {tokens!r:.80}: expected a whole number, such as 65_536")
        if self.packed:
            raise UsageError(
                f"tokens: packed rows all have {self.seq:,} tokens; give a batch size instead, {tokens // self.seq:,}"
            )
        if tokens < self.seq:
            raise UsageError(f"tokens {tokens:,}: expected at least {self.seq:,} for a batch, since a row may have that many")
        if tokens > MAX_BATCH_TOKENS:
            raise UsageError(f"tokens {tokens:,}: expected at most {MAX_BATCH_TOKENS:,} for a batch")
        batches = itertools.islice(self._plan_batches(tokens, start, end), first, None, step)
        return (self._with_boundaries(self._read(np.arange(begin, stop))) for begin, stop in batches)

    def _plan_batches(self, tokens: int, start: int, end: int | None) -> Iterator[tuple[int, int]]:
        """Yield the positions at which each batch of at most `tokens` tokens begins and stops; the last may have less."""
        begin, longest = start, 0
        last = sys.maxsize - _POSITIONS_AT_ONCE if end is None else end
        for block in range(start, last, _POSITIONS_AT_ONCE):
            lengths = self._lengths(np.arange(block, min(block + _POSITIONS_AT_ONCE, last)))
            for position, length in enumerate(lengths.tolist(), block):
                longest = max(longest, length)
                if longest * (position + 1 - begin) > tokens:
                    yield begin, position
                    begin, longest = position, length
        if begin < last:
            yield begin, last

    def stream(
        self,
        batch_size: int | None = None,
        *,
        rank: int = 0,
        world: int = 1,
        tokens: int | None = None,
        epochs: int | None = None,
    ) -> TokenStream:
        """Return an IterableDataset of batches of tensors for rank `rank` of `world` ranks; needs PyTorch.

        Batch n has the rows rank * batch_size to (rank + 1) * batch_size - 1 of batch n of `batches(batch_size * world)`. With
        `tokens` instead of a batch size, it is batch n * world + rank of `batches_of_tokens(tokens)`. With `epochs` the stream
        ends after these, and `len` counts its batches; rows that do not fill a last batch of all ranks are not read (a
        DataLoader of the data set itself reads them, for an evaluation).
        """
        from bertprep.tokens.stream import TokenStream  # imports torch

        return TokenStream(self, batch_size, rank=rank, world=world, tokens=tokens, epochs=epochs)

    def _with_boundaries(self, columns: Columns) -> Batch:
        """Add the boundaries of sequences to the columns of packed rows; trim the columns of others to the longest row."""
        if not self.packed:
            longest = int(columns["attention_mask"].sum(1).max(initial=1))
            return {name: _as_wide(values, longest) for name, values in columns.items()}
        positions = columns["position_ids"].ravel()
        boundaries = np.append(np.flatnonzero(positions == self.first_position), positions.size).astype(np.int32)
        return {**columns, "cu_seqlens": boundaries, "max_seqlen": int(np.diff(boundaries).max(initial=0))}

    def trainer_callback(self) -> Any:
        """Return a callback for transformers' Trainer that calls `set_epoch`, so each epoch has its own masks."""
        from bertprep.tokens.stream import make_epoch_callback  # imports torch

        return make_epoch_callback(self)

    # --- tensors

    def collate(self, batch: RecordBatch | Sequence[Row]) -> Batch:
        """Return a batch of tensors from rows: `DataLoader(dataset, batch_size=64, collate_fn=dataset.collate)`."""
        columns = stack_rows(batch)
        if self.packed and "position_ids" not in columns:
            raise UsageError(
                f"{self}: its rows come without position_ids, which tell sequences apart; give TrainingArguments("
                "remove_unused_columns=False), since the Trainer drops columns that are no arguments of the model"
            )
        if self.packed and SEQUENCE_IDS not in columns:  # dropped in the same way
            columns[SEQUENCE_IDS] = np.cumsum(columns["position_ids"] == self.first_position, axis=1)
        return self.to_tensors(self._with_boundaries(columns))

    def collate_for(self, model: Any) -> Callable[..., Batch]:
        """Return a collator that makes the arguments of a transformers model, and prepare the model for packed rows.

        A forward pre-hook of the model then makes its attention masks and positions on its own device, as its attention
        implementation needs them at each call; it acts only on batches of packed rows. A model without the hook fails. `model`
        may be inside another module, such as DDP or one of your own. Raises `UsageError` for a model with fewer positions or
        token ids than the rows have, and for a model type or an attention implementation with which packed rows were not
        tested.
        """
        models = models_in(model)
        for each in models:
            check_sizes(each, seq=self.seq, width=self._tokenizer_width, has_segments="token_type_ids" in self.column_names)
            if self.packed:
                prepare(each, objective=self.objective)
        if not self.packed:
            return self.collate
        if not models:
            raise UsageError(
                f"collate_for: {type(model).__name__} has no model of transformers in it, which could apply the boundaries of "
                "packed rows; give the model itself, call attention_masks(batch) in your own code, or use packed=False"
            )
        return self._collate_for_models

    def _collate_for_models(self, rows: RecordBatch | Sequence[Row]) -> Batch:
        batch = self.collate(rows)
        return {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}

    @staticmethod
    def to_tensors(batch: Batch) -> Batch:
        """Return a batch with tensors in place of its arrays, which share the memory; packed rows get their `Boundaries`."""
        import torch

        tensors = {name: torch.from_numpy(each) if isinstance(each, np.ndarray) else each for name, each in batch.items()}
        if SEQUENCE_IDS in tensors:
            tensors["attention_mask"] = Boundaries({SEQUENCE_IDS: tensors[SEQUENCE_IDS]})
        return tensors

    def attention_masks(self, batch: Mapping[str, Any], sliding_window: int | None = None) -> Any:
        """Return a mask by which the tokens of packed rows attend only to their own sequence: bool, (rows, 1, seq, seq).

        Encoders of transformers accept it as `attention_mask` unless they use FlashAttention. With the `sliding_window` of a
        ModernBERT config it is a dict of the two masks that this model expects.
        """
        sequence_ids = (batch["position_ids"] == self.first_position).cumsum(1)
        return attention_masks(sequence_ids, is_causal=self.objective == "clm", sliding_window=sliding_window)
