"""Makes records for token classification from tagged words. As in BERT's paper, the first piece of a word has its label.

CoNLL         one line per word, with the word and its tag in columns (`tasks.conll`); a blank line ends a sentence
JSON Lines    one object per sentence, as `datasets` writes it: {"tokens": [...], "ner_tags": [...]}; tags are names, or
              numbers that --labels names
Parquet       the same columns, as `datasets` writes them, with the names of numbered tags in the metadata

A word without tokens, such as a soft hyphen, is [UNK], so that each word has a label. Words that do not fit in the sequence
length have none, and sentences without tags are left out; both are counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.config import NER, GlueSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import Tokenizer, Vocabulary
from bertprep.instances.lower_case import measure_texts
from bertprep.records.examples import Shape, TokenClassificationExamples
from bertprep.tasks.conll import ENTITY_TAG, OUTSIDE, Sentence, explain_plain_tag, has_no_prefix, read_columns
from bertprep.tasks.job import TaskRecords
from bertprep.tasks.records import Split, TaskSource, bounds_of
from bertprep.tasks.segments import Segments, lay_out
from bertprep.tasks.tables import LocatedRow, is_json, is_parquet, json_rows, parquet_rows, read_data, read_text
from bertprep.terminal import counted
from bertprep.untrusted import CORPUS
from bertprep.work.layout import TRAINING

WORDS = ("tokens", "words")
TAGS = ("ner_tags", "tags", "labels")
"""The column names that a file may have."""
_MAX_LABELS, _MAX_TAG = 1000, 200  # the number of tags, and of characters in one
MANY_NUMBERS = 0.5
"""With a larger fraction of words that are numbers, the column is probably not that of the words."""


@dataclass(frozen=True)
class TaggedFile:
    """The sentences of a file of one split."""

    path: Path
    size_bytes: int
    sha256: str
    sentences: list[Sentence]
    unlabelled: int = 0
    """The number of sentences that were left out, since they have no tags."""

    @property
    def words(self) -> int:
        return sum(len(words) for words, _ in self.sentences)

    @property
    def numbers(self) -> int:
        """The number of words that are decimal numbers."""
        return sum(word.isdecimal() for words, _ in self.sentences for word in words)


def ner_records(
    files: Mapping[str, Path], name: str, labels: Sequence[str], vocabulary: Vocabulary, settings: GlueSettings
) -> TaskRecords:
    """Return the tagged sentences of each split's file; `labels` are by default those of the training file."""
    if not CORPUS.holds(name):
        raise UsageError(f"{name}: must consist of letters, digits, '_', '-' and '.'")
    tagged = {split: read_tagged(path, labels) for split, path in files.items()}
    if not labels and TRAINING not in tagged:
        raise UsageError(f"{name}: its labels are unknown; give --labels, or a training file (train...)")
    names = tuple(labels) or find_labels(tagged[TRAINING])
    ids = {label: index for index, label in enumerate(names)}
    splits: dict[str, Split] = {}
    counts: dict[str, int] = {}
    warnings = _label_warnings(name, names)
    shape = Shape(TokenClassificationExamples, settings.seq, 0)
    for split, file in tagged.items():
        _check_tags(file, ids)
        make = partial(_make_some, file.sentences, ids, vocabulary, settings)
        splits[split] = Split(shape, bounds_of(len(file.sentences)), make)
        lost = file.words - _count_labelled(file.sentences, vocabulary, settings)
        counts |= {f"{split}_examples": len(file.sentences), f"{split}_words": file.words, f"{split}_lost_words": lost}
        if file.unlabelled:
            counts[f"{split}_unlabelled"] = file.unlabelled
            warnings.append(f"{file.path}: left out {counted(file.unlabelled, 'sentence')} without tags")
        if file.numbers > MANY_NUMBERS * file.words:
            counts[f"{split}_numbers"] = file.numbers
            warnings.append(
                f"{file.path}: {file.numbers:,} of {file.words:,} words are numbers; check that the first column has the words"
            )
        if lost:
            warnings.append(
                f"{file.path}: {lost:,} of {file.words:,} words get no label, since they do not fit in --seq {settings.seq}; "
                "scores and predictions leave them out; give a larger --seq, or split these sentences"
            )
    inputs = [{"split": split, "bytes": file.size_bytes, "sha256": file.sha256} for split, file in tagged.items()]
    return TaskRecords(
        task=NER,
        data_set=f"ner_{name}",
        files=files,
        source=TaskSource(splits, counts, names),
        made_with={"name": name, "labels": list(names), "inputs": inputs, **asdict(settings)},
        warnings=warnings,
        letters=measure_texts(" ".join(words) for file in tagged.values() for words, _ in file.sentences),
    )


def read_tagged(path: Path, labels: Sequence[str] = ()) -> TaggedFile:
    """Read a file of tagged words; raise `BertprepError` for the first invalid sentence.

    `labels` are the names of numbered tags, for a file without these names.
    """
    data = read_data(path, "a file of tagged words")
    if is_parquet(data):
        features, rows = parquet_rows(path, data)
        sentences, unlabelled = _read_rows(path, rows, labels, features)
    elif is_json(path, data):
        sentences, unlabelled = _read_rows(path, json_rows(path, data), labels, {})
    else:
        unlabelled = 0
        try:
            sentences = list(read_columns(read_text(path, data)))
        except ValueError as error:
            raise BertprepError(f"{path}: {error}") from error
    if not sentences:
        tags = f"; {counted(unlabelled, 'sentence')} without tags" if unlabelled else ""
        raise BertprepError(f"{path}: has no sentences; expected words with their tags{tags}")
    return TaggedFile(path, len(data), hashlib.sha256(data).hexdigest(), sentences, unlabelled)


def _read_rows(
    path: Path, rows: Iterable[LocatedRow], labels: Sequence[str], features: Mapping[str, Any]
) -> tuple[list[Sentence], int]:
    """Return the sentences of JSON or Parquet, and how many have no tags: null, or -1 or -100 for a word, as in `datasets`."""
    sentences: list[Sentence] = []
    unlabelled = 0
    for where, row in rows:
        try:
            words, column = row[_column(row, WORDS)], _column(row, TAGS)
            tags = row[column]
            if tags is None or (isinstance(tags, list) and any(tag in (None, -1, -100) for tag in tags)):
                unlabelled += 1
            else:
                sentences.append(_checked(words, _name_tags(tags, _class_names(features, column) or labels)))
        except ValueError as error:
            raise BertprepError(f"{path}: {where}: {error}") from error
    return sentences, unlabelled


def _name_tags(tags: Any, names: Sequence[str]) -> Any:
    """Return tags with numbers replaced by names; anything else is left as it is."""
    if not names or not isinstance(tags, list):
        return tags
    unknown = [tag for tag in tags if type(tag) is int and not 0 <= tag < len(names)]
    if unknown:
        raise ValueError(f"has the tag {str(unknown[0])[:20]}, expected 0 to {len(names) - 1:,}")
    return [names[tag] if type(tag) is int else tag for tag in tags]


def _class_names(features: Mapping[str, Any], column: str) -> list[str]:
    """Return the label names of a column with lists of ClassLabel from `datasets`; for other columns, an empty list."""
    try:
        feature = features[column]
        inner = feature.get("feature", feature) if isinstance(feature, dict) else feature[0]
        return [str(name) for name in inner["names"]]
    except (LookupError, TypeError):
        return []


def _column(row: Mapping[str, Any], names: Sequence[str]) -> str:
    found = [name for name in names if name in row]
    if len(found) != 1:
        raise ValueError(f"has the columns {', '.join(row)[:200]}, expected one of {', '.join(names)}")
    return found[0]


def _checked(words: Any, tags: Any) -> Sentence:
    """Return a sentence; raise `ValueError` unless it has words and as many tags, all of them strings."""
    for values, what in ((words, "words"), (tags, "tags")):
        if not isinstance(values, list) or not all(isinstance(value, str) and (value or what == "words") for value in values):
            raise ValueError(
                f"its {what} are {values!r:.80}, expected a list of strings; for numbered tags, give their names in order with "
                "--labels"
            )
    try:
        "".join([*words, *tags]).encode()
    except UnicodeEncodeError:
        raise ValueError("has half of a surrogate pair, which is not a character; remove it") from None
    if len(words) != len(tags) or not words:
        raise ValueError(f"has {len(words):,} words and {len(tags):,} tags, expected the same number, and at least one")
    return words, tags


def find_labels(file: TaggedFile) -> tuple[str, ...]:
    """Return the tags of a training file: O first, then the others sorted by entity type and, within a type, by prefix."""
    found = {tag for _, tags in file.sentences for tag in tags}
    longest = max(found, key=len)
    if len(longest) > _MAX_TAG:
        raise BertprepError(
            f"{file.path}: has a tag of {len(longest):,} characters, expected at most {_MAX_TAG}; is this the right column?"
        )
    if not 2 <= len(found) <= _MAX_LABELS:
        raise BertprepError(
            f"{file.path}: has {counted(len(found), 'tag')}, expected 2 to {_MAX_LABELS:,}; check the file, or name them with "
            "--labels"
        )
    return tuple(sorted(found, key=lambda tag: (tag != OUTSIDE, tag.partition("-")[2], tag)))


def _label_warnings(name: str, labels: Sequence[str]) -> list[str]:
    """Return a warning if some labels are neither O nor like B-PER, or if none is O; the columns may be in another order."""
    others = [label for label in labels if not ENTITY_TAG.fullmatch(label)]
    if not others:
        none = f"{name}: no label is {OUTSIDE}, so scores take every word for a part of an entity"
        return [] if OUTSIDE in labels else [none]
    plain = next(filter(has_no_prefix, others), None)
    return [
        f"{name}: {len(others):,} of {len(labels):,} labels are neither {OUTSIDE} nor like B-PER: {', '.join(others)[:100]}; "
        "check that the word is in the first column and its tag in the last one"
        + (f"; {explain_plain_tag(plain)}" if plain else "")
    ]


def _check_tags(file: TaggedFile, ids: Mapping[str, int]) -> None:
    for number, (words, tags) in enumerate(file.sentences, 1):
        for word, tag in zip(words, tags, strict=True):
            if tag not in ids:
                known = ", ".join(list(ids)[:20])
                raise BertprepError(
                    f"{file.path}: sentence {number:,}: the tag of {word[:40]!r} is {tag[:40]!r}, expected one of {known}"
                )


_tokenizer = cache(Tokenizer)  # each process builds its own


def _pieces(sentences: Sequence[Sentence], vocabulary: Vocabulary, settings: GlueSettings) -> Iterator[Any]:
    """Yield the tokens of each sentence, and the position of each word's first token; a word has one or more."""
    tokenizer = _tokenizer(vocabulary, lower=not settings.cased)
    text = "".join(f"{' '.join(word.split())}\n" for words, _ in sentences for word in words)
    tokens, ends = tokenizer.tokenize_lines(text.encode())
    is_empty = np.diff(ends, prepend=0) == 0
    tokens = np.insert(tokens, ends[is_empty], vocabulary.unk)
    ends = ends + np.cumsum(is_empty)
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(ends)]
    word = 0
    for words, _ in sentences:
        own = slice(word, word + len(words))
        first = starts[word]
        yield tokens[first : ends[own][-1]], starts[own] - first
        word += len(words)


def _has_label(positions: Any, seq: int) -> Any:
    return positions < seq - 2  # [CLS] and [SEP]


def _count_labelled(sentences: Sequence[Sentence], vocabulary: Vocabulary, settings: GlueSettings) -> int:
    found = _pieces(sentences, vocabulary, settings)
    return sum(int(np.count_nonzero(_has_label(positions, settings.seq))) for _, positions in found)


def _make_some(
    sentences: Sequence[Sentence], ids: Mapping[str, int], vocabulary: Vocabulary, settings: GlueSettings, start: int, stop: int
) -> TokenClassificationExamples:
    return make_examples(sentences[start:stop], ids, vocabulary, settings)


def make_examples(
    sentences: Sequence[Sentence], ids: Mapping[str, int], vocabulary: Vocabulary, settings: GlueSettings
) -> TokenClassificationExamples:
    """Return the features of sentences: [CLS] pieces [SEP], with a word's label and the weight 1 at its first piece."""
    seq, count = settings.seq, len(sentences)
    labels, weights = np.zeros((count, seq), np.int32), np.zeros((count, seq), np.float32)
    found = list(_pieces(sentences, vocabulary, settings))
    for row, ((_, tags), (_, positions)) in enumerate(zip(sentences, found, strict=True)):
        is_labelled = _has_label(positions, seq)
        first_pieces = positions[is_labelled] + 1  # after [CLS]
        labels[row, first_pieces] = np.array([ids[tag] for tag in tags], np.int32)[is_labelled]
        weights[row, first_pieces] = 1
    lengths = np.array([len(tokens) for tokens, _ in found], np.int64)
    joined = np.concatenate([tokens for tokens, _ in found])
    starts = np.cumsum(lengths) - lengths
    none = Segments(joined, np.zeros(count, np.int64), np.zeros(count, np.int64))
    inputs = lay_out(Segments(joined, starts, np.minimum(lengths, seq - 2)), none, vocabulary, seq)
    return TokenClassificationExamples(*inputs, labels, weights)
