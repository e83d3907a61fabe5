"""Engines run a step on devices, one folder for each framework; the rest of the trainer knows none and calls an `Engine`.

The processes of a run are its ranks: each reads its rows of every global batch and gives them to its engine, which splits them
over its own devices and sums over all. All make the same calls in the same order, and all get the same results. Below the
interface is the code common to the engines: dropout keys, moments and the loss scale.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import UsageError
from bertprep.records import Examples
from trainer.engines.execution import Execution
from trainer.metrics import StepResult
from trainer.model_config import ModelConfig
from trainer.settings import AUTO, ENGINES, EngineSettings, OptimizerSettings
from trainer.tasks import Sums, Task
from trainer.tasks.pretraining import PRETRAINING

State = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What is known of an engine's devices before its framework is loaded; None is for what only the framework can tell."""

    is_first: bool  # of all processes
    devices: int | None
    has_accelerator: bool | None


class Engine(Protocol):
    """The devices of a run and what is on them: variables, the optimizer's moments, the loss scale."""

    data_rank: int  # whose rows of a global batch this process reads, ...
    data_world_size: int  # ... of how many; processes that are stages of one pipeline read the same
    processes: int  # of the run
    is_first: bool  # of all processes: the one that speaks and writes
    devices: int  # that have batches of their own, or pipelines; a global batch is `devices` x `accumulation` micro-batches
    device_name: str  # for people: "8 x NVIDIA H100 80GB HBM3"
    has_accelerator: bool
    execution: Execution  # precision and compiling; another one may be set before `build`
    versions: Mapping[str, str]  # of what the numbers depend on

    @property
    def precision(self) -> str:
        """One of trainer.settings.PRECISIONS."""
        return self.execution.precision

    def build(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task = PRETRAINING) -> None:
        """Make the variables of a task, with the seed's initial values; dropout follows from the same seed."""

    def restart(self) -> None:
        """Begin a phase: variables stay; moments, the count of updates and the loss scale are as at the first step."""

    def train(
        self, examples: Examples, *, step: int, learning_rate: float, accumulation: int, stop: bool
    ) -> Callable[[], StepResult]:
        """Begin step number `step` with this rank's rows of its global batch; the function returned waits for its end.

        The arrays must not change until then. Dropout follows from the step's number; `stop` reaches all ranks.
        """

    def evaluate(self, examples: Examples, row_weights: NDArray[np.float32]) -> Sums:
        """Losses and hits of a global batch, without dropout; rows of weight 0 count for nothing."""

    def predict(self, examples: Examples) -> dict[str, NDArray[np.float32]]:
        """What the task's heads give for each row of a global batch, those of all ranks in its order, without dropout.

        `examples` are this rank's rows, with labels or without; the results are the same in all ranks: start_logits and
        end_logits (rows, seq), or logits (rows, labels).
        """

    def state(self) -> State:
        """All that the next step depends on: variables by name, NAME/adam_m and NAME/adam_v, updates, the loss scale.

        It is complete in the first process, and all processes must ask for it.
        """

    def restore(self, state: State) -> None:
        """Take over a complete state, or the variables alone, and leave what is not in it unchanged."""

    def gather(self, number: int) -> list[int]:
        """This number of every rank."""

    def peak_memory(self) -> int | None:
        """The most bytes of an accelerator's memory that were in use at once so far; None where that is not known."""


def steps_ahead(engine: Engine) -> int:
    """How many steps are begun before the one before them is waited for: an accelerator should have its next one at hand."""
    return 1 if engine.has_accelerator else 0


_ADVICE = {
    "tensorflow": "pip install '.[tensorflow]' in a clone, or '.[cuda]' for GPUs, as docs/training.md says",
    "jax": "pip install '.[jax]' in a clone, or '.[jax-cuda]' for GPUs, as docs/training.md says",
    "oneflow": "pip install '.[oneflow]' in a clone, in an environment of Python 3.10, as docs/oneflow.md says",
}


def choose_engine(settings: EngineSettings) -> EngineSettings:
    """The settings with the name of an engine, and why it is that one; nothing is loaded for it."""
    if settings.engine != AUTO:
        return settings
    installed = installed_engines()
    name, why = suitable_engine(installed, _accelerator_of_jax() if "jax" in installed else "")
    return replace(settings, engine=name, why_engine=why)


def installed_engines() -> list[str]:
    """The engines whose framework is there."""
    return [name for name in ENGINES if importlib.util.find_spec(name)]


def suitable_engine(installed: Sequence[str], accelerator: str) -> tuple[str, str]:
    """Which of the installed engines suits a machine on which JAX would compute on a "GPU", a "TPU" or neither, and why.

    >>> suitable_engine(["tensorflow", "jax"], "GPU")
    ('jax', 'there is a GPU (--engine tensorflow takes the other)')
    """
    if len(installed) < 2:
        return (installed or ENGINES)[0], "the only one installed" * len(installed)
    name = "jax" if accelerator else installed[0]
    others = " or ".join(other for other in installed if other != name)
    why = f"there is a {accelerator}" if accelerator else "there is no GPU or TPU that JAX could use"
    return name, f"{why} (--engine {others} takes the other)"


def may_have_accelerators() -> bool:
    """Whether JAX may find what it should rather take than the CPU, if it has what it takes."""
    return os.environ.get("JAX_PLATFORMS") != "cpu" and sys.platform == "linux" and _may_have_gpus()


def _accelerator_of_jax() -> str:
    """What JAX would compute on here, as its packages and the system's device files say; "" for a CPU."""
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return ""
    if importlib.util.find_spec("libtpu") and any(_tpu_files()):
        return "TPU"
    has_plugin = any(importlib.util.find_spec(f"jax_{platform}_plugin") for platform in ("cuda12", "cuda13", "rocm7", "rocm6"))
    return "GPU" if has_plugin and _may_have_gpus() else ""


def _tpu_files() -> Iterator[Path]:
    return (file for pattern in ("accel[0-9]*", "vfio/[0-9]*") for file in Path("/dev").glob(pattern))


def _import(engine: str, module: str = "") -> Any:
    """A module of that engine; its package itself needs no framework."""
    if engine not in ENGINES:
        raise UsageError(f"--engine {engine}: unknown; choose one of {', '.join(ENGINES)}")
    return importlib.import_module(f"trainer.engines.{engine}{module}")


def heads_of(engine: str, task: Task) -> Any:
    """The module of an engine that has a task's heads and loss."""
    return importlib.import_module(f"trainer.engines.{engine}.{task.name}")


def check_engine(settings: EngineSettings, model: ModelConfig, task: Task = PRETRAINING) -> None:
    """Raise `UsageError` for what the engine of that name cannot do, before its framework is loaded."""
    _import(settings.engine).check(settings, model, task)


def check_installed(settings: EngineSettings) -> None:
    """Raise `UsageError` where the engine's framework is missing, before anything is written."""
    if importlib.util.find_spec(settings.engine) is None:
        raise _not_installed(settings.engine, f"{settings.engine} is not installed here")


def _not_installed(engine: str, what: str) -> UsageError:
    return UsageError(f"--engine {engine}: {what}; {_ADVICE[engine]}")


def look_at_machine(settings: EngineSettings) -> Machine:
    """What can be known of a run's devices without the framework; raises `UsageError` for processes that make no sense."""
    has_accelerator = None if _may_have_gpus() else False
    rank, devices = _import(settings.engine).look(settings, has_accelerator=has_accelerator)
    return Machine(is_first=rank == 0, devices=devices, has_accelerator=has_accelerator)


def _may_have_gpus() -> bool:
    """False where a framework certainly finds none: Linux has no device file of a driver, or all of them are hidden."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    drivers = [*Path("/dev").glob("nvidia[0-9]*"), Path("/dev/nvidiactl"), Path("/dev/dxg"), Path("/dev/kfd"), *_tpu_files()]
    return sys.platform != "linux" or any(driver.exists() for driver in drivers)


def open_engine(settings: EngineSettings) -> Engine:
    """The engine of that name on the devices that are there; its framework is loaded here and not before."""
    settings = choose_engine(settings)
    try:
        with quiet(), _lean_import():
            module = _import(settings.engine, ".engine")
    except ImportError as error:
        what = f"{error.name} is not installed here" if isinstance(error, ModuleNotFoundError) else str(error)
        raise _not_installed(settings.engine, what) from error
    engine: Engine = module.open_engine(settings)
    return engine


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what the block writes to standard error, by compiled code too, which no setting silences; shown if it fails."""
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "wb") as standard_error, tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            held.seek(0)
            shutil.copyfileobj(held, standard_error)
            raise
        finally:
            sys.stderr.flush()
            os.dup2(standard_error.fileno(), 2)


_NOT_NEEDED = ("keras", "scipy", "h5py", "matplotlib", "pandas", "IPython")
"""What TensorFlow loads where it is installed, and does without where it is not: a fifth of the time that it takes to load."""


@contextmanager
def _lean_import() -> Iterator[None]:
    """Load a framework without what it only might use, and without garbage collection of what it loads, then or later."""
    hidden = [name for name in _NOT_NEEDED if name not in sys.modules]
    was_enabled = gc.isenabled()
    gc.disable()
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: importing it raises ImportError
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        gc.freeze()
        if was_enabled:
            gc.enable()


def dropout_keys(seed: int, step: int, parts: range) -> NDArray[np.int32]:
    """(parts, 2): what the dropout of each micro-batch of a step's global batch is drawn from; no state is kept.

    Micro-batches are numbered through all ranks and replicas. A run that is resumed draws the masks that it would have drawn.
    """
    keys = [np.random.SeedSequence([seed, step, part]).generate_state(2) >> 2 for part in parts]  # 30 bits: leave some to count
    return np.array(keys).astype(np.int32)


class Slots(NamedTuple):
    """What an optimizer keeps of one variable: the moving averages of its gradient and of that squared."""

    m: Any
    v: Any


GROWTH_STEPS = 1000
"""Finite updates in a row after which the loss scale doubles."""


class LossScale(NamedTuple):
    """Loss scaling for float16: the loss is multiplied so that small gradients do not underflow, and the gradients divided.

    An overflow skips one update and halves the scale; `GROWTH_STEPS` finite updates in a row double it, as in NVIDIA's
    automatic mixed precision. It is never below 1. Both fields are numbers, or a framework's tensors.
    """

    scale: Any  # of the next update
    good_steps: Any  # finite updates in a row that led to it

    def after(self, is_finite: Any, where: Callable[[Any, Any, Any], Any]) -> LossScale:
        """The scale after an update whose gradients were finite or not; `where` chooses, as `numpy.where` does.

        >>> LossScale(8.0, 3.0).after(False, lambda condition, one, other: one if condition else other)
        LossScale(scale=4.0, good_steps=0.0)
        """
        good_steps = self.good_steps + 1
        grown = where(good_steps >= GROWTH_STEPS, self.scale * 2, self.scale)
        shrunk = where(self.scale > 2, self.scale / 2, 1.0)
        is_counting = where(is_finite, good_steps, GROWTH_STEPS) < GROWTH_STEPS
        return LossScale(where(is_finite, grown, shrunk), where(is_counting, good_steps, 0.0))


def parts_factor(parts: int) -> float:
    """What a micro-batch's loss is scaled by besides: the number of parts of a global batch, as a power of two to be exact.

    The more parts there are the smaller is each one's loss; with this, one loss scale suits every way to split a batch.

    >>> parts_factor(1), parts_factor(6)
    (1.0, 8.0)
    """
    return float(2 ** math.ceil(math.log2(parts)))
