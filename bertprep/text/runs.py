"""Reads and writes runs: documents sorted by the hash of their text, in Arrow files.

A run has 2**bits batches, and batch i has the hashes whose first bits are i. So a shard's range of hashes is in a few batches
of each run. A second file next to the runs has their rows (n, 3): the first 64 bits of the hash, the size in bytes and the
number of copies of each document.
"""

import hashlib
import os
import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bertprep.errors import BertprepError, first_line
from bertprep.files.atomic import AtomicFile, atomic_file
from bertprep.files.checksums import BLAKE3
from bertprep.files.hashed import HashedFile
from bertprep.files.paths import is_object, open_at

HASHES = 1 << 64
"""The number of values that the first 64 bits of a hash can have. Documents are sorted and assigned to shards by them."""
RUN_BYTES = 12_000_000
BATCH_BYTES = 128_000
WINDOW_BYTES = 8_000_000
"""The approximate amount of text that is merged at once."""
_DOCUMENT_END = b"\n\n"
_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
_AT_ONCE = 32  # concurrent requests to an object store
_BLOCK_BYTES = 256_000  # read by each of these requests
_MAX_BITS = 10
_POOL = pa.system_memory_pool()  # returns freed memory to the OS; pyarrow's default pool keeps 70 MB more
_SCHEMA = pa.schema([("hash", pa.binary(16)), ("copies", pa.int64()), ("text", pa.large_binary())])

Rows = npt.NDArray[np.uint64]


def hash_document(text: bytes | memoryview) -> bytes:
    """Return the first 16 bytes of the SHA-256 of a document's lines in normal form, without the last newline.

    >>> hash_document(b"I came. I saw.").hex()
    '1dc041c21153e2e82f6ee658f6b1fd7a'
    """
    return hashlib.sha256(normal_form(bytes(text))).digest()[:16]


def normal_form(text: bytes) -> bytes:
    """Return UTF-8 text as it is compared with other text: in NFC, without zero-width characters and soft hyphens.

    Copies of a document often differ in these alone, which nobody sees.

    >>> normal_form("cafe\u0301 cre\u00adme\u200b".encode()).decode()
    'café creme'
    """
    if text.isascii():
        return text
    return _UNSEEN.sub("", unicodedata.normalize("NFC", text.decode())).encode()


@dataclass(frozen=True)
class Documents:
    """Distinct documents, sorted by their hashes; `texts` has them in another order, each with its blank line."""

    hashes: npt.NDArray[np.uint64]  # (n, 2)
    copies: npt.NDArray[np.int64]  # (n,)
    texts: pa.LargeBinaryArray
    order: npt.NDArray[np.int64]  # (n,) the index of each document in `texts`

    def sizes(self) -> npt.NDArray[np.int64]:
        return np.diff(_offsets(self.texts))[self.order]

    def without(self, keys: npt.NDArray[np.uint64]) -> "Documents":
        """Return the documents whose hash does not begin with one of these 64-bit keys."""
        kept = ~np.isin(self.hashes[:, 0], keys)
        return Documents(self.hashes[kept], self.copies[kept], self.texts, self.order[kept])

    def take(self, which: Any) -> pa.LargeBinaryArray:
        return pc.take(self.texts, _as_arrow(self.order[which]), memory_pool=_POOL)

    def text(self, which: Any = slice(None)) -> memoryview:
        return memoryview(self.take(which).buffers()[2] or b"")


def sort_documents(hashes: npt.NDArray[np.uint64], copies: npt.NDArray[np.int64], texts: pa.LargeBinaryArray) -> Documents:
    """Return documents sorted by their hashes; duplicates become one document with the sum of their copies.

    Of duplicates that differ in bytes the one with the smallest bytes is kept, so that the order of the input does not matter.
    """
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    ordered = hashes[order]
    first = np.flatnonzero(np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))[: len(order)])
    copies = np.add.reduceat(copies[order], first) if len(order) else copies
    kept = order[first]
    ends = np.append(first[1:], len(order))
    for group in np.flatnonzero(ends - first > 1).tolist():
        alike = order[first[group] : ends[group]].tolist()
        kept[group] = min(alike, key=lambda index: texts[index].as_py())
    return Documents(ordered[first], copies, texts, kept)


@contextmanager
def run_file(path: Path, bits: int | None = None) -> "Iterator[RunFile]":
    """Yield a file of runs, which gets its name when the block ends.

    Each run has 2**`bits` batches; by default, `bits` depends on the size of the first run.
    """
    with atomic_file(path) as file:
        runs = RunFile(file, bits)
        yield runs
        runs.finish()


class RunFile:
    """A file of runs that is being written: batches of sorted documents, with a checksum of the file."""

    def __init__(self, file: AtomicFile, bits: int | None) -> None:
        self._file, self._hashed, self._bits = file, HashedFile(file), bits
        self._writer: Any = None
        self._blake3 = ""
        self.runs = self.documents = self.text_bytes = 0

    def write(self, documents: Documents, low: int = 0, high: int = HASHES) -> None:
        """Write the documents of a range of hashes, which must consist of complete batches and follow the range before it."""
        if self._bits is None:
            self._bits = _bits_for(int(documents.sizes().sum()))
        if self._writer is None:
            schema = _SCHEMA.with_metadata({"bits": str(self._bits)})
            self._writer = pa.ipc.new_file(self._hashed, schema)
        self.runs += low == 0
        step = HASHES >> self._bits
        bounds = np.array(range(low + step, high, step), np.uint64)
        for start, stop in pairwise([0, *np.searchsorted(documents.hashes[:, 0], bounds).tolist(), len(documents.hashes)]):
            data = pa.py_buffer(documents.hashes[start:stop].astype(">u8").tobytes())
            hashes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), stop - start, [None, data])
            columns = [hashes, _as_arrow(documents.copies[start:stop]), documents.take(slice(start, stop))]
            self._writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self.documents += len(documents.hashes)
        self.text_bytes += int(documents.sizes().sum())

    def finish(self) -> None:
        """Write the footer, after an empty run if no document was written."""
        if self._writer is None:
            no_hashes, no_copies = np.empty((0, 2), np.uint64), np.empty(0, np.int64)
            self.write(sort_documents(no_hashes, no_copies, pa.array([], pa.large_binary())))
        self._writer.close()
        self._blake3 = self._hashed.finish()

    def entry(self) -> dict[str, Any]:
        sizes = {"runs": self.runs, "documents": self.documents, "text_bytes": self.text_bytes}
        return {**sizes, "bytes": self._file.size_bytes, BLAKE3: self._blake3}


class Sorter:
    """Collects documents in any order, and writes them to a file as sorted runs of about `RUN_BYTES`."""

    def __init__(self, file: RunFile) -> None:
        self._file = file
        self._rows: list[Rows] = []
        self.copies = 0
        self._begin()

    def _begin(self) -> None:
        self._text, self._ends, self._hashes = bytearray(), array("q", [0]), bytearray()

    def add(self, lines: bytes | memoryview) -> None:
        at = start = len(self._text)
        self._text += lines
        with memoryview(self._text) as view:
            is_newline = np.frombuffer(lines, np.uint8) == ord("\n")
            for end in (np.flatnonzero(is_newline[:-1] & is_newline[1:]) + at + len(_DOCUMENT_END)).tolist():
                self._hashes += hash_document(view[start : end - len(_DOCUMENT_END)])
                self._ends.append(end)
                start = end
        if len(self._text) >= RUN_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._hashes:
            return
        hashes = _as_numbers(self._hashes)
        buffers = [None, pa.py_buffer(self._ends), pa.py_buffer(self._text)]
        texts = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(hashes), buffers)
        documents = sort_documents(hashes, np.ones(len(hashes), np.int64), texts)
        self._file.write(documents)
        columns = [documents.hashes[:, 0], documents.sizes(), documents.copies]
        self._rows.append(np.stack([column.astype(np.uint64) for column in columns], axis=1))
        self.copies += len(hashes)
        self._begin()

    def rows(self) -> bytes:
        return b"".join(rows.astype("<u8").tobytes() for rows in self._rows)


def read_rows(path: Path) -> Rows:
    """Return the rows (n, 3) from the file at `path`, which is next to a file of runs."""
    try:
        return np.frombuffer(path.read_bytes(), "<u8").reshape(-1, 3).astype(np.uint64, copy=False)
    except (OSError, ValueError) as error:
        raise corrupt_run(path, error) from error


def read_windows(paths: Sequence[Path], text_bytes: int, low: int, high: int) -> Iterator[tuple[int, int, Documents]]:
    """Yield (low, high, documents) for consecutive windows of a range of hashes, each with about `WINDOW_BYTES` of text.

    The documents of all runs are merged, so each appears once. A window's `high` is the first hash that is not in it.
    """
    windows = min(_windows_of(text_bytes * (high - low) // HASHES), high - low)
    for at, end in pairwise(low + (high - low) * index // windows for index in range(windows + 1)):
        yield at, end, _read_range(paths, at, end)


def _read_range(paths: Sequence[Path], low: int, high: int) -> Documents:
    def read(path: Path) -> list[pa.RecordBatch]:
        return _read_batches(path, low, high)

    if any(map(is_object, paths)):
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            found = list(threads.map(read, paths))
    else:
        found = list(map(read, paths))
    table = pa.Table.from_batches([batch for of_run in found for batch in of_run], _SCHEMA)
    del found
    hash_column, copies, texts = (column.combine_chunks(_POOL) for column in table.columns)
    hashes = _as_numbers(hash_column.buffers()[1] or b"")
    documents = sort_documents(hashes, np.frombuffer(copies.buffers()[1] or b"", np.int64), texts)
    keys = documents.hashes[:, 0]
    inside = slice(np.searchsorted(keys, np.uint64(low)), np.searchsorted(keys, np.uint64(high - 1), side="right"))
    documents = Documents(documents.hashes[inside], documents.copies[inside], texts, documents.order[inside])
    _check_hashes(paths, documents)
    return documents


def _check_hashes(paths: Sequence[Path], documents: Documents) -> None:
    digests, offsets = bytearray(), _offsets(documents.texts)
    with memoryview(documents.texts.buffers()[2] or b"") as view:
        spans = zip(offsets[documents.order].tolist(), offsets[documents.order + 1].tolist(), strict=True)
        for start, end in spans:
            digests += hash_document(view[start : end - len(_DOCUMENT_END)])
    if digests != documents.hashes.astype(">u8").tobytes():
        raise corrupt_run(paths[0].parent / "*.arrow", ValueError("a document's text does not match its hash"))


def _read_batches(path: Path, low: int, high: int) -> list[pa.RecordBatch]:
    try:
        with ExitStack() as stack:
            opened = (
                open_at(path, buffer_bytes=_BLOCK_BYTES) if is_object(path) else pa.OSFile(os.fsencode(path), memory_pool=_POOL)
            )
            source = stack.enter_context(opened)
            reader = stack.enter_context(pa.ipc.open_file(source, memory_pool=_POOL))
            if not reader.schema.equals(_SCHEMA):
                raise ValueError("its columns differ from those of a run")
            bits = int(reader.schema.metadata[b"bits"])
            inside = range(low >> 64 - bits, (high - 1 >> 64 - bits) + 1)
            runs = range(0, reader.num_record_batches, 1 << bits)
            return [reader.get_batch(run + index) for run in runs for index in inside]
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, OverflowError, MemoryError) as error:
        raise corrupt_run(path, error) from error


def corrupt_run(path: Path, error: Exception) -> BertprepError:
    """Return the error for a run that differs from what was written."""
    why = getattr(error, "strerror", None) or first_line(error)
    return BertprepError(f"{path}: is corrupt ({why}); remove {path.parent}, and the same command makes it again")


def merge_runs(paths: Sequence[Path], text_bytes: int, path: Path) -> dict[str, Any]:
    """Merge several runs into one, and return its entry."""
    bits = max(min(_bits_for(text_bytes), _MAX_BITS), _windows_of(text_bytes).bit_length() - 1)
    with run_file(path, bits) as merged:
        for low, high, documents in read_windows(paths, text_bytes, 0, HASHES):
            merged.write(documents, low, high)
    return merged.entry()


def _windows_of(text_bytes: int) -> int:
    """Return the number of windows in which text is merged: a power of two, so that each consists of complete batches."""
    return 1 << (text_bytes // WINDOW_BYTES).bit_length()


def _bits_for(text_bytes: int) -> int:
    return (text_bytes // BATCH_BYTES).bit_length()


def _as_arrow(numbers: npt.NDArray[np.int64]) -> pa.Int64Array:
    """Return an Arrow array of numbers without `pa.array`, which would import pandas and take 60 MB."""
    return pa.Int64Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(np.ascontiguousarray(numbers))])


def _as_numbers(digests: Any) -> npt.NDArray[np.uint64]:
    return np.frombuffer(digests, ">u8").reshape(-1, 2).astype(np.uint64)


def _offsets(texts: pa.LargeBinaryArray) -> npt.NDArray[np.int64]:
    data = texts.buffers()[1]
    return np.frombuffer(data, np.int64)[: len(texts) + 1] if len(texts) else np.zeros(1, np.int64)
