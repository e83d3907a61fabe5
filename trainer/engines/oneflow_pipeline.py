"""Arrange OneFlow's processes as data-parallel pipelines, and assign layers to their stages.

Nothing here needs OneFlow, so bad settings fail before it is loaded. Stages have complete layers; the first stage also has the
embeddings, the last one the pooler and the head. Processes are listed host by host (`intra_first`) or by their index on the
host (`inter_first`), and the list is split into pipelines. With two hosts of two processes each:

    >>> arrange(hosts=2, per_host=2, stages=2, strategy="intra_first")
    [[0, 1], [2, 3]]
    >>> arrange(hosts=2, per_host=2, stages=2, strategy="inter_first")
    [[0, 2], [1, 3]]
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from bertprep.errors import UsageError
from trainer.model_config import ModelConfig
from trainer.parts import parts_of
from trainer.settings import EngineSettings
from trainer.tasks.pretraining import Pretraining
from trainer.tasks.task import Task

Pipelines: TypeAlias = list[list[int]]
"""The ranks of each pipeline, by stage."""
_LAUNCH = "python -m oneflow.distributed.launch --nproc_per_node N -m trainer"
PRIME, COEFFICIENTS = 2039, 4  # of the polynomials from which dropout masks follow
_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")  # set by the launcher, read by OneFlow


@dataclass(frozen=True)
class Process:
    """One of `world_size` processes; `local_rank` is its index on its host, and its GPU's index."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0


def read_process(environment: Mapping[str, str]) -> Process:
    """Read the ranks of this process from the environment that its launcher sets; without a launcher it is the only process.

    >>> read_process({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"})
    Process(rank=3, world_size=4, local_rank=1)
    """
    found = [environment[name] for name in _NAMES if environment.get(name)]
    if not found or environment.get("RANK") == "-1":  # OneFlow itself sets these if no launcher started the process
        return Process()
    numbers = [int(text) for text in found[:3] if text.isdecimal()]
    if len(found) < len(_NAMES) or len(numbers) < 3 or not numbers[2] <= numbers[0] < numbers[1]:
        raise UsageError(f"{', '.join(_NAMES)}: expected the values that {_LAUNCH} sets, found {', '.join(found)}")
    return Process(*numbers)


def check(settings: EngineSettings, model: ModelConfig, task: Task, *, has_accelerator: bool | None) -> None:
    """Raise `UsageError` for settings that OneFlow does not support with this model, task or number of processes."""
    check_precision(settings, has_accelerator=has_accelerator)
    if settings.stages > 1 and task.name != Pretraining.name:
        raise UsageError(f"--stages {settings.stages}: fine-tuning has no pipelines; leave --stages out")
    if max(model.hidden_size, model.max_position_embeddings) > PRIME:
        raise UsageError(f"--model: OneFlow's dropout supports a hidden size and positions up to {PRIME}; use another --engine")
    cut(model, settings.stages, task)
    _check_multiple(read_process(os.environ).world_size, settings.stages)


def check_precision(settings: EngineSettings, *, has_accelerator: bool | None) -> None:
    """Raise `UsageError` for half precision on a CPU; None means that there may be GPUs."""
    if has_accelerator is False and settings.amp in ("fp16", "bf16"):
        raise UsageError(f"--amp {settings.amp}: OneFlow has no half-precision kernels for CPUs; leave --amp out, or use GPUs")


@dataclass(frozen=True)
class Stage:
    """Consecutive parts of a model, which one process of each pipeline computes."""

    parts: range  # 0 is the embeddings, 1 the first layer, the last the head
    variables: tuple[str, ...]


def cut(config: ModelConfig, stages: int, task: Task) -> list[Stage]:
    """Assign complete layers to stages, so that the largest stage has as few parameters as possible.

    The shared word embeddings count in both the first and the last stage.

    >>> [len(stage.parts) for stage in cut(ModelConfig.preset("base"), 4, Pretraining())]
    [2, 5, 5, 2]
    """
    layers = config.num_hidden_layers
    if not 1 <= stages <= layers:
        raise UsageError(f"--stages {stages}: the model has {layers} layers, and none is split; choose 1 to {layers}")
    shapes, parts = task.variable_shapes(config), parts_of(config, task)
    embeddings, layer, *_, head = [sum(math.prod(shapes[name]) for name in part.variables) for part in parts]
    counts, sizes = [1] * stages, [layer] * stages
    sizes[0] += embeddings
    sizes[-1] += head
    for _ in range(layers - stages):
        smallest = min(range(stages), key=lambda number: (sizes[number], -number))  # of equal stages the later one
        counts[smallest] += 1
        sizes[smallest] += layer
    counts[0] += 1  # the embeddings
    counts[-1] += 1  # the head
    runs = [range(end - count, end) for end, count in zip(accumulate(counts), counts, strict=True)]
    return [Stage(run, tuple(dict.fromkeys(name for number in run for name in parts[number].variables))) for run in runs]


def arrange(*, hosts: int, per_host: int, stages: int, strategy: str) -> Pipelines:
    """Return the ranks of each pipeline by stage. Pipelines are sorted by their first ranks."""
    _check_multiple(hosts * per_host, stages)
    if strategy == "intra_first":
        ranks = [host * per_host + number for host in range(hosts) for number in range(per_host)]
    else:
        ranks = [host * per_host + number for number in range(per_host) for host in range(hosts)]
    pipelines = sorted(ranks[first : first + stages] for first in range(0, len(ranks), stages))
    for stage in zip(*pipelines, strict=True):
        if list(stage) != sorted(stage):  # OneFlow would sort the ranks of the stage, which forms other pipelines
            in_order = ", ".join(map(str, stage))
            raise UsageError(
                f"--strategy {strategy} --stages {stages}: a stage would have the ranks {in_order} in this order, but OneFlow "
                "sorts them; choose a number of stages that divides the number of hosts, or intra_first"
            )
    return pipelines


def _check_multiple(processes: int, stages: int) -> None:
    if processes % stages:
        raise UsageError(
            f"--stages {stages}: must divide the number of processes, which is {processes}; start a multiple of {stages} with "
            f"{_LAUNCH}"
        )
