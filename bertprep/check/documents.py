"""Checks token shards of documents, made with any tokenizer.

Ids are those that the tokenizer gives of text, special tokens excluded. A worker reads one shard at a time; documents are
compared by 16 bytes of a hash of their tokens each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
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
from bertprep.instances.vocabulary import MANY_UNKNOWN
from bertprep.tokens.shard import DOCUMENT_FILES, IDX, TokenShard, parse_index, read_bytes
from bertprep.work.data_set import DataSet

_ANY_WIDTH = 1 << 31  # ids are compared with the width here


class Documents(Checks):
    """The checks of token shards of documents."""

    def __init__(self, data_set: DataSet) -> None:
        names = sizes_of(data_set.folder, [part for name in data_set.files for part in self.parts(name)])
        self.info = info_of(data_set)
        super().__init__(data_set.files, partial(_check_documents, self.info), names)

    def parts(self, name: str) -> list[str]:
        return [Path(name).with_suffix(f".{end}").as_posix() for end in DOCUMENT_FILES]

    def judge(self, reports: Sequence[FileReport], outcome: Outcome) -> None:
        count_tokens(reports, outcome)
        for split, counts in outcome.token_counts.items():
            if counts.unknown > MANY_UNKNOWN * counts.tokens:
                expected = f"at most {MANY_UNKNOWN:.0%} unknown tokens, as a tokenizer gives of text that it fits"
                found = f"{counts.unknown / counts.tokens:.1%}"
                outcome.findings.append(Finding("unknown-tokens", split or ".", expected, found, level=WARNING))
        super().judge(reports, outcome)
        outcome.findings += find_repeated(reports, WARNING, "document")


def info_of(data_set: DataSet) -> TokenizerInfo | None:
    """Return what the manifest knows of the tokenizer."""
    made_with = data_set.manifest.tokenizer if data_set.manifest else None
    return TokenizerInfo.from_manifest(made_with) if made_with else None


def _check_documents(info: TokenizerInfo | None, task: FileTask) -> FileReport:
    name, path = task.name, task.folder / task.name
    size_bytes = sum(sizes_of(path.parent, [f"{path.stem}.{end}" for end in DOCUMENT_FILES]).values())
    report = FileReport(CheckedFile(name, task.split, 0, size_bytes))
    shard = TokenShard(path, width=_ANY_WIDTH, has_words=True)
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
