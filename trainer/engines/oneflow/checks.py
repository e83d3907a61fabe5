"""What OneFlow's engine cannot do, found before OneFlow is loaded: from then on processes wait for each other."""

from __future__ import annotations

import os

from bertprep.errors import UsageError
from trainer.engines.oneflow.processes import read_process
from trainer.engines.oneflow.stages import check_multiple, cut
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings

_LAUNCH = "python -m oneflow.distributed.launch --nproc_per_node {} -m trainer"


def find_process(settings: EngineSettings) -> tuple[int, int]:  # noqa: ARG001 - as for any engine
    """This process's rank and the number of all."""
    process = read_process(os.environ)
    return process.rank, process.world_size


def count_devices(settings: EngineSettings, processes: int, has_accelerator: bool | None) -> int:  # noqa: ARG001
    """How many pipelines a global batch is cut over."""
    return processes // settings.stages


def check(settings: EngineSettings, model: ModelConfig) -> None:
    """Raise `UsageError` for settings that this engine has no way to meet, or that the number of processes does not fit."""
    process = read_process(os.environ)
    if settings.deterministic == "off":
        raise UsageError("--deterministic off: OneFlow has no such choice; leave it out")
    if settings.xla == "on":
        raise UsageError("--xla: OneFlow has none; leave it out, nn.Graph compiles the step as it is")
    if settings.hosts:
        raise UsageError(f"--hosts: OneFlow is told of its processes by its launcher; start them with {_LAUNCH.format('N')}")
    if (settings.devices or 1) > 1:
        raise UsageError(
            f"--devices {settings.devices}: OneFlow has one device in a process; start {settings.devices} processes with "
            f"{_LAUNCH.format(settings.devices)}"
        )
    if settings.eager and settings.stages > 1:
        raise UsageError(f"--eager --stages {settings.stages}: a pipeline is a graph; leave --eager out")
    if settings.eager and settings.checkpoint_activations:
        raise UsageError("--eager --checkpoint-activations: only a graph computes activations again; leave --eager out")
    cut(model, settings.stages)
    check_multiple(process.world_size, settings.stages)
