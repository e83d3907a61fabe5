"""SQuAD, classification and regression train on every engine as TensorFlow did when the golden losses were written."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.engines.task_losses import PATH, assert_a_resumed_run_ends_with_the_same_bytes, fine_tune
from tests.trainer.small_runs import FINE_TUNING, MODEL, SEED, make_task_batch
from trainer.engines import Engine, open_engine
from trainer.settings import ENGINES, EngineSettings, OptimizerSettings
from trainer.tasks.pretraining import MASKED_LM, PRETRAINING

on_each_engine = pytest.mark.parametrize("engine", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ENGINES])


@on_each_engine
@pytest.mark.parametrize("task", FINE_TUNING)
def test_losses_and_outputs_are_those_of_tensorflow(task: str, engine: str) -> None:
    expected, found = json.loads(PATH.read_bytes())[task], fine_tune(engine, task)
    assert np.ptp(expected["losses"]) > 0.05  # so that equal ones say something
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0, atol=1e-4)
    assert found["outputs"].keys() == expected["outputs"].keys()
    for name, rows in found["outputs"].items():
        np.testing.assert_allclose(rows, expected["outputs"][name], rtol=0, atol=1e-5)


@on_each_engine
def test_without_pairs_the_loss_is_the_masked_lm_loss_of_the_same_model_with_them(engine: str) -> None:
    """As a head that is not there changes nothing of the other; and a step lowers it."""
    opened: Engine = open_engine(EngineSettings(engine=engine))
    sums = {}
    for task in (PRETRAINING, MASKED_LM):
        opened.build(MODEL.without_dropout(), OptimizerSettings(), seed=SEED, task=task)
        if task == PRETRAINING:
            state = opened.state()
        opened.restore({name: value for name, value in state.items() if name in task.variable_shapes(MODEL)})
        batch = make_task_batch(task, 1)
        sums[task] = opened.evaluate(batch, np.ones(len(batch), np.float32))
    with_pairs, without = sums[PRETRAINING].metrics(), sums[MASKED_LM].metrics()
    assert list(without) == ["loss", "masked_lm_loss", "masked_lm_accuracy"]
    assert without["loss"] == without["masked_lm_loss"] == pytest.approx(with_pairs["masked_lm_loss"], abs=1e-5)
    assert without["masked_lm_accuracy"] == with_pairs["masked_lm_accuracy"]
    step = opened.train(batch, step=0, learning_rate=0.01, accumulation=2, stop=False)()
    assert step.sums.loss == pytest.approx(without["loss"], abs=1e-5)
    assert opened.evaluate(batch, np.ones(len(batch), np.float32)).loss < without["loss"] - 0.05


@on_each_engine
def test_a_resumed_run_ends_with_the_same_bytes(engine: str, tmp_path: Path) -> None:
    assert_a_resumed_run_ends_with_the_same_bytes(engine, tmp_path)
