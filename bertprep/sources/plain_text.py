"""Read plain text files: UTF-8, in which a blank line or the end of the file ends a document.

A file is hashed once, then workers read chunks of it that begin and end between documents. It is an error if the file changes
between the two.
"""

import codecs
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bertprep.encodings import advise, guess_wide
from bertprep.errors import BertprepError, not_utf8, reading
from bertprep.files.paths import ObjectPath, checksum_of, open_at

BLOCK_BYTES = 1_000_000
SENTENCE_ENDS = tuple(".!?…‽。．！？｡।॥؟۔։።")
CLOSING_MARKS = "\"'”’»)]」』）"
"""Marks that end a sentence, and marks that may follow them on the line."""
MAX_DOCUMENT_BYTES = 64 << 20
"""The length of the longest document or line. No book is longer; longer input lacks blank lines or is not text."""

GAP = re.compile(r"\n\s*\n")
"""The blank lines between two documents, with the line end before them."""
FIELD_GAP = "\n\x1d\n"
"""The separator of fields that are joined to a document: a line with the group separator, which counts as white space."""
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")


@dataclass(frozen=True)
class TextFile:
    """The state of a text file when it was hashed."""

    path: Path
    size_bytes: int
    blake3: str
    version: tuple[int, ...]  # from `version_of`


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
    """Read a whole text file to hash it, and return its state."""
    with reading(path):
        return TextFile(path, path.stat().st_size, checksum_of(path), version_of(path))


def cut_file(file: TextFile, piece_bytes: int) -> Iterator[Piece]:
    """Yield the pieces of a text file. Each ends at the first blank line after a multiple of `piece_bytes`."""
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


def read_piece(piece: Piece) -> Iterator[str]:
    """Yield the documents of a piece, white space included. Raises `BertprepError` if the file has changed or is not text."""
    path, left = piece.file.path, piece.size_bytes
    data, position = b"", piece.start  # bytes to be decoded, and their offset
    rest = ""  # the unfinished document before them
    with reading(path), open_at(path, piece.start) as file:
        if version_of(path, file) != piece.file.version:
            raise BertprepError(f"{path}: was changed during the run; run the command again when it no longer changes")
        while left:
            wanted = min(max(BLOCK_BYTES, len(rest)), left)
            block = file.read(wanted)
            if len(block) < wanted:
                raise BertprepError(f"{path}: became shorter during the run; run the command again when it no longer changes")
            if left == piece.size_bytes and piece.start == 0:
                check_encoding(path, block)
                skipped = len(codecs.BOM_UTF8) if block.startswith(codecs.BOM_UTF8) else 0
                block, position = block[skipped:], skipped
            left -= wanted
            data += block
            decoded = data.rfind(b"\n") + 1 if left else len(data)
            text = rest + _decode(path, data[:decoded], position)
            data, position = data[decoded:], position + decoded
            documents = [text] if piece.one_document else _split_documents(text)
            rest = documents.pop() if left else ""
            yield from (document for document in documents if not _is_blank(document))
            if len(rest) + len(data) > MAX_DOCUMENT_BYTES:
                raise too_long(f"{path}: byte {position - len(rest.encode()):,} and after", "a document")


def _decode(path: Path, data: bytes, position: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise not_utf8(f"{path}: byte {position + error.start:,}", error) from error


def _split_documents(text: str) -> list[str]:
    first, *others = GAP.split("\n" + text)  # the added line end makes a gap of blank lines at the beginning, too
    return [first[1:], *others]


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def has_word(text: str) -> bool:
    """Return whether text has a letter or a digit."""
    return _LETTER_OR_DIGIT.search(text) is not None


def too_long(where: str, what: str) -> BertprepError:
    return BertprepError(
        f"{where}: {what} is longer than {MAX_DOCUMENT_BYTES:,} bytes, more than any book; give each text as its own document, "
        "which a blank line ends in a text file"
    )


def check_encoding(name: Path | str, start: bytes) -> None:
    """Raise `BertprepError` if a file begins like UTF-16 or UTF-32; decoding as UTF-8 would not always notice."""
    start = start[:4096]
    has_mark = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if has_mark or 3 * start.count(0) > len(start) or guess_wide(start):
        raise BertprepError(
            f"{name}: expected UTF-8, found UTF-16, UTF-32 or something that is not text: it begins with {start[:8].hex(' ')}; "
            f"{advise(str(name), start)}"
        )


def version_of(path: Path, file: BinaryIO | None = None) -> tuple[int, ...]:
    """Return numbers that change with a file: its inode, size and modification time, or a hash of an object's version."""
    if isinstance(path, ObjectPath):
        return (int(hashlib.sha256(path.status().version.encode()).hexdigest()[:15], 16),)
    status = os.fstat(file.fileno()) if file else path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def ends_sentence(line: str) -> bool:
    """Return whether a line ends with a sentence-final mark, not counting closing quotation marks and brackets."""
    return line.rstrip(CLOSING_MARKS).endswith(SENTENCE_ENDS)
