"""Reads one text shard once: 16 bytes of each document's hash, the shard's sha256, and findings about its lines.

The file is mapped and read in blocks, so a shard of any size costs a few megabytes and 16 bytes a document. Only lines with
suspicious bytes are decoded; hashing limits the speed.
"""

from __future__ import annotations

import codecs
import hashlib
import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.errors import BertprepError
from bertprep.files.atomic import unnamed_file
from bertprep.files.mapped_file import MappedFile
from bertprep.files.places import ObjectPath

Text = mmap.mmap | bytes
LONGEST_SENTENCE = 10_000  # characters
HASH_BYTES = 16
_BLOCK_BYTES = 4_000_000
_NEWLINE = 10
_DOCUMENT_END = b"\n\n"
_WITHOUT_ASCII = re.compile(rb"\n[^!-~\n]+(?=\n)")  # lines that could consist of any kind of white space


@dataclass(frozen=True)
class ScannedShard:
    """The content of one shard; `findings` are those that need no other shard."""

    name: str  # relative to the folder of shards
    size_bytes: int
    sha256: str
    digests: NDArray[np.uint64]  # (documents, 2): 16 bytes of the sha256 of each
    largest_document: int  # bytes
    findings: list[Finding]

    @property
    def documents(self) -> int:
        return len(self.digests)


def scan_shard(task: tuple[Path, str]) -> ScannedShard:
    """Read the shard `name` of a folder, given as (folder, name); faults are findings, nothing raises."""
    folder, name = task
    try:
        with _text_of(folder / name) as text:
            if not len(text):
                return _without_documents(name, "empty-file", "documents, one sentence a line", "a file of 0 bytes")
            return _scan(name, text)
    except BertprepError as error:
        return _without_documents(name, "unreadable", "a text file", str(error).removeprefix(f"{folder / name}: "))
    except OSError as error:
        return _without_documents(name, "unreadable", "a text file", error.strerror or str(error))


def line_of_document(path: Path, number: int) -> int:
    """The line, counted from 1, at which document `number`, counted from 0, begins."""
    line = 1
    with _text_of(path) as text:
        for document, (start, _) in enumerate(_documents(text)):
            if document == number:
                line = _line_at(text, start)
                break
    return line


@contextmanager
def _text_of(path: Path) -> Iterator[Text]:
    """The bytes of a file, mapped; of an object as the store gives them now: in memory, or a large one in an unnamed file."""
    if isinstance(path, ObjectPath):
        from bertprep.files import object_store

        status, content = object_store.read(path)
        if content is not None:
            yield content
            return
        with unnamed_file(path) as copy:
            for block in object_store.blocks(path, status):
                copy.write(block)
            copy.flush()
            with mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield mapped
        return
    with path.open("rb") as file:
        if not file.seek(0, 2):
            yield b""
            return
        with MappedFile(file) as text:
            yield text
            text.check()


def _without_documents(name: str, code: str, expected: str, found: str) -> ScannedShard:
    none = np.empty((0, 2), np.uint64)
    return ScannedShard(name, 0, hashlib.sha256().hexdigest(), none, 0, [Finding(ERROR, code, name, None, expected, found)])


def _scan(name: str, text: Text) -> ScannedShard:
    digests, largest = bytearray(), 0
    with memoryview(text) as view:
        for start, end in _documents(text):
            with view[start:end] as document:
                digests += hashlib.sha256(document).digest()[:HASH_BYTES]
            largest = max(largest, end - start)
        sha256 = hashlib.sha256(view).hexdigest()
    checks = (_check_utf8, _check_end, _check_blank_lines, _check_long_lines)
    findings = [finding for check in checks for finding in check(name, text)]
    return ScannedShard(name, len(text), sha256, np.frombuffer(bytes(digests), np.uint64).reshape(-1, 2), largest, findings)


def _documents(text: Text) -> Iterator[tuple[int, int]]:
    """Where each document begins, and where its last line ends."""
    start, size = 0, len(text)
    while start < size:
        if text[start] == _NEWLINE:  # a blank line too many, which `_check_blank_lines` reports
            start += 1
            continue
        end = text.find(_DOCUMENT_END, start)
        if end < 0:
            end = size - 1 if text[size - 1] == _NEWLINE else size
        yield start, end
        start = end + len(_DOCUMENT_END)


def _line_at(text: Text, offset: int) -> int:
    """The line, counted from 1, of the byte at `offset`."""
    return 1 + sum(text[at : min(at + _BLOCK_BYTES, offset)].count(b"\n") for at in range(0, offset, _BLOCK_BYTES))


def _check_utf8(name: str, text: Text) -> Iterator[Finding]:
    at = 0
    while at < len(text):
        block = text[at : at + _BLOCK_BYTES]
        try:
            at += codecs.utf_8_decode(block, "strict", at + len(block) == len(text))[1]
        except UnicodeDecodeError as error:
            offset = at + error.start
            found = f"0x{block[error.start]:02x} at byte {offset:,} ({error.reason})"
            yield Finding(ERROR, "not-utf8", name, _line_at(text, offset), "UTF-8", found)
            return


def _check_end(name: str, text: Text) -> Iterator[Finding]:
    if text[-2:] != _DOCUMENT_END:
        last = _line_at(text, len(text) - 1)
        found = f"the end of the file after {text[-20:]!r}"
        yield Finding(ERROR, "truncated", name, last, "a blank line after the last document", found)


def _check_blank_lines(name: str, text: Text) -> Iterator[Finding]:
    """Check that each document ends with one blank line; any other splits a document or is one too many."""
    offsets = [match.start() + 1 for match in _WITHOUT_ASCII.finditer(text) if _is_space(match[0])]
    first_end = text.find(b"\n")
    if first_end == 0 or _is_space(text[: max(first_end, 0)]):
        offsets.insert(0, 0)
    at = text.find(b"\n\n\n")
    while at >= 0:
        offsets.append(at + 2)
        at = text.find(b"\n\n\n", at + 1)
    if offsets:
        offset = min(offsets)
        line = text[offset : offset + 40].partition(b"\n")[0].decode(errors="replace")
        expected = "a sentence, or one blank line after each document"
        found = f"white space alone, {line!r}" if line else "one more blank line"
        yield Finding(ERROR, "blank-sentence", name, _line_at(text, offset), expected, found, len(offsets))


def _is_space(line: bytes) -> bool:
    return line.decode(errors="replace").isspace()


def _check_long_lines(name: str, text: Text) -> Iterator[Finding]:
    long = [
        (start, size)
        for start, end in _lines_above(text, LONGEST_SENTENCE)
        if (size := _characters(text[start:end])) > LONGEST_SENTENCE
    ]
    if long:
        start, size = long[0]
        expected = f"sentences of at most {LONGEST_SENTENCE:,} characters"
        yield Finding(WARNING, "long-sentence", name, _line_at(text, start), expected, f"one of {size:,}", len(long))


def _characters(line: bytes) -> int:
    return len(line.decode(errors="replace"))


def _lines_above(text: Text, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Start and end of the lines longer than `size_bytes`."""
    start = 0  # of the current line
    for at in range(0, len(text), _BLOCK_BYTES):
        block = np.frombuffer(text[at : at + _BLOCK_BYTES], np.uint8)
        ends = np.flatnonzero(block == _NEWLINE) + at
        if not len(ends):
            continue
        starts = np.concatenate([[start], ends[:-1] + 1])
        for line in np.flatnonzero(ends - starts > size_bytes):
            yield int(starts[line]), int(ends[line])
        start = int(ends[-1]) + 1
    if len(text) - start > size_bytes:
        yield start, len(text)
