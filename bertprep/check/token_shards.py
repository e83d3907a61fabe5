"""Check token shards of sentences or whole documents: valid ids, an index and words that fit them, and no document twice.

A worker reads one shard at a time. Documents are compared by 16-byte hashes of their tokens.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.check.counts import Ints, TokenCounts, distinct
from bertprep.check.duplicates import find_identical_files
from bertprep.check.finding import WARNING, Finding
from bertprep.check.outcome import CheckedFile, Checks, Outcome
from bertprep.check.repeats import HASH_BYTES, find_repeated_documents
from bertprep.check.round_trip import check_round_trip
from bertprep.errors import BertprepError
from bertprep.files.paths import sizes_of
from bertprep.instances.document_tokenizer import TokenizerInfo
from bertprep.instances.vocabulary import MANY_UNKNOWN, Vocabulary
from bertprep.terminal import counted
from bertprep.tokens.shard import BIN, DOCUMENT_FILES, IDX, TokenShard, read_index
from bertprep.work.data_set import DataSet
from bertprep.work.layout import TOKENIZER
from bertprep.work.manifest import UNCOVERED

_ANY_WIDTH = 1 << 31  # ids are compared with the tokenizer's here
_MOST_IN_UINT16 = 1 << 16


class TokenShards(Checks):
    """The checks of one data set of token shards. Shards of documents have a .words file too."""

    def __init__(self, data_set: DataSet, vocabulary: Vocabulary | None) -> None:
        self._has_documents = data_set.has_documents
        entries = data_set.manifest.files.values() if data_set.manifest else ()
        self._uncovered = sum(entry.get(UNCOVERED, 0) for entry in entries)
        names = sizes_of(data_set.folder, [each for name in data_set.files for each in self.names_of(name)])
        tokenizer = TokenizerInfo.from_vocabulary(vocabulary) if vocabulary else _tokenizer_of(data_set)
        eod = data_set.manifest.made_with.get("eod") if data_set.manifest else None
        path = None
        if data_set.manifest:  # other tools may split the words of a vocabulary by other rules
            path = vocabulary.path if vocabulary else data_set.folder / TOKENIZER
        check_file = partial(_check_shard, tokenizer, path, self._has_documents, eod)
        super().__init__(data_set.files, check_file, names)

    def names_of(self, name: str) -> list[str]:
        ends = DOCUMENT_FILES if self._has_documents else (BIN, IDX)
        return [Path(name).with_suffix(f".{end}").as_posix() for end in ends]

    def judge(self, outcome: Outcome) -> None:
        outcome.count_tokens()
        if self._has_documents:
            outcome.findings += [*_judge_unknown(outcome), *_judge_uncovered(self._uncovered)]
        super().judge(outcome)
        outcome.findings += find_identical_files(outcome.files, "document")
        outcome.findings += find_repeated_documents(outcome.files, WARNING, "document")


def _tokenizer_of(data_set: DataSet) -> TokenizerInfo | None:
    made_with = data_set.manifest.tokenizer if data_set.manifest else None
    return TokenizerInfo.from_manifest(made_with) if made_with else None


def _judge_unknown(outcome: Outcome) -> list[Finding]:
    """Warn if a tokenizer does not fit the text; `fit` does this for vocabularies."""
    findings = []
    for split, counts in outcome.token_counts.items():
        if counts.unknown > MANY_UNKNOWN * counts.tokens:
            expected = f"at most {MANY_UNKNOWN:.0%} unknown tokens, as a tokenizer gives for text in its language"
            found = f"{counts.unknown / counts.tokens:.1%}"
            advice = "tokenize the text again, with a --tokenizer that was trained on its language"
            findings.append(Finding("unknown-tokens", split or ".", expected, found, level=WARNING, advice=advice))
    return findings


def _judge_uncovered(uncovered: int) -> list[Finding]:
    """Warn about characters that `tokenize` left out, as the manifest has their number."""
    if not uncovered:
        return []
    found = f"{counted(uncovered, 'character')} left out"
    advice = "tokenize the text again, with a --tokenizer that has these characters or an unknown token"
    return [Finding("unknown-tokens", ".", "a token for each character of the text", found, level=WARNING, advice=advice)]


def _check_shard(
    tokenizer: TokenizerInfo | None, path: Path | None, has_documents: bool, eod: int | None, file: CheckedFile
) -> None:
    """Check one shard, whose documents end with the token `eod`, if any. Faults become findings; nothing is raised.

    `path` is the tokenizer.json or vocab.txt that made it, or None if another tool may have.
    """
    shard = TokenShard(file.path, width=_ANY_WIDTH, has_words=has_documents)
    file.size_bytes = sum(sizes_of(file.path.parent, [path.name for path in shard.paths.values()]).values())
    try:
        starts, tokens, words = shard.starts, shard.mapped, shard.words
    except BertprepError as error:
        files = "a .bin, an .idx and a .words" if has_documents else "a .bin and an .idx"
        file.add("token-shard", f"{files} that match", str(error).removeprefix(f"{file.folder}/"))
        return
    file.records = len(starts) - 1
    file.counts = _count(shard, tokens, tokenizer)
    file.totals = {"documents": file.records, "sentences": file.counts.sentences, "tokens": len(tokens)}
    digests = bytearray()
    for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        digests += hashlib.sha256(tokens[start:end].data).digest()[:HASH_BYTES]
    file.hashes, file.lines = np.frombuffer(bytes(digests), np.uint64).reshape(-1, 2), np.arange(file.records)
    _check_ids(file, tokens, starts, tokenizer, eod)
    if tokenizer is not None and path is not None and path.is_file():
        check_round_trip(file, shard, tokenizer, path, eod)
    if words is not None:
        _check_documents(file, shard, words)
    elif not file.entries and not shard.has_sentences:
        found = f"one in each of its {file.records:,} documents; only create --pairs none accepts them"
        file.add("no-sentences", "a sequence for each sentence", found, level=WARNING)


def _count(shard: TokenShard, tokens: NDArray[Any], tokenizer: TokenizerInfo | None) -> TokenCounts:
    lengths = np.minimum(np.diff(shard.sequence_starts), TokenCounts.LONGEST)
    counts = TokenCounts(
        documents=len(shard.document_starts) - 1,
        sentences=len(shard.sequence_starts) - 1,
        tokens=len(tokens),
        lengths=np.bincount(lengths, minlength=TokenCounts.LONGEST + 1),
    )
    if shard.has_words:
        counts.documents_by_tokens = TokenCounts.by_bits(np.diff(shard.starts))
    else:
        counts.documents_by_sentences = TokenCounts.by_bits(np.diff(shard.document_starts))
    if tokenizer and tokenizer.unk is not None:
        counts.unknown = int(np.count_nonzero(tokens == tokenizer.unk))
    return counts


def _check_ids(file: CheckedFile, tokens: NDArray[Any], starts: Ints, tokenizer: TokenizerInfo | None, eod: int | None) -> None:
    width = tokenizer.width if tokenizer else _ANY_WIDTH
    if tokenizer and tokens.dtype == np.uint16 and width > _MOST_IN_UINT16:
        expected, found = f"ids of 4 bytes, as the {width:,} tokens of the tokenizer need", "uint16, which cuts larger ids off"
        file.add("id-range", expected, found, level=WARNING)
    special = [each for each in tokenizer.special if each != tokenizer.unk] if tokenizer else []
    is_special = np.isin(tokens, special)
    if eod is not None:
        is_special[starts[1:] - 1] = tokens[starts[1:] - 1] != eod
    for code, expected, is_wrong in (
        ("id-range", f"ids from 0 to {width - 1:,}, those of the tokenizer", (tokens < 0) | (tokens >= width)),
        ("special-token", "only tokens of text" + ("" if eod is None else f", and {eod} at the end"), is_special),
    ):
        wrong = np.flatnonzero(is_wrong)
        if wrong.size:
            documents = distinct(np.searchsorted(starts, wrong, side="right") - 1)
            file.add(code, expected, f"{int(tokens[wrong[0]]):,}", int(documents[0]), len(documents))


def _check_documents(file: CheckedFile, shard: TokenShard, words: NDArray[np.uint8]) -> None:
    """Check that each document has a token, and begins with a word according to .words."""
    _, lengths, _ = read_index(shard.paths[IDX])
    empty = np.flatnonzero(lengths == 0)
    if empty.size:
        file.add("empty-document", "a token in each document", "none", int(empty[0]), len(empty))
    begins = shard.starts[:-1]
    begins_word = words[begins >> 3] >> (begins & 7) & 1
    wrong = np.flatnonzero(begins_word == 0)
    if wrong.size:
        expected, found = "the first token of each document to begin a word", "one that does not, in its .words"
        file.add("word-starts", expected, found, int(wrong[0]), len(wrong))
