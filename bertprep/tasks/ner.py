"""Makes records for token classification from tagged words. As in BERT's paper, the first piece of a word has its label.

CoNLL    one line per word: the word first, its tag last, separated by spaces or tabs; a blank line ends a sentence
JSONL    one object per sentence, as `datasets` writes it: {"tokens": [...], "ner_tags": [...]}; tags are names, or
         numbers that --labels names
Parquet  the same columns, as `datasets` writes them, with the names of numbered tags in the metadata

Words that do not fit in the sequence length and words without tokens have no label; they are counted.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.config import NER, GlueSettings
from bertprep.errors import BertprepError, UsageError, reading
from bertprep.files.object_cache import open_local
from bertprep.instances import Tokenizer, Vocabulary
from bertprep.instances.lower_case import measure_texts
from bertprep.records.examples import Shape, TokenClassificationExamples
from bertprep.tasks.job import TaskRecords
from bertprep.tasks.records import Split, TaskSource, bounds_of
from bertprep.tasks.segments import Segments, lay_out
from bertprep.untrusted import CORPUS, parse_json
from bertprep.work.layout import TRAINING

OUTSIDE = "O"
WORDS = ("tokens", "words")
TAGS = ("ner_tags", "tags", "labels")
"""The column names that a file may have."""
_DOCUMENT = "-DOCSTART-"  # begins the line between two documents in CoNLL 2003
_MAX_LABELS = 1000
_ENTITY_TAG = re.compile(r"O|[BIESLU]-.+")

Sentence = tuple[list[str], list[str]]
"""The words of a sentence and their tags."""


@dataclass(frozen=True)
class TaggedFile:
    """The sentences of a file of one split."""

    path: Path
    size_bytes: int
    sha256: str
    sentences: list[Sentence]


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
        words = sum(len(sentence) for sentence, _ in file.sentences)
        lost = words - _count_labelled(file.sentences, vocabulary, settings)
        counts |= {f"{split}_examples": len(file.sentences), f"{split}_words": words, f"{split}_lost_words": lost}
        if lost:
            warnings.append(
                f"{file.path}: {lost:,} of {words:,} words get no label, since they do not fit in --seq {settings.seq} or have "
                "no token; scores leave them out"
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
    with reading(path, "; expected a file of tagged words"), open_local(path) as file:
        data = file.read()
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            sentences = list(_read_parquet(data, labels))
        elif suffix in (".json", ".jsonl"):
            sentences = list(_read_json(data.decode().split("\n"), labels))
        else:
            text = data.decode().removeprefix("\ufeff").replace("\r", "")
            sentences = list(_read_conll(text.split("\n")))
    except UnicodeDecodeError as error:
        raise BertprepError(f"{path}: byte {error.start:,} is not UTF-8; convert the file, for instance with iconv") from error
    except ValueError as error:
        raise BertprepError(f"{path}: {error}") from error
    if not sentences:
        raise BertprepError(f"{path}: has no sentences; expected words with their tags")
    return TaggedFile(path, len(data), hashlib.sha256(data).hexdigest(), sentences)


def _read_conll(lines: Sequence[str]) -> Iterator[Sentence]:
    words: list[str] = []
    tags: list[str] = []
    columns = 0
    for number, line in enumerate([*lines, ""], 1):
        fields = [field for field in line.replace("\t", " ").split(" ") if field]  # a word may have other spaces
        if fields and fields[0] != _DOCUMENT:
            if len(fields) < 2:
                raise ValueError(
                    f"line {number:,}: has one column, expected a word and its tag; add the tag, or make the line blank to end "
                    "a sentence"
                )
            columns = columns or len(fields)
            if len(fields) != columns:
                raise ValueError(
                    f"line {number:,}: has {len(fields)} columns, expected {columns} as before; the tag is the last column"
                )
            words.append(fields[0])
            tags.append(fields[-1])
        elif words:
            yield words, tags
            words, tags = [], []


def _read_json(lines: Sequence[str], labels: Sequence[str]) -> Iterator[Sentence]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = parse_json(line.encode())
            if not isinstance(values, dict):
                raise ValueError("is not an object")
            words, tags = _column(values, WORDS), _column(values, TAGS)
            yield _checked(words, _name_tags(tags, labels))
        except ValueError as error:
            raise ValueError(f"line {number:,}: {error}") from error


def _read_parquet(data: bytes, labels: Sequence[str]) -> Iterator[Sentence]:
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(data))
    columns = {name: table.column(name) for name in table.column_names}
    metadata = parse_json((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    words, tags = _column(columns, WORDS), _column(columns, TAGS)
    names = _class_names(metadata, next(name for name in TAGS if name in columns)) or labels
    for number, (sentence, of_sentence) in enumerate(zip(words.to_pylist(), tags.to_pylist(), strict=True)):
        try:
            yield _checked(sentence, _name_tags(of_sentence, names))
        except ValueError as error:
            raise ValueError(f"row {number:,}: {error}") from error


def _name_tags(tags: Any, names: Sequence[str]) -> Any:
    """Return tags with numbers replaced by names; anything else is left as it is."""
    if not names or not isinstance(tags, list):
        return tags
    unknown = [tag for tag in tags if isinstance(tag, int) and not 0 <= tag < len(names)]
    if unknown:
        raise ValueError(f"has the tag {unknown[0]:,}, expected 0 to {len(names) - 1:,}; remove sentences without tags")
    return [names[tag] if isinstance(tag, int) else tag for tag in tags]


def _class_names(metadata: Any, column: str) -> list[str]:
    """Return the label names of a column with lists of ClassLabel from `datasets`; for other columns, an empty list."""
    try:
        feature = metadata["info"]["features"][column]
        inner = feature.get("feature", feature) if isinstance(feature, dict) else feature[0]
        return [str(name) for name in inner["names"]]
    except (LookupError, TypeError):
        return []


def _column(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    found = [name for name in names if name in values]
    if len(found) != 1:
        raise ValueError(f"has the columns {', '.join(values)[:200]}, expected one of {', '.join(names)}")
    return values[found[0]]


def _checked(words: Any, tags: Any) -> Sentence:
    """Return a sentence; raise `ValueError` unless it has words and as many tags, all of them strings."""
    for values, what in ((words, "words"), (tags, "tags")):
        if not isinstance(values, list) or not all(isinstance(value, str) and value.strip() for value in values):
            raise ValueError(
                f"its {what} are {values!r:.80}, expected a list of strings; for numbered tags, give their names in order with "
                "--labels"
            )
    if len(words) != len(tags) or not words:
        raise ValueError(f"has {len(words):,} words and {len(tags):,} tags, expected the same number, and at least one")
    return words, tags


def find_labels(file: TaggedFile) -> tuple[str, ...]:
    """Return the tags of a training file: O first, then the others sorted by entity type and, within a type, by prefix."""
    found = {tag for _, tags in file.sentences for tag in tags}
    if not 2 <= len(found) <= _MAX_LABELS:
        raise BertprepError(
            f"{file.path}: has {len(found):,} tags, expected 2 to {_MAX_LABELS:,}; check the file, or name them with --labels"
        )
    return tuple(sorted(found, key=lambda tag: (tag != OUTSIDE, tag.partition("-")[2], tag)))


def _label_warnings(name: str, labels: Sequence[str]) -> list[str]:
    """Return a warning if some labels are neither O nor like B-PER; the columns may be in another order."""
    others = [label for label in labels if not _ENTITY_TAG.fullmatch(label)]
    if not others:
        return []
    listed = ", ".join(others)[:100]
    return [
        f"{name}: {len(others):,} of {len(labels):,} labels are neither {OUTSIDE} nor like B-PER: {listed}; check that the "
        "word is in the first column and its tag in the last one; scores of entities need such prefixes"
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
    """Yield the tokens of each sentence, the position of each word's first token, and the number of each word's tokens."""
    tokenizer = _tokenizer(vocabulary, lower=not settings.cased)
    text = "".join(f"{' '.join(word.split())}\n" for words, _ in sentences for word in words)
    tokens, ends = tokenizer.tokenize_lines(text.encode())
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(ends)]
    word = 0
    for words, _ in sentences:
        own = slice(word, word + len(words))
        first = starts[word]
        yield tokens[first : ends[own][-1]], starts[own] - first, ends[own] - starts[own]
        word += len(words)


def _has_label(positions: Any, sizes: Any, seq: int) -> Any:
    return (sizes > 0) & (positions < seq - 2)  # [CLS] and [SEP]


def _count_labelled(sentences: Sequence[Sentence], vocabulary: Vocabulary, settings: GlueSettings) -> int:
    found = _pieces(sentences, vocabulary, settings)
    return sum(int(np.count_nonzero(_has_label(positions, sizes, settings.seq))) for _, positions, sizes in found)


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
    for row, ((_, tags), (_, positions, sizes)) in enumerate(zip(sentences, found, strict=True)):
        is_labelled = _has_label(positions, sizes, seq)
        first_pieces = positions[is_labelled] + 1  # after [CLS]
        labels[row, first_pieces] = np.array([ids[tag] for tag in tags], np.int32)[is_labelled]
        weights[row, first_pieces] = 1
    lengths = np.array([len(tokens) for tokens, _, _ in found], np.int64)
    joined = np.concatenate([tokens for tokens, _, _ in found])
    starts = np.cumsum(lengths) - lengths
    none = Segments(joined, np.zeros(count, np.int64), np.zeros(count, np.int64))
    inputs = lay_out(Segments(joined, starts, np.minimum(lengths, seq - 2)), none, vocabulary, seq)
    return TokenClassificationExamples(*inputs, labels, weights)
