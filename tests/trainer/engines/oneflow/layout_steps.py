"""Six steps on the processes that there are, for tests that compare layouts: FILE OPTIONS [OPTIONS...].

Each argument OPTIONS is a layout, which has an engine of its own; they are trained one after the other. The global batch of a
step is the same in every layout; the first process writes the losses, norms and evaluation of each to FILE.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.trainer.small_runs import BATCH, FINE_TUNING, MODEL, SEED, make_task_batch
from trainer.batches import GlobalBatch
from trainer.engines import Engine, open_engine
from trainer.schedule import Schedule
from trainer.settings import EngineSettings, OptimizerSettings
from trainer.tasks import Task
from trainer.tasks.pretraining import PRETRAINING

STEPS = 6
SCHEDULE = Schedule(peak=0.01, steps=STEPS + 1, warmup_steps=3)


def parse(options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stages", type=int, default=1)
    parser.add_argument("--strategy", default="intra_first")
    parser.add_argument("--checkpoint-activations", action="store_true")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--task", default="pretraining")
    return parser.parse_args(options.split())


def train(options: argparse.Namespace) -> dict[str, Any]:
    """The steps from the seed's weights, an evaluation behind them, and the size of all that a checkpoint would hold."""
    settings = {name: getattr(options, name) for name in ("stages", "strategy", "checkpoint_activations", "eager")}
    engine: Engine = open_engine(EngineSettings(engine="oneflow", **settings))
    assert engine.gather(2**31 + 5) == [2**31 + 5] * engine.processes
    model = replace(MODEL, num_hidden_layers=options.layers)
    task: Task = FINE_TUNING.get(options.task, PRETRAINING)
    optimizer = OptimizerSettings(name=options.optimizer)
    engine.build(model if options.dropout else model.without_dropout(), optimizer, seed=SEED, task=task)
    rows = GlobalBatch(BATCH, engine.data_world_size, engine.data_rank).rows
    share, accumulation = slice(rows.start, rows.stop), options.accumulate
    results = []
    for step in range(STEPS):
        batch, learning_rate = make_task_batch(task, step)[share], SCHEDULE.learning_rate(step + 1)
        results.append(
            engine.train(batch, step=step, learning_rate=learning_rate, accumulation=accumulation, stop=engine.is_first)()
        )
    assert all(result.is_stop_wanted for result in results)  # the first process alone said so
    evaluation = engine.evaluate(make_task_batch(task, 99)[share], np.ones(len(rows), np.float32))
    outputs = {} if task is PRETRAINING else engine.predict(make_task_batch(task, 99)[share])
    state = engine.state()
    assert not engine.is_first or set(task.variable_shapes(model)) < state.keys()
    return {
        "losses": [result.sums.loss for result in results],
        "norms": [result.gradient_norm for result in results],
        "evaluation": [float(value) for value in evaluation],
        "outputs": {name: rows.tolist() for name, rows in outputs.items()},
        "sizes": {name: float(np.sqrt(np.square(value, dtype=np.float64).sum())) for name, value in state.items()},
        "is_first": engine.is_first,
    }


if __name__ == "__main__":
    done = {options: train(parse(options)) for options in sys.argv[2:]}
    if all(results["is_first"] for results in done.values()):
        Path(sys.argv[1]).write_text(json.dumps(done))
