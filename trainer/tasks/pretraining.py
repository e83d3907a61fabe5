"""Pretraining: masked LM and next sentence, whose mean losses are added; on records without sentence pairs masked LM alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bertprep.config import UNPAIRED
from bertprep.errors import BertprepError
from bertprep.progress import say
from bertprep.records import Examples, MaskedExamples, PretrainingExamples
from bertprep.records.record_set import Records, RecordSet
from bertprep.weights import google_names
from bertprep.workspace.layout import TEST
from trainer.model_config import ModelConfig
from trainer.tasks import Scorer, Sums, Task, encoder_flops
from trainer.tasks.unigram import unigram_loss


class PretrainingSums(NamedTuple):
    """See `trainer.tasks.Sums`; a checkpoint has them in this order."""

    masked_lm_loss_sum: Any = 0.0
    masked_lm_correct_sum: Any = 0.0
    masked_lm_weight_sum: Any = 0.0
    next_sentence_loss_sum: Any = 0.0
    next_sentence_correct_sum: Any = 0.0
    sequences: Any = 0.0

    def plus(self, other: PretrainingSums) -> PretrainingSums:
        return PretrainingSums(*(one + another for one, another in zip(self, other, strict=True)))

    @property
    def loss(self) -> float:
        return self.metrics()["loss"]

    def metrics(self) -> dict[str, float]:
        """Means over masked tokens and over sequences; 0 where there are none."""
        weight, sequences = max(self.masked_lm_weight_sum, 1e-5), max(self.sequences, 1e-5)
        masked_lm_loss, next_sentence_loss = self.masked_lm_loss_sum / weight, self.next_sentence_loss_sum / sequences
        return {
            "loss": float(masked_lm_loss + next_sentence_loss),
            "masked_lm_loss": float(masked_lm_loss),
            "masked_lm_accuracy": float(self.masked_lm_correct_sum / weight),
            "next_sentence_loss": float(next_sentence_loss),
            "next_sentence_accuracy": float(self.next_sentence_correct_sum / sequences),
        }


class MaskedLmSums(NamedTuple):
    """The same without next sentences."""

    masked_lm_loss_sum: Any = 0.0
    masked_lm_correct_sum: Any = 0.0
    masked_lm_weight_sum: Any = 0.0
    sequences: Any = 0.0

    def plus(self, other: MaskedLmSums) -> MaskedLmSums:
        return MaskedLmSums(*(one + another for one, another in zip(self, other, strict=True)))

    @property
    def loss(self) -> float:
        return self.metrics()["loss"]

    def metrics(self) -> dict[str, float]:
        """Means over masked tokens; 0 where there are none."""
        weight = max(self.masked_lm_weight_sum, 1e-5)
        loss = float(self.masked_lm_loss_sum / weight)
        return {"loss": loss, "masked_lm_loss": loss, "masked_lm_accuracy": float(self.masked_lm_correct_sum / weight)}


@dataclass(frozen=True)
class Pretraining:
    """See `trainer.tasks.Task`; with `has_pairs` the model has a next-sentence head, and the pooler before it."""

    has_pairs: bool = True
    name = "pretraining"
    criterion, is_scored = "loss", False

    @property
    def examples(self) -> type[Examples]:
        return PretrainingExamples if self.has_pairs else MaskedExamples

    @property
    def sums(self) -> Callable[..., Sums]:
        return PretrainingSums if self.has_pairs else MaskedLmSums

    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        return google_names.variable_shapes(asdict(model), next_sentence=self.has_pairs)

    def open_records(self, data: Sequence[Path], split: str, model: ModelConfig) -> RecordSet:
        sizes = {"vocab_size": model.vocab_size, "type_vocab_size": model.type_vocab_size}
        return RecordSet(data, split, kind=self.examples, **sizes)

    def flops(self, model: ModelConfig, *, seq: int, pred: int) -> int:
        """Matrix products alone, as the field counts them.

        >>> round(PRETRAINING.flops(ModelConfig.preset("base"), seq=128, pred=20) / 1e9, 1)
        69.9
        """
        hidden = model.hidden_size
        of_pairs = hidden * hidden + 2 * hidden if self.has_pairs else 0
        heads = pred * (hidden * hidden + hidden * model.vocab_size) + of_pairs
        return 3 * 2 * (encoder_flops(model, seq) + heads)  # backward takes twice what forward takes

    def baseline(self, training: Records, test: Records, model: ModelConfig, *, test_sequences: int) -> dict[str, float | None]:
        try:
            loss = unigram_loss(training, test, vocab_size=model.vocab_size, test_sequences=test_sequences)
        except BertprepError as error:  # no run ends for want of it
            say(f"without the loss by unigram frequencies: {error}")
            return {"unigram_loss": None}
        return {"unigram_loss": loss}

    def scorer(self, data: Path, records: RecordSet, split: str = TEST) -> Scorer:
        raise NotImplementedError("pretraining is evaluated by its sums")

    def made_with(self) -> dict[str, Any]:
        # with pairs as in the checkpoints that were written before there were other tasks
        return {} if self.has_pairs else {"task": {"name": self.name, "pairs": UNPAIRED}}

    def describe_training(self, entry: Mapping[str, Any]) -> str:
        if not self.has_pairs:
            return f"masked-LM loss {entry['loss']:.2f}, accuracy {entry['masked_lm_accuracy']:.2f}"
        return (
            f"loss {entry['loss']:.2f} (masked LM {entry['masked_lm_loss']:.2f}, "
            f"next sentence {entry['next_sentence_loss']:.2f}), "
            f"accuracy {entry['masked_lm_accuracy']:.2f}/{entry['next_sentence_accuracy']:.2f}"
        )

    def describe_evaluation(self, entry: Mapping[str, Any]) -> str:
        unigram = "" if entry["unigram_loss"] is None else f"; by unigram frequencies {entry['unigram_loss']:.2f}"
        masked_lm = f"masked-LM loss {entry['masked_lm_loss']:.2f} (accuracy {entry['masked_lm_accuracy']:.2f}{unigram})"
        if not self.has_pairs:
            return masked_lm
        return f"{masked_lm}, next sentence {entry['next_sentence_loss']:.2f} ({entry['next_sentence_accuracy']:.2f})"


PRETRAINING: Task = Pretraining()
MASKED_LM: Task = Pretraining(has_pairs=False)


def pretraining_on(kind: type[Examples]) -> Task:
    """The task of pretraining on records of this kind."""
    return MASKED_LM if kind is MaskedExamples else PRETRAINING
