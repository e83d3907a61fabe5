"""BERT on OneFlow 0.9: one device a process, several processes as data-parallel pipelines of stages.

Here is what is known, and refused, before OneFlow is loaded: from then on processes wait for each other. The environment is
that of `python -m oneflow.distributed.launch`, which OneFlow reads too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from bertprep.errors import UsageError
from trainer.engines.oneflow.stages import check_multiple, cut
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings
from trainer.tasks import Task
from trainer.tasks.pretraining import PRETRAINING

# Read when the library is first loaded, so here and no later: it warns of each driver that a machine without GPUs lacks.
os.environ.setdefault("GLOG_minloglevel", "3")
_LAUNCH = "python -m oneflow.distributed.launch --nproc_per_node {} -m trainer"
_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Process:
    """One of `world_size` processes; on its host it is number `local_rank`, which is its GPU's number too."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0


def read_process(environment: Mapping[str, str]) -> Process:
    """What the launcher says; a process that was not started by it is alone.

    >>> read_process({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"})
    Process(rank=3, world_size=4, local_rank=1)
    """
    found = [name for name in _NAMES if environment.get(name)]
    if not found or environment.get("RANK") == "-1":  # which OneFlow itself sets where no launcher started the process
        return Process()
    if missing := [name for name in _NAMES if name not in found]:
        raise UsageError(
            f"{found[0]} is set in the environment, {missing[0]} is not; start processes with "
            "python -m oneflow.distributed.launch, which sets both"
        )
    try:
        process = Process(*(int(environment[name]) for name in _NAMES[:3]))
    except ValueError as error:
        raise UsageError(f"{', '.join(_NAMES[:3])}: must be numbers in the environment ({error})") from error
    if not 0 <= process.local_rank <= process.rank < process.world_size:
        raise UsageError(f"RANK {process.rank}, LOCAL_RANK {process.local_rank}: there are {process.world_size} processes")
    return process


def look(settings: EngineSettings, *, has_accelerator: bool | None) -> tuple[int, int]:  # noqa: ARG001 - as for any engine
    """This process's rank, and the number of pipelines that a global batch is split over."""
    process = read_process(os.environ)
    return process.rank, process.world_size // settings.stages


def check(settings: EngineSettings, model: ModelConfig, task: Task = PRETRAINING) -> None:
    """Raise `UsageError` for settings that this engine cannot meet, or that do not fit the number of processes."""
    process = read_process(os.environ)
    if settings.deterministic == "off":
        raise UsageError("--deterministic off: OneFlow has no such choice; leave it out")
    if settings.xla == "on":
        raise UsageError("--xla: OneFlow has none; leave it out, nn.Graph compiles the step as it is")
    if settings.hosts:
        raise UsageError(f"--hosts: OneFlow learns of its processes from its launcher; start them with {_LAUNCH.format('N')}")
    if (settings.devices or 1) > 1:
        raise UsageError(
            f"--devices {settings.devices}: OneFlow has one device in a process; start {settings.devices} processes with "
            f"{_LAUNCH.format(settings.devices)}"
        )
    if settings.eager and settings.stages > 1:
        raise UsageError(f"--eager --stages {settings.stages}: a pipeline is a graph; leave --eager out")
    if settings.eager and settings.checkpoint_activations:
        raise UsageError("--eager --checkpoint-activations: only a graph computes activations again; leave --eager out")
    cut(model, settings.stages, task)
    check_multiple(process.world_size, settings.stages)
