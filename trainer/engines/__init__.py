"""Run steps on devices. Each framework has one module; the rest of the trainer calls only the methods of `Engine`.

The processes of a run are its ranks. Each passes its rows of every global batch to its engine, which splits them over its
devices, and adds up the results over the devices of all ranks. All ranks make the same calls in the same order.
`trainer.engines.choice` chooses and opens an engine.
"""

from __future__ import annotations

import atexit
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertprep.errors import BertprepError
from trainer.model_config import ModelConfig
from trainer.optimizers import FIRST_LOSS_SCALE, slots
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks.task import Sums, Task
from trainer.weights import initial_values

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""What schedulers send before they end a job: Slurm, SGE and LSF the user's signals, or that of the CPU limit."""

Batch = Mapping[str, NDArray[Any]]
"""This rank's rows of a global batch: features by name, and row_weights (rows,), 0 for filler rows and bad records."""
State = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class StepResult:
    """The results of a step on the global batch, the same in all processes."""

    sums: Sums
    gradient_norm: float  # before clipping
    loss_scale: float  # the scale of this step; always 1 except with fp16
    is_stop_wanted: bool  # whether any process has requested to stop

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradients are finite; if not, fp16 has skipped the update, or the variables are NaN now."""
        return math.isfinite(self.gradient_norm) and bool(np.isfinite(self.sums).all())


class Processor(NamedTuple):
    """A GPU with its compute capability, or a CPU."""

    name: str = "CPU"
    capability: tuple[int, int] | None = None  # None if the driver does not report it
    is_gpu: bool = False


class Execution(NamedTuple):
    """How steps are computed: the precision, whether XLA compiles them, and the reasons."""

    precision: str  # one of PRECISIONS
    xla: bool = False
    why: str = ""

    def describe(self) -> str:
        text = {"off": "float32", "fp16": "fp16 with loss scaling", "bf16": "bf16"}[self.precision]
        if self.why:
            text += f" ({self.why})"
        if self.xla:
            text += ", XLA"
        return text


_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "OOM", "Out of memory", "out of memory", "can't allocate memory")
"""Texts by which the frameworks' out-of-memory errors are recognized."""


class Engine:
    """The devices of a run and their state: variables, the optimizer's moments, the loss scale."""

    data_rank: int  # the share of a global batch that this process reads
    data_world_size: int  # the number of shares; the processes of one pipeline read the same share
    rank: int  # of this process
    processes: int
    execution: Execution  # precision and compilation; may be replaced before `build`
    packages: ClassVar[tuple[Any, ...]]  # packages whose versions affect the numbers
    failures: ClassVar[tuple[type[Exception], ...]] = ()  # exceptions of the framework when a machine fails

    def __init__(
        self, settings: EngineSettings, processor: Processor, execution: Execution, *,
        devices: int, rank: int = 0, processes: int = 1,
    ) -> None:  # fmt: skip
        """`devices` are data-parallel replicas; a global batch is `devices` x `accumulation` micro-batches."""
        self.settings, self.execution = settings, execution
        self.rank, self.processes, self.devices = rank, processes, devices
        self.data_rank, self.data_world_size = rank, processes
        self.has_accelerator = processor.is_gpu
        self.device_name = processor.name if devices == 1 else f"{devices} x {processor.name}"  # 8 x NVIDIA H100 80GB HBM3
        self.versions = {package.__name__: package.__version__ for package in self.packages}

    @property
    def precision(self) -> str:
        return self.execution.precision

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that logs and writes."""
        return self.rank == 0

    def build(self, model: ModelConfig, optimizer: OptimizerSettings, *, seed: int, task: Task) -> None:
        """Initialize the variables of a task from the seed, and their moments with 0."""
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
        """Start step `step`, counted from 1; return a function that waits for its end; do not change the arrays before."""
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
        """Return the (outputs, 3) sums of a global batch, without dropout."""
        with self.errors_in_a_line():
            return to_numpy(self.sums(batch)).astype(np.float64).reshape(-1, 3)

    def predict(self, batch: Batch) -> dict[str, NDArray[np.float32]]:
        """Return the logits of each output for every row of a global batch, in the order of the ranks, without dropout.

        All ranks get all rows, such as start and end (rows, seq), or label (rows, labels).
        """
        with self.errors_in_a_line():
            return {name: to_numpy(rows) for name, rows in self.logits(batch).items()}

    def start(self, batch: Batch, learning_rate: float, accumulation: int) -> Any:
        """Start a step; return a tensor of its sums, gradient norm, loss scale, and requests to stop.

        `batch` contains a dropout_key and a stop for each micro-batch of this rank's devices.
        """
        raise NotImplementedError

    def sums(self, batch: Batch) -> Any:
        raise NotImplementedError

    def logits(self, batch: Batch) -> Mapping[str, Any]:
        raise NotImplementedError

    def state(self) -> State:
        """Return everything that the next step depends on: variables, slots as NAME/SLOT, updates, loss_scale, good_steps.

        All processes must call it; only the first one gets the complete state.
        """
        raise NotImplementedError

    def restore(self, state: State) -> None:
        """Set all values of a state, or only some variables."""
        raise NotImplementedError

    def gather(self, number: int) -> list[int]:
        raise NotImplementedError

    def is_on_any_rank(self, condition: bool) -> bool:
        """Return whether the condition holds in any process; all processes must call it."""
        return any(self.gather(int(condition)))

    def sum_over_data_ranks(self, count: int) -> int:
        """Return the sum of the counts of all data ranks. The stages of a pipeline share a data rank and its count."""
        return sum(self.gather(count)) * self.data_world_size // self.processes

    def peak_memory(self) -> int | None:
        return None

    def scaled(self, loss_scale: Any, accumulation: int) -> Any:
        """Return the factor of the loss: 1, or in fp16 the loss scale times the number of micro-batches, as a power of 2."""
        if self.precision != "fp16":
            return 1.0
        return loss_scale * 2.0 ** math.ceil(math.log2(accumulation * self.devices))

    @contextmanager
    def errors_in_a_line(self) -> Iterator[None]:
        """Report the two machine failures that users meet, out of memory and a lost process, in one line each."""
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
                "start all of them again; they resume from the newest checkpoint"
            ) from error


def rows_of_devices(batch: Batch, accumulation: int, devices: int) -> list[Batch]:
    """Split the batch of a process by device; features become (micro-batches, rows, ...)."""
    split = {name: array.reshape(accumulation, devices, -1, *array.shape[1:]) for name, array in batch.items()}
    return [{name: array[:, device] for name, array in split.items()} for device in range(devices)]


def to_numpy(tensor: Any) -> NDArray[Any]:
    """Return a framework's tensor as an array, which may share its memory."""
    if hasattr(tensor, "detach"):  # a tensor of PyTorch or OneFlow, perhaps on a GPU
        tensor = tensor.detach().cpu()
    return np.array(tensor.numpy() if hasattr(tensor, "numpy") else tensor)


def exit_without_waiting(status: int = BertprepError.exit_status) -> None:
    """Make this process exit at its end without waiting for processes that are gone, as frameworks would."""
    atexit.register(os._exit, status)
    atexit.register(sys.stdout.flush)  # registered last, so it runs first


def dropout_keys(seed: int, step: int, parts: range) -> NDArray[np.int32]:
    """Return the dropout keys of these micro-batches of a step's global batch: (parts, 2)."""
    entropies = ([seed, step - 1, part] for part in parts)
    keys = [np.random.SeedSequence(entropy).generate_state(2) >> 2 for entropy in entropies]  # 30 bits: engines add indices
    return np.array(keys).astype(np.int32)
