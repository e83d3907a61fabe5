"""Checks text shards: every document once, complete, in one split, in shards of equal size; and token shards.

A worker reads one shard at a time. Documents are compared by 20 bytes each, and 33 more meanwhile.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.check.fit import judge_documents
from bertprep.check.outcome import ERROR, WARNING, CheckedFile, Checks, FileReport, FileTask, Finding, Outcome, TokenCounts
from bertprep.check.statistics import judge_split_sizes
from bertprep.errors import BertprepError
from bertprep.files.atomic import TEMPORARY_SUFFIX
from bertprep.files.checksums import BLAKE3, Checksum, digest, find_checksum
from bertprep.files.paths import sizes_of
from bertprep.instances import Vocabulary
from bertprep.tokens.shard import TokenShard, check_tokens
from bertprep.work.data_set import DataSet
from bertprep.work.layout import SPLITS, token_files

MAX_SENTENCE = 10_000  # characters
MAX_ABOVE_MEAN = 0.02  # fraction of a shard's size, beyond one document
HASH_BYTES = 16
_DOCUMENT_END = b"\n\n"
_ENDS = re.compile(rb"\n\n|\Z")
# the newline before a second blank line, before a line that could consist of any kind of white space, or before a long line
_ODD_LINE = re.compile(rb"\n(?=(\n\n)|[^!-~\n]+\n|[^\n]{%d,})" % (MAX_SENTENCE + 1))


class TextShards(Checks):
    """The checks of one data set; `check_text` runs in workers."""

    def __init__(self, data_set: DataSet) -> None:
        paths = (path for split in SPLITS for path in sorted((data_set.folder / split).glob("[!.]*")))
        names = [path.relative_to(data_set.folder).as_posix() for path in paths if path.suffix != TEMPORARY_SUFFIX]
        super().__init__({name: name.partition("/")[0] for name in sizes_of(data_set.folder, names)}, check_text)
        self._data_set = data_set

    def judge(self, reports: Sequence[FileReport], outcome: Outcome) -> None:
        manifest = self._data_set.manifest
        made_with, entries = (manifest.made_with, manifest.files) if manifest else ({}, {})
        for report in reports:
            if report.checksum == find_checksum(entries.get(report.file.name, {})):
                outcome.texts[report.file.name.rpartition("/")[2]] = report.crc32c
        if not reports:  # of a sample, of which text is no part
            for name in [name for name in self.files if name in self._data_set.files]:
                entry = entries.get(name, {})
                outcome.files.append(CheckedFile(name, self.files[name], entry.get("documents", 0), entry.get("bytes", 0)))
        super().judge(reports, outcome)
        count_tokens(reports, outcome)
        outcome.findings += judge_documents(outcome.token_counts.values())
        documents = sum(file.records for file in outcome.files)
        outcome.findings += judge_split_sizes(outcome.files, made_with.get("test_fraction"), documents)
        outcome.findings += find_repeated(reports, WARNING if made_with.get("keep_duplicates") else ERROR)
        outcome.findings += _check_balance(reports)


def check_text(task: FileTask) -> FileReport:
    """Read one shard; faults are findings, nothing raises."""
    path, name = task.folder / task.name, task.name
    report = FileReport(CheckedFile(name, task.split, 0, 0))
    try:
        text = path.read_bytes()
    except (BertprepError, OSError) as error:
        found = error.strerror if isinstance(error, OSError) and error.strerror else str(error).removeprefix(f"{path}: ")
        report.findings.append(Finding("unreadable", name, "a text file", found))
        return report
    if not text:
        report.findings.append(Finding("empty-file", name, "documents, one sentence a line", "a file of 0 bytes"))
        return report
    digests, lines, sentences, line = bytearray(), [], [], 1
    start = 0
    for end in _ENDS.finditer(text):
        block, start = text[start : end.start()], end.end()
        if document := block.strip(b"\n"):
            digests += hashlib.sha256(document).digest()[:HASH_BYTES]
            lines.append(line + len(block) - len(block.lstrip(b"\n")))
            sentences.append(1 + document.count(b"\n"))
            report.largest_document = max(report.largest_document, len(document))
        line += block.count(b"\n") + len(_DOCUMENT_END)
    report.file = CheckedFile(name, task.split, len(lines), len(text))
    by_sentences = TokenCounts.by_sentences(np.array(sentences, np.int64))
    report.counts = TokenCounts(len(lines), sum(sentences), documents_by_sentences=by_sentences)
    report.hashes, report.lines = np.frombuffer(bytes(digests), np.uint64).reshape(-1, 2), np.array(lines)
    algorithm = (find_checksum(task.entries.get(name, {})) or Checksum(BLAKE3, "")).algorithm
    report.checksum = Checksum(algorithm, digest(text, algorithm))
    report.crc32c = f"{kernels.load().checksum(0, np.frombuffer(text, np.uint8), len(text)):08x}"
    report.findings += _check_lines(name, text)
    return report


def _line_at(text: bytes, offset: int) -> int:
    return 1 + text.count(b"\n", 0, offset)


def _check_lines(name: str, text: bytes) -> Iterator[Finding]:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        found = f"0x{text[error.start]:02x} at byte {error.start:,} ({error.reason})"
        yield Finding("not-utf8", name, "UTF-8", found, _line_at(text, error.start))
    if not text.endswith(_DOCUMENT_END):
        found = f"the end of the file after {text[-20:]!r}"
        yield Finding("truncated", name, "a blank line after the last document", found, _line_at(text, len(text) - 1))
    # the first of each kind and their number, since a file may have nothing but such lines
    first_blank = first_long = size_of_long = blank_lines = long_lines = 0
    odd_lines = (match.end() + bool(match[1]) for match in _ODD_LINE.finditer(text))
    for start in chain((0,), odd_lines):
        end = text.find(b"\n", start)
        line = text[start : end if end >= 0 else len(text)].decode(errors="replace")
        if end >= 0 and (not line or line.isspace()):
            if not blank_lines:
                first_blank = start
            blank_lines += 1
        if len(line) > MAX_SENTENCE:
            if not long_lines:
                first_long, size_of_long = start, len(line)
            long_lines += 1
    if blank_lines:
        line = text[first_blank : first_blank + 40].partition(b"\n")[0].decode(errors="replace")
        found = f"white space alone, {line!r}" if line else "one more blank line"
        expected = "a sentence, or one blank line after each document"
        yield Finding("blank-sentence", name, expected, found, _line_at(text, first_blank), blank_lines)
    if long_lines:
        expected = f"sentences of at most {MAX_SENTENCE:,} characters"
        yield Finding(
            "long-sentence", name, expected, f"one of {size_of_long:,}", _line_at(text, first_long), long_lines, WARNING
        )


def find_repeated(shards: Sequence[FileReport], level: str, unit: str = "line") -> Iterator[Finding]:
    """Yield findings about repeated documents, for each file one within and one across splits; `unit` is where one begins."""
    if not any(len(shard.hashes) for shard in shards):
        return
    later, first = repeated_rows(np.concatenate([shard.hashes for shard in shards]))
    lines = np.concatenate([shard.lines for shard in shards])
    ends = np.cumsum([len(shard.hashes) for shard in shards])
    of_later, of_first = (np.searchsorted(ends, rows, side="right") for rows in (later, first))
    splits = sorted({shard.file.split for shard in shards})
    split_of = np.array([splits.index(shard.file.split) for shard in shards])
    across = split_of[of_later] != split_of[of_first]
    for code, of_level, expected, chosen in (
        ("document-twice", level, "each document once", ~across),
        ("document-in-both-splits", ERROR, "no test document in training", across),
    ):
        rows = np.flatnonzero(chosen)
        files, starts, counts = np.unique(of_later[rows], return_index=True, return_counts=True)
        for file, row, count in zip(files.tolist(), rows[starts].tolist(), counts.tolist(), strict=True):
            found = f"the document of {shards[of_first[row]].file.name}, {unit} {lines[first[row]]:,}"
            yield Finding(code, shards[file].file.name, expected, found, int(lines[later[row]]), count, of_level)


def repeated_rows(digests: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of rows that repeat an earlier one, ascending, and for each the index of its first occurrence.

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


def _check_balance(shards: Sequence[FileReport]) -> Iterator[Finding]:
    for split in SPLITS:
        of_split = [shard for shard in shards if shard.file.split == split]
        if not of_split:
            continue
        mean = sum(shard.file.size_bytes for shard in of_split) / len(of_split)
        largest = max(of_split, key=lambda shard: shard.file.size_bytes)
        largest_document = max(shard.largest_document for shard in of_split)
        if largest.file.size_bytes > (1 + MAX_ABOVE_MEAN) * mean + largest_document:
            expected = f"at most {MAX_ABOVE_MEAN:.0%} and a document above the mean of {split}, {mean:,.0f} bytes"
            found = f"{largest.file.size_bytes:,} bytes"
            yield Finding("shard-balance", largest.file.name, expected, found, level=WARNING)


class TokenShards(Checks):
    """The checks of one data set; `check_file` runs in workers, the rest where their reports arrive."""

    def __init__(self, data_set: DataSet, vocabulary: Vocabulary | None) -> None:
        names = sizes_of(data_set.folder, [part for name in data_set.files for part in self.parts(name)])
        super().__init__(data_set.files, partial(_check_tokens, vocabulary), names)

    def parts(self, name: str) -> list[str]:
        return [path.as_posix() for path in token_files(Path(name)).values()]

    def judge(self, reports: Sequence[FileReport], outcome: Outcome) -> None:
        count_tokens(reports, outcome)
        super().judge(reports, outcome)


def count_tokens(reports: Sequence[FileReport], outcome: Outcome) -> None:
    """Add the tokens that were counted of each file to those of its split."""
    for report in reports:
        if isinstance(report.counts, TokenCounts):
            known = outcome.token_counts.get(report.file.split, TokenCounts())
            outcome.token_counts[report.file.split] = known + report.counts


def _check_tokens(vocabulary: Vocabulary | None, task: FileTask) -> FileReport:
    name, path = task.name, task.folder / task.name
    size_bytes = sum(part.stat().st_size for part in token_files(path).values() if part.is_file())
    report = FileReport(CheckedFile(name, task.split, 0, size_bytes))
    try:
        token_shard = TokenShard(path)
        shard = token_shard.read()
    except BertprepError as error:
        found = str(error).removeprefix(f"{task.folder}/")
        report.findings.append(Finding("token-shard", name, "a .bin and an .idx that fit each other", found))
        return report
    report.file = CheckedFile(name, task.split, shard.documents, size_bytes)
    lengths = np.minimum(np.diff(shard.sentence_starts), TokenCounts.LONGEST)
    report.counts = counts = TokenCounts(
        shard.documents, shard.sentences, len(shard.tokens), np.bincount(lengths, minlength=TokenCounts.LONGEST + 1),
        documents_by_sentences=TokenCounts.by_sentences(np.diff(shard.document_starts)),
    )  # fmt: skip
    report.totals = {"documents": shard.documents, "sentences": shard.sentences, "tokens": len(shard.tokens)}
    if vocabulary:
        counts.unknown = int(np.count_nonzero(shard.tokens == vocabulary.unk))
        try:
            check_tokens(path, shard.tokens, vocabulary)
        except BertprepError as error:
            report.findings.append(Finding("id-range", name, "tokens that text gives", str(error).removeprefix(f"{path}: ")))
    if not task.entries and not token_shard.has_sentences:
        found = f"one in each of its {shard.documents:,} documents; only create --pairs none takes them"
        report.findings.append(Finding("no-sentences", name, "a sequence for each sentence", found, level=WARNING))
    return report
