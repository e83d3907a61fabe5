"""BERT on TensorFlow; here is what is known, and refused, before TensorFlow is loaded, which takes seconds."""

from __future__ import annotations

import os

from bertprep.errors import UsageError
from bertprep.untrusted import parse_json
from trainer.model_config import ModelConfig
from trainer.settings import EngineSettings
from trainer.tasks import Task

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is loaded; its warnings are for those who build it


def find_process(settings: EngineSettings) -> tuple[int, int]:
    """This process's rank and the number of all, by --hosts or by the TF_CONFIG that TensorFlow reads."""
    if settings.hosts:
        return settings.host_rank or 0, len(settings.hosts)
    text = os.environ.get("TF_CONFIG", "")
    if not text:
        return 0, 1
    try:
        config = parse_json(text.encode())
        if set(config["cluster"]) != {"worker"} or config["task"]["type"] != "worker":
            raise UsageError("TF_CONFIG: expected a cluster of workers alone; the first of them does what a chief would")
        return int(config["task"]["index"]), len(config["cluster"]["worker"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"TF_CONFIG: is not as TensorFlow describes it ({error!r}): {text}; or use --hosts instead") from error


def look(settings: EngineSettings, *, has_accelerator: bool | None) -> tuple[int, int | None]:
    """This process's rank, and how many devices all processes have, where that does not depend on the GPUs."""
    rank, processes = find_process(settings)
    is_open = settings.devices is None and has_accelerator is None
    return rank, None if is_open else (settings.devices or 1) * processes


def check(settings: EngineSettings, model: ModelConfig, task: Task) -> None:  # noqa: ARG001 - as for any engine
    """Raise `UsageError` for settings that only the other engine has."""
    asked = {
        f"--stages {settings.stages}": settings.stages > 1,
        "--checkpoint-activations": settings.checkpoint_activations,
        "--eager": settings.eager,
    }
    for option, is_asked in asked.items():
        if is_asked:
            raise UsageError(f"{option}: only OneFlow's engine has it; take --engine oneflow, or leave it out")
