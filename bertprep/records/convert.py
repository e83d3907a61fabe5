"""Examples to record files, and records of some files to another: lossless, whatever the values are.

Records are read in blocks that stay in the processor's cache, encoded, hashed and written at once, so memory does not grow
with a file. Every value is decoded and every checksum verified on the way: what is damaged is not passed on. The bytes are
those that `create` makes of instances with the same values, so that a conversion there and back gives equal files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.config import DEFAULT_DIALECT, Dialect, RecordFormat
from bertprep.errors import BertprepError
from bertprep.records.columns import NoColumnsError
from bertprep.records.examples import Examples, rows_in_block
from bertprep.records.reader import RecordFile
from bertprep.records.write import WrittenFile, entry_of, write_examples
from bertprep.work.ledger import Entry
from bertprep.work.run import Maker

if TYPE_CHECKING:
    from bertprep.records.deal import Output

SAME_SETTINGS = "give files that were made with the same settings"
_BLOCK_TOKENS = 1 << 15  # of a block of records: what the arrays of it take fits into the processor's cache


@dataclass(frozen=True)
class Span:
    """Records of a file by their indices, or all of them where `records` is None."""

    path: Path
    records: range | NDArray[np.int64] | None = None


class RecordConverter(Maker):
    """Writes spans of record files as files of one format, until `close`; the argument of a task is an `Output`.

    It holds the file read last, of which the next span may be too: finding a record in the middle of a file takes a walk over
    all before it.
    """

    label, things = "convert", "files"

    def __init__(
        self,
        record_format: RecordFormat,
        dialect: Dialect = DEFAULT_DIALECT,
        labels: Sequence[str] = (),
        pred: int | None = None,
        *,
        tidies: bool = True,
    ) -> None:
        """`pred` is as in `RecordFile`, `tidies` as in `atomic_file`."""
        self._tidies = tidies
        self._format, self._dialect, self._labels, self._pred = record_format, dialect, labels, pred
        self._source: RecordFile | None = None
        self._indices: range | NDArray[np.int64] = range(0)  # of the records read last, in that file

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_source": None}

    def prepare(self) -> None:
        kernels.load()

    def make(self, argument: Output, paths: Mapping[str, Path]) -> dict[str, Entry]:
        ((name, path),) = paths.items()
        return {name: {**argument.entry, **entry_of(self.convert(argument.spans, path))}}

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {"records": entries[0]["examples"], "MB": entries[0]["bytes"] / 1e6}

    def convert(self, spans: Sequence[Span], path: Path) -> WrittenFile:
        """Write the records of `spans`, in their order, to `path`, which appears whole or not at all.

        Raises `BertprepError` for a record that is damaged, has another shape than the first or does not fit the format, and
        for a write that the system refuses.
        """
        try:
            return write_examples(self._blocks(spans), {self._format: path}, self._dialect, self._labels, tidies=self._tidies)[
                self._format
            ]
        except NoColumnsError as error:
            path = self._source.path if self._source else path
            raise BertprepError(
                f"{path}: record {self._indices[error.row]}: {error}; convert to TFRecord or OFRecord"
            ) from None

    def close(self) -> None:
        """Let the file read last go."""
        if self._source is not None:
            self._source.close()
        self._source = None

    def _blocks(self, spans: Sequence[Span]) -> Iterator[Examples]:
        room: Examples | None = None
        for span in spans:
            source = self._open(span.path)
            if room is None:
                rows = rows_in_block(max(1, _BLOCK_TOKENS // source.seq), seq=source.seq, pred=source.pred, kind=source.kind)
                room = source.kind.empty(rows, seq=source.seq, pred=source.pred)
            else:
                source.shape.check_same(source.path, room.shape, spans[0].path, SAME_SETTINGS)
            records = range(len(source)) if span.records is None else span.records
            for start in range(0, len(records), len(room)):
                self._indices = records[start : start + len(room)]
                source.gather_into(room, self._indices)
                yield room if len(self._indices) == len(room) else room[: len(self._indices)]

    def _open(self, path: Path) -> RecordFile:
        if self._source is None or self._source.path != path:
            self.close()
            self._source = RecordFile(path, pred=self._pred or None)
        return self._source
