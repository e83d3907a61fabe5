"""Define token classification, as in named-entity recognition: a label for the first token of each word.

Entities are scored as by CoNLL's script and seqeval: an entity is correct if its type and both of its ends are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertprep.errors import UsageError
from bertprep.files.atomic import atomic_file
from bertprep.options import option
from bertprep.records.records import Records
from bertprep.tasks.conll import OUTSIDE, has_no_prefix
from bertprep.weights import google_names
from bertprep.weights.google_names import Shapes
from bertprep.work.manifest import TASK_RECORDS
from trainer.model import Array, Bert
from trainer.model_config import ModelConfig
from trainer.settings import MAX_EPOCHS, RunOptions, Wanted
from trainer.tasks.task import Logits, Output, Scorer, Task, mean_cross_entropy, read_features

Entity = tuple[str, int, int]
"""Its type, the index of its first tag, and the index of its last tag."""


@dataclass(frozen=True, kw_only=True)
class NerOptions(RunOptions):
    """Options of `ner`, with the learning rate of BERT's paper."""

    name: str | None = option(None, "name that the records were made with (required, or --data)", metavar="NAME")
    learning_rate: float | None = option(5e-5, "peak learning rate", name="--lr", above=0)
    epochs: float | None = option(None, "passes over the training records (default: 3)", above=0, most=MAX_EPOCHS)
    default_epochs: ClassVar[float] = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name is None and not self.data:
            raise UsageError("which records? give --name, such as --name conll2003, or their folder with --data")

    @property
    def wanted(self) -> Wanted:
        return Wanted(TASK_RECORDS, "corpus", f"ner_{self.name}", f"bertprep task ner {self.name or 'NAME'} --input FILES")


@dataclass(frozen=True)
class TokenClassification(Task):
    """Tagging of words with these classes."""

    of: str
    classes: tuple[str, ...]
    name: ClassVar[str] = "token_classification"
    command: ClassVar[str] = "ner"
    help: ClassVar[str] = "fine-tune a model on records of tagged words; resumes where it stopped"
    options: ClassVar[type[RunOptions]] = NerOptions
    is_scored: ClassVar[bool] = True
    head_names: ClassVar[Mapping[str, str]] = {"output_weights": "classifier.weight", "output_bias": "classifier.bias"}
    criterion = "f1"
    outputs = (Output("label", "label_ids", "label_weights"),)
    hugging_face_class = "BertForTokenClassification"

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> TokenClassification | None:
        match metadata:
            case {"of": str(name), "labels": [*labels]}:
                return cls(name, tuple(map(str, labels)))
        return None

    @classmethod
    def from_manifest(cls, settings: Mapping[str, Any]) -> TokenClassification:
        return cls(settings["name"], tuple(settings["labels"]))

    def metadata(self) -> dict[str, Any]:
        return {"task": {"name": self.name, "of": self.of, "labels": list(self.classes)}}

    def describe(self) -> str:
        return f"{self.of}, tags {', '.join(self.classes)}"

    def is_requested_by(self, options: RunOptions) -> bool:
        return isinstance(options, NerOptions) and options.name in (None, self.of)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.classes

    def head(self, bert: Bert, hidden: Array) -> dict[str, Array]:
        """Return the (sequences, seq, labels) logits, including those of padding."""
        logits = bert.logits("output", bert.drop(hidden, bert.config.hidden_dropout_prob))
        return {"label": bert.ops.reshape(logits, (bert.sequences, bert.seq, len(self.classes)))}

    def body_shapes(self, model: ModelConfig) -> Shapes:
        return google_names.body_shapes(asdict(model), pooler=False)

    def head_shapes(self, model: ModelConfig) -> Shapes:
        return {"output_weights": (len(self.classes), model.hidden_size), "output_bias": (len(self.classes),)}

    def rows_of_head(self, name: str, *, seq: int, pred: int) -> int:  # noqa: ARG002
        return seq if name.startswith("output_") else 1

    def hugging_face_settings(self) -> dict[str, Any]:
        return {
            "label2id": {name: index for index, name in enumerate(self.classes)},
            "id2label": {str(index): name for index, name in enumerate(self.classes)},
        }

    def scorer(self, data: Path, records: Records, split: str, options: Any) -> Scorer:  # noqa: ARG002
        return EntityScorer(self.classes, records, self.name_of_split(split))


class EntityScorer:
    """Scores predicted tags against the labelled words of a split."""

    def __init__(self, classes: Sequence[str], records: Records, split: str) -> None:
        self._classes, self._split = np.array(classes), split
        labels, weights = read_features(records, ["label_ids", "label_weights"])
        self._is_word = weights > 0  # (records, seq)
        self._labels = labels[self._is_word]
        self._ends = np.cumsum(self._is_word.sum(axis=1))[:-1]  # where sentences end among all words

    def score(self, logits: Logits, out: Path | None = None) -> dict[str, float]:
        """Return metrics by name; write the words' tags to `out`, if given, one line per sentence."""
        of_words = logits["label"][self._is_word]
        found = self._sentences(of_words.argmax(axis=-1))
        if out is not None:
            (path,) = self.files(out)
            with atomic_file(path, replace=True) as file:
                file.write("".join(f"{' '.join(tags)}\n" for tags in found).encode())
        accuracy = float(np.mean(of_words.argmax(axis=-1) == self._labels))
        scores = score_entities(self._sentences(self._labels), found)
        return {"loss": mean_cross_entropy(of_words, self._labels), **scores, "accuracy": accuracy}

    def files(self, out: Path) -> list[Path]:
        """Return the file that `score` writes."""
        return [out / self._split / "predictions.txt"]

    def _sentences(self, ids: Any) -> list[list[str]]:
        return [tags.tolist() for tags in np.split(self._classes[ids], self._ends)]


def score_entities(expected: Sequence[Sequence[str]], found: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return precision, recall and F1 over the entities of all sentences. A ratio with a denominator of 0 is 0.

    >>> score_entities([["B-PER", "I-PER", "O"]], [["B-PER", "I-PER", "B-LOC"]])
    {'precision': 0.5, 'recall': 1.0, 'f1': 0.6666666666666666}
    """
    right = in_found = in_expected = 0
    for tags, predicted in zip(expected, found, strict=True):
        true, guessed = set(find_entities(tags)), set(find_entities(predicted))
        right += len(true & guessed)
        in_expected += len(true)
        in_found += len(guessed)
    precision = right / in_found if in_found else 0.0
    recall = right / in_expected if in_expected else 0.0
    f1 = 2 * precision * recall / (precision + recall) if right else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}


def find_entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence in IOB1, IOB2, IOE or BIOES. As in CoNLL's script, an I- without a B- starts one too.

    A tag is read as seqeval reads it: its first character is the prefix, of which B, I, E, S and O are known. A tag without a
    prefix, such as PER, is read as I-PER.

    >>> find_entities(["B-PER", "I-PER", "O", "I-LOC", "B-LOC", "PER", "PER"])
    [('PER', 0, 1), ('LOC', 3, 3), ('LOC', 4, 4), ('PER', 5, 6)]
    """
    entities: list[Entity] = []
    first, before, before_kind = 0, OUTSIDE, ""
    for index, tag in enumerate([*tags, OUTSIDE]):
        prefix, kind = ("I", tag) if has_no_prefix(tag) else (tag[0], tag[1:].split("-", 1)[-1] or "_")
        is_other_kind = kind != before_kind
        if before in "ES" or (before in "BI" and prefix in "BSO") or (before not in "O." and is_other_kind):
            entities.append((before_kind, first, index - 1))
        if prefix in "BS" or (before in "ESO" and prefix in "EI") or (prefix not in "O." and is_other_kind):
            first = index
        before, before_kind = prefix, kind
    return entities
