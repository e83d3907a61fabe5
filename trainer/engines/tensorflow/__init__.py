"""BERT on TensorFlow; here is what is known, and refused, before TensorFlow is loaded, which takes seconds."""

from __future__ import annotations

import os

from bertprep.errors import UsageError
from trainer.engines.hosts import find_process
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings
from trainer.tasks import Task

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is loaded; its warnings are for those who build it


def look(settings: EngineSettings, *, has_accelerator: bool | None) -> tuple[int, int | None]:
    """This process's rank, and how many devices all processes have, where that does not depend on the GPUs."""
    rank, hosts = find_process(settings)
    is_open = settings.devices is None and has_accelerator is None
    return rank, None if is_open else (settings.devices or 1) * max(1, len(hosts))


def check(settings: EngineSettings, model: ModelConfig, task: Task) -> None:  # noqa: ARG001 - as for any engine
    """Raise `UsageError` for settings that only other engines have."""
    if settings.checkpoint_activations:
        raise UsageError("--checkpoint-activations: only JAX and OneFlow have it; take --engine jax, or leave it out")
    for option, is_asked in {f"--stages {settings.stages}": settings.stages > 1, "--eager": settings.eager}.items():
        if is_asked:
            raise UsageError(f"{option}: only OneFlow's engine has it; take --engine oneflow, or leave it out")
