"""SQuAD, classification and regression train on every engine as TensorFlow did when the golden losses were written."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.engines.task_losses import PATH, assert_a_resumed_run_ends_with_the_same_bytes, fine_tune
from tests.trainer.small_runs import FINE_TUNING
from trainer.settings import ENGINES

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
def test_a_resumed_run_ends_with_the_same_bytes(engine: str, tmp_path: Path) -> None:
    assert_a_resumed_run_ends_with_the_same_bytes(engine, tmp_path)
