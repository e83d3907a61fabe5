"""Define SQuAD: predict the start and the end of the answer in a window of tokens.

In version 2.0 the first token means no answer. The loss is the mean of the losses of start and end. The official metrics score
the answers to all questions; for that the windows are rebuilt from the questions, since they map token positions to words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bertprep.config import SquadSettings
from bertprep.errors import BertprepError
from bertprep.files.checksums import SHA256
from bertprep.files.paths import checksum_of
from bertprep.instances import load_vocabulary
from bertprep.options import Settings, option
from bertprep.records.records import Records
from bertprep.tasks.squad import V1, read_squad
from bertprep.tasks.squad_answers import PREDICTION_FILES, predict_answers
from bertprep.tasks.squad_features import FIRST_UNIQUE_ID, make_features
from bertprep.tasks.squad_scores import score_answers, search_threshold
from bertprep.weights import google_names
from bertprep.weights.google_names import Shapes
from bertprep.work.choose import find_records
from bertprep.work.layout import MANIFEST, QUESTIONS, VOCABULARY
from bertprep.work.manifest import TASK_RECORDS, sha256_of_questions
from trainer.model import Array, Bert
from trainer.model_config import ModelConfig
from trainer.settings import BATCH_SIZE, MAX_BATCH, MAX_EPOCHS, RunOptions, Wanted
from trainer.tasks.task import Logits, Output, Scorer, Task, read_features


@dataclass(frozen=True, kw_only=True)
class SquadOptions(RunOptions):
    """Options of `squad`, with the defaults of `run_squad.py` for version 1.1."""

    version: str = option("1.1", "version of SQuAD", choices=("1.1", "2.0"))
    batch_size: int = option(12, BATCH_SIZE, least=1, most=MAX_BATCH)
    learning_rate: float | None = option(3e-5, "peak learning rate", name="--lr", above=0)
    epochs: float | None = option(None, "passes over the training records (default: 2)", above=0, most=MAX_EPOCHS)
    default_epochs: ClassVar[float] = 2.0

    @property
    def wanted(self) -> Wanted:
        return Wanted(TASK_RECORDS, "corpus", f"squad_v{self.version}", f"bertprep task squad --version {self.version}")


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(Settings):
    """Options for choosing answers from the logits of their tokens."""

    null_threshold: float | None = option(
        None, "SQuAD 2.0: predict no answer if score(no answer) - score(best answer) exceeds this (default: the value with "
        "the highest F1)",
    )  # fmt: skip
    n_best_size: int = option(20, "SQuAD: answers per question in nbest_predictions.json", least=1)
    max_answer_length: int = option(30, "SQuAD: maximum tokens of an answer", least=1)


@dataclass(frozen=True)
class Squad(Task):
    """Question answering on a version of SQuAD."""

    version: str = V1
    name: ClassVar[str] = "squad"
    command: ClassVar[str] = "squad"
    help: ClassVar[str] = "fine-tune a model on SQuAD's records; resumes where it stopped"
    options: ClassVar[type[RunOptions]] = SquadOptions
    is_scored: ClassVar[bool] = True
    scoring: ClassVar[type | None] = AnswerOptions
    head_names: ClassVar[Mapping[str, str]] = {
        "cls/squad/output_weights": "qa_outputs.weight",
        "cls/squad/output_bias": "qa_outputs.bias",
    }
    criterion = "f1"
    outputs = (Output("start", "start_positions", share=0.5), Output("end", "end_positions", share=0.5))
    hugging_face_class = "BertForQuestionAnswering"

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Squad | None:
        version = metadata.get("version")
        return cls(version) if isinstance(version, str) else None

    @classmethod
    def from_manifest(cls, settings: Mapping[str, Any]) -> Squad:
        return cls(f"v{settings['version'].removeprefix('v')}")

    def metadata(self) -> dict[str, Any]:
        return {"task": {"name": self.name, "version": self.version}}

    def describe(self) -> str:
        return f"SQuAD {self.version}"

    def is_requested_by(self, options: RunOptions) -> bool:
        return isinstance(options, SquadOptions) and self.version == f"v{options.version}"

    def head(self, bert: Bert, hidden: Array) -> dict[str, Array]:
        """Return the logits of each token, including padding, to be the answer's start, and to be its end: (sequences, seq)."""
        both = bert.ops.reshape(bert.logits("cls/squad/output", hidden), (bert.sequences, bert.seq, 2))
        return {"start": both[:, :, 0], "end": both[:, :, 1]}

    def body_shapes(self, model: ModelConfig) -> Shapes:
        # Like Hugging Face's class; Google's checkpoints for SQuAD have an unused pooler
        return google_names.body_shapes(asdict(model), pooler=False)

    def head_shapes(self, model: ModelConfig) -> Shapes:
        return {"cls/squad/output_weights": (2, model.hidden_size), "cls/squad/output_bias": (2,)}

    def rows_of_head(self, name: str, *, seq: int, pred: int) -> int:  # noqa: ARG002
        return seq if name.startswith("cls/squad/") else 1

    def scorer(self, data: Path, records: Records, split: str, options: Any) -> Scorer:  # noqa: ARG002
        return SquadScorer(self, data, records, options or AnswerOptions())


class SquadScorer:
    """Scores answers to the questions that a folder of records was made from."""

    def __init__(self, task: Squad, data: Path, records: Records, options: AnswerOptions) -> None:
        data_set = find_records(data)
        path = data_set.folder / QUESTIONS
        manifest, vocabulary = data_set.manifest, data_set.vocabulary
        if manifest is None or vocabulary is None or not path.is_file():
            raise BertprepError(
                f"{data}: lacks {path.name}, {VOCABULARY} or {MANIFEST}, which predictions need; make the records with "
                "bertprep task squad"
            )
        if (found := checksum_of(path, SHA256)) != (expected := sha256_of_questions(manifest)):
            raise BertprepError(
                f"{path}: has sha256 {found[:16]}..., expected {str(expected)[:16]}... by {MANIFEST}; restore the file that "
                "the records were made from, or make the records again"
            )
        known = {each.name for each in fields(SquadSettings)}
        settings = SquadSettings(**{name: value for name, value in manifest.made_with.items() if name in known})
        self._options, self._data = options, read_squad(path, task.version, training=False)
        self._features = make_features(self._data, load_vocabulary(vocabulary), settings, training=False)
        (ids,) = read_features(records, ["unique_ids"])
        in_order = FIRST_UNIQUE_ID + np.arange(len(self._features))
        if settings.seq != records.seq or not np.array_equal(ids, in_order):
            raise BertprepError(
                f"{path}: its questions have {len(in_order):,} windows of {settings.seq} tokens, but the dev split has "
                f"{len(records):,} records of {records.seq} tokens, or has them in another order; make the records again"
            )

    def score(self, logits: Logits, out: Path | None = None) -> dict[str, float]:
        """Return metrics by name, none without known answers; write predictions to `out`, if given."""
        data, options = self._data, self._options
        predictions = predict_answers(
            self._features, logits["start"], logits["end"], nbest_size=options.n_best_size,
            max_answer_length=options.max_answer_length,
        )  # fmt: skip
        threshold = options.null_threshold
        if threshold is None:
            has_choice = data.version != V1 and data.labelled
            threshold = search_threshold(data, predictions) if has_choice else 0.0
        if out is not None:
            predictions.write(out, threshold)
        if not data.labelled:
            return {}
        scores = score_answers(data, predictions, threshold)
        if data.version == V1:
            return {"exact_match": scores["exact_match"], "f1": scores["f1"]}
        by_kind = {name: score for name, score in scores.items() if name.endswith(("_exact", "_f1"))}
        return {"exact_match": scores["exact"], "f1": scores["f1"], **by_kind, "threshold": threshold}

    def files(self, out: Path) -> list[Path]:
        """Return the files that `score` may write."""
        return [out / f"{name}.json" for name in PREDICTION_FILES]
