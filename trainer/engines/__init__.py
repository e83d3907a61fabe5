"""What runs a step on devices, one folder a framework; everything around them knows none, and asks an `Engine`.

The processes of a run are its ranks: each reads its share of every global batch and gives it to its engine, which cuts it
over its own devices and sums over all. All make the same calls in the same order, and all get the same results.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import UsageError
from bertprep.records import Examples
from trainer.engines.execution import Execution
from trainer.engines.silence import quiet
from trainer.metrics import StepResult
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks import Sums

State = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What is known of an engine's devices before its framework is loaded; None is for what only that can tell."""

    processes: int  # of the run
    is_first: bool
    devices: int | None
    has_accelerator: bool | None


class Engine(Protocol):
    """The devices of a run and what is on them: variables, the optimizer's moments, the loss scale."""

    data_rank: int  # which share of a global batch this process reads, ...
    data_world_size: int  # ... of so many; processes that are stages of one pipeline read the same
    processes: int  # of the run
    is_first: bool  # of all processes: the one that speaks and writes
    devices: int  # that have batches of their own, or pipelines; a global batch is `devices` x `accumulation` micro-batches
    device_name: str  # for people: "8 x NVIDIA H100 80GB HBM3"
    has_accelerator: bool
    execution: Execution  # precision and compiling; another one may be set before `build`
    precision: str  # that of `execution`, one of trainer.settings.PRECISIONS
    versions: Mapping[str, str]  # of what the numbers depend on

    def build(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int) -> None:
        """Make the variables, with the seed's initial values; dropout is of the same seed."""

    def restart(self) -> None:
        """Begin a phase: the variables stay, moments are 0, no update is counted, the loss scale is the first again."""

    def train(
        self, examples: Examples, *, step: int, learning_rate: float, accumulation: int, stop: bool
    ) -> Callable[[], StepResult]:
        """Begin step number `step` with this rank's share of its global batch; what is returned waits for its end.

        The arrays must hold until then. Dropout is of the step's number, the learning rate is given; `stop` reaches all ranks.
        """

    def evaluate(self, examples: Examples, row_weights: NDArray[np.float32]) -> Sums:
        """Losses and hits of a global batch, without dropout; rows of weight 0 count for nothing."""

    def state(self) -> State:
        """All that the next step depends on: variables by name, NAME/adam_m and NAME/adam_v, updates, the loss scale.

        It is whole in the first process, and all processes must ask for it.
        """

    def restore(self, state: State) -> None:
        """Take over a whole state, or the variables alone, and leave what is not in it as it is."""

    def gather(self, number: int) -> list[int]:
        """This number of every rank."""


def steps_ahead(engine: Engine) -> int:
    """How many steps are begun before the one before them is waited for: an accelerator is to have its next one at hand."""
    return 1 if engine.has_accelerator else 0


_ADVICE = {
    "tensorflow": "pip install '.[tensorflow]' in a clone, or '.[cuda]' for GPUs, as docs/training.md says",
    "oneflow": "pip install '.[oneflow]' in a clone, in an environment of Python 3.10, as docs/oneflow.md says",
}


def check_engine(settings: EngineSettings, model: ModelConfig) -> None:
    """Raise `UsageError` for what the engine cannot do, before its framework is loaded."""
    importlib.import_module(f"trainer.engines.{settings.engine}.checks").check(settings, model)


def check_installed(settings: EngineSettings) -> None:
    """Raise `UsageError` where the engine's framework is missing, before anything is written."""
    if importlib.util.find_spec(settings.engine) is None:
        raise _not_installed(settings.engine, f"{settings.engine} is not installed here")


def _not_installed(engine: str, what: str) -> UsageError:
    return UsageError(f"--engine {engine}: {what}; {_ADVICE[engine]}")


def look_at_machine(settings: EngineSettings) -> Machine:
    """What can be known of the devices of a run without its framework; raises `UsageError` for processes that make no sense."""
    checks = importlib.import_module(f"trainer.engines.{settings.engine}.checks")
    rank, processes = checks.find_process(settings)
    has_accelerator = None if _may_have_gpus() else False
    devices = checks.count_devices(settings, processes, has_accelerator)
    return Machine(processes=processes, is_first=rank == 0, devices=devices, has_accelerator=has_accelerator)


def _may_have_gpus() -> bool:
    """False where a framework certainly finds none: Linux has no device file of a driver, or all of them are hidden."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    drivers = [*Path("/dev").glob("nvidia[0-9]*"), Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd")]
    return sys.platform != "linux" or any(driver.exists() for driver in drivers)


def open_engine(settings: EngineSettings) -> Engine:
    """The engine of that name on the devices that are there; its framework is loaded here and not before."""
    try:
        with quiet(), _lean_import():
            module = importlib.import_module(f"trainer.engines.{settings.engine}.engine")
    except ImportError as error:
        what = f"{error.name} is not installed here" if isinstance(error, ModuleNotFoundError) else str(error)
        raise _not_installed(settings.engine, what) from error
    engine: Engine = module.open_engine(settings)
    return engine


_NOT_NEEDED = ("matplotlib", "pandas", "IPython")
"""What Keras and TensorFlow load if it is there and do without if it is not: a fifth of the time that they take to load."""


@contextmanager
def _lean_import() -> Iterator[None]:
    """Load a framework without what it only might use, and without looking for garbage in it, then or later."""
    hidden = [name for name in _NOT_NEEDED if name not in sys.modules]
    was_enabled = gc.isenabled()
    gc.disable()
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None, of which an import fails
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        gc.freeze()
        if was_enabled:
            gc.enable()
