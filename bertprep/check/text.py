"""Checks text shards: every document once, whole, in one split, in shards of equal size.

Each shard is mapped and read in blocks, in parallel, so one of any size costs a few megabytes and 16 bytes a document; hashing
limits the speed. Shards are compared by these 16 bytes, and 33 more during the comparison. A document in both training and test
makes the test worthless, so it is an error however the shards were made.
"""

from __future__ import annotations

import codecs
import hashlib
import math
import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.check.outcome import ERROR, SHOWN_OF_A_CODE, WARNING, Checks, FileFacts, FileReport, FileTask, Finding, Outcome
from bertprep.config import HASH
from bertprep.errors import BertprepError
from bertprep.files.atomic import TEMPORARY_SUFFIX, unnamed_file
from bertprep.files.places import ObjectPath, sizes_of
from bertprep.records.data_sets import DataSet
from bertprep.text.documents import repeated_rows
from bertprep.workspace.layout import MANIFEST, SPLITS

MAX_SENTENCE = 10_000  # characters
MAX_ABOVE_MEAN = 0.02  # fraction of a shard's size, beyond one document
_DEVIATIONS = 6  # standard deviations by which the largest of 100,000 shards may exceed the mean
_HASH_BYTES = 16
_BLOCK_BYTES = 4_000_000
_DOCUMENT_END = b"\n\n"
# the newline before a second blank line, before a line that could consist of any kind of white space, or before a long line
_ODD_LINE = re.compile(rb"\n(?=(\n\n)|[^!-~\n]+\n|[^\n]{%d,})" % (MAX_SENTENCE + 1))

Text = mmap.mmap | bytes


@dataclass
class TextReport(FileReport):
    """With what is judged over all shards."""

    sha256: str = ""
    crc32c: str = ""
    digests: NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 2), np.uint64))  # of each document, of its sha256
    largest_document: int = 0  # bytes


class TextShards(Checks[TextReport]):
    """The checks of one data set; `check_file` runs in workers, the rest where their reports arrive.

    All files in the folders of the two splits are checked; unfinished ones of a killed run are left out.
    """

    def __init__(self, data_set: DataSet) -> None:
        paths = (path for split in SPLITS for path in sorted((data_set.folder / split).glob("[!.]*")))
        names = [path.relative_to(data_set.folder).as_posix() for path in paths if path.suffix != TEMPORARY_SUFFIX]
        sizes = sizes_of(data_set.folder, names)
        super().__init__({name: name.partition("/")[0] for name in sizes}, scan_shard, sizes=sizes)
        self._data_set = data_set

    def judge(self, reports: Sequence[TextReport], outcome: Outcome) -> list[Finding]:
        manifest = self._data_set.manifest
        made_with, facts = (manifest.made_with, manifest.files) if manifest else ({}, {})
        outcome.files = [
            FileFacts(name, split, facts.get(name, {}).get("documents", 0), self.sizes[name])
            for name, split in self._data_set.files.items()
            if name in self.sizes
        ]
        findings = [finding for report in reports for finding in report.findings]
        for report in reports:
            name, facts_of = report.facts.name, facts.get(report.facts.name)
            if facts_of and report.sha256 == facts_of["sha256"]:
                outcome.texts[name.rpartition("/")[2]] = report.crc32c
            elif facts_of:
                expected = f"{facts_of['bytes']:,} bytes, sha256 {facts_of['sha256'][:16]}..., as {MANIFEST} says"
                found = f"{report.facts.size_bytes:,} bytes, sha256 {report.sha256[:16]}..."
                findings.append(Finding(ERROR, "file-changed", name, None, expected, found))
        findings += _find_repeated(self._data_set.folder, reports, WARNING if made_with.get("keep_duplicates") else ERROR)
        findings += _check_balance(reports, by_hash=made_with.get("assign") == HASH)
        return findings


def scan_shard(task: FileTask) -> TextReport:
    """Read one shard; faults are findings, nothing raises."""
    path, name = task.folder / task.name, task.name
    nothing = FileFacts(name, task.split, 0, 0)
    try:
        with _text_of(path) as text:
            if len(text):
                return _scan(nothing, text)
            finding = Finding(ERROR, "empty-file", name, None, "documents, one sentence a line", "a file of 0 bytes")
    except BertprepError as error:
        finding = Finding(ERROR, "unreadable", name, None, "a text file", str(error).removeprefix(f"{path}: "))
    except OSError as error:
        finding = Finding(ERROR, "unreadable", name, None, "a text file", error.strerror or str(error))
    return TextReport(nothing, [finding], sha256=hashlib.sha256().hexdigest())


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
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            yield text


def _scan(nothing: FileFacts, text: Text) -> TextReport:
    digests, largest = bytearray(), 0
    with memoryview(text) as view:
        for start, end in _documents(text):
            with view[start:end] as document:
                digests += hashlib.sha256(document).digest()[:_HASH_BYTES]
            largest = max(largest, end - start)
        sha256 = hashlib.sha256(view).hexdigest()
        crc32c = f"{kernels.load().checksum(0, np.frombuffer(view, np.uint8), len(text)):08x}"
    name = nothing.name
    findings = [*_check_utf8(name, text), *_check_end(name, text), *_check_lines(name, text)]
    of_documents = np.frombuffer(bytes(digests), np.uint64).reshape(-1, 2)
    facts = FileFacts(name, nothing.split, len(of_documents), len(text))
    return TextReport(facts, findings, sha256=sha256, crc32c=crc32c, digests=of_documents, largest_document=largest)


def _documents(text: Text) -> Iterator[tuple[int, int]]:
    """Where each document begins, and where its last line ends."""
    start, size = 0, len(text)
    while start < size:
        if text[start] == ord("\n"):  # a blank line too many, which `_check_lines` reports
            start += 1
            continue
        end = text.find(_DOCUMENT_END, start)
        if end < 0:
            end = size - 1 if text[size - 1] == ord("\n") else size
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


def _check_lines(name: str, text: Text) -> Iterator[Finding]:
    """Check that each document ends with one blank line, and sentences are not whole books.

    Any other blank line splits a document or is one too many.
    """
    starts = [0, *(match.end() + bool(match[1]) for match in _ODD_LINE.finditer(text))]
    blank: list[int] = []
    long: list[tuple[int, int]] = []  # where it begins, its characters
    for start in starts:
        end = text.find(b"\n", start)
        line = text[start : end if end >= 0 else len(text)].decode(errors="replace")
        if end >= 0 and (not line or line.isspace()):
            blank.append(start)
        if len(line) > MAX_SENTENCE:
            long.append((start, len(line)))
    if blank:
        line = text[blank[0] : blank[0] + 40].partition(b"\n")[0].decode(errors="replace")
        expected = "a sentence, or one blank line after each document"
        found = f"white space alone, {line!r}" if line else "one more blank line"
        yield Finding(ERROR, "blank-sentence", name, _line_at(text, blank[0]), expected, found, len(blank))
    if long:
        start, size = long[0]
        expected = f"sentences of at most {MAX_SENTENCE:,} characters"
        yield Finding(WARNING, "long-sentence", name, _line_at(text, start), expected, f"one of {size:,}", len(long))


def _find_repeated(folder: Path, shards: Sequence[TextReport], level: str) -> Iterator[Finding]:
    """Findings about repeated documents: for each file, one for those of its own split, one for those of the other.

    Those that are shown have lines, for which files are read again; the others, maybe thousands, have none.
    """
    ends = np.cumsum([len(shard.digests) for shard in shards])
    if not len(ends) or not ends[-1]:
        return
    later, first = repeated_rows(np.concatenate([shard.digests for shard in shards]))
    file_of_later, file_of_first = (np.searchsorted(ends, rows, side="right") for rows in (later, first))

    def locate(row: int, file: int, *, is_shown: bool) -> tuple[str, int | None]:
        shard = shards[file]
        number = row - int(ends[file]) + len(shard.digests)
        return shard.facts.name, _line_of_document(folder / shard.facts.name, number) if is_shown else None

    split_of = np.array([SPLITS.index(shard.facts.split) for shard in shards])
    across = split_of[file_of_later] != split_of[file_of_first]
    for code, of_level, expected, chosen in (
        ("document-twice", level, "each document once", ~across),
        ("document-in-both-splits", ERROR, "no test document in training", across),
    ):
        rows = np.flatnonzero(chosen)
        files, firsts, repeats = np.unique(file_of_later[rows], return_index=True, return_counts=True)
        for number, (file, row, count) in enumerate(zip(files.tolist(), rows[firsts].tolist(), repeats.tolist(), strict=True)):
            is_shown = number < SHOWN_OF_A_CODE
            name, line = locate(int(later[row]), file, is_shown=is_shown)
            before, line_before = locate(int(first[row]), int(file_of_first[row]), is_shown=is_shown)
            found = f"the document of {before}" if line_before is None else f"the document of {before}, line {line_before:,}"
            yield Finding(of_level, code, name, line, expected, found, count)


def _line_of_document(path: Path, number: int) -> int:
    """The line, counted from 1, at which document `number`, counted from 0, begins."""
    with _text_of(path) as text:
        starts = (start for start, _ in _documents(text))
        start = next((start for document, start in enumerate(starts) if document == number), 0)
        return _line_at(text, start)


def _check_balance(shards: Sequence[TextReport], *, by_hash: bool) -> Iterator[Finding]:
    """Findings about shards that exceed the mean by more than one document explains, or if `by_hash` by more than chance does.

    The variance of a shard's size is then at most its mean, times the size of the largest document.
    """
    for split in SPLITS:
        of_split = [shard for shard in shards if shard.facts.split == split]
        if not of_split:
            continue
        mean = sum(shard.facts.size_bytes for shard in of_split) / len(of_split)
        largest = max(of_split, key=lambda shard: shard.facts.size_bytes)
        largest_document = max(shard.largest_document for shard in of_split) if by_hash else largest.largest_document
        by_chance = _DEVIATIONS * math.sqrt(mean * largest_document) if by_hash else 0.0
        if largest.facts.size_bytes > (1 + MAX_ABOVE_MEAN) * mean + largest_document + by_chance:
            how = "and as much as chance gives" if by_hash else "and a document"
            expected = f"at most {MAX_ABOVE_MEAN:.0%} {how} above the mean of {split}, {mean:,.0f} bytes"
            found = f"{largest.facts.size_bytes:,} bytes"
            yield Finding(WARNING, "shard-balance", largest.facts.name, None, expected, found)
