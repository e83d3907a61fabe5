"""What an update is made with, for any engine: the originals' fixed numbers, and which variables decay.

The mathematics is each engine's own, since it runs on a framework's tensors; tests hold each to the same traces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bertprep.errors import UsageError

OPTIMIZERS = ("adam", "lamb")
_NOT_DECAYED = re.compile("LayerNorm|layer_norm|bias")


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """The settings of an update that do not change during a run; the defaults are fixed numbers in the originals."""

    name: str = "adam"
    bias_correction: bool = False  # of Adam; LAMB always has it
    weight_decay: float = 0.01
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise UsageError(f"--optimizer {self.name}: unknown; choose one of {', '.join(OPTIMIZERS)}")
        if not (0 < self.beta_1 < 1 and 0 < self.beta_2 < 1):
            raise UsageError(f"beta_1 {self.beta_1}, beta_2 {self.beta_2}: must be above 0 and below 1")
        if not (self.weight_decay >= 0 and self.epsilon > 0 and self.clip_norm > 0):
            raise UsageError(
                f"weight_decay {self.weight_decay}, epsilon {self.epsilon}, clip_norm {self.clip_norm}: "
                "the first must be at least 0, the others above 0"
            )


def is_decayed(name: str) -> bool:
    """Whether weight decay applies to the variable of this name.

    >>> is_decayed("bert/pooler/dense/kernel"), is_decayed("cls/predictions/output_bias")
    (True, False)
    """
    return _NOT_DECAYED.search(name) is None
