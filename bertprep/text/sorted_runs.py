"""Documents sorted by the hash of their text, in files that are merged range by range: the large part of `--assign hash`.

A run is some tens of megabytes of documents, as they will be in the shards, in the order of their hashes, each once. The
documents of any range of hashes are one stretch of it, found by two short reads, so any worker can merge any range of all
runs: it reads the rows of the range, drops what repeats, and then reads the texts, some megabytes at a time. Memory does not
depend on the number of documents, and no file stays open; of runs in a store nothing is copied, many are asked at once. What is
read is hashed again, so a damaged run is an error, never a wrong shard.

    text                        the documents, each with its blank line
    rows    (n + 1, 4) uint64   hash (two numbers), end of its text, how often it occurred; the first row is zeros
    grid    (2**bits + 1) uint64    how many documents have a hash whose first bits are below each number
"""

import hashlib
import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from bertprep.errors import BertprepError
from bertprep.files import object_store
from bertprep.files.atomic import AtomicFile, atomic_file, explain_write_error, unnamed_file
from bertprep.files.places import ObjectPath, is_object

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
_READERS = 32  # requests to a store at once
Result = TypeVar("Result")
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
        first, last = low >> shift, ((high - 1) >> shift) + 1
        with self._open() as read:
            grid = np.frombuffer(read(self._grid_start + 8 * first, 8 * (last - first + 1)), "<u8")
            start, stop = int(grid[0]), int(grid[-1])
            if not start <= stop <= self.documents:
                raise self._damaged("its grid is not in order")
            data = read(self.text_bytes + _ROW.itemsize * start, _ROW.itemsize * (stop - start + 1))
        rows = np.frombuffer(data, "<u8").reshape(-1, 4).astype(np.uint64, copy=False)
        hashes, ends = rows[1:, 0], rows[:, 2]
        if (hashes[1:] < hashes[:-1]).any() or (ends[1:] <= ends[:-1]).any() or int(ends[-1]) > self.text_bytes:
            raise self._damaged("its rows are not in order")
        if ((rows[1:, 3] < 1) | (rows[1:, 3] > self.copies)).any():
            raise self._damaged("a document occurs more often than all together")
        a = int(np.searchsorted(hashes, np.uint64(low), side="left"))
        b = int(np.searchsorted(hashes, np.uint64(high - 1), side="right"))
        return rows[1 + a : 1 + b], ends[a:b].astype(np.int64)

    def read_text(self, start: int, end: int) -> bytes:
        """Some bytes of the text."""
        with self._open() as read:
            return read(start, end - start)

    @contextmanager
    def _open(self) -> Iterator[Callable[[int, int], bytes]]:
        """What reads so many bytes from a position on."""
        if isinstance(self.path, ObjectPath):
            yield partial(self._read_object, self.path)
            return
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise damaged_run(self.path, error.strerror or str(error)) from error
        try:
            yield partial(self._read_file, descriptor)
        finally:
            os.close(descriptor)

    def _read_object(self, path: ObjectPath, start: int, size: int) -> bytes:
        try:
            data = object_store.read_range(path, start, size) if size else b""
        except FileNotFoundError as error:
            raise damaged_run(path, error.strerror or str(error)) from error
        return self._whole(data, start, size)

    def _read_file(self, descriptor: int, start: int, size: int) -> bytes:
        data = os.pread(descriptor, size, start)
        while len(data) < size and (more := os.pread(descriptor, size - len(data), start + len(data))):
            data += more
        return self._whole(data, start, size)

    def _whole(self, data: bytes, start: int, size: int) -> bytes:
        if len(data) != size:
            raise self._damaged(f"it ends before byte {start + size:,}")
        return data

    def _damaged(self, why: str) -> BertprepError:
        return damaged_run(self.path, why)


def damaged_run(path: Path, why: str) -> BertprepError:
    """The error about a run that is not as it was written."""
    return BertprepError(f"{path}: is damaged ({why}); remove {path.parent}, and the same command makes it again")


def _of_each(runs: Sequence[Run], read: Callable[[int], Result], numbers: Sequence[int]) -> Iterator[Result]:
    """What a function finds for the runs of these numbers, in their order; runs in a store are read many at once."""
    if not any(is_object(runs[number].path) for number in numbers):
        yield from map(read, numbers)
        return
    with ThreadPoolExecutor(_READERS) as readers:
        yield from readers.map(read, numbers)


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
            self._rows = unnamed_file(self._path)
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
        found = list(_of_each(runs, lambda number, at=at, end=end: runs[number].read_rows(at, end), range(len(runs))))  # type: ignore[misc]
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
    """The texts of the documents, one after the other; of each run one stretch is read, in which others may stand between."""
    out = bytearray(int(rows.sizes.sum()))
    to = np.cumsum(rows.sizes) - rows.sizes
    order = np.argsort(rows.run, kind="stable")
    numbers, firsts = np.unique(rows.run[order], return_index=True)
    which = dict(zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True))

    def copy(number: int) -> None:
        starts, sizes = rows.start[which[number]], rows.sizes[which[number]]
        text = memoryview(runs[number].read_text(int(starts[0]), int(starts[-1] + sizes[-1])))
        places = zip(to[which[number]].tolist(), (starts - starts[0]).tolist(), sizes.tolist(), strict=True)
        for place, start, size in places:
            out[place : place + size] = text[start : start + size]

    for _ in _of_each(runs, copy, list(which)):
        pass
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
