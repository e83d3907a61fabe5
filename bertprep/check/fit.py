"""Judge whether text, vocabulary and settings fit each other: padding, [UNK], upper case, short documents.

Such records are valid, but a model learns less from them than the user expects. So all findings are warnings, and each says
what to do. The limits (docs/reference/findings.md) are far from the values of running text with a vocabulary of its language.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from bertprep.check.counts import RecordCounts, TokenCounts
from bertprep.check.expected import FALSE_ALARMS
from bertprep.check.finding import WARNING, Finding
from bertprep.check.outcome import Outcome
from bertprep.config import masks_cut_off
from bertprep.instances import Vocabulary
from bertprep.instances.lower_case import MANY_CHANGES, LetterChanges
from bertprep.instances.vocabulary import MANY_PIECES, capital_tokens, case_conflict
from bertprep.tasks.ner import MANY_NUMBERS
from bertprep.terminal import counted
from bertprep.tokens.next_sentences import MOST_OF_TEXT
from bertprep.work.layout import MANIFEST, TRAINING
from bertprep.work.manifest import Manifest
from bertprep.work.truncation import LARGEST_DOCUMENT, MANY_CUT_OFF, TRUNCATION, Truncation

MAX_PADDING = 0.4
MAX_MISPLACED = 0.01  # of the answers of SQuAD's layout
MAX_UNKNOWN = 0.02  # of tokens or labels; a vocabulary of the text gives 0.0002, one of the wrong case 0.05
SHORT_DOCUMENT = 3  # sentences: the largest number of two bits, since documents are counted by bits
_MAX_SHORT_DOCUMENTS = 0.5  # fraction of all documents
_FEW_RECORDS, _FEW_RECORDS_OF_ANY_TOOL, _FEW_TOKENS, _FEW_DOCUMENTS = 200, 1000, 10_000, 100
_FEW_SENTENCES = 20  # of a text shard
_OF_A_MODEL = (
    "remove these files and make them again with the --vocab of the model that you will train; if it is this one, choose a "
    "model for the text's language and case"
)
"""The advice on [UNK] in fine-tuning records, whose vocabulary is that of a model."""
_OF_SEVERAL = f"at most {MOST_OF_TEXT:.0%} of a file's text in one document, since random next sentences come from the others"
_RECORDS_OF_A_DOCUMENT = 5  # per round; if documents give more, padding comes from short target lengths, which settings request


@dataclass(frozen=True)
class Origin:
    """The text and settings of a split according to its manifest, which records of other tools do not have."""

    documents: int | None = None
    rounds: int = 1
    text_bytes: int | None = None
    short_seq_prob: float | None = None

    @property
    def uses(self) -> int | None:
        """The number of uses of documents: each document is used once per round."""
        return None if self.documents is None else self.documents * self.rounds

    @classmethod
    def of_entries(cls, made_with: Mapping[str, Any], entries: list[Mapping[str, Any]]) -> Origin:
        documents = _sum([entry.get("documents") for entry in entries])
        texts = [entry.get("text") for entry in entries]
        text_bytes = _sum([text.get("bytes") if isinstance(text, dict) else None for text in texts])
        return cls(documents, int(made_with.get("dupe", 1)), text_bytes, made_with.get("short_seq_prob"))


def _sum(counts: list[object]) -> int | None:
    known = [count for count in counts if isinstance(count, int) and count > 0]
    return sum(known) if known and len(known) == len(counts) else None


def judge_padding(counts: RecordCounts, where: str, origin: Origin, records: int) -> Iterator[Finding]:
    """Warn if documents are too short for the length of records, so that there is much padding, or no full record.

    `records` is the number of records in the files, of which `counts` may be a sample.
    """
    seq, share = len(counts.lengths) - 1, counts.padding_share
    mean, longest = counts.text_tokens / max(counts.records, 1), int(np.flatnonzero(counts.lengths).max(initial=0))
    is_never_full = counts.has_pairs and longest < seq and _is_sure_to_fill(records, origin)
    has_short_documents = origin.uses is None or records < _RECORDS_OF_A_DOCUMENT * origin.uses
    if counts.records < _FEW_RECORDS or not (is_never_full or (share > MAX_PADDING and has_short_documents)):
        return
    found = f"{share:.1%}; a record has {mean:,.0f} tokens of text on average"
    if origin.documents and origin.text_bytes:
        found += f", a document {origin.text_bytes / origin.documents:,.0f} bytes"
    if is_never_full:
        found += f"; the longest record has {longest:,} tokens"
    fitting = max(16, 1 << math.ceil(math.log2(mean)))
    smaller = f"--seq {fitting}" if fitting < seq else "a smaller --seq"
    advice = (
        f"documents are too short for --seq {seq}: if each file is one document, make text shards again with bertprep shard "
        f"--one-document-per-file; else make records with {smaller}"
    )
    if not counts.has_pairs:
        advice = f"sentences do not fill --seq {seq}: split the text with bertprep shard, or choose another --seq"
    if share > MAX_PADDING:
        advice += (
            f"; python -m trainer --pack packs several examples into a row, and computes about {1 - share:.0%} of the rows"
        )
    expected = f"at most {MAX_PADDING:.0%} padding"
    if share <= MAX_PADDING:
        expected = f"some records of {seq:,} tokens, as from documents that are long enough"
    yield Finding("padding-share", where, expected, found, level=WARNING, advice=advice)


def judge_truncation(truncation: Truncation | None, where: str) -> Iterator[Finding]:
    """Warn if much of the text is in no record, because it is cut off from sentences that are longer than a record."""
    if truncation and truncation.cut_off > MANY_CUT_OFF:
        expected = f"at most {MANY_CUT_OFF:.0%} of the text's tokens cut off from sentences that are longer than a record"
        found = f"{truncation.cut_off:.1%}, from {counted(truncation.long_sentences, 'sentence')}"
        yield Finding("cut-off", where, expected, found, level=WARNING)


def judge_lone_documents(entries: Iterable[Mapping[str, Any]], where: str) -> Iterator[Finding]:
    """Warn if nearly all of the text of a file of pairs is one document, by the entries of a manifest."""
    shares = []
    for entry in entries:
        tokens = max(1, entry.get(TRUNCATION, {}).get("text_tokens", 1))
        shares.append(1.0 if entry.get("documents") == 1 else entry.get(LARGEST_DOCUMENT, 0) / tokens)
    lone = [share for share in shares if share > MOST_OF_TEXT]
    if lone:
        or_more = " or more" if min(lone) < 1 < len(lone) else ""
        found = f"{int(100 * min(lone))}%{or_more} in {len(lone):,} of {counted(len(shares), 'file')}"
        yield Finding("lone-document", where, _OF_SEVERAL, found, level=WARNING)


def judge_lone_document(sentences: Sequence[int], file: str) -> Iterator[Finding]:
    """Warn if one of the documents of a text shard, which have so many sentences, has nearly all of them."""
    total = sum(sentences)
    share = max(sentences, default=0) / max(1, total)
    if total >= _FEW_SENTENCES and share > MOST_OF_TEXT:
        yield Finding("lone-document", file, _OF_SEVERAL, f"{int(100 * share)}%", level=WARNING)


def judge_predictions(seq: int, pred: int, masked_lm_prob: float) -> Iterator[Finding]:
    """Warn if the limit of predictions masks far fewer tokens than the wanted fraction."""
    if wanted := masks_cut_off(seq, pred, masked_lm_prob):
        expected = f"up to {wanted} predictions, which a masked_lm_prob of {masked_lm_prob:g} gives for {seq} tokens"
        advice = f"make the records again with --pred {min(wanted, seq - 3)}, or a --masked-lm-prob of {pred / seq:.2g}"
        yield Finding("few-predictions", ".", expected, f"at most {pred}", level=WARNING, advice=advice)


def _is_sure_to_fill(records: int, origin: Origin) -> bool:
    """Return whether some record must be full, since all uses of documents cannot draw a short target length by chance."""
    if origin.uses is None or origin.short_seq_prob is None:
        return records >= _FEW_RECORDS_OF_ANY_TOOL
    return origin.short_seq_prob == 0 or origin.uses * -math.log(origin.short_seq_prob) > -math.log(FALSE_ALARMS)


def count_unknown(outcome: Outcome, vocabulary: Vocabulary) -> None:
    """Set the fractions of [UNK] in `outcome`, for each split that has tokens."""
    for split, records in outcome.counts.items():
        if len(records.tokens) == len(vocabulary) and records.tokens.sum() and records.labels.sum():
            of_tokens = float(records.tokens[vocabulary.unk] / records.tokens.sum())
            of_labels = float(records.labels[vocabulary.unk] / records.labels.sum())
            outcome.unknown[split] = of_tokens, of_labels
    for split, shards in outcome.token_counts.items():
        if shards.tokens:
            outcome.unknown[split] = shards.unknown / shards.tokens, None


def judge_words(outcome: Outcome, vocabulary: Vocabulary, cased: bool | None) -> Iterator[Finding]:
    """Warn if the vocabulary does not fit the text: it has the wrong case, or gives more [UNK] than a vocabulary of the text.

    `cased` is None if no manifest tells it.
    """
    wrong_case = list(_judge_case(outcome, vocabulary, cased))
    yield from wrong_case
    if wrong_case and cased:  # the case explains [UNK]
        return
    advice = _OF_A_MODEL if outcome.is_of_task else ""
    for split, (tokens, labels) in outcome.unknown.items():
        if max(tokens, labels or 0.0) > MAX_UNKNOWN:
            found = f"{tokens:.1%} of the tokens" + ("" if labels is None else f" and {labels:.1%} of the labels")
            expected = f"at most {MAX_UNKNOWN:.0%} [UNK], as with a vocabulary that fits the text"
            yield Finding("unknown-tokens", split or ".", expected, found, level=WARNING, advice=advice)
    for split, counts in outcome.counts.items():
        yield from _judge_pieces(counts, vocabulary, split or ".")


def _judge_pieces(counts: RecordCounts, vocabulary: Vocabulary, where: str) -> Iterator[Finding]:
    """Warn by the rule by which `create` warns, if most tokens continue a word, since the vocabulary lacks the words."""
    total = int(counts.tokens.sum())
    if len(counts.tokens) != len(vocabulary) or total < _FEW_TOKENS:
        return
    share = int(counts.tokens[vocabulary.continues_word].sum()) / total
    if share > MANY_PIECES:
        expected = f"at most {MANY_PIECES:.0%} of the tokens to continue a word, as ## tokens do"
        yield Finding("split-words", where, expected, f"{share:.0%}", level=WARNING)


def _judge_case(outcome: Outcome, vocabulary: Vocabulary, cased: bool | None) -> Iterator[Finding]:
    """Warn by the rule by which `create` refuses a vocabulary; without a manifest, only if no token with a capital is used."""
    found = case_conflict(vocabulary, cased=bool(cased))
    if not found or (cased is None and not _has_no(capital_tokens(vocabulary), outcome, vocabulary)):
        return
    if cased:
        expected = "tokens with capital letters, as the records are cased"
        advice = "make the records again without --cased, or with a cased vocabulary"
    else:
        expected = "a vocabulary without capital letters, as the text is lower-cased"
        advice = "make the records again with --cased, or with an uncased vocabulary"
    yield Finding("vocabulary-case", vocabulary.path.name, expected, found, level=WARNING, advice=advice)


def _has_no(words: Collection[str], outcome: Outcome, vocabulary: Vocabulary) -> bool:
    """Return whether a text is long and has none of these words."""
    used = sum(counts.tokens for counts in outcome.counts.values() if len(counts.tokens) == len(vocabulary))
    if not isinstance(used, np.ndarray) or used.sum() < _FEW_TOKENS:
        return False
    return not used[np.isin(vocabulary.tokens, list(words))].any()


def judge_letters(manifest: Manifest) -> Iterator[Finding]:
    """Warn if lower-casing changed much more than the case of the text, by the counts of the manifest."""
    letters = LetterChanges.from_counts(manifest.counts)
    if letters.are_many:
        expected = f"at most {MANY_CHANGES:.1%} of the letters of the text to change by more than case when it is lower-cased"
        found = f"{letters.changed / letters.letters:.1%}, {letters.changed:,} of {letters.letters:,} letters of a sample"
        yield Finding("letters-lost", MANIFEST, expected, found, level=WARNING)


def judge_task_files(manifest: Manifest) -> Iterator[Finding]:
    """Warn, by the counts of the manifest, of fine-tuning files with answers at other places, or numbers in place of words."""
    counts = manifest.counts
    dropped = counts.get(f"{TRAINING}_dropped", 0)
    questions, misplaced = counts.get(f"{TRAINING}_questions", 0), dropped + counts.get(f"{TRAINING}_misplaced", 0)
    if misplaced > MAX_MISPLACED * questions:
        expected = f"at most {MAX_MISPLACED:.0%} of the answers for training not at their answer_start"
        found = f"{misplaced:,} of {questions:,}; {dropped:,} of these questions are dropped"
        yield Finding("answers-misplaced", MANIFEST, expected, found, level=WARNING)
    for name, numbers in counts.items():
        split = name.removesuffix("_numbers")
        if split != name and numbers > MANY_NUMBERS * (words := counts.get(f"{split}_words", 0)):
            expected = f"at most {MANY_NUMBERS:.0%} of the words of {split} to be numbers"
            yield Finding("words-are-numbers", MANIFEST, expected, f"{numbers:,} of {words:,}", level=WARNING)


def judge_documents(of_splits: Iterable[TokenCounts]) -> Iterator[Finding]:
    """Warn if more than half of the documents have at most `SHORT_DOCUMENT` sentences."""
    total = reduce(add, of_splits, TokenCounts())
    short = int(total.documents_by_sentences[: SHORT_DOCUMENT.bit_length() + 1].sum())
    if total.documents >= _FEW_DOCUMENTS and short > _MAX_SHORT_DOCUMENTS * total.documents:
        expected = f"more than {SHORT_DOCUMENT} sentences in at least half of the documents"
        mean = total.sentences / total.documents
        found = f"{short / total.documents:.0%} of {total.documents:,} with at most {SHORT_DOCUMENT}, {mean:.1f} on average"
        yield Finding("short-documents", ".", expected, found, level=WARNING)
