"""Compare token shards of documents with the tokenizer next to them: what it gives for their text again must be these tokens.

Ids of another vocabulary, random or reordered tokens and wrong .words files are all possible values, so only the tokenizer can
tell. Some documents of each shard are decoded and tokenized again. A tokenizer whose decoder returns what it has read gives the
same tokens, but for the edges of a part and white space that its normalizer joins: of the pairs of neighbours of valid shards,
0.01% differed at most, and 0.45% where one id in twenty was replaced. Tokenizers with another decoder are not asked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.check.outcome import CheckedFile
from bertprep.errors import BertprepError
from bertprep.instances.document_tokenizer import DocumentTokenizer
from bertprep.instances.given_words import GIVEN
from bertprep.tokens.shard import TokenShard

_DOCUMENTS, _TOKENS = 64, 1024
"""The documents of a shard that are compared, and the tokens of each."""
_MAX_CHANGED = 0.002
"""The fraction of pairs of neighbours that may differ, and of tokens that may begin a word by one and not by the other."""
_FEW_PAIRS = 200
_EXACT_DECODERS = "ByteLevel", "WordPiece", "Metaspace"


def check_round_trip(file: CheckedFile, shard: TokenShard, tokenizer: Path) -> None:
    """Add findings if the tokenizer gives other tokens for the text of a shard, or lets other tokens begin words."""
    with _without_threads():
        try:
            decoder = _open(tokenizer)
            if decoder is not None:
                _compare(file, shard, decoder)
        except BertprepError:
            return  # a tokenizer that cannot be read is a finding of its own


def _compare(file: CheckedFile, shard: TokenShard, tokenizer: DocumentTokenizer) -> None:
    pairs = changed = alike = other_words = 0
    wrong: list[int] = []
    for document in np.unique(np.linspace(0, len(shard.starts) - 2, _DOCUMENTS).astype(int)).tolist():
        start, end = shard.starts[document], min(shard.starts[document + 1], shard.starts[document] + _TOKENS)
        tokens = np.asarray(shard.mapped[start:end], np.int64)
        if tokens.min() < 0 or tokens.max() >= tokenizer.info.width:
            return  # which is a finding of its own
        again = tokenizer.encode([tokenizer.decode(tokens.tolist())])
        missing = count_changed(tokens, again.tokens.astype(np.int64))
        pairs, changed = pairs + len(tokens) - 1, changed + missing
        if missing > _MAX_CHANGED * len(tokens):
            wrong.append(document)
        if np.array_equal(tokens, again.tokens) and shard.words is not None and tokenizer.info.words != GIVEN:
            bits = np.arange(start, end)
            begins_word = (shard.words[bits >> 3] >> (bits & 7) & 1).astype(bool)
            alike += len(tokens)
            other_words += int(np.count_nonzero(begins_word != again.begins_word))
    if pairs >= _FEW_PAIRS and changed > _MAX_CHANGED * pairs:
        expected = "the tokens that its tokenizer gives for the text"
        file.add(
            "round-trip",
            expected,
            f"{changed / pairs:.1%} other pairs of neighbours",
            wrong[0] if wrong else None,
            len(wrong) or 1,
        )
    if alike >= _FEW_PAIRS and other_words > _MAX_CHANGED * alike:
        expected = "words to begin in its .words where they do in the text"
        file.add("words", expected, f"{other_words / alike:.1%} of the tokens otherwise")


def count_changed(tokens: NDArray[np.int64], again: NDArray[np.int64]) -> int:
    """Return how many of the pairs of neighbours in `tokens` are not in `again`, each counted as often as it occurs.

    >>> count_changed(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5]))
    1
    """
    counts = {}
    pairs, pairs_again = (each[:-1] << 32 | each[1:] for each in (tokens, again))
    for pair, count in zip(*np.unique(pairs_again, return_counts=True), strict=True):
        counts[int(pair)] = int(count)
    found, count_of = np.unique(pairs, return_counts=True)
    return sum(max(0, int(count) - counts.get(int(pair), 0)) for pair, count in zip(found, count_of, strict=True))


@lru_cache(2)
def _open(path: Path) -> DocumentTokenizer | None:
    """Return the tokenizer of a folder, or None if its decoder does not return what it has read."""
    tokenizer = DocumentTokenizer(path, path.parent.name)
    decoder: dict[str, Any] = json.loads(tokenizer.content).get("decoder") or {}
    kinds = {each.get("type") for each in decoder.get("decoders", [decoder])}
    return tokenizer if kinds & {*_EXACT_DECODERS} else None


@contextmanager
def _without_threads() -> Iterator[None]:
    """Keep the library `tokenizers` from starting threads: this may be a forked process, which they do not survive."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
