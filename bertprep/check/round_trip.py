"""Compare token shards with the tokenizer or vocabulary next to them: what it gives for their text must be these tokens again.

Ids of another vocabulary, random or reordered tokens and wrong .words files are all possible values, so only the tokenizer can
tell. A sample of each shard is decoded and tokenized again, at most `_TOKENS` tokens, so the costs do not grow with the shard.
Not compared are the edges of each part, where a word may be cut, unknown tokens, which have no text, and tokenizers whose
decoder does not return what was read. See docs/reference/findings.md for the limits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordPiece

from bertprep.check.outcome import CheckedFile
from bertprep.errors import BertprepError
from bertprep.instances.document_tokenizer import Documents, DocumentTokenizer, TokenizerInfo
from bertprep.instances.given_words import GIVEN
from bertprep.instances.tokenizer import Tokenizer as BertTokenizer
from bertprep.instances.tokenizer_files import TOKENIZER
from bertprep.instances.vocabulary import Vocabulary, load_vocabulary
from bertprep.tokens.shard import TokenShard

_TOKENS, _PART_TOKENS, _PARTS = 1 << 16, 1024, 1024
"""The tokens of a shard that are compared, those of one document, and the number of parts."""
_EDGE = 4  # tokens at each end of a part, which may be cut within a word or a character
_MAX_CHANGED = 0.002
"""The fraction of pairs of neighbours that may differ, and of tokens that may begin a word by one and not by the other."""
_FEW_PAIRS = 200
_EXACT_DECODERS = "ByteLevel", "Metaspace"

Ids = NDArray[np.int64]


class _Part(NamedTuple):
    """Consecutive tokens of a document, and which of them begin a word according to .words."""

    document: int
    tokens: Ids
    begins_word: NDArray[np.bool_]


class _Reader(NamedTuple):
    """How ids become text, and texts become documents of ids again."""

    decode: Callable[[list[int]], str]
    encode: Callable[[list[str]], Documents]
    unclear: tuple[int, ...] = ()
    """Tokens that look like a piece but may be a word, such as ## in Markdown."""

    def read_again(self, parts: list[_Part]) -> Iterator[tuple[_Part, Ids, NDArray[np.bool_]]]:
        """Yield each part with the tokens that the tokenizer gives for its text, and which of them begin a word."""
        again = self.encode([self.decode(part.tokens.tolist()) for part in parts])
        ends = np.cumsum(again.lengths)
        for part, start, end in zip(parts, (ends - again.lengths).tolist(), ends.tolist(), strict=True):
            yield part, again.tokens[start:end].astype(np.int64), again.begins_word[start:end]


def check_round_trip(file: CheckedFile, shard: TokenShard, made_with: TokenizerInfo, path: Path, eod: int | None) -> None:
    """Add findings if the tokenizer gives other tokens for the text of a shard, or lets other tokens begin words.

    `path` is the tokenizer.json, or the vocab.txt of shards of sentences. Documents may end with the token `eod`.
    """
    with _without_threads():
        try:
            status = path.stat()
            reader = _open(path, status.st_size, status.st_mtime_ns)
            if reader is not None:
                _compare(
                    file,
                    reader.read_again(_sample(shard, made_with, reader.unclear, eod)),
                    compares_words=shard.has_words and made_with.words != GIVEN,
                )
        except (BertprepError, OSError):
            return  # a tokenizer that cannot be read is a finding of its own


def _sample(shard: TokenShard, made_with: TokenizerInfo, unclear: tuple[int, ...], eod: int | None) -> list[_Part]:
    """Return evenly spaced documents of a shard, up to `_PART_TOKENS` of each, without special, unknown and unclear tokens."""
    documents = len(shard.starts) - 1
    mean = max(int(shard.starts[-1]) // documents, 1)
    count = min(documents, max(_TOKENS // min(mean, _PART_TOKENS), 1), _PARTS)
    parts, left_out = [], [*made_with.special, *unclear, *([] if made_with.unk is None else [made_with.unk])]
    for document in np.unique(np.linspace(0, documents - 1, count).astype(np.int64)).tolist():
        start, end = int(shard.starts[document]), int(shard.starts[document + 1]) - (eod is not None)
        end = min(end, start + _PART_TOKENS)
        tokens = np.asarray(shard.mapped[start:end], np.int64)
        at = np.arange(start, end)
        words = np.zeros(len(at), np.bool_) if shard.words is None else (shard.words[at >> 3] >> (at & 7) & 1).astype(np.bool_)
        is_out = np.isin(tokens, left_out) | (tokens < 0) | (tokens >= made_with.width)
        edges = [-1, *np.flatnonzero(is_out).tolist(), len(tokens)]
        parts += [
            _Part(document, tokens[left + 1 : right], words[left + 1 : right])
            for left, right in pairwise(edges)
            if right - left > 2 * _EDGE + 2
        ]
    return parts


def _compare(file: CheckedFile, read_again: Iterator[tuple[_Part, Ids, NDArray[np.bool_]]], *, compares_words: bool) -> None:
    pairs = changed = alike = other_words = 0
    wrong: dict[int, int] = {}
    for part, again, begins_word in read_again:
        inner = part.tokens[_EDGE:-_EDGE]
        missing = count_changed(inner, again)
        pairs, changed = pairs + len(inner) - 1, changed + missing
        if missing > _MAX_CHANGED * len(inner):
            wrong[part.document] = missing
        if compares_words and np.array_equal(part.tokens, again):
            alike += len(inner)
            other_words += int(np.count_nonzero((part.begins_word != begins_word)[_EDGE:-_EDGE]))
    if pairs >= _FEW_PAIRS and changed > _MAX_CHANGED * pairs:
        expected = "the tokens that its tokenizer gives for their text"
        found = f"{changed / pairs:.1%} other pairs of neighbours in a sample of {pairs:,}"
        file.add("round-trip", expected, found, min(wrong), len(wrong))
    if alike >= _FEW_PAIRS and other_words > _MAX_CHANGED * alike:
        expected = "words to begin in its .words where they begin in the text"
        file.add("words", expected, f"{other_words / alike:.1%} of the {alike:,} tokens of a sample otherwise")


def count_changed(tokens: Ids, again: Ids) -> int:
    """Return how many of the pairs of neighbours in `tokens` are not in `again`, each counted as often as it occurs.

    >>> count_changed(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5]))
    1
    """
    pairs, pairs_again = (each[:-1] << 32 | each[1:] for each in (tokens, again))
    found, count_of = np.unique(pairs, return_counts=True)
    joined, counts = np.unique(np.concatenate([found, pairs_again]), return_counts=True)
    there = counts[np.searchsorted(joined, found)] - 1
    return int(np.maximum(count_of - there, 0).sum())


@lru_cache(2)
def _open(path: Path, size_bytes: int, changed_ns: int) -> _Reader | None:  # noqa: ARG001 - a changed file is read again
    """Return the reader of a tokenizer or vocabulary, or None if its decoder does not return what it has read."""
    if path.name != TOKENIZER:
        return _reader_of(load_vocabulary(path))
    tokenizer = DocumentTokenizer(path, path.parent.name)
    library = Tokenizer.from_str(tokenizer.content.decode())
    if isinstance(library.model, WordPiece):
        # The decoder of the file may remove spaces before punctuation.
        prefix = library.model.continuing_subword_prefix
        library.decoder = decoders.WordPiece(prefix, cleanup=False)
        tokens = library.get_vocab().items()
        unclear = (each for token, each in tokens if token.startswith(prefix) and token[len(prefix) :][:1] in ("", prefix[:1]))
        return _Reader(library.decode, tokenizer.encode, tuple(unclear))
    decoder = json.loads(tokenizer.content).get("decoder") or {}
    kinds = {each.get("type") for each in decoder.get("decoders", [decoder])}
    return _Reader(library.decode, tokenizer.encode) if kinds & {*_EXACT_DECODERS} else None


def _reader_of(vocabulary: Vocabulary) -> _Reader:
    """Return the reader of a vocab.txt. The text of lower-cased tokens is read as it is."""
    tokenizer, begins_word = BertTokenizer(vocabulary, lower=False), ~vocabulary.continues_word

    def decode(ids: list[int]) -> str:
        return " ".join(vocabulary.tokens[each] for each in ids).replace(" ##", "")

    def encode(texts: list[str]) -> Documents:
        tokens, ends = tokenizer.tokenize_lines("".join(f"{text}\n" for text in texts).encode())
        return Documents(tokens, np.diff(ends, prepend=0), begins_word[tokens])

    return _Reader(decode, encode)


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
