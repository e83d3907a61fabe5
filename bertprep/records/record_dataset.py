"""Provides records of any format as a map-style data set for PyTorch's `DataLoader` and transformers' `Trainer`.

    loader = DataLoader(RecordDataset("data/..."), batch_size=256, shuffle=True)

One call of the compiled reader gathers a batch from any of the files. Workers share mapped files. Parquet, gzip and the Arrow
files of other tools take memory in every worker, so convert them to Arrow first.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast, overload

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import as_path
from bertprep.records.columns import COLUMNS, Columns, NoColumnsError, to_columns
from bertprep.records.examples import Examples
from bertprep.records.open_file import Closing
from bertprep.records.records import Records, Selection, is_index, select_records

if TYPE_CHECKING:
    import torch

_BLOCK = 256
Row: TypeAlias = dict[str, Any]
"""A record: column name -> array (seq,) or a NumPy number."""


class RecordBatch(Sequence[Row]):
    """Some records as a sequence of rows. `columns` has the arrays, (n, seq) or (n,); a row is made on access, of views."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @overload
    def __getitem__(self, row: int) -> Row: ...
    @overload
    def __getitem__(self, row: slice) -> RecordBatch: ...
    def __getitem__(self, row: int | slice) -> Row | RecordBatch:
        rows = {name: array[row] for name, array in self.columns.items()}
        return RecordBatch(rows) if isinstance(row, slice) else rows

    def __iter__(self) -> Iterator[Row]:
        columns = self.columns.items()
        return ({name: array[row] for name, array in columns} for row in range(len(self)))


def stack_rows(batch: RecordBatch | Sequence[Mapping[str, Any]]) -> Columns:
    """Return the columns of a batch or of a list of rows; raises `ValueError` for an empty list."""
    if isinstance(batch, RecordBatch):
        return batch.columns
    if not batch:
        raise ValueError("collate: the batch is empty, expected at least one record")
    return {name: np.stack([row[name] for row in batch]) for name in batch[0]}


class ColumnDataset(Closing):
    """A base class for map-style data sets of PyTorch, whose rows are made from columns."""

    def __len__(self) -> int:
        raise NotImplementedError

    def _columns(self, rows: Selection) -> Columns:
        """Return the columns of the selected rows; call `select_records` to refuse an invalid selection."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), _BLOCK):
            yield from self.__getitems__(range(start, min(start + _BLOCK, len(self))))

    @overload
    def __getitem__(self, rows: int) -> Row: ...
    @overload
    def __getitem__(self, rows: Selection) -> Columns: ...
    def __getitem__(self, rows: int | Selection) -> Row | Columns:
        """Return one row for an index, or columns for a slice, a mask, or a list or array of indices, in their order."""
        if is_index(rows):
            return RecordBatch(self._columns([operator.index(rows)]))[0]
        return self._columns(_as_selection(rows))

    def __getitems__(self, rows: Sequence[int] | NDArray[Any]) -> RecordBatch:
        """Return the rows with these indices; `DataLoader` passes them to its `collate_fn`."""
        return RecordBatch(self._columns(_as_selection(rows)))


def _as_selection(rows: object) -> Selection:
    """Return a selection of rows; a tuple, which some samplers pass, becomes a list."""
    return list(rows) if isinstance(rows, tuple) else cast(Selection, rows)


class RecordDataset(ColumnDataset):
    """The records in one split of data folders or files, as the columns that models of transformers accept.

    Columns are NumPy arrays of int64 (float32 for regression labels): `input_ids`, `token_type_ids`, `attention_mask` and, for
    pretraining, `labels` (-100 where nothing is predicted) and `next_sentence_label`. `dataset[i]` is a row; `dataset[a:b]`,
    `dataset[[i, j]]` and `dataset[mask]` are columns. Threads may share a data set; worker processes open the files themselves.
    """

    def __init__(self, data: Path | str | Sequence[Path | str], split: str = "train") -> None:
        """Open folders or files whose records have one kind and shape; `split` is "train", "test" or "validation", for example.

        Raises `BertprepError` for files that cannot be read or do not match, and `UsageError` if there is no such split.
        """
        if isinstance(data, str | os.PathLike):
            data = [data]
        elif not isinstance(data, Iterable):
            raise TypeError(f"data is {data!r:.40}, expected the path of a folder or file of records, or a list of paths")
        if not isinstance(split, str):
            raise UsageError(f"split {split!r:.80}: expected the name of a split, such as 'train'")
        self._paths, self._split = [as_path(path) for path in data], split
        records = Records(self._paths, split, is_own_name=True)
        self._shape, self._count = records.shape, len(records)
        self._records: Records | None = records
        self._process = os.getpid()

    def close(self) -> None:
        """Release the memory of the files."""
        if self._records is not None and self._process == os.getpid():  # a forked child must not use its parent's lock
            self._records.close()

    def __repr__(self) -> str:
        return (
            f"RecordDataset({', '.join(map(str, self._paths))}: {self._count:,} {self.kind.title} records of {self.seq} tokens)"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_records"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _records=None)  # `_open` opens the files again

    @property
    def kind(self) -> type[Examples]:
        """Return the class of the records, such as `PretrainingExamples` or `SquadExamples`."""
        return self._shape.kind

    @property
    def seq(self) -> int:
        return self._shape.seq

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in COLUMNS[self.kind]]

    def __len__(self) -> int:
        return self._count

    @staticmethod
    def collate(batch: RecordBatch | Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Return a batch as tensors that share its arrays.

        Use it as `DataLoader(dataset, batch_size=256, collate_fn=RecordDataset.collate)`.
        """
        columns = stack_rows(batch)
        import torch  # may not be installed where this is not called

        return {name: torch.from_numpy(array) for name, array in columns.items()}

    def _columns(self, rows: Selection) -> Columns:
        records = self._open()
        examples = records[rows]
        try:
            return to_columns(examples)
        except NoColumnsError as error:
            index = int(select_records(rows, len(records), records.path)[error.row])
            path, record = records.origin_of(index)
            raise BertprepError(f"{path}: record {record}: {error}; bertprep.records.open can read it unchanged") from error

    def _open(self) -> Records:
        """Return the records, opened by this process, because a forked worker must not share its parent's lock."""
        if self._records is None or self._process != os.getpid():
            records = Records(self._paths, self._split, is_own_name=True)
            if (records.shape, len(records)) != (self._shape, self._count):
                raise BertprepError(
                    f"{self._paths[0]}: has {len(records):,} {records.shape}, expected {self._count:,} {self._shape} as when "
                    "the data set was opened; start again, and do not change the data during a run"
                )
            self._records, self._process = records, os.getpid()
        return self._records
