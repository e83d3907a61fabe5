"""Checks what was made with any tokenizer: token shards of documents, and rows of MDS.

Ids are those that the tokenizer gives of text; special tokens stand at the ends of rows alone. A worker reads one shard at a
time; documents are compared by 16 bytes of a hash of their tokens each.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.check.outcome import WARNING, CheckedFile, Checks, FileReport, FileTask, Finding, Outcome, TokenCounts
from bertprep.check.shards import HASH_BYTES, count_tokens, find_repeated
from bertprep.errors import BertprepError
from bertprep.files.paths import sizes_of
from bertprep.instances.document_tokenizer import TokenizerInfo
from bertprep.records.data_sets import DataSet
from bertprep.records.make import MANY_UNKNOWN
from bertprep.records.mds import COLUMNS, INDEX, INDEX_HASH, MdsFile
from bertprep.records.token_documents import DOCUMENT_FILES, IDX, DocumentShard
from bertprep.records.token_shards import parse_index, read_bytes
from bertprep.untrusted import parse_json, read_bounded

_ANY_WIDTH = 1 << 31  # ids are compared with the width here


class _OfTokens(Checks):
    def __init__(self, data_set: DataSet, *arguments: Any) -> None:
        super().__init__(data_set.files, *arguments)
        self.info = info_of(data_set)

    def judge(self, reports: Sequence[FileReport], outcome: Outcome) -> None:
        count_tokens(reports, outcome)
        for split, counts in outcome.token_counts.items():
            if counts.unknown > MANY_UNKNOWN * counts.tokens:
                expected = f"at most {MANY_UNKNOWN:.0%} unknown tokens, as a tokenizer gives of text that it fits"
                found = f"{counts.unknown / counts.tokens:.1%}"
                outcome.findings.append(Finding("unknown-tokens", split or ".", expected, found, level=WARNING))
        super().judge(reports, outcome)


class Documents(_OfTokens):
    """The checks of token shards of documents."""

    def __init__(self, data_set: DataSet) -> None:
        names = sizes_of(data_set.folder, [part for name in data_set.files for part in self.parts(name)])
        super().__init__(data_set, partial(_check_documents, info_of(data_set)), names)

    def parts(self, name: str) -> list[str]:
        return [Path(name).with_suffix(f".{end}").as_posix() for end in DOCUMENT_FILES]

    def judge(self, reports: Sequence[FileReport], outcome: Outcome) -> None:
        super().judge(reports, outcome)
        outcome.findings += find_repeated(reports, WARNING, "document")


class MdsRows(_OfTokens):
    """The checks of MDS, by any writer; without a manifest ids are not compared with a tokenizer."""

    def __init__(self, data_set: DataSet) -> None:
        self._listed, self._findings = _read_indices(data_set)
        made_with = data_set.manifest.made_with if data_set.manifest else {}
        super().__init__(
            data_set, partial(_check_rows, info_of(data_set), made_with.get("column"), made_with.get("seq"), self._listed)
        )

    def judge(self, reports: Sequence[FileReport], outcome: Outcome) -> None:
        outcome.findings += self._findings
        super().judge(reports, outcome)


def info_of(data_set: DataSet) -> TokenizerInfo | None:
    """Return what the manifest knows of the tokenizer."""
    made_with = data_set.manifest.tokenizer if data_set.manifest else None
    return TokenizerInfo.from_manifest(made_with) if made_with else None


def _check_documents(info: TokenizerInfo | None, task: FileTask) -> FileReport:
    name, path = task.name, task.folder / task.name
    size_bytes = sum(sizes_of(path.parent, [f"{path.stem}.{end}" for end in DOCUMENT_FILES]).values())
    report = FileReport(CheckedFile(name, task.split, 0, size_bytes))
    shard = DocumentShard(path, _ANY_WIDTH, has_words=True)
    try:
        _, lengths, _ = parse_index(index := path.with_suffix(f".{IDX}"), read_bytes(index))
        starts, tokens, words = shard.starts, shard.tokens, shard.words
    except BertprepError as error:
        found = str(error).removeprefix(f"{task.folder}/")
        report.findings.append(Finding("token-shard", name, "a .bin, an .idx and a .words that fit each other", found))
        return report
    if (empty := np.flatnonzero(lengths == 0)).size:
        found = "none"
        report.findings.append(Finding("empty-document", name, "a token in each document", found, int(empty[0]), len(empty)))
    documents = len(starts) - 1
    report.file = CheckedFile(name, task.split, documents, size_bytes)
    report.totals = {"documents": documents, "tokens": len(tokens)}
    report.counts = _count(np.diff(starts), tokens, info)
    digests = b"".join(
        hashlib.sha256(tokens[start:end].data).digest()[:HASH_BYTES]
        for start, end in zip(starts.tolist(), starts[1:].tolist(), strict=False)
    )
    report.hashes, report.lines = np.frombuffer(digests, np.uint64).reshape(-1, 2), np.arange(documents)
    report.findings += _check_ids(name, tokens, info, lambda at: np.searchsorted(starts, at, side="right") - 1)
    begins = starts[:-1]
    assert words is not None
    if (wrong := np.flatnonzero((words[begins >> 3] >> (begins & 7) & 1) == 0)).size:
        expected, found = "the first token of each document to begin a word", "one that does not, in its .words"
        report.findings.append(Finding("word-starts", name, expected, found, int(wrong[0]), len(wrong)))
    return report


def _check_rows(
    info: TokenizerInfo | None, column: str | None, seq: int | None, listed: Mapping[str, dict[str, Any]], task: FileTask
) -> FileReport:
    name, path = task.name, task.folder / task.name
    report = FileReport(CheckedFile(name, task.split, 0, sizes_of(task.folder, [name]).get(name, 0)))
    try:
        file = MdsFile(path)
        column = column or next((each for each in COLUMNS if each in file.names), "")
        rows = [file.tokens(number, column) for number in range(len(file))] if column in file.names else []
    except BertprepError as error:
        report.findings.append(Finding("mds", name, "an MDS shard", str(error).removeprefix(f"{path}: ")))
        return report
    report.file = CheckedFile(name, task.split, len(file), file.size_bytes)
    report.totals = {"samples": len(file)}
    report.findings += _compare_with_index(name, file, listed.get(name))
    if not rows:
        found = ", ".join(file.names)
        report.findings.append(Finding("mds", name, f"a column {' or '.join(COLUMNS)}", found, level=WARNING))
        return report
    lengths = np.array([len(each) for each in rows])
    ends = np.cumsum(lengths)
    tokens = np.concatenate(rows)
    report.counts = _count(lengths, tokens, info)
    if (empty := np.flatnonzero(lengths == 0)).size:
        report.findings.append(Finding("empty-document", name, "a token in each row", "none", int(empty[0]), len(empty)))
    if seq and (long := np.flatnonzero(lengths > seq)).size:
        found = f"{lengths[long[0]]:,}"
        report.findings.append(Finding("row-length", name, f"at most {seq:,} tokens in a row", found, int(long[0]), len(long)))
    if info is None or empty.size:
        return report
    is_text = np.ones(len(tokens), np.bool_)
    for label, token, at in (("[CLS] first", info.cls, ends - lengths), ("[SEP] last", info.sep, ends - 1)):
        if token is None:
            continue
        is_text[at] = False
        if (wrong := np.flatnonzero(tokens[at] != token)).size:
            expected, found = f"{label}, which is {token}", f"{int(tokens[at][wrong[0]]):,}"
            report.findings.append(Finding("row-ends", name, expected, found, int(wrong[0]), len(wrong)))
    row_of = np.repeat(np.arange(len(rows)), lengths)[is_text]
    report.findings += _check_ids(name, tokens[is_text], info, lambda at: row_of[at])
    return report


def _count(lengths: NDArray[np.int64], tokens: NDArray[Any], info: TokenizerInfo | None) -> TokenCounts:
    of_length = np.bincount(np.minimum(lengths, TokenCounts.LONGEST), minlength=TokenCounts.LONGEST + 1)
    unknown = 0 if info is None or info.unk is None else int(np.count_nonzero(tokens == info.unk))
    return TokenCounts(len(lengths), len(lengths), len(tokens), of_length, unknown)


def _check_ids(name: str, tokens: NDArray[Any], info: TokenizerInfo | None, document_of: Any) -> Iterator[Finding]:
    if info is None:
        return
    beyond = (tokens < 0) | (tokens >= info.width)
    is_special = np.isin(tokens, [each for each in info.special if each != info.unk])
    for code, expected, wrong in (
        ("id-range", f"ids from 0 to {info.width - 1:,}, those of the tokenizer", beyond),
        ("special-token", "tokens of text alone", is_special),
    ):
        if (at := np.flatnonzero(wrong)).size:
            documents = np.unique(document_of(at))
            yield Finding(code, name, expected, f"{int(tokens[at[0]]):,}", int(documents[0]), len(documents))


def _read_indices(data_set: DataSet) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
    listed: dict[str, dict[str, Any]] = {}
    findings = []
    for folder in dict.fromkeys(Path(name).parent for name in data_set.files):
        name = (folder / INDEX).as_posix()
        try:
            content = parse_json(read_bounded(data_set.folder / name))
            of_folder = {(folder / each["raw_data"]["basename"]).as_posix(): each for each in content["shards"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            is_other = isinstance(error, KeyError | TypeError)
            found = 'no "shards" with a "basename" each' if is_other else getattr(error, "strerror", None) or str(error)
            findings.append(Finding("mds", name, "the index of the shards next to it", found))
            continue
        listed |= of_folder
        absent = [each for each in of_folder if each not in data_set.files] if data_set.is_whole else []
        findings += [Finding("file-missing", each, f"a shard, as {INDEX} says", "none") for each in absent]
    return listed, findings


def _compare_with_index(name: str, file: MdsFile, entry: dict[str, Any] | None) -> Iterator[Finding]:
    if entry is None:
        yield Finding("mds", name, f"an entry in {INDEX}, without which StreamingDataset does not read it", "none")
        return
    raw = entry.get("raw_data")
    raw = raw if isinstance(raw, dict) else {}
    hashes = raw.get("hashes")
    known = {INDEX_HASH: hashes[INDEX_HASH]} if isinstance(hashes, dict) and INDEX_HASH in hashes else {}
    expected = {"samples": entry.get("samples"), "bytes": raw.get("bytes"), **known}
    found = {"samples": len(file), "bytes": file.size_bytes, **{each: file.digest(each) for each in known}}
    for name_of, value in file.config.items():  # which StreamingDataset takes from the index
        if entry.get(name_of) != value:
            expected[name_of], found[name_of] = entry.get(name_of), value
    if expected != found:
        yield Finding("mds", name, f"{json.dumps(expected)[:120]}, as {INDEX} says", json.dumps(found))
