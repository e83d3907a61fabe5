"""Engines run a step on devices, a module for each framework; the rest of the trainer only calls an `Engine`.

The processes of a run are its ranks: each passes its rows of every global batch to its engine, which splits them over its
devices and sums over all. All ranks make the same calls in the same order. Only `open_engine` loads a framework.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import importlib.util
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError, UsageError
from bertprep.untrusted import parse_json
from trainer.engines import oneflow_pipeline as pipeline
from trainer.model_config import ModelConfig
from trainer.optimizers import FIRST_LOSS_SCALE, slots
from trainer.settings import AUTO, ENGINES, EngineSettings, OptimizerSettings
from trainer.tasks import Sums, Task
from trainer.weights import initial_values

Batch = Mapping[str, NDArray[Any]]
"""This rank's rows of a global batch: features by their names, and row_weights (rows,), 0 for rows that do not count."""
State = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class StepResult:
    """What a step did, of the global batch and the same in every process."""

    sums: Sums
    gradient_norm: float  # before clipping
    loss_scale: float  # of this step; 1 but for fp16
    is_stop_wanted: bool  # by any process

    @property
    def is_finite(self) -> bool:
        """Return whether the update was made; else fp16 skipped it, or the variables are NaN."""
        return math.isfinite(self.gradient_norm) and bool(np.isfinite(self.sums).all())


class Processor(NamedTuple):
    """A GPU with its compute capability, or a CPU."""

    name: str = "CPU"
    capability: tuple[int, int] | None = None  # of a GPU whose driver reports it
    is_gpu: bool = False


class Execution(NamedTuple):
    """How steps are computed: the precision, whether XLA compiles them, and why."""

    precision: str  # one of PRECISIONS
    xla: bool = False
    why: str = ""
    has_fused_attention: bool = False

    def describe(self) -> str:
        name = {"off": "float32", "fp16": "fp16 with loss scaling", "bf16": "bf16"}[self.precision]
        is_fused = self.has_fused_attention and self.precision != "off"
        attention = ", fused attention where it has no dropout" * is_fused
        return name + (f" ({self.why})" if self.why else "") + ", XLA" * self.xla + attention


_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "OOM", "Out of memory", "out of memory", "can't allocate memory")
"""One of which each framework's error has."""


class Engine:
    """The devices of a run and what is on them: variables, the optimizer's moments, the loss scale."""

    data_rank: int  # whose rows of a global batch this process reads, ...
    data_world_size: int  # ... of how many; processes that are stages of one pipeline read the same
    is_first: bool  # of all processes: the one that logs and writes
    execution: Execution  # precision and compiling; another one may be set before `build`
    packages: ClassVar[tuple[Any, ...]]  # whose versions the numbers depend on
    failures: ClassVar[tuple[type[Exception], ...]] = ()  # that the framework raises where a machine has failed

    def __init__(
        self, settings: EngineSettings, processor: Processor, execution: Execution, *,
        devices: int, rank: int = 0, processes: int = 1,
    ) -> None:  # fmt: skip
        """`devices` are data-parallel replicas; a global batch is `devices` x `accumulation` micro-batches."""
        self.settings, self.execution = settings, execution
        self.data_rank, self.data_world_size = rank, processes
        self.processes, self.is_first, self.devices = processes, rank == 0, devices
        self.has_accelerator = processor.is_gpu
        self.device_name = processor.name if devices == 1 else f"{devices} x {processor.name}"  # 8 x NVIDIA H100 80GB HBM3
        self.versions = {package.__name__: package.__version__ for package in self.packages}

    @property
    def precision(self) -> str:
        return self.execution.precision

    def build(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task) -> None:
        """Make the variables of a task from the seed, with moments of 0."""
        self.prepare(model, optimizer, seed=seed, task=task)
        values = initial_values(model, seed, task)
        moments = {slot: np.zeros_like(value) for name, value in values.items() for slot in slots(optimizer, name)}
        loss_scale = np.float32(FIRST_LOSS_SCALE if self.precision == "fp16" else 1.0)
        self.restore({**values, **moments, "updates": np.float32(0), "loss_scale": loss_scale, "good_steps": np.float32(0)})

    def prepare(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task) -> None:
        self.model, self.optimizer, self.seed, self.task = model, optimizer, seed, task
        self.variables = task.variable_shapes(model)
        moments = {slot: shape for name, shape in self.variables.items() for slot in slots(optimizer, name)}
        self.shapes = {**self.variables, **moments, "updates": (), "loss_scale": (), "good_steps": ()}

    def train(
        self, batch: Batch, *, step: int, learning_rate: float, accumulation: int, stop: bool
    ) -> Callable[[], StepResult]:
        """Start step `step`, from 1; the returned function waits for its end, up to which the arrays must not change."""
        parts = accumulation * self.devices // self.data_world_size
        keys = dropout_keys(self.seed, step, range(self.data_rank * parts, (self.data_rank + 1) * parts))
        rows = {**batch, "dropout_key": keys, "stop": np.full(parts, stop, np.float32)}
        with self.errors_in_a_line():
            result = self.start(rows, learning_rate, accumulation)

        def wait() -> StepResult:
            with self.errors_in_a_line():
                *sums, norm, loss_scale, stops = to_numpy(result).tolist()
            return StepResult(np.reshape(sums, (-1, 3)), norm, loss_scale, is_stop_wanted=stops > 0)

        return wait

    def evaluate(self, batch: Batch) -> Sums:
        """(outputs, 3) sums of a global batch, without dropout."""
        with self.errors_in_a_line():
            return to_numpy(self.sums(batch)).astype(np.float64).reshape(-1, 3)

    def predict(self, batch: Batch) -> dict[str, NDArray[np.float32]]:
        """Return the logits of each output for every row of a global batch, of all ranks in order, without dropout.

        They are the same in all ranks: start and end (rows, seq), or label (rows, labels).
        """
        with self.errors_in_a_line():
            return {name: to_numpy(rows) for name, rows in self.logits(batch).items()}

    def start(self, batch: Batch, learning_rate: float, accumulation: int) -> Any:
        """Start a step; return a tensor of its sums, gradient norm, loss scale, and requests to stop.

        `batch` has a dropout_key and a stop for each micro-batch of this rank's devices.
        """
        raise NotImplementedError

    def sums(self, batch: Batch) -> Any:
        raise NotImplementedError

    def logits(self, batch: Batch) -> Mapping[str, Any]:
        raise NotImplementedError

    def state(self) -> State:
        """Return all that the next step depends on: variables, the optimizer's NAME/SLOT, updates, loss_scale, good_steps.

        Complete in the first process; all processes must call it.
        """
        raise NotImplementedError

    def restore(self, state: State) -> None:
        """Take over a complete state, or some variables, and leave the others unchanged."""
        raise NotImplementedError

    def gather(self, number: int) -> list[int]:
        raise NotImplementedError

    def peak_memory(self) -> int | None:
        return None

    def scaled(self, loss_scale: Any, accumulation: int) -> Any:
        """Return the factor of a micro-batch's loss: in fp16 the loss scale times the rounded-up number of micro-batches; else
        1.
        """
        return loss_scale * 2.0 ** math.ceil(math.log2(accumulation * self.devices)) if self.precision == "fp16" else 1.0

    @contextmanager
    def errors_in_a_line(self) -> Iterator[None]:
        """Turn the two failures of a machine that users meet into a line each."""
        try:
            yield
        except self.failures as error:
            if self.processes > 1:
                exit_without_waiting()
            if any(sign in str(error) for sign in _OUT_OF_MEMORY):
                advice = "give a smaller --batch-size, and --accumulate for the same global batch"
                raise BertprepError(f"{self.device_name}: out of memory; {advice}") from error
            if self.processes == 1:
                raise
            raise BertprepError(
                f"process {self.data_rank} of {self.processes}: another one is gone ({str(error).splitlines()[0]}); "
                "start all of them again, they resume from the newest checkpoint"
            ) from error


def to_numpy(tensor: Any) -> NDArray[Any]:
    """A copy of a framework's tensor, which may share its memory."""
    if hasattr(tensor, "detach"):  # of PyTorch or OneFlow, on a GPU maybe
        tensor = tensor.detach().cpu()
    return np.array(tensor.numpy() if hasattr(tensor, "numpy") else tensor)


def exit_without_waiting(status: int = BertprepError.exit_status) -> None:
    """End this process at its exit at once: JAX would wait for other processes, and abort."""
    atexit.register(os._exit, status)
    atexit.register(sys.stdout.flush)  # which runs first: handlers run in reverse order


def dropout_keys(seed: int, step: int, parts: range) -> NDArray[np.int32]:
    """Return (parts, 2): the dropout key of each micro-batch of a step's global batch."""
    entropies = ([seed, step - 1, part] for part in parts)
    keys = [np.random.SeedSequence(entropy).generate_state(2) >> 2 for entropy in entropies]  # 30 bits: leave some to count
    return np.array(keys).astype(np.int32)


def choose_execution(settings: EngineSettings, processors: Sequence[Processor]) -> Execution:
    """Return precision and XLA as requested, or as suits all processors.

    On GPUs bf16 (from Ampere on) or fp16 (from Volta on), compiled; on CPUs and with OneFlow float32.
    """
    worst = min(processors, key=lambda each: each.capability or (0, 0))
    is_oneflow = settings.engine == "oneflow"
    xla = settings.engine == "jax" or settings.xla == "on"
    if settings.xla == AUTO and settings.engine == "tensorflow":
        xla = worst.is_gpu
    if settings.amp != AUTO:
        return Execution(settings.amp, xla)
    if not worst.is_gpu:
        return Execution("off", xla)
    if is_oneflow:
        return Execution("off", xla, "half precision was never tried on a GPU; try it with --amp fp16")
    if worst.capability is None:
        return Execution("off", xla, f"the capability of {worst.name} is unknown; give --amp bf16 or fp16 if it has them")
    if worst.capability < (7, 0):
        return Execution("off", xla, f"{worst.name} has no faster one")
    return Execution("bf16" if worst.capability >= (8, 0) else "fp16", xla, "--amp off for float32")


_LAUNCHER = "python -m oneflow.distributed.launch --nproc_per_node N -m trainer"
_ONLY_ONEFLOW = ((1,), "only OneFlow has pipelines")
_ACCEPTED: dict[str, dict[str, tuple[tuple[Any, ...], str]]] = {  # values of options that an engine has not all of, and why
    "tensorflow": {
        "stages": _ONLY_ONEFLOW,
        "checkpoint_activations": ((False,), "TensorFlow's engine keeps all activations"),
    },
    "jax": {"stages": _ONLY_ONEFLOW, "xla": ((AUTO, "on"), "JAX compiles every step with XLA")},
    "oneflow": {
        "xla": ((AUTO, "off"), "OneFlow compiles no step with XLA"),
        "deterministic": (("on",), "OneFlow has no such choice"),
        "hosts": (((),), f"OneFlow's launcher knows the processes: {_LAUNCHER}"),
        "devices": ((None, 1), f"OneFlow has one device a process: {_LAUNCHER}"),
    },
    "torch": {
        "stages": _ONLY_ONEFLOW,
        "xla": ((AUTO, "off"), "PyTorch compiles no step with XLA"),
        "checkpoint_activations": ((False,), "PyTorch's engine keeps all activations"),
        "hosts": (((),), "PyTorch's engine has one process"),
        "devices": ((None, 1), "PyTorch's engine has one device"),
    },
}
PACKED = ("jax", "torch")
"""Engines that take packed rows, the first that is installed before the others."""


def check_engine(settings: EngineSettings, *, packed: bool = False) -> None:
    """Raise `UsageError` for an unsupported option, packed rows, or a missing framework."""
    if packed and settings.engine not in PACKED:
        raise UsageError(
            f"--engine {settings.engine}: takes no packed rows; take --engine {' or '.join(PACKED)}, or train with --no-packed"
        )
    for name, (accepted, why) in _ACCEPTED.get(settings.engine, {}).items():
        if getattr(settings, name) not in accepted:
            raise UsageError(f"--{name.replace('_', '-')}: {why}; leave it out, or take another --engine")
    if importlib.util.find_spec(settings.engine) is None:
        raise _not_installed(settings.engine, f"{settings.engine} is not installed here")


def choose_engine(settings: EngineSettings, *, packed: bool = False) -> tuple[EngineSettings, str]:
    """Return the settings with an engine that suits the machine and packed rows, and the reason; no framework is loaded.

    TF_CONFIG may give `--hosts`.
    """
    if settings.engine != "oneflow" and not settings.hosts and (text := os.environ.get("TF_CONFIG")):
        settings = _with_hosts_of(text, settings)
    if settings.engine != AUTO:
        return settings, ""
    installed = [name for name in ENGINES if importlib.util.find_spec(name)]
    if len(installed) < 2:
        return replace(settings, engine=(*installed, ENGINES[0])[0]), "the only one installed" * len(installed)
    if packed and (takes_packed := [name for name in PACKED if name in installed]):
        return replace(settings, engine=takes_packed[0]), "it takes packed rows"
    has_plugin = any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))  # for GPUs or TPUs
    takes_jax = "jax" in installed and has_plugin and may_have_accelerator()
    name = "jax" if takes_jax else installed[0]
    others = " or ".join(other for other in installed if other != name)
    why = f"there is {'a' if takes_jax else 'no'} GPU or TPU that JAX could use; --engine {others} is installed too"
    return replace(settings, engine=name), why


def _with_hosts_of(tf_config: str, settings: EngineSettings) -> EngineSettings:
    try:
        config = parse_json(tf_config.encode())
        [(kind, workers)] = config["cluster"].items()
        if not kind == config["task"]["type"] == "worker":
            raise ValueError(f"{kind}, {config['task']['type']}")
        return replace(settings, hosts=tuple(map(str, workers)), host_rank=int(config["task"]["index"]))
    except UsageError as error:
        raise UsageError(f"TF_CONFIG: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        expected = "a cluster of workers alone, and the index of a task among them"
        raise UsageError(f"TF_CONFIG: expected {expected}, found {tf_config} ({error!r}); or use --hosts") from error


def may_have_accelerator() -> bool:
    """Return False if there is certainly no accelerator: no device file of a driver, or all GPUs are hidden."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    drivers = ("nvidia[0-9]*", "nvidiactl", "dxg", "kfd", "accel[0-9]*", "vfio/[0-9]*")
    return sys.platform != "linux" or any(any(Path("/dev").glob(driver)) for driver in drivers)


def known_devices(settings: EngineSettings) -> tuple[int | None, bool | None]:
    """Return the number of devices of all processes and whether they are accelerators; None if only the framework knows."""
    may_have = may_have_accelerator()
    if settings.engine == "oneflow":
        processes = pipeline.read_process(os.environ).world_size
        return processes // settings.stages, None if may_have else False
    if may_have:
        return None, None
    return (settings.devices or 1) * max(1, len(settings.hosts)), False


def is_first_process(settings: EngineSettings) -> bool:
    """Return whether this process logs and writes, as far as its settings and its launcher tell."""
    if settings.engine == "oneflow":
        return pipeline.read_process(os.environ).rank == 0
    return not settings.host_rank


def open_engine(settings: EngineSettings) -> Engine:
    """The engine of that name on this machine's devices; its framework is loaded here, which takes seconds."""
    settings, _ = choose_engine(settings)
    try:
        with _stderr_held_back(), _lean_import(settings.engine):
            module = importlib.import_module(f"trainer.engines.{settings.engine}")
    except ImportError as error:
        what = f"{error.name} is not installed here" if isinstance(error, ModuleNotFoundError) else str(error)
        raise _not_installed(settings.engine, what) from error
    engine: Engine = module.open_engine(settings)
    return engine


@contextmanager
def _stderr_held_back() -> Iterator[None]:
    """Show what the block writes to standard error only if it fails: no setting silences what compiled code says at its start.

    A shell shows it, so that the last words of a framework that ends the process, such as on an old processor, are not lost.
    """
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "wb") as standard_error, tempfile.TemporaryFile() as held:
        show_unless_loaded = ["sh", "-c", "read loaded || cat </dev/fd/1 >&2"]
        with subprocess.Popen(show_unless_loaded, stdin=subprocess.PIPE, stdout=held, stderr=standard_error) as shell:
            os.dup2(held.fileno(), 2)
            try:
                yield
                shell.communicate(b"\n")
            finally:
                sys.stderr.flush()
                os.dup2(standard_error.fileno(), 2)


_OPTIONAL = ("keras", "scipy", "h5py", "matplotlib", "pandas", "IPython")
"""Packages that a framework loads where they are installed and does without elsewhere: a fifth of TensorFlow's time to load."""


@contextmanager
def _lean_import(engine: str) -> Iterator[None]:
    """Load a framework without optional packages, and keep its objects from the garbage collector, then and later."""
    optional = (*_OPTIONAL, "jax") if engine == "tensorflow" else _OPTIONAL
    hidden = [name for name in optional if name not in sys.modules]
    was_enabled = gc.isenabled()
    gc.disable()
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # importing a module that is None raises ImportError
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
        gc.freeze()  # without it the collector goes through thousands of modules at exit too, which takes a second
        if was_enabled:
            gc.enable()


def _not_installed(engine: str, what: str) -> UsageError:
    return UsageError(f"--engine {engine}: {what}; pip install '.[{engine}]' in a clone, as docs/training.md says")
