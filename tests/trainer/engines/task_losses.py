"""What the heads of each fine-tuning task say, and their first 20 steps, on one engine: equal on every engine."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.golden import GOLDEN
from tests.trainer.small_runs import FINE_TUNING, MODEL, SEED, make_task_batch
from tests.trainer.task_data import make_squad
from trainer.checkpoint import BEST, find_checkpoints, read_header
from trainer.cli import main
from trainer.engines import Engine, open_engine
from trainer.schedule import Schedule
from trainer.settings import EngineSettings, OptimizerSettings

PATH = GOLDEN / "losses_tasks.json"
STEPS = 20
SCHEDULE = Schedule(peak=0.003, steps=STEPS + 1, warmup_steps=3)


def fine_tune(engine_name: str, task_name: str) -> dict[str, Any]:
    """Outputs of the seed's weights, and the losses of a run from there without dropout.

    Outputs after it would not do: those of SQuAD may all be shifted by a number that no loss depends on.
    """
    task = FINE_TUNING[task_name]
    engine: Engine = open_engine(EngineSettings(engine=engine_name))
    engine.build(MODEL.without_dropout(), OptimizerSettings(), seed=SEED, task=task)
    outputs = engine.predict(make_task_batch(task, STEPS, sequences=4))
    losses = []
    for step in range(STEPS):
        batch, learning_rate = make_task_batch(task, step), SCHEDULE.learning_rate(step + 1)
        result = engine.train(batch, step=step, learning_rate=learning_rate, accumulation=2, stop=False)()
        losses.append(result.sums.loss)
    return {"losses": losses, "outputs": {name: rows.tolist() for name, rows in outputs.items()}}


def assert_a_resumed_run_ends_with_the_same_bytes(engine_name: str, folder: Path) -> None:
    """Of `trainer squad`, with dropout: from the checkpoint in its middle, as a killed run leaves it."""
    data = make_squad(folder)
    (folder / "small.json").write_text(MODEL.to_json())
    steps = ["--epochs", "3", "--lr", "1e-3", "--save-every", "3", "--keep", "9"]
    command = ["squad", "--engine", engine_name, "--data", str(data), "--model", str(folder / "small.json"), *steps]
    whole, resumed = folder / "whole", folder / "resumed"
    assert main([*command, "--out", str(whole)]) == 0
    first, last = find_checkpoints(whole)
    resumed.mkdir()
    shutil.copy(first, resumed)
    if read_header(whole / BEST)["step"] <= read_header(first)["step"]:  # otherwise the resumed run has to make it
        shutil.copy(whole / BEST, resumed)
    assert main([*command, "--out", str(resumed)]) == 0
    for name in (last.name, BEST):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes()


def write_golden(engine_name: str) -> None:
    """For scripts/make_loss_golden."""
    found = {name: fine_tune(engine_name, name) for name in FINE_TUNING}
    PATH.write_text(json.dumps({"engine": engine_name, **found}) + "\n")
