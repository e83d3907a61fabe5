"""The settings of a run: frozen, checked when built, and what a checkpoint says it was made with."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from bertprep.errors import UsageError
from trainer.model_config import ModelConfig
from trainer.optimizer import OptimizerSettings
from trainer.schedule import Schedule
from trainer.tasks import Task
from trainer.tasks.pretraining import PRETRAINING

PRECISIONS = ("off", "fp16", "bf16")
SWITCHES = ("on", "off")
STRATEGIES = ("intra_first", "inter_first")
MOST = 1 << 20
"""Sequences of a micro-batch, and micro-batches of a step; more are a slip of the finger."""


def check_folder(option: str, folder: Path) -> None:
    """Raise `UsageError` where a folder that is to be made or written to cannot be one."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.lexists(place))
    if not there.is_dir():
        raise UsageError(f"{option} {folder}: {there} is not a folder; name another place")


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What runs the steps, and on what."""

    engine: str = "tensorflow"
    devices: int | None = None  # of this host: all GPUs, or one CPU; with a number, so many GPUs or logical CPU devices
    hosts: tuple[str, ...] = ()  # HOST:PORT of every process, where there are several
    host_rank: int = 0  # this process's place among them
    amp: str = "auto"  # a precision, or what suits the devices; see trainer.execution
    xla: str = "auto"  # a switch, or what suits the devices
    deterministic: str = "on"  # a switch; off: GPUs may add up gradients in any order
    loss_scale: float = 2.0**15  # the first; of fp16 alone
    stages: int = 1  # of a pipeline, each on a device of its own
    strategy: str = "intra_first"  # which ranks make up a pipeline
    checkpoint_activations: bool = False  # keep of each layer what goes in, and compute the rest again for the gradients
    eager: bool = False  # operation by operation, without a compiled graph

    def __post_init__(self) -> None:
        if self.devices is not None and self.devices < 1:
            raise UsageError(f"--devices {self.devices}: must be at least 1")
        for name, choices in (("amp", ("auto", *PRECISIONS)), ("xla", ("auto", *SWITCHES)), ("deterministic", SWITCHES)):
            if getattr(self, name) not in choices:
                raise UsageError(f"--{name} {getattr(self, name)}: unknown; choose one of {', '.join(choices)}")
        if self.stages < 1:
            raise UsageError(f"--stages {self.stages}: must be at least 1")
        if self.strategy not in STRATEGIES:
            raise UsageError(f"--strategy {self.strategy}: unknown; choose one of {', '.join(STRATEGIES)}")
        if self.hosts and not 0 <= self.host_rank < len(self.hosts):
            raise UsageError(f"--host-rank {self.host_rank}: there are {len(self.hosts)} hosts, counted from 0")
        if self.loss_scale != EngineSettings.loss_scale and self.amp != "fp16":
            raise UsageError(f"--loss-scale {self.loss_scale:g}: is of --amp fp16 alone, asked for is {self.amp}")
        if not (self.loss_scale >= 1 and math.log2(self.loss_scale).is_integer()):
            raise UsageError(f"--loss-scale {self.loss_scale}: must be a power of two, at least 1")


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a run, with data of one shape; between phases the weights are kept, and all else begins anew."""

    data: tuple[Path, ...]  # folders of records, each with weight by its size
    seq: int
    batch_size: int  # sequences of a device in a micro-batch
    accumulation: int  # micro-batches of a step
    schedule: Schedule  # which has the phase's steps
    has_test: bool = True  # all of the folders hold a test split

    def __post_init__(self) -> None:
        if not (1 <= self.batch_size <= MOST and 1 <= self.accumulation <= MOST):
            asked = f"--batch-size {self.batch_size}, --accumulate {self.accumulation}"
            raise UsageError(f"{asked}: must be at least 1 and at most {MOST}")

    @property
    def steps(self) -> int:
        return self.schedule.steps


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What a run does; with the engine's settings and the number of devices, all that its numbers depend on."""

    model: ModelConfig
    phases: tuple[Phase, ...]
    optimizer: OptimizerSettings
    out: Path
    task: Task = PRETRAINING
    seed: int = 12345
    init: Path | None = None  # a checkpoint or a model.safetensors to begin with
    vocabulary: Path | None = None  # the vocab.txt of the records, which is kept with the model
    cased: bool | None = None  # whether it has upper case, where the records' manifest tells
    resume: bool = True  # where `out` has a checkpoint, go on from it
    lengthen: bool = False  # go on from a checkpoint of a shorter run, whatever its learning rates have been
    log_every: int = 100  # steps
    eval_every: int = 1000  # steps, and at the end of each phase; 0: at no other time
    save_every: int = 1000  # steps, and at the end
    keep: int = 3  # checkpoints, the newest
    keep_best: bool = False  # and the one of the lowest loss on the test split
    skip_bad_records: int = 0  # of the run, both splits counted, that may be passed over
    eval_sequences: int = 10_000  # of the test split, the first ones; 0: all

    def __post_init__(self) -> None:
        for name in ("log_every", "save_every", "keep"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be at least 1")
        for name in ("seed", "eval_every", "eval_sequences", "skip_bad_records"):
            if getattr(self, name) < 0:
                raise UsageError(f"--{name.replace('_', '-')} {getattr(self, name)}: must be at least 0")
        check_folder("--out", self.out)
        if not self.phases:
            raise UsageError("a run without phases; name at least one, such as --phases 128:0.9,512:0.1")
        if self.keep_best and not all(phase.has_test for phase in self.phases):
            raise UsageError("--keep-best: the records have no test split to tell which is best; leave it out")

    @property
    def steps(self) -> int:
        """Of all phases."""
        return sum(phase.steps for phase in self.phases)

    def phase_of(self, step: int) -> tuple[int, int]:
        """The number of the phase that makes step number `step` of the run, and the step's number in it, all from 0."""
        for number, phase in enumerate(self.phases):
            if step < phase.steps:
                return number, step
            step -= phase.steps
        raise IndexError(f"the run has {self.steps} steps")
