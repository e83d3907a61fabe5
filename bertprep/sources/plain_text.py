"""Plain text files: UTF-8, in which a blank line or the end of the file ends a document.

A file is hashed once, then workers read chunks that begin and end between documents. A file that changes meanwhile is an error.
"""

import codecs
import hashlib
import os
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from bertprep import kernels
from bertprep.errors import BertprepError, not_utf8, reading
from bertprep.files.paths import ObjectPath, open_at
from bertprep.kernels.numbers import CLOSING_MARKS, SENTENCE_ENDS, TEXT_SLACK
from bertprep.work.manifest import sha256_of

BLOCK_BYTES = 1_000_000
BATCH_BYTES = 500_000
MAX_DOCUMENT_BYTES = 64 << 20
"""The longest document or line; no book is longer. Longer input lacks blank lines, or is not text."""

_LETTER_OR_DIGIT = re.compile(rb"[0-9A-Za-z]")


@dataclass(frozen=True)
class TextFile:
    """The state of a text file when it was hashed."""

    path: Path
    size_bytes: int
    sha256: str
    version: tuple[int, ...]  # of the file on the disk, see `version_of`


@dataclass(frozen=True)
class Piece:
    """Complete documents: bytes `start` to `end` of a file, or one document."""

    file: TextFile
    start: int
    end: int
    one_document: bool = False

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


def hash_file(path: Path) -> TextFile:
    """Return the state of a text file; reads all of it."""
    with reading(path):
        return TextFile(path, path.stat().st_size, sha256_of(path), version_of(path))


def cut_file(file: TextFile, piece_bytes: int) -> Iterator[Piece]:
    """Yield the pieces of a text file, which end at the first blank line after a multiple of `piece_bytes`."""
    start = 0
    while start + piece_bytes < file.size_bytes:
        end = _after_blank_line(file.path, (start // piece_bytes + 1) * piece_bytes)
        yield Piece(file, start, end)
        start = end
    if start < file.size_bytes or not start:
        yield Piece(file, start, file.size_bytes)


def _after_blank_line(path: Path, position: int) -> int:
    with open_at(path, position) as file:
        position += len(file.readline())
        while line := file.readline():
            position += len(line)
            if not line.strip():
                break
    return position


def read_piece(piece: Piece) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], int]]:
    """Yield the documents of a chunk, in the form of `Splitter.split`, with the number of empty ones; valid until the next.

    Raises `BertprepError` if the file has changed or is not text.
    """
    path, start, end = piece.file.path, piece.start, piece.end
    with reading(path), open_at(path, start) as file:
        if version_of(path, file) != piece.file.version:
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
            done = yield from _documents_in(path, rest, position, is_last, piece.one_document)
            position += done
            rest = rest[done:]
            if is_last:
                return
            if len(rest) > MAX_DOCUMENT_BYTES:
                raise too_long(f"{path}: byte {position:,} and after", "a document")


def _documents_in(
    path: Path, block: bytes, position: int, is_last: bool, one_document: bool
) -> Generator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], int], None, int]:
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
    try:
        str(memoryview(buffer)[1:done], "utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(f"{path}: byte {position + error.start:,}", error) from error
    start = first = 1
    ends: list[int] = []
    empty = 0
    for stop, after in zip(stops, nexts, strict=True):
        if stop > start:  # else a gap that opens a file or continues
            if stop - start > MAX_DOCUMENT_BYTES:
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


def has_word(text: bytes) -> bool:
    """Whether UTF-8 text has a letter or a digit."""
    return _LETTER_OR_DIGIT.search(text) is not None or (not text.isascii() and any(map(str.isalnum, text.decode())))


def too_long(where: str, what: str) -> BertprepError:
    return BertprepError(
        f"{where}: {what} is longer than {MAX_DOCUMENT_BYTES:,} bytes, which no book is; a document must be one text, "
        "and in a text file end with a blank line"
    )


def check_encoding(name: Path | str, start: bytes) -> None:
    """Raise for a file that begins like UTF-16 or UTF-32, which may also be valid UTF-8."""
    start = start[:4096]
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or 3 * start.count(0) > len(start):
        raise BertprepError(
            f"{name}: expected UTF-8, found UTF-16, UTF-32 or something that is not text: it begins with {start[:8].hex(' ')}; "
            "convert the file, for example with iconv -f UTF-16 -t UTF-8"
        )


def version_of(path: Path, file: BinaryIO | None = None) -> tuple[int, ...]:
    """Return what identifies an unchanged file on any machine: inode, size, time of modification; of an object its version."""
    if isinstance(path, ObjectPath):
        return (int(hashlib.sha256(path.status().version.encode()).hexdigest()[:15], 16),)
    status = os.fstat(file.fileno()) if file else path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def ends_sentence(line: str) -> bool:
    """Whether a line ends with a sentence-final mark, closing quotation marks and brackets aside."""
    return line.rstrip(CLOSING_MARKS).endswith(SENTENCE_ENDS)
