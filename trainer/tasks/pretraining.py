"""Pretraining: masked LM and next sentence, whose mean losses are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from bertprep.errors import BertprepError
from bertprep.progress import say
from bertprep.records import Examples, PretrainingExamples
from bertprep.records.record_set import Records, RecordSet
from bertprep.weights import google_names
from bertprep.workspace.layout import TEST
from trainer.model_config import ModelConfig
from trainer.tasks import Scorer, Task, encoder_flops
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


class _Pretraining:
    name = "pretraining"
    examples: type[Examples] = PretrainingExamples
    criterion, is_scored = "loss", False
    sums = PretrainingSums

    def variable_shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        return google_names.variable_shapes(asdict(model))

    def open_records(self, data: Sequence[Path], split: str, model: ModelConfig) -> RecordSet:
        sizes = {"vocab_size": model.vocab_size, "type_vocab_size": model.type_vocab_size}
        return RecordSet(data, split, kind=self.examples, **sizes)

    def flops(self, model: ModelConfig, *, seq: int, pred: int) -> int:
        """Matrix products alone, as the field counts them.

        >>> round(PRETRAINING.flops(ModelConfig.preset("base"), seq=128, pred=20) / 1e9, 1)
        69.9
        """
        hidden = model.hidden_size
        heads = pred * (hidden * hidden + hidden * model.vocab_size) + hidden * hidden + 2 * hidden
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
        return {}  # as in the checkpoints that were written before there were other tasks

    def describe_training(self, entry: Mapping[str, Any]) -> str:
        return (
            f"loss {entry['loss']:.2f} (masked LM {entry['masked_lm_loss']:.2f}, "
            f"next sentence {entry['next_sentence_loss']:.2f}), "
            f"accuracy {entry['masked_lm_accuracy']:.2f}/{entry['next_sentence_accuracy']:.2f}"
        )

    def describe_evaluation(self, entry: Mapping[str, Any]) -> str:
        unigram = "" if entry["unigram_loss"] is None else f"; by unigram frequencies {entry['unigram_loss']:.2f}"
        return (
            f"masked-LM loss {entry['masked_lm_loss']:.2f} (accuracy {entry['masked_lm_accuracy']:.2f}{unigram}), "
            f"next sentence {entry['next_sentence_loss']:.2f} ({entry['next_sentence_accuracy']:.2f})"
        )


PRETRAINING: Task = _Pretraining()
