"""Check text shards: they are UTF-8, have a blank line after each document, and each document once, in one split.

A worker reads one shard at a time. Documents are compared by 16-byte hashes, which are kept with their lines.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from itertools import chain

import numpy as np

from bertprep import kernels
from bertprep.check.counts import TokenCounts
from bertprep.check.finding import ERROR, WARNING, Finding
from bertprep.check.fit import judge_documents, judge_lone_document
from bertprep.check.outcome import CheckedFile, Checks, Outcome
from bertprep.check.repeats import HASH_BYTES, find_repeated_documents
from bertprep.check.sizes import judge_split_sizes
from bertprep.errors import BertprepError
from bertprep.files.atomic import TEMPORARY_SUFFIX
from bertprep.files.checksums import BLAKE3, digest
from bertprep.files.paths import sizes_of
from bertprep.work.data_set import DataSet
from bertprep.work.layout import MANIFEST, SPLITS
from bertprep.work.manifest import sha256_of_text

MAX_SENTENCE = 10_000  # characters
_DOCUMENT_END = b"\n\n"
_ENDS = re.compile(rb"\n\n|\Z")
# the newline before a second blank line, before a line that could consist of any kind of white space, or before a long line
_ODD_LINE = re.compile(rb"\n(?=(\n\n)|[^!-~\n]+\n|[^\n]{%d,})" % (MAX_SENTENCE + 1))


class TextShards(Checks):
    """The checks of one data set of text shards."""

    def __init__(self, data_set: DataSet) -> None:
        paths = (path for split in SPLITS for path in sorted((data_set.folder / split).glob("[!.]*")))
        names = [path.relative_to(data_set.folder).as_posix() for path in paths if path.suffix != TEMPORARY_SUFFIX]
        super().__init__({name: name.partition("/")[0] for name in sizes_of(data_set.folder, names)}, check_text)
        self._data_set = data_set

    def judge(self, outcome: Outcome) -> None:
        manifest = self._data_set.manifest
        made_with, entries = (manifest.made_with, manifest.files) if manifest else ({}, {})
        for file in outcome.files:
            if file.blake3 and file.blake3 == entries.get(file.name, {}).get(BLAKE3):
                outcome.texts[file.path.name] = file.crc32c
        if not outcome.files:  # without checksums no text is read, and the manifest has the counts
            for name, split in self._data_set.files.items():
                if name in self.files:
                    entry = entries.get(name, {})
                    sizes = {"records": entry.get("documents", 0), "size_bytes": entry.get("bytes", 0)}
                    outcome.files.append(CheckedFile(name, split, **sizes))
        super().judge(outcome)
        outcome.count_tokens()
        outcome.findings += judge_documents(outcome.token_counts.values())
        documents = sum(file.records for file in outcome.files)
        outcome.findings += judge_split_sizes(outcome.files, made_with, documents)
        level = WARNING if made_with.get("keep_duplicates") else ERROR
        outcome.findings += find_repeated_documents(outcome.files, level, "line")


def compare_texts(outcomes: Sequence[Outcome]) -> None:
    """Add findings about records and tokens that were made from other text than that of the text shards checked with them."""
    texts = {sha256_of_text(outcome.manifest): outcome.texts for outcome in outcomes if outcome.manifest and outcome.texts}
    for outcome in outcomes:
        if outcome.manifest is None:
            continue
        crc32c_of = texts.get(outcome.manifest.made_with.get("text_sha256", ""), {})
        for name, entry in outcome.manifest.files.items():
            text = entry.get("text", {})
            expected, found = crc32c_of.get(str(text.get("name"))), text.get("crc32c")
            if expected not in (None, found):
                right = f"to be made from {text['name']} as it is now, crc32c {expected}"
                wrong = f"crc32c {found[:16]}, as {MANIFEST} lists"
                outcome.findings.insert(0, Finding("text-changed", name, right, wrong))


def check_text(file: CheckedFile) -> None:
    """Check one shard. Faults become findings; nothing is raised."""
    try:
        text = file.path.read_bytes()
    except (BertprepError, OSError) as error:
        found = getattr(error, "strerror", None) or str(error).removeprefix(f"{file.path}: ")
        file.add("unreadable", "a text file", found)
        return
    if not text:
        file.add("empty-file", "documents, one sentence per line", "a file of 0 bytes")
        return
    digests, lines, sentences = bytearray(), [], []
    line, start = 1, 0
    for end in _ENDS.finditer(text):
        block, start = text[start : end.start()], end.end()
        if document := block.strip(b"\n"):
            digests += hashlib.sha256(document).digest()[:HASH_BYTES]
            lines.append(line + len(block) - len(block.lstrip(b"\n")))
            sentences.append(1 + document.count(b"\n"))
        line += block.count(b"\n") + len(_DOCUMENT_END)
    file.records, file.size_bytes = len(lines), len(text)
    by_sentences = TokenCounts.by_bits(np.array(sentences, np.int64))
    file.counts = TokenCounts(len(lines), sum(sentences), documents_by_sentences=by_sentences)
    file.hashes, file.lines = np.frombuffer(bytes(digests), np.uint64).reshape(-1, 2), np.array(lines, np.int64)
    file.blake3 = digest(text)
    file.crc32c = f"{kernels.load().checksum(0, np.frombuffer(text, np.uint8), len(text)):08x}"
    _check_lines(file, text)
    file.findings += judge_lone_document(sentences, file.name)


def _line_at(text: bytes, offset: int) -> int:
    return 1 + text.count(b"\n", 0, offset)


def _check_lines(file: CheckedFile, text: bytes) -> None:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        found = f"0x{text[error.start]:02x} at byte {error.start:,} ({error.reason})"
        file.add("not-utf8", "UTF-8", found, _line_at(text, error.start))
    if not text.endswith(_DOCUMENT_END):
        found = f"the end of the file after {text[-20:]!r}"
        file.add("truncated", "a blank line after the last document", found, _line_at(text, len(text) - 1))
    # only the first line of each kind and their number, since all lines of a file may be like that
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
        file.add("blank-sentence", expected, found, _line_at(text, first_blank), blank_lines)
    if long_lines:
        expected = f"sentences of at most {MAX_SENTENCE:,} characters"
        line_number = _line_at(text, first_long)
        file.add("long-sentence", expected, f"one of {size_of_long:,}", line_number, long_lines, level=WARNING)
