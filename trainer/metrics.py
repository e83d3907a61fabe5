"""Losses and accuracies of a batch, as sums that add up however it is cut; and what a step computes, in operations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainer.model_config import ModelConfig


class Sums(NamedTuple):
    """Losses (in nats) and hits, as sums over a batch or a part of one: those of all parts add up to those of the batch.

    Within an engine these are tensors of its framework; what it gives out are numbers, and the means are of those.
    """

    masked_lm_loss: Any = 0.0
    masked_lm_correct: Any = 0.0
    masked_lm_weight: Any = 0.0
    next_sentence_loss: Any = 0.0
    next_sentence_correct: Any = 0.0
    sequences: Any = 0.0

    def plus(self, other: Sums) -> Sums:
        return Sums(*(one + another for one, another in zip(self, other, strict=True)))

    @property
    def masked_lm(self) -> float:
        """Mean loss of a masked token; 0 where none was masked."""
        return float(self.masked_lm_loss / max(self.masked_lm_weight, 1e-5))

    @property
    def masked_lm_accuracy(self) -> float:
        return float(self.masked_lm_correct / max(self.masked_lm_weight, 1e-5))

    @property
    def next_sentence(self) -> float:
        """Mean loss of a sequence's next-sentence label."""
        return float(self.next_sentence_loss / max(self.sequences, 1e-5))

    @property
    def next_sentence_accuracy(self) -> float:
        return float(self.next_sentence_correct / max(self.sequences, 1e-5))

    @property
    def loss(self) -> float:
        """What training lessens: the sum of both means."""
        return self.masked_lm + self.next_sentence


@dataclass(frozen=True)
class StepResult:
    """What a step did, of the global batch and the same in every process."""

    sums: Sums
    gradient_norm: float  # before clipping
    loss_scale: float  # that of the step itself; 1 but for fp16
    is_stop_wanted: bool  # by any process

    @property
    def is_finite(self) -> bool:
        """Where it is not, fp16 skipped the update, and any other precision has spoilt the variables."""
        return math.isfinite(self.gradient_norm) and math.isfinite(self.sums.loss)


@dataclass(frozen=True)
class Interval:
    """The steps since the last line of the log, as sums that a checkpoint keeps: so a run that was stopped logs the same means.

    What is not finite, of steps that fp16 skipped, is left out of them.
    """

    sums: Sums = Sums()  # noqa: RUF009 - a tuple
    gradient_norm_sum: float = 0.0
    gradient_norms: int = 0

    def plus(self, result: StepResult) -> Interval:
        sums = self.sums.plus(result.sums) if math.isfinite(result.sums.loss) else self.sums
        if not math.isfinite(result.gradient_norm):
            return Interval(sums, self.gradient_norm_sum, self.gradient_norms)
        return Interval(sums, self.gradient_norm_sum + result.gradient_norm, self.gradient_norms + 1)

    def means(self, last: StepResult) -> tuple[Sums, float]:
        """What to take losses and accuracies of, and the mean gradient norm; where no step was finite those of the last."""
        norm = self.gradient_norm_sum / self.gradient_norms if self.gradient_norms else last.gradient_norm
        return (self.sums if self.sums.sequences else last.sums), norm


def training_flops(config: ModelConfig, *, seq: int, pred: int) -> int:
    """Floating-point operations of one sequence forward and backward, products of matrices alone, as the field counts them.

    >>> round(training_flops(ModelConfig.preset("base"), seq=128, pred=20) / 1e9, 1)
    69.9
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    layer = seq * (4 * hidden * hidden + 2 * hidden * inner) + 2 * seq * seq * hidden  # multiplications with additions
    heads = pred * (hidden * hidden + hidden * config.vocab_size) + hidden * hidden + 2 * hidden
    return 3 * 2 * (config.num_hidden_layers * layer + heads)  # backward takes twice what forward takes
