"""A global batch gives the same steps however it is cut: over micro-batches, processes, stages, and hosts."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.engines.oneflow.launching import run_layout
from tests.trainer.engines.oneflow.layout_steps import STEPS, parse, train

pytestmark = pytest.mark.oneflow
LAYOUTS = {
    "2 processes, eager": (2, 1, "--eager --accumulate 2 --optimizer lamb"),
    "2 processes": (2, 1, "--accumulate 2"),
    "4 processes": (4, 1, "--optimizer lamb"),
    "3 stages, one batch each": (3, 1, "--stages 3 --layers 3 --checkpoint-activations --optimizer lamb"),
    "2 x 2, pipelines within hosts": (4, 2, "--stages 2 --accumulate 2 --strategy intra_first"),
    "2 processes, SQuAD": (2, 1, "--task squad --accumulate 2"),
    "2 processes, eager, regression": (2, 1, "--task regression --eager"),
    "2 x 2, pipelines of SQuAD": (4, 1, "--task squad --stages 2 --accumulate 2"),
    "2 x 2, pipelines across hosts": (4, 2, "--stages 2 --accumulate 2 --strategy inter_first --optimizer lamb"),
}


@cache
def alone(options: str) -> dict[str, Any]:
    """The results of one process."""
    return train(parse(options.split()))


def whole(options: str) -> dict[str, Any]:
    """The results of one process that has the batch as a whole, with the same model and optimizer."""
    words = options.split()
    kept = [
        word for name in ("--optimizer", "--layers", "--task") if name in words for word in (name, words[words.index(name) + 1])
    ]
    return alone(" ".join(kept))


SHIFTING = ("cls/squad/output_bias", "bert/encoder/layer_1/output/LayerNorm/beta")
"""What adds the same to all logits of a sequence, on which SQuAD's loss does not depend: Adam makes steps of rounding errors."""


def centered(rows: list[list[float]]) -> np.ndarray[Any, Any]:
    return np.array(rows) - np.mean(rows, axis=1, keepdims=True)


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0, atol=1e-5)
    np.testing.assert_allclose(found["norms"], expected["norms"], rtol=1e-4)
    np.testing.assert_allclose(found["evaluation"], expected["evaluation"], rtol=1e-5)
    assert found["outputs"].keys() == expected["outputs"].keys()
    for name, rows in found["outputs"].items():
        np.testing.assert_allclose(centered(rows), centered(expected["outputs"][name]), rtol=0, atol=1e-4)
    assert found["sizes"].keys() == expected["sizes"].keys()
    left_out = SHIFTING if "start_logits" in found["outputs"] else ()
    for name, size in found["sizes"].items():
        if name.startswith(left_out):
            continue
        assert size == pytest.approx(expected["sizes"][name], rel=1e-3, abs=1e-5), name


def test_something_is_learnt_and_each_optimizer_learns_other_things() -> None:
    adam, lamb = alone(""), alone("--optimizer lamb")
    assert abs(adam["losses"][-1] - adam["losses"][0]) > 0.01
    assert adam["losses"][-1] != pytest.approx(lamb["losses"][-1], abs=0.01)
    assert adam["sizes"]["updates"] == lamb["sizes"]["updates"] == STEPS


@pytest.mark.parametrize("options", ["", "--eager", "--checkpoint-activations", "--optimizer lamb"])
def test_micro_batches_are_as_their_whole(options: str) -> None:
    assert_equal(alone(f"--accumulate 4 {options}"), whole(options))


@pytest.mark.parametrize(("processes", "hosts", "options"), LAYOUTS.values(), ids=LAYOUTS)
def test_processes_are_as_one(processes: int, hosts: int, options: str, tmp_path: Path) -> None:
    """Several hosts are several launchers on this one."""
    assert_equal(run_layout(processes, tmp_path, *options.split(), hosts=hosts), whole(options))


@pytest.mark.parametrize("task", ["pretraining", "classification"])
def test_two_stages_and_dropout_that_is_of_a_micro_batch_wherever_it_is_computed(task: str, tmp_path: Path) -> None:
    """In a graph, eagerly, computed again for the gradients, or in stages on other processes."""
    options = f"--accumulate 2 --dropout --task {task}"
    expected = alone(options)
    assert expected["losses"][0] != pytest.approx(alone(f"--task {task}")["losses"][0], abs=1e-4)
    assert_equal(alone(f"{options} --eager"), expected)
    assert_equal(alone(f"{options} --checkpoint-activations"), expected)
    assert_equal(run_layout(2, tmp_path, *options.split(), "--stages", "2"), expected)
