"""Checkpoints that engines exchange: one of each lies in tests/golden, with what its engine said and did from there on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertprep.weights.safetensors import write_safetensors
from tests.golden import GOLDEN
from tests.trainer.small_runs import BATCH, MODEL, SEQ, make_batch
from trainer.engines import Engine, open_engine
from trainer.metrics import StepResult
from trainer.settings import EngineSettings, OptimizerSettings

ENGINES = ("tensorflow", "oneflow", "jax")
SAID = GOLDEN / "checkpoints.json"
TOKENS = 97
TINY = replace(
    MODEL.without_dropout(), vocab_size=TOKENS, hidden_size=16, intermediate_size=32, max_position_embeddings=SEQ
)  # fmt: skip
STEPS = 3  # before the checkpoint, and as many behind it


def checkpoint_of(engine: str) -> Path:
    return GOLDEN / f"checkpoint_{engine}.safetensors"


def open_tiny(engine: str) -> Engine:
    opened = open_engine(EngineSettings(engine=engine))
    opened.build(TINY, OptimizerSettings(name="lamb"), seed=1)
    return opened


def train_on(engine: Engine, first: int) -> list[StepResult]:
    """The next steps from step number `first` on."""
    return [
        engine.train(_batch(step), step=step, learning_rate=0.01, accumulation=1, stop=False)()
        for step in range(first, first + STEPS)
    ]


def go_on(engine: Engine) -> dict[str, Any]:
    """What an engine says of a batch, and does in further steps."""
    said = engine.evaluate(_batch(99), np.ones(BATCH, np.float32))
    return {"evaluation": [float(value) for value in said], "losses": [result.sums.loss for result in train_on(engine, STEPS)]}


def write_golden(engine: str) -> None:
    """Write an engine's checkpoint to tests/golden, and enter what it goes on to say and do; for scripts/make_loss_golden."""
    opened = open_tiny(engine)
    train_on(opened, 0)
    write_safetensors(checkpoint_of(engine), dict(opened.state()), {})
    said = json.loads(SAID.read_bytes()) if SAID.exists() else {}
    SAID.write_text(json.dumps({**said, engine: {**go_on(opened), "versions": dict(opened.versions)}}, indent=1) + "\n")


def _batch(step: int) -> Any:
    """A batch of the few tokens of the tiny model."""
    batch = make_batch(step)
    return replace(batch, input_ids=batch.input_ids % TOKENS, masked_lm_ids=batch.masked_lm_ids % TOKENS)
