"""An index of the documents of some text files: the start and end of each, without the text.

A blank line, one that `str.strip` leaves empty, ends a document; so does the end of a file. Each file is read once, in blocks,
which finds its documents, checks that it is UTF-8, and takes its sha256 and 16 bytes of the sha256 of each document, by which
duplicates are found and dropped: about 600 MB a second and 36 bytes of memory a document, whatever its length. Workers then
seek to the documents of their shard.
"""

import codecs
import hashlib
import io
import os
import re
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from bertprep import kernels, pool
from bertprep.errors import BertprepError, UsageError
from bertprep.files.object_cache import local_copy
from bertprep.files.places import ObjectPath, open_at
from bertprep.kernels.numbers import TEXT_SLACK
from bertprep.workspace.manifest import sha256_of

BLOCK_BYTES = 1_000_000
BATCH_BYTES = 500_000
MOST_DOCUMENT_BYTES = 64 << 20
"""The longest document or line; no book is longer. Longer input lacks blank lines, or is not text."""
HASH_BYTES = 16

_NEWLINE = 10
_LETTER_OR_DIGIT = re.compile(rb"[0-9A-Za-z]")


@dataclass(frozen=True)
class TextInput:
    """A file of plain text, and how to read it."""

    path: Path
    one_document: bool = False  # the whole file is one document; else a blank line ends one
    splitter: str | None = None  # "lines" if each line is known to be a sentence, whatever the settings


@dataclass(frozen=True)
class TextFile:
    """The state of a text file when it was indexed."""

    input: TextInput
    size_bytes: int
    sha256: str
    version: tuple[int, ...]  # of the file on the disk, see `version_of`


@dataclass(frozen=True)
class Documents:
    """The positions of n documents, none blank: each the bytes `start` to `end` of a file."""

    file: npt.NDArray[np.int32]  # (n,) number of the file in a list of files
    start: npt.NDArray[np.int64]  # (n,)
    end: npt.NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.file)

    @property
    def size_bytes(self) -> npt.NDArray[np.int64]:
        return self.end - self.start

    def take(self, which: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> "Documents":
        """The documents selected by the indices or the boolean mask `which`."""
        return Documents(self.file[which], self.start[which], self.end[which])


@dataclass(frozen=True)
class TextIndex:
    """The files of a text, the documents that are kept, and the number dropped by reason."""

    files: tuple[TextFile, ...]
    documents: Documents
    empty: int  # without a letter or a digit
    duplicates: int  # equal to an earlier one


@dataclass(frozen=True)
class _FileIndex:
    """The index of one file."""

    file: TextFile
    start: npt.NDArray[np.int64]  # (n,)
    end: npt.NDArray[np.int64]  # (n,)
    digest: npt.NDArray[np.uint64]  # (n, 2)
    empty: int


def index_documents(
    inputs: Sequence[TextInput],
    *,
    keep_duplicates: bool = False,
    workers: int = 1,
    advance: Callable[[TextFile], None] = lambda _: None,
) -> TextIndex:
    """The files `inputs` and their documents, in the order given; `advance` is called for each file that is done.

    Of documents that are equal except for line ends the first is kept. Raises `UsageError` for an input that is missing or
    given twice, `BertprepError` if the text is not UTF-8 or has no document.
    """
    check_inputs(inputs)
    kernels.load()  # for all workers
    found: dict[str, _FileIndex] = {}
    tasks = [(str(given.path), given) for given in inputs]
    with closing(pool.run(_index_file, tasks, workers=workers)) as results:
        for name, of_file in results:
            found[name] = of_file
            advance(of_file.file)
    indexed = [found[name] for name, _ in tasks]
    documents = Documents(
        np.repeat(np.arange(len(indexed), dtype=np.int32), [len(of_file.start) for of_file in indexed]),
        np.concatenate([np.empty(0, np.int64), *(of_file.start for of_file in indexed)]),
        np.concatenate([np.empty(0, np.int64), *(of_file.end for of_file in indexed)]),
    )
    files = tuple(of_file.file for of_file in indexed)
    if not len(documents):
        names = ", ".join(f"{file.input.path} ({file.size_bytes:,} bytes)" for file in files[:3]) or "no file"
        more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""
        raise BertprepError(f"{names}{more}: no document found; expected text, with a blank line after each document")
    duplicates = 0
    if not keep_duplicates:
        first = find_first(np.concatenate([of_file.digest for of_file in indexed]))
        duplicates = len(documents) - int(first.sum())
        if duplicates:
            documents = documents.take(first)
    return TextIndex(files, documents, sum(of_file.empty for of_file in indexed), duplicates)


def find_first(digests: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which of n rows do not repeat an earlier one.

    >>> find_first(np.array([[1, 2], [3, 4], [1, 2], [1, 4]], np.uint64))
    array([ True,  True, False,  True])
    """
    first = np.ones(len(digests), bool)
    first[repeated_rows(digests)[0]] = False
    return first


def repeated_rows(digests: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The indices of rows that repeat an earlier one, ascending, and for each the index of its first occurrence.

    >>> repeated_rows(np.array([[7, 1], [3, 4], [7, 1], [7, 2], [7, 1]], np.uint64))
    (array([2, 4]), array([0, 0]))
    """
    order = np.lexsort((digests[:, 1], digests[:, 0]))  # stable: of equal rows the earlier one stays first
    ordered = digests[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    repeats = np.flatnonzero(~is_new)
    group_starts = np.flatnonzero(is_new)
    first = order[group_starts[np.searchsorted(group_starts, repeats, side="right") - 1]]
    by_row = np.argsort(order[repeats])
    return order[repeats][by_row], first[by_row]


def check_inputs(inputs: Iterable[TextInput]) -> None:
    """Raise `UsageError` for an input that is missing or given twice."""
    seen: set[Path] = set()
    for given in inputs:
        _check_input(given.path, seen)


def _check_input(path: Path, seen: set[Path]) -> None:
    if not path.exists():
        raise UsageError(f"{path}: no such file; --input takes text files")
    if not path.is_file():
        raise UsageError(f"{path}: is not a file; --input takes text files")
    if (resolved := path.resolve()) in seen:
        raise UsageError(f"{path}: is given twice; give each text once")
    seen.add(resolved)


def _index_file(given: TextInput) -> _FileIndex:
    try:
        return _read_index(given)
    except OSError as error:
        raise BertprepError(f"{given.path}: cannot be read: {error.strerror or error}") from error


class _DocumentCollector:
    """Takes the text of a file piece by piece, and keeps the index entry of each document."""

    def __init__(self) -> None:
        self.start, self.end = array("q"), array("q")
        self.digests = bytearray()
        self.empty = 0
        self._open(0)

    def _open(self, start: int) -> None:
        self.started = start  # start of the open document
        self._digest = hashlib.sha256()
        self._held_back = b""  # white space that belongs to the document only if text follows
        self._has_word = False

    def add(self, text: bytes) -> None:
        """Add text to the open document."""
        text = text.replace(b"\r", b"")
        body = text.rstrip()
        if body:
            self._digest.update(self._held_back + body if self._held_back else body)
            self._held_back = text[len(body) :]
            self._has_word = self._has_word or has_word(body)
        else:
            self._held_back += text

    def end_document(self, end: int, next_start: int) -> None:
        """End the open document before the byte `end`, if it has any bytes; the next one begins at `next_start`."""
        if self._has_word:
            self.start.append(self.started)
            self.end.append(end)
            self.digests += self._digest.digest()[:HASH_BYTES]
        elif end > self.started:  # false before a gap that opens a file or continues in the next block
            self.empty += 1
        self._open(next_start)


def has_word(text: bytes) -> bool:
    """Whether UTF-8 text has a letter or a digit."""
    return _LETTER_OR_DIGIT.search(text) is not None or (not text.isascii() and any(map(str.isalnum, text.decode())))


def _read_index(given: TextInput) -> _FileIndex:
    digest = hashlib.sha256()
    found = _DocumentCollector()
    with local_copy(given.path).open("rb", buffering=0) as file:
        version = version_of(given.path, file)
        position = 0
        for block, size in _blocks_of_lines(file, digest, given.path):
            if position == 0:
                check_encoding(given.path, bytes(block[1 : 1 + min(size, 4096)]))
            skipped = 0
            if position == 0 and block.startswith(codecs.BOM_UTF8, 1, 1 + size):
                skipped = len(codecs.BOM_UTF8)
                found.end_document(0, skipped)
                block[skipped] = _NEWLINE
            gaps, end = _find_gaps(given.path, block, skipped, size, position)
            text_start, offset = skipped + 1, position - 1
            with memoryview(block) as view:
                for start, gap_end in () if given.one_document else gaps:
                    found.add(bytes(view[text_start:start]))
                    found.end_document(offset + start, offset + gap_end)
                    text_start = gap_end
                found.add(bytes(view[text_start:end]))
            position += size
            if position - found.started > MOST_DOCUMENT_BYTES:
                raise too_long(f"{given.path}: byte {found.started:,} and after", "a document")
    found.end_document(position, position)
    return _FileIndex(
        TextFile(given, position, digest.hexdigest(), version),
        np.array(found.start, np.int64),
        np.array(found.end, np.int64),
        np.frombuffer(bytes(found.digests), np.uint64).reshape(-1, 2),
        found.empty,
    )


def _blocks_of_lines(file: io.FileIO, digest: Any, path: Path) -> Iterator[tuple[bytearray, int]]:
    """Yield the file in whole lines: a buffer, valid until the next one, and their size.

    They begin at buffer[1], after a newline; a byte and TEXT_SLACK more are free after them.
    """
    capacity = BLOCK_BYTES
    buffer = bytearray(b"\n") + bytearray(capacity + 1 + TEXT_SLACK)
    held = position = 0  # bytes in the buffer, and before them
    while True:
        with memoryview(buffer) as view:
            read = file.readinto(view[1 + held : 1 + capacity]) or 0
            digest.update(view[1 + held : 1 + held + read])
        held += read
        size = buffer.rfind(b"\n", 1, 1 + held) if read else held
        if size > 0:
            rest = bytes(buffer[1 + size : 1 + held])
            yield buffer, size
            buffer[: 1 + len(rest)] = b"\n" + rest
            position += size
            held = len(rest)
        elif held >= MOST_DOCUMENT_BYTES:
            raise too_long(f"{path}: byte {position:,} and after", "a line")
        elif held == capacity:
            capacity = min(2 * capacity, MOST_DOCUMENT_BYTES)
            buffer += bytearray(capacity + 2 + TEXT_SLACK - len(buffer))
        if not read:
            return


def _find_gaps(path: Path, block: bytearray, start: int, size: int, position: int) -> tuple[Iterator[tuple[int, int]], int]:
    """The gaps between documents in lines that begin after the newline block[start] and end at block[size], and the end.

    A last line without a newline gets one. Byte 1 is at `position` of the file. Raises `BertprepError` if it is not UTF-8.
    """
    end = 1 + size
    if block[size] != _NEWLINE:
        block[end] = _NEWLINE
        end += 1
    text = np.frombuffer(block, np.uint8)[start:]
    gaps = np.empty(end - start + 2, np.int64)
    if kernels.load().check_utf8(text, 1 + size - start) >= 0:
        _raise_not_utf8(path, block[start + 1 : 1 + size], position + start)
    count = kernels.load().find_gaps(text, end - start, gaps)
    found = (gaps[: 2 * count] + start).tolist()
    return zip(found[::2], found[1::2], strict=True), end


def hash_file(given: TextInput) -> TextFile:
    """The state of a text file, without its documents."""
    try:
        return TextFile(given, given.path.stat().st_size, sha256_of(given.path), version_of(given.path))
    except OSError as error:
        raise BertprepError(f"{given.path}: cannot be read: {error.strerror or error}") from error


def read_piece(given: TextFile, start: int, end: int) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], int]]:
    """Yield the documents in bytes `start` to `end` of a file, which are whole ones, some at a time.

    As `Splitter.split` takes them: text and the end of each document, valid until the next; and how many empty ones stood
    between. Raises `BertprepError` if the file has changed since it was hashed, or is not text.
    """
    path = given.input.path
    try:
        with open_at(path, start) as file:
            if version_of(path, file) != given.version:
                raise BertprepError(f"{path}: can no longer be read as it was at the start of the run: it was changed")
            rest, position = b"", start  # what is read, but not finished, and where it begins
            while True:
                wanted = min(max(BLOCK_BYTES, len(rest)), end - position - len(rest))
                data = file.read(wanted)
                if len(data) < wanted:
                    raise BertprepError(f"{path}: can no longer be read as it was at the start of the run: it became shorter")
                if position == 0 and not rest:
                    check_encoding(path, data)
                    skipped = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
                    data, position = data[skipped:], skipped
                rest += data
                is_last = position + len(rest) == end
                done = yield from _documents_in(path, rest, position, is_last, given.input.one_document)
                position += done
                rest = rest[done:]
                if is_last:
                    return
                if len(rest) > MOST_DOCUMENT_BYTES:
                    raise too_long(f"{path}: byte {position:,} and after", "a document")
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error


def _documents_in(
    path: Path, block: bytes, position: int, is_last: bool, one_document: bool
) -> Generator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], int], None, int]:
    """Yield the documents that end in `block`, which begins at `position` of a file; returns the bytes that they took."""
    if not block or (one_document and not is_last):
        return 0
    buffer = bytearray(b"\n" + block + b"\n") + bytes(TEXT_SLACK)
    text = np.frombuffer(buffer, np.uint8)
    end = 1 + len(block)
    gaps = np.empty(end + 3, np.int64)
    count = 0 if one_document else kernels.load().find_gaps(text, end + is_last, gaps)
    stops, nexts = gaps[0 : 2 * count : 2].tolist(), gaps[1 : 2 * count : 2].tolist()
    if is_last:
        stops.append(end)
        nexts.append(end)
    if not stops:
        return 0
    done: int = min(nexts[-1], end)
    if kernels.load().check_utf8(text[1:], done - 1) >= 0:
        _raise_not_utf8(path, buffer[1:done], position)
    start = first = 1
    ends: list[int] = []
    empty = 0
    for stop, after in zip(stops, nexts, strict=True):
        if stop > start:  # else a gap that opens a file or continues
            if stop - start > MOST_DOCUMENT_BYTES:
                raise too_long(f"{path}: byte {position + start - 1:,} and after", "a document")
            if _span_has_word(buffer, start, stop):
                if not ends:
                    first = start
                ends.append(min(after, end))
                if ends[-1] - first < BATCH_BYTES:
                    start = after
                    continue
            else:
                empty += 1
            if ends:
                yield text[first : ends[-1] + TEXT_SLACK], np.array(ends, np.int64) - first, 0
                ends = []
        elif ends:
            ends[-1] = min(after, end)
        start = after
    yield text[first : end + TEXT_SLACK], np.array(ends, np.int64) - first, empty
    return done - 1


def _span_has_word(text: bytearray, start: int, end: int) -> bool:
    return _LETTER_OR_DIGIT.search(text, start, end) is not None or has_word(bytes(text[start:end]))


def too_long(where: str, what: str) -> BertprepError:
    """The error for a document or a line that is too long."""
    return BertprepError(
        f"{where}: {what} is longer than {MOST_DOCUMENT_BYTES:,} bytes, which no book is; a document must be one text, "
        "and in a text file end with a blank line"
    )


def check_encoding(name: Path | str, start: bytes) -> None:
    """Raise if a file begins like UTF-16 or UTF-32, which may also be valid UTF-8: letters with zeros in between."""
    start = start[:4096]
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or 3 * start.count(0) > len(start):
        raise BertprepError(
            f"{name}: expected UTF-8, found UTF-16, UTF-32 or something that is not text: it begins with {start[:8].hex(' ')}; "
            "convert the file, for example with iconv -f UTF-16 -t UTF-8"
        )


def _raise_not_utf8(path: Path, block: bytearray, position: int) -> None:
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise BertprepError(
            f"{path}: byte {position + error.start:,}: expected UTF-8, found 0x{block[error.start]:02x} ({error.reason}); "
            "convert the file, for example with iconv -t UTF-8"
        ) from error


def version_of(path: Path, file: BinaryIO | None = None) -> tuple[int, ...]:
    """The values that show that a file, or the one that is open, is unchanged: device, inode, size and time of modification.

    Of an object they are a digest of its version.
    """
    if isinstance(path, ObjectPath):
        return (int(hashlib.sha256(path.status().version.encode()).hexdigest()[:15], 16),)
    status = os.fstat(file.fileno()) if file else path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class Batch(NamedTuple):
    """Some documents of one file: document i ends at text[ends[i]], where the next begins; TEXT_SLACK bytes follow the last."""

    file: int  # its number
    text: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.int64]


def read_batches(files: Mapping[int, TextFile], documents: Documents) -> Iterator[Batch]:
    """Yield the documents, in batches of at least one and at most `BATCH_BYTES` of text, each valid until the next one.

    One file is open at a time. Raises `BertprepError` if a file has changed since it was indexed: its offsets are wrong.
    """
    buffer = np.zeros(BATCH_BYTES + TEXT_SLACK, np.uint8)
    for number in sorted(set(documents.file.tolist())):
        path = files[number].input.path
        of_file = documents.take(np.flatnonzero(documents.file == number))
        ends = np.cumsum(of_file.size_bytes)
        try:
            with local_copy(path).open("rb", buffering=0) as file:
                if version_of(path, file) != files[number].version:
                    raise EOFError("it was changed")
                first, done = 0, 0
                while first < len(ends):
                    after = max(first + 1, int(np.searchsorted(ends, done + BATCH_BYTES, side="right")))
                    size = int(ends[after - 1]) - done
                    if len(buffer) < size + TEXT_SLACK:
                        buffer = np.zeros(size + TEXT_SLACK, np.uint8)
                    text = buffer[: size + TEXT_SLACK]
                    _read_spans(file, of_file.start[first:after], ends[first:after] - done, text)
                    yield Batch(number, text, ends[first:after] - done)
                    first, done = after, int(ends[after - 1])
        except (OSError, EOFError) as error:
            raise BertprepError(f"{path}: can no longer be read as it was at the start of the run: {error}") from error


def _read_spans(
    file: io.FileIO, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], buffer: npt.NDArray[np.uint8]
) -> None:
    """Read the spans of a file that begin at `starts`, one after the other, each up to buffer[ends[i]]."""
    text, at = buffer.data, 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        position = start
        while at < end:
            read = os.preadv(file.fileno(), [text[at:end]], position)
            if not read:
                raise EOFError(f"byte {position + end - at:,} is missing")
            at += read
            position += read
    if (wrong := kernels.load().check_utf8(buffer, at)) >= 0:
        raise EOFError(f"it is no longer UTF-8, byte {wrong:,} of its documents")
