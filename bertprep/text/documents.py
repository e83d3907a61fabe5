"""An index of the documents of some text files: the start and end of each, without the text.

A blank line, one that `str.strip` leaves empty, ends a document; so does the end of a file. Each file is read once, in blocks,
which finds its documents, checks that it is UTF-8, and takes its sha256 and 16 bytes of the sha256 of each document, by which
duplicates are found and dropped: about 300 MB a second and 36 bytes of memory a document, whatever its length. Workers then
seek to the documents of their shard.
"""

import codecs
import hashlib
import os
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from bertprep import pool
from bertprep.errors import BertprepError, UsageError
from bertprep.files.places import COPY_DIGITS, is_object, local_copy

BLOCK_BYTES = 4_000_000
MOST_DOCUMENT_BYTES = 64 << 20
"""The longest document or line; no book is longer. Longer input lacks blank lines, or is not text."""
HASH_BYTES = 16

# The gap between two documents, from the last line end of one to the first byte of the next: blank lines, of characters for
# which str.isspace is true. No nested repeats of one byte, which could take exponential time.
_ASCII_SPACE = rb"[\t-\r\x1c-\x20]*"
_OTHER_SPACE = rb"\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xa8\xa9\xaf]|\xe2\x81\x9f|\xe3\x80\x80"
_BLANK_LINES = re.compile(rb"\n%b(?:(?:%b)%b)*\n" % (_ASCII_SPACE, _OTHER_SPACE, _ASCII_SPACE))
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
    seen: set[Path] = set()
    for given in inputs:
        _check_input(given.path, seen)
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
            self._has_word = self._has_word or _has_word(body)
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


def _has_word(text: bytes) -> bool:
    return _LETTER_OR_DIGIT.search(text) is not None or (not text.isascii() and any(map(str.isalnum, text.decode())))


def _read_index(given: TextInput) -> _FileIndex:
    digest = hashlib.sha256()
    found = _DocumentCollector()
    position = 0
    with local_copy(given.path).open("rb") as file:
        version = version_of(file, given.path)
        while block := file.read(BLOCK_BYTES) + file.readline(MOST_DOCUMENT_BYTES):  # whole lines only
            digest.update(block)
            if position == 0:
                check_encoding(given.path, block)
            if len(block) >= MOST_DOCUMENT_BYTES:
                raise too_long(f"{given.path}: byte {position:,} and after", "a line")
            _check_utf8(given.path, block, position)
            skipped = 0
            if position == 0 and block.startswith(codecs.BOM_UTF8):
                skipped = len(codecs.BOM_UTF8)
                found.end_document(0, skipped)
            # A line end before the block and, if the file lacks one, after the last line makes every blank line match.
            lines = b"".join((b"\n", block[skipped:] if skipped else block, b"" if block.endswith(b"\n") else b"\n"))
            text_start, offset = 1, position + skipped - 1
            for gap in () if given.one_document else _BLANK_LINES.finditer(lines):
                start, end = gap.span()
                found.add(lines[text_start:start])
                found.end_document(offset + start, offset + end)
                text_start = end
            found.add(lines[text_start:])
            position += len(block)
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


def _check_utf8(path: Path, block: bytes, position: int) -> None:
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise BertprepError(
            f"{path}: byte {position + error.start:,}: expected UTF-8, found 0x{block[error.start]:02x} ({error.reason}); "
            "convert the file, for example with iconv -t UTF-8"
        ) from error


def version_of(file: BinaryIO, path: Path) -> tuple[int, ...]:
    """The values that show that an open file is unchanged: device, inode, size and time of modification.

    Of the copy of an object it is the copy's name, which changes with the object.
    """
    if is_object(path):
        return (int(Path(file.name).name[:COPY_DIGITS], 16),)
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_documents(files: Mapping[int, TextFile], documents: Documents) -> Iterator[tuple[int, str]]:
    """Yield the file number and the text of each document; one file is open at a time.

    Raises `BertprepError` if a file has changed since it was indexed, since its offsets would be wrong.
    """
    for number in np.unique(documents.file).tolist():
        path = files[number].input.path
        of_file = documents.take(np.flatnonzero(documents.file == number))
        try:
            with local_copy(path).open("rb") as file:
                if version_of(file, path) != files[number].version:
                    raise EOFError("it was changed")
                for start, end in zip(of_file.start.tolist(), of_file.end.tolist(), strict=True):
                    file.seek(start)
                    text = file.read(end - start)
                    if len(text) < end - start:
                        raise EOFError(f"byte {end:,} is missing")
                    yield number, text.decode()
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise BertprepError(f"{path}: can no longer be read as it was at the start of the run: {error}") from error
