"""Updates that the originals' optimizers made, as tests/golden/optimizers.md describes them."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.golden import GOLDEN
from trainer.schedule import Schedule

Arrays = dict[str, NDArray[np.float32]]
AFTER = ["google_adam_after", "nvidia_adam_after", "nvidia_lamb_after"]  # the order of things that we take
BEFORE = ["google_adam", "google_adam_no_warmup", "nvidia_adam", "nvidia_lamb", "nvidia_lamb_no_warmup"]


@dataclass(frozen=True)
class Trace:
    """Twelve updates of five variables by one of the originals."""

    name: str
    settings: dict[str, Any]
    initial: Arrays
    gradients: list[Arrays]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return list(self.settings["steps"])

    @property
    def optimizer(self) -> str:
        return "lamb" if "lamb" in self.name else "adam"

    @property
    def rate_offset(self) -> int:
        """0 where update n used the rate at n, -1 where it used the one before."""
        return 0 if self.settings["order"] == "after" else -1

    @property
    def schedule(self) -> Schedule:
        peak, steps, warmup = (self.settings[name] for name in ("init_lr", "num_train_steps", "num_warmup_steps"))
        if self.name.startswith("google"):
            return Schedule(peak=peak, steps=steps, warmup_steps=warmup)
        return Schedule.nvidia(self.optimizer, peak=peak, steps=steps, warmup_steps=warmup)

    def arrays(self, values: dict[str, list[float]]) -> Arrays:
        """Values of the file in the shapes of the variables."""
        return {name: np.array(values[name], np.float32).reshape(value.shape) for name, value in self.initial.items()}


def read_trace(name: str) -> Trace:
    """One of the traces in tests/golden/optimizers.json."""
    golden = json.loads((GOLDEN / "optimizers.json").read_bytes())
    variables = golden["problem"]["variables"]
    initial = {v["name"]: np.array(v["init"], np.float32).reshape(v["shape"]) for v in variables}
    trace = Trace(name, golden["traces"][name], initial, [])
    return Trace(name, trace.settings, initial, [trace.arrays(gradients) for gradients in golden["problem"]["gradients"]])
