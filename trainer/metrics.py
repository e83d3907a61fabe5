"""Losses and accuracies of a batch, as sums that add up however it is cut; and what a step computes, in operations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from trainer.config import ModelConfig


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
        return float(self.next_sentence_loss / self.sequences)

    @property
    def next_sentence_accuracy(self) -> float:
        return float(self.next_sentence_correct / self.sequences)

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


def training_flops(config: ModelConfig, *, seq: int, pred: int) -> int:
    """Floating-point operations of one sequence forward and backward, products of matrices alone, as the field counts them.

    >>> round(training_flops(ModelConfig.preset("base"), seq=128, pred=20) / 1e9, 1)
    69.9
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    layer = seq * (4 * hidden * hidden + 2 * hidden * inner) + 2 * seq * seq * hidden  # multiplications with additions
    heads = pred * (hidden * hidden + hidden * config.vocab_size) + hidden * hidden + 2 * hidden
    return 3 * 2 * (config.num_hidden_layers * layer + heads)  # backward takes twice what forward takes
