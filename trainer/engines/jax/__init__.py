"""BERT on JAX; here is what is known, and refused, before JAX is loaded, which takes seconds."""

from __future__ import annotations

import os

from bertprep.errors import UsageError
from trainer.engines.hosts import find_process
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings
from trainer.tasks import Task

# Read when JAX is loaded. Most of a GPU's memory is taken at once, so that no fragments are left between allocations; what is
# not in this fraction is for NCCL, cuBLAS and cuDNN. JAX's own default is 0.75.
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # of XLA too; its warnings are for those who build it


def look(settings: EngineSettings, *, has_accelerator: bool | None) -> tuple[int, int | None]:
    """This process's rank, and how many devices all processes have, where that does not depend on the GPUs."""
    rank, hosts = find_process(settings)
    is_open = settings.devices is None and has_accelerator is None
    return rank, None if is_open else (settings.devices or 1) * max(1, len(hosts))


def check(settings: EngineSettings, model: ModelConfig, task: Task) -> None:  # noqa: ARG001 - as for any engine
    """Raise `UsageError` for settings that only another engine has."""
    if settings.stages > 1:
        raise UsageError(
            f"--stages {settings.stages}: only OneFlow's engine has pipelines; leave it out, or take --engine oneflow"
        )
    if settings.eager:
        raise UsageError("--eager: JAX compiles every step; leave it out, or take --engine oneflow")
    if settings.xla == "off":
        raise UsageError("--xla off: JAX compiles every step with XLA; leave it out, or take --engine tensorflow")
