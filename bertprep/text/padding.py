"""Forecasts how much of the records of a text will be padding, before any are made.

The real generator runs on a sample of the documents. Each sentence is replaced by about as many placeholder tokens as a
vocabulary for its language would give. So the estimate depends on a sample of at most `SAMPLE_BYTES`, and on
`TOKENS_PER_WORD`. docs/understand/documents.md compares it with real records. It takes about 20 ms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bertprep.config import InstanceSettings
from bertprep.files.paths import open_head
from bertprep.instances import TokenizedShard, Vocabulary, generate_instances
from bertprep.instances.vocabulary import SPECIAL_TOKENS
from bertprep.sources.plain_text import GAP

SAMPLE_BYTES = 1 << 18
"""The size of the sample. A document that goes beyond it is cut there, which adds at most one short record."""
TOKENS_PER_WORD = 1.1
"""The mean number of tokens per word from BERT's tokenizer: 1.06 with a vocabulary trained on the text, more with others."""
LENGTHS = (128, 512)
"""The record lengths for which padding is forecast, if a command has no length of its own."""
FIRST_FILES = 16
"""The number of files whose beginnings are read, here and in `text.blocks`."""
MANY_BLOCKS = 6  # per file, as a mean over the files that are read
FEW_SENTENCES = 5  # per document
_USES, _MAX_ROUNDS = 500, 50  # of documents: the lengths of short records are drawn, so few draws would give a noisy mean
_CJK = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_WORD_OR_MARK = re.compile(rf"([^\W_{_CJK}]+)|[^\w\s]|_|[{_CJK}]")
_PLACEHOLDER = len(SPECIAL_TOKENS)


@dataclass(frozen=True)
class TextSample:
    """Some documents of a text, each a list of its sentences."""

    documents: Sequence[Sequence[str]]

    @property
    def sentences(self) -> float:
        """Return the mean number of sentences in a document."""
        return sum(map(len, self.documents)) / max(1, len(self.documents))

    @cached_property
    def _tokens(self) -> list[list[int]]:
        return [[count_tokens(sentence) for sentence in document] for document in self.documents]

    def record_padding(self, seq: int) -> float:
        """Return the expected fraction of [PAD] in records of `seq` tokens: sentence pairs with the default settings."""
        lengths = [length for document in self._tokens for length in document]
        if not lengths:
            return 0.0
        shard = TokenizedShard(
            tokens=np.full(sum(lengths), _PLACEHOLDER, np.int32),
            sentence_starts=np.cumsum([0, *lengths]),
            document_starts=np.cumsum([0, *map(len, self._tokens)]),
            text_bytes=0,
            text_crc32c=0,
        )
        vocabulary = Vocabulary(Path(), (*SPECIAL_TOKENS, "word"), "", *range(len(SPECIAL_TOKENS)))
        # Few documents are cut into short records, but each of those gives many. Computing the two cases separately, and
        # weighting them, needs far fewer rounds than drawing which documents are cut.
        records = tokens = 0.0
        for weight, probability in ((1 - InstanceSettings.short_seq_prob, 0), (InstanceSettings.short_seq_prob, 1)):
            rounds = min(max(_USES // len(self.documents), 1), _MAX_ROUNDS) if probability else 1
            settings = InstanceSettings(seq=seq, pred=1, dupe=rounds, short_seq_prob=probability)
            instances = generate_instances(shard, vocabulary, settings, seed=settings.seed)
            of_sentences = int(instances.slices[:, [1, 3]].sum())
            special = 3 * len(instances)  # [CLS], two [SEP]
            records += weight * len(instances) / rounds
            tokens += weight * (of_sentences + special) / rounds
        return 1 - tokens / (seq * records)

    def cut_off(self, seq: int) -> float:
        """Return the expected fraction of tokens in no record of `seq` tokens, at the ends of sentences that are too long."""
        lengths = np.array([length for document in self._tokens for length in document], np.int64)
        return float(np.maximum(lengths - InstanceSettings(seq=seq, pred=1).longest, 0).sum()) / max(1, int(lengths.sum()))

    def row_padding(self, seq: int) -> float:
        """Return the expected fraction of [PAD] in rows of `seq` tokens, each with one document or a part of one."""
        lengths = np.array([sum(document) for document in self._tokens], np.int64)
        rows = -(-lengths // (seq - 2))  # [CLS], [SEP]
        return 1 - float((lengths + 2 * rows).sum()) / max(1, seq * int(rows.sum()))


def count_tokens(sentence: str) -> int:
    """Estimate the tokens of a sentence: one per punctuation mark or CJK character, `TOKENS_PER_WORD` for any other word.

    >>> count_tokens("It is so, he said."), count_tokens("我来了。")
    (8, 4)
    """
    found = _WORD_OR_MARK.findall(sentence)  # each word, and "" for each mark or CJK character
    marks = found.count("")
    return max(1, marks + round(TOKENS_PER_WORD * (len(found) - marks)))


def sample_shards(paths: Sequence[Path]) -> TextSample:
    """Return the first documents of text shards, which have one sentence per line and a blank line after each document."""
    documents: list[list[str]] = []
    for path in paths[:FIRST_FILES]:
        with open_head(path) as file:
            text = file.read(SAMPLE_BYTES // min(len(paths), FIRST_FILES)).decode(errors="ignore")
        of_file = ([line.strip() for line in document.split("\n") if line.strip()] for document in GAP.split(text))
        documents += (sentences for sentences in of_file if sentences)
    return TextSample(documents)


def describe_text(
    counts: str,
    sentences: float,
    padding: Mapping[int, float],
    cut_off: Mapping[int, float] | None = None,
    *,
    of: str = "records",
) -> str:
    """Return the line that reports the documents made from a text, and what to expect at each length of `of`.

    That is the padding and, in records, the fraction of the text that is cut off from long sentences.

    >>> describe_text("2 files became 900 documents", 2.9, {128: 0.281, 512: 0.79})
    '2 files became 900 documents of 2.9 sentences; expect 28% padding in records of 128 tokens, 79% of 512'
    >>> describe_text("1 file became 9 documents", 40, {128: 0.06}, {128: 0.828})
    '1 file became 9 documents of 40.0 sentences; expect 6% padding in records of 128 tokens; 82.8% of the text cut off at 128'
    """
    (seq, fraction), *others = padding.items()
    expected = f"{fraction:.0%} padding in {of} of {seq} tokens"
    expected += "".join(f", {fraction:.0%} of {seq}" for seq, fraction in others)
    if cut_off:
        (seq, fraction), *others = cut_off.items()
        expected += f"; {fraction:.1%} of the text cut off at {seq}"
        expected += "".join(f", {fraction:.1%} at {seq}" for seq, fraction in others)
    return f"{counts} of {sentences:,.1f} sentences; expect {expected}"
