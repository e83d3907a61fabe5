"""Foresee whether the text of a shard gives useful next-sentence pairs, before any are made.

A random next sentence comes from another document of the shard: if one document has nearly all of the text, both kinds of pairs
are much alike. A sentence that fills a record by itself has no next one: then all pairs are random. Records of such text are
valid, but a model learns little from their labels.
"""

from __future__ import annotations

import math
import re
from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from bertprep.config import InstanceSettings
from bertprep.files.paths import is_object, open_at
from bertprep.instances import TokenizedShard, Vocabulary, generate_instances
from bertprep.instances.tokenizer import TokenizedLines
from bertprep.tokens.shard import TokenShard

Shard = TypeVar("Shard", Path, TokenShard)
MOST_OF_TEXT = 0.8
"""The fraction of a shard's text that its largest document may have; books and articles are far below it."""
MANY_RANDOM = 0.7
"""The fraction of random next sentences that a text may give; long documents of ordinary sentences give one half."""
_POSITIONS = 512
"""The sequence length of BERT, which no advice exceeds."""
_ROUNDS, _FEW_RECORDS = 10, 50
_SAMPLED_SHARDS = 16
_SAMPLED_TOKENS = 1 << 14
_BLOCK_BYTES = 1 << 16  # in which a document usually ends
_LONGEST_BLANK = 64  # bytes of a line of white space
_BLANK_LINE = re.compile(rb"\n(?:[ \t\r\v\f]|\xc2\xa0|\xe3\x80\x80)*(?=\n)")


def largest_shares(paths: Sequence[Path]) -> list[float]:
    """Return the fraction of each text shard that its largest document has, where it is over `MOST_OF_TEXT`, else 0.

    Such a document is in the middle of the file, so little more than that document is read. Of many shards in a store, only
    some are read.
    """
    return [_share_in_middle(path) for path in (_some(paths) if any(map(is_object, paths)) else paths)]


def _some(shards: Sequence[Shard]) -> Sequence[Shard]:
    return shards[:: max(1, -(-len(shards) // _SAMPLED_SHARDS))]


def _share_in_middle(path: Path) -> float:
    """Return the fraction of a text file that the document in its middle has, where it is over `MOST_OF_TEXT`, else 0.

    The blank line before the document is sought backward from the middle, and the one after it forward. White space around a
    single document does not count.
    """
    with open_at(path) as file:
        size = file.seek(0, 2)
        start, end, middle = 0, size, size // 2
        for stop in range(middle, 0, -_BLOCK_BYTES):
            file.seek(begin := max(0, stop - _BLOCK_BYTES))
            found = _BLANK_LINE.finditer(file.read(stop - begin + _LONGEST_BLANK))
            if ends := [match.end() for match in found if match.start() < stop - begin]:
                start = begin + ends[-1]
                break
        for begin in range(max(middle, start), size, _BLOCK_BYTES):
            file.seek(begin)
            if match := _BLANK_LINE.search(file.read(_BLOCK_BYTES + _LONGEST_BLANK)):
                end = begin + match.start()
                break
        if end - start <= MOST_OF_TEXT * size:
            return 0.0
        file.seek(start)
        try:
            getincrementaldecoder("utf-8")().decode(file.read(min(end - start, _BLOCK_BYTES)))
        except UnicodeDecodeError:  # whoever reads all of the text refuses it
            return 0.0
        rest = b"."
        if size - (end - start) <= _BLOCK_BYTES:
            file.seek(0)
            rest = file.read(start)
            file.seek(end)
            rest += file.read()
        return (end - start) / size if rest.strip() else 1.0


def largest_shares_of_tokens(shards: Sequence[TokenShard]) -> list[float]:
    """Return the fraction of each token shard that its largest document has, where it is over `MOST_OF_TEXT`, else 0.

    Of many shards, only some are read.
    """
    shares = []
    for shard in _some(shards):
        sizes = np.diff(replace(shard).starts)  # a shard keeps what it reads, so a copy reads it
        share = float(sizes.max() / sizes.sum())
        shares.append(share if share > MOST_OF_TEXT else 0.0)
    return shares


def describe_lone(shares: Sequence[float], shards: str, only: str) -> str:
    """Return the fault of shards in which one document has nearly all of the text, or "" if there are none.

    >>> describe_lone([1.0, 0.0], "training shards", "the training split")
    '1 of 2 training shards have a single document, whose random next sentences come from itself'
    >>> describe_lone([0.953], "files", "the text")
    'one document has 95% of the text, so random next sentences come from itself or from very little other text'
    """
    lone = [share for share in shares if share]
    if not lone:
        return ""
    if min(lone) == 1:
        which = f"{only} has" if len(shares) == 1 else f"{len(lone)} of {len(shares)} {shards} have"
        return f"{which} a single document, whose random next sentences come from itself"
    which = "" if len(shares) == 1 else f"in {len(lone)} of {len(shares)} {shards} "
    return (
        f"{which}one document has {int(100 * min(lone))}% of the text{'' if len(shares) == 1 else ' or more'}, so random next "
        "sentences come from itself or from very little other text"
    )


def sample_lines(lines: TokenizedLines) -> TokenizedShard:
    """Return the sentences and documents of tokenized lines; a line without a token ends a document."""
    lengths = np.diff(lines.ends, prepend=0)
    has_tokens = lengths > 0
    before = np.concatenate([[0], np.cumsum(has_tokens)])  # sentences before each line
    ends = np.unique(np.concatenate([[0], before[:-1][~has_tokens], before[-1:]]))
    starts = np.concatenate([[0], np.cumsum(lengths[has_tokens])])
    return TokenizedShard(lines.tokens, starts, ends, text_bytes=0, text_crc32c=0)


def sample_tokens(shard: TokenShard) -> TokenizedShard:
    """Return the first documents of a token shard of sentences."""
    shard = replace(shard)
    documents = max(1, int(np.searchsorted(shard.starts, _SAMPLED_TOKENS, "right")) - 1)
    sentences = int(shard.document_starts[documents])
    tokens = shard.mapped[: int(shard.starts[documents])].astype(np.int32)
    starts = shard.sequence_starts[: sentences + 1]
    return TokenizedShard(tokens, starts, shard.document_starts[: documents + 1], text_bytes=0, text_crc32c=0)


def describe_random(sample: TokenizedShard, vocabulary: Vocabulary, settings: InstanceSettings, text_name: str) -> str:
    """Return the fault and advice if far more than half of the next sentences of a text would be random, else "".

    `text_name` is what messages call the text. The generator itself makes the pairs of the sample.
    """
    if not settings.has_pairs or not len(sample.tokens):
        return ""
    if sample.tokens.min() < 0 or sample.tokens.max() >= len(vocabulary):  # whoever reads all of the tokens refuses them
        return ""
    instances = generate_instances(sample, vocabulary, replace(settings, dupe=_ROUNDS), seed=settings.seed)
    share = float(instances.is_random_next.mean()) if len(instances) >= _FEW_RECORDS else 0.0
    if share <= MANY_RANDOM:
        return ""
    lengths = np.diff(sample.sentence_starts)
    fault = f"{share:.0%} of the next sentences of {text_name} are random, not half of them, since"
    if 2 * (lengths >= settings.longest).sum() > len(lengths):
        enough = 1 << math.ceil(math.log2(2 * float(np.median(lengths)) + 3))
        longer = f"make longer records with --seq, such as --seq {enough}; or " if settings.seq < enough <= _POSITIONS else ""
        return (
            f"{fault} most sentences have at least the {settings.longest} tokens that fill a record of {settings.seq}; {longer}"
            "make records without next sentences with --pairs none; or divide the sentences"
        )
    return (
        f"{fault} documents have {sample.sentences / sample.documents:.1f} sentences on average; join documents that are parts "
        "of one text, or pack sentences of several documents into a record with --pairs none"
    )
