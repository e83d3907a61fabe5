"""Documents sorted by the hash of their text, in files that are merged range by range: the large part of `--assign hash`.

A run is some tens of megabytes of documents, as they will be in the shards, in the order of their hashes, each once. The
documents of any range of hashes are one stretch of it, found by three short reads, so any worker can merge any range of all
runs: it reads the rows of the range, drops what repeats, and then reads the texts, some megabytes at a time. Memory does not
depend on the number of documents, and no file stays open. What is read is hashed again, so a damaged run is an error, never a
wrong shard.

    text                        the documents, each with its blank line
    rows    (n + 1, 4) uint64   hash (two numbers), end of its text, how often it occurred; the first row is zeros
    grid    (2**bits + 1) uint64    how many documents have a hash whose first bits are below each number
"""

import hashlib
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertprep.errors import BertprepError
from bertprep.files.atomic import AtomicFile, atomic_file, explain_write_error

HASHES = 1 << 64
"""The range of the first number of a hash, by which documents are sorted and dealt."""
RUN_BYTES = 32_000_000
"""What a run may take in memory: its text, and `_DOCUMENT_BYTES` for each document."""
BATCH_BYTES = 16_000_000
MOST_ROWS = 200_000
"""About as many rows are merged at once."""
_DOCUMENT_BYTES = 64
_ROW = np.dtype(("<u8", 4))
_ROWS_IN_GRID = 128
_WRITE_BYTES = 1_000_000
_DOCUMENT_END = b"\n\n"
Numbers = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]


def hash_document(text: bytes | memoryview) -> bytes:
    """The 16 bytes by which a document is known: the first of the sha256 of its lines, without the newline of the last.

    >>> hash_document(b"I came. I saw.").hex()
    '1dc041c21153e2e82f6ee658f6b1fd7a'
    """
    return hashlib.sha256(text).digest()[:16]


@dataclass(frozen=True)
class Run:
    """A finished run; `documents` are different ones, `copies` all that it was made of."""

    path: Path
    documents: int
    copies: int
    text_bytes: int  # of the different ones
    copied_bytes: int  # of all
    bits: int

    @classmethod
    def of(cls, path: Path, facts: dict[str, Any]) -> "Run":
        return cls(path, *(facts[name] for name in ("documents", "copies", "text_bytes", "copied_bytes", "bits")))

    @property
    def size_bytes(self) -> int:
        return self._grid_start + 8 * ((1 << self.bits) + 1)

    @property
    def _grid_start(self) -> int:
        return self.text_bytes + _ROW.itemsize * (self.documents + 1)

    def read_rows(self, low: int, high: int) -> tuple[Numbers, Offsets]:
        """The rows (n, 4) of the documents with hashes from `low` up to `high`, and where the text of each begins."""
        shift = 64 - self.bits
        with self._open() as descriptor:
            first, last = low >> shift, ((high - 1) >> shift) + 1
            grid = [self._read(descriptor, self._grid_start + 8 * at, 8) for at in (first, last)]
            start, stop = (int.from_bytes(number, "little") for number in grid)
            if not start <= stop <= self.documents:
                raise self._damaged("its grid is not in order")
            data = self._read(descriptor, self.text_bytes + _ROW.itemsize * start, _ROW.itemsize * (stop - start + 1))
        rows = np.frombuffer(data, "<u8").reshape(-1, 4).astype(np.uint64, copy=False)
        hashes, ends = rows[1:, 0], rows[:, 2]
        if (hashes[1:] < hashes[:-1]).any() or (ends[1:] <= ends[:-1]).any() or int(ends[-1]) > self.text_bytes:
            raise self._damaged("its rows are not in order")
        if ((rows[1:, 3] < 1) | (rows[1:, 3] > self.copies)).any():
            raise self._damaged("a document occurs more often than all together")
        a = int(np.searchsorted(hashes, np.uint64(low), side="left"))
        b = int(np.searchsorted(hashes, np.uint64(high - 1), side="right"))
        return rows[1 + a : 1 + b], ends[a:b].astype(np.int64)

    def read_text(self, spans: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """The bytes of each span of the text, (start, end)."""
        with self._open() as descriptor:
            for start, end in spans:
                yield self._read(descriptor, start, end - start)

    def _open(self) -> "_Opened":
        return _Opened(self.path)

    def _read(self, descriptor: int, start: int, size: int) -> bytes:
        data = os.pread(descriptor, size, start)
        while len(data) < size:
            if not (more := os.pread(descriptor, size - len(data), start + len(data))):
                raise self._damaged(f"it ends before byte {start + size:,}")
            data += more
        return data

    def _damaged(self, why: str) -> BertprepError:
        return damaged_run(self.path, why)


def damaged_run(path: Path, why: str) -> BertprepError:
    """The error about a run that is not as it was written."""
    return BertprepError(f"{path}: is damaged ({why}); remove {path.parent}, and the same command makes it again")


class _Opened:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> int:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise damaged_run(self._path, error.strerror or str(error)) from error
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class RunWriter:
    """Takes documents in any order, and writes them as runs of at most about `RUN_BYTES`."""

    def __init__(self, name: Callable[[int], Path]) -> None:
        """`name` gives the path of the n-th run."""
        self._name = name
        self.written: list[tuple[str, dict[str, Any]]] = []
        """The file names and facts of the runs so far."""
        self._begin()

    def _begin(self) -> None:
        self._text, self._ends, self._digests = bytearray(), array("q"), bytearray()

    def __len__(self) -> int:
        """The documents that are not written yet."""
        return len(self._ends)

    def add(self, lines: bytes | memoryview) -> None:
        """Add whole documents, each with its blank line."""
        at = len(self._text)
        self._text += lines
        with memoryview(self._text) as view:
            while at < len(view):
                end = self._text.index(_DOCUMENT_END, at)
                self._digests += hash_document(view[at:end])
                at = end + len(_DOCUMENT_END)
                self._ends.append(at)
        if len(self._text) + _DOCUMENT_BYTES * len(self._ends) >= RUN_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the rest as a run, even if there is none."""
        digests = np.frombuffer(bytes(self._digests), ">u8").reshape(-1, 2).astype(np.uint64)
        ends = np.array(self._ends, np.int64)
        order = np.lexsort((digests[:, 1], digests[:, 0]))
        chosen, copies = _first_of_equal(digests[order])
        order = order[chosen]
        starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
        path = self._name(len(self.written))
        with _NewRun(path, _bits_for(len(order))) as run, memoryview(self._text) as view:
            for texts, which in _in_blocks(view, starts[order], ends[order]):
                run.add(digests[order[which]], ends[order[which]] - starts[order[which]], copies[which], texts)
        self.written.append((path.name, run.facts()))
        self._begin()


def _in_blocks(view: memoryview, starts: Offsets, ends: Offsets) -> Iterator[tuple[bytes, slice]]:
    """The texts one after the other, about a megabyte at a time, and which they are."""
    sizes = np.cumsum(ends - starts)
    first = 0
    while first < len(sizes):
        before = int(sizes[first - 1]) if first else 0
        after = max(first + 1, int(np.searchsorted(sizes, before + _WRITE_BYTES, side="right")))
        spans = zip(starts[first:after].tolist(), ends[first:after].tolist(), strict=True)
        yield b"".join([view[start:end] for start, end in spans]), slice(first, after)
        first = after


def _bits_for(documents: int) -> int:
    return max(1, (documents // _ROWS_IN_GRID).bit_length())


def _first_of_equal(digests: Numbers) -> tuple[Offsets, Offsets]:
    """Of sorted rows, the indices of the first of equal ones, and how many are equal."""
    is_new = np.ones(len(digests), np.bool_)
    is_new[1:] = (digests[1:] != digests[:-1]).any(axis=1)
    first = np.flatnonzero(is_new)
    return first, np.diff(np.append(first, len(digests)))


class _NewRun:
    """Writes a run whose documents come sorted; rows and grid wait in a file without a name, since the text may be large."""

    def __init__(self, path: Path, bits: int) -> None:
        self._path, self._bits = path, bits
        self._atomic = atomic_file(path, tidies=False)
        self._digest = hashlib.sha256()
        self._documents = self._copies = self._copied_bytes = self._end = 0
        self._grid = np.zeros((1 << bits) + 1, np.uint64)

    def __enter__(self) -> "_NewRun":
        self._file: AtomicFile = self._atomic.__enter__()
        try:
            self._rows = TemporaryFile(dir=self._path.parent)
            self._rows.write(bytes(_ROW.itemsize))
        except OSError as error:
            self._atomic.__exit__(type(error), error, None)
            raise explain_write_error(self._path, error) from error
        return self

    def add(self, digests: Numbers, sizes: Offsets, copies: Offsets, texts: bytes | memoryview) -> None:
        """Add some documents: hashes (n, 2), sizes and numbers of copies (n,), and their texts one after the other."""
        rows = np.empty((len(digests), 4), "<u8")
        rows[:, :2] = digests
        rows[:, 2] = self._end + np.cumsum(sizes)
        rows[:, 3] = copies
        self._rows.write(rows.tobytes())
        self._grid[1:] += np.bincount(
            (digests[:, 0] >> np.uint64(64 - self._bits)).astype(np.int64), minlength=1 << self._bits
        ).astype(np.uint64)
        self._documents += len(digests)
        self._copies += int(copies.sum())
        self._copied_bytes += int((copies * sizes).sum())
        self._end += len(texts)
        self._write(texts)

    def _write(self, data: bytes | memoryview) -> None:
        self._digest.update(data)
        self._file.write(data)

    def __exit__(self, *exception: Any) -> None:
        try:
            if exception[0] is None:
                self._rows.seek(0)
                while block := self._rows.read(_WRITE_BYTES):
                    self._write(block)
                self._write(np.cumsum(self._grid).astype("<u8").tobytes())
        except BaseException as error:
            self._atomic.__exit__(type(error), error, error.__traceback__)
            raise
        finally:
            self._rows.close()
        self._atomic.__exit__(*exception)

    def facts(self) -> dict[str, Any]:
        """What `Run.of` needs, and the size and checksum of the file."""
        return {
            "documents": self._documents,
            "copies": self._copies,
            "text_bytes": self._end,
            "copied_bytes": self._copied_bytes,
            "bits": self._bits,
            "bytes": self._file.size_bytes,
            "sha256": self._digest.hexdigest(),
        }


class Rows(NamedTuple):
    """Different documents of some runs, sorted: their hashes (n, 2), copies, sizes, and the run and position of one copy."""

    digests: Numbers
    copies: Offsets
    sizes: Offsets
    run: Offsets
    start: Offsets

    def take(self, which: slice) -> "Rows":
        """Some of them."""
        return Rows(self.digests[which], self.copies[which], self.sizes[which], self.run[which], self.start[which])


class Batch(NamedTuple):
    """Some documents, sorted: hashes (n, 2), numbers of copies (n,), texts one after the other, and where each ends."""

    digests: Numbers
    copies: Offsets
    text: bytearray
    ends: Offsets


def merge_rows(runs: Sequence[Run], low: int, high: int) -> Iterator[Rows]:
    """The documents with hashes from `low` up to `high`, of all runs, each once; about `MOST_ROWS` at a time, in order."""
    expected = sum(run.documents for run in runs) * (high - low) // HASHES
    windows = max(1, min(-(-expected // MOST_ROWS), high - low))
    bounds = [low + (high - low) * n // windows for n in range(windows + 1)]
    for at, end in pairwise(bounds):
        found = [run.read_rows(at, end) for run in runs]
        rows = np.concatenate([np.empty((0, 4), np.uint64), *(of_run for of_run, _ in found)])
        start = np.concatenate([np.empty(0, np.int64), *(starts for _, starts in found)])
        run = np.repeat(np.arange(len(runs)), [len(of_run) for of_run, _ in found])
        del found
        if not len(rows):
            continue
        order = np.lexsort((rows[:, 1], rows[:, 0]))
        first, _ = _first_of_equal(rows[order, :2])
        copies = np.add.reduceat(rows[order, 3].astype(np.int64), first)
        order = order[first]
        yield Rows(rows[order, :2], copies, rows[order, 2].astype(np.int64) - start[order], run[order], start[order])


def merge_texts(runs: Sequence[Run], low: int, high: int) -> Iterator[Batch]:
    """The same with their texts, at most about `BATCH_BYTES` at a time; raises `BertprepError` if a run is damaged."""
    for rows in merge_rows(runs, low, high):
        ends = np.cumsum(rows.sizes)
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            after = max(first + 1, int(np.searchsorted(ends, before + BATCH_BYTES, side="right")))
            part = rows.take(slice(first, after))
            yield Batch(part.digests, part.copies, _read_texts(runs, part), ends[first:after] - before)
            first = after


def _read_texts(runs: Sequence[Run], rows: Rows) -> bytearray:
    """The texts of the documents, one after the other: of each run in one stretch or several, where others stand between."""
    out = bytearray(int(rows.sizes.sum()))
    to = np.cumsum(rows.sizes) - rows.sizes
    for number in np.unique(rows.run).tolist():
        which = np.flatnonzero(rows.run == number)
        starts, sizes = rows.start[which], rows.sizes[which]
        ends = starts + sizes
        last = np.flatnonzero(np.append(starts[1:] != ends[:-1], True))
        firsts = np.append(0, last[:-1] + 1)
        spans = list(zip(starts[firsts].tolist(), ends[last].tolist(), strict=True))
        for text, a, b in zip(runs[number].read_text(spans), firsts.tolist(), (last + 1).tolist(), strict=True):
            at = 0
            for place, size in zip(to[which[a:b]].tolist(), sizes[a:b].tolist(), strict=True):
                out[place : place + size] = text[at : at + size]
                at += size
    _check_texts(runs, rows, out)
    return out


def _check_texts(runs: Sequence[Run], rows: Rows, out: bytearray) -> None:
    """Raise `BertprepError` if a text is not that of its hash."""
    digests, at = bytearray(), 0
    with memoryview(out) as view:
        for size in rows.sizes.tolist():
            digests += hash_document(view[at : at + size - len(_DOCUMENT_END)])
            at += size
    found = np.frombuffer(bytes(digests), ">u8").reshape(-1, 2)
    if len(wrong := np.flatnonzero((found != rows.digests).any(axis=1))):
        raise damaged_run(runs[rows.run[wrong[0]]].path, "a document has another hash than its row says")


def merge_runs(runs: Sequence[Run], path: Path) -> dict[str, Any]:
    """Write one run with the documents of several, a range at a time; returns its facts."""
    with _NewRun(path, _bits_for(sum(run.documents for run in runs))) as merged:
        for batch in merge_texts(runs, 0, HASHES):
            merged.add(batch.digests, np.diff(batch.ends, prepend=0), batch.copies, memoryview(batch.text))
    return merged.facts()
