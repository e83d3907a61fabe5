"""What TensorFlow's engine cannot do, found before TensorFlow is loaded, which takes seconds."""

from __future__ import annotations

from bertprep.errors import UsageError
from trainer.config import ModelConfig
from trainer.settings import EngineSettings


def check(settings: EngineSettings, model: ModelConfig) -> None:  # noqa: ARG001 - as for any engine
    """Raise `UsageError` for settings that are of another engine."""
    asked = {
        f"--stages {settings.stages}": settings.stages > 1,
        "--checkpoint-activations": settings.checkpoint_activations,
        "--eager": settings.eager,
    }
    for option, is_asked in asked.items():
        if is_asked:
            raise UsageError(f"{option}: only OneFlow's engine has it; take --engine oneflow, or leave it out")
