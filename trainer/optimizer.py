"""What an update is made with, for any engine: the originals' fixed numbers, and which variables decay.

The mathematics is each engine's own, since it runs on a framework's tensors; tests hold each to the same traces.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from bertprep.errors import UsageError

OPTIMIZERS = ("adam", "lamb")
FIXED = ("weight_decay", "beta_1", "beta_2", "epsilon", "clip_norm")
"""What the originals have as numbers in their code, and the command line as options."""
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
        for option, beta in (("--beta1", self.beta_1), ("--beta2", self.beta_2)):
            if not 0 < beta < 1:
                raise UsageError(f"{option} {beta:g}: must be above 0 and below 1")
        if not 0 <= self.weight_decay < math.inf:
            raise UsageError(f"--weight-decay {self.weight_decay:g}: must be at least 0")
        for option, value in (("--epsilon", self.epsilon), ("--clip-norm", self.clip_norm)):
            if not 0 < value < math.inf:
                raise UsageError(f"{option} {value:g}: must be above 0")

    def describe(self) -> str:
        """The name, and whatever is not as in the originals."""
        named = self.name + (" with bias correction" if self.bias_correction else "")
        changed = [name for name in FIXED if getattr(self, name) != getattr(OptimizerSettings, name)]
        return ", ".join([named, *(f"{_shown(name)} {getattr(self, name):g}" for name in changed)])


def _shown(name: str) -> str:
    return name.replace("beta_", "beta").replace("_", " ")


def is_decayed(name: str) -> bool:
    """Whether weight decay applies to the variable of this name.

    >>> is_decayed("bert/pooler/dense/kernel"), is_decayed("cls/predictions/output_bias")
    (True, False)
    """
    return _NOT_DECAYED.search(name) is None
