"""A global batch gives the same steps however it is cut: over micro-batches, processes, stages, and hosts."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.engines.oneflow.launching import run_layouts
from tests.trainer.engines.oneflow.layout_steps import STEPS, parse, train

pytestmark = pytest.mark.oneflow
DROPOUT = "--accumulate 2 --dropout"
OF_TWO = (
    "--eager --accumulate 2 --optimizer lamb",
    "--accumulate 2",
    "--task squad --accumulate 2",
    "--task regression --eager",
    f"{DROPOUT} --stages 2 --task classification",
)
OF_FOUR = (
    "--optimizer lamb",
    "--stages 2 --accumulate 2 --strategy intra_first --task squad",  # pipelines within hosts
    "--stages 2 --accumulate 2 --strategy inter_first --optimizer lamb",  # and across hosts
    "--stages 4 --layers 4 --checkpoint-activations --optimizer lamb",  # one batch each, and stages between the ends
)
LAUNCHES = {"2 processes": (2, 1, OF_TWO), "2 x 2 processes": (4, 2, OF_FOUR)}
"""The layouts of a launch have an engine each, in the same processes: to start these takes longer than a layout."""


@cache
def alone(options: str) -> dict[str, Any]:
    """The results of one process."""
    return train(parse(options))


def whole(options: str) -> dict[str, Any]:
    """The results of one process that has the batch as a whole, with the same model and optimizer."""
    words = options.split()
    kept = [
        word for name in ("--optimizer", "--layers", "--task") if name in words for word in (name, words[words.index(name) + 1])
    ]
    return alone(" ".join([DROPOUT, *kept] if "--dropout" in words else kept))  # masks are those of a micro-batch


SHIFTING = ("cls/squad/output_bias", "bert/encoder/layer_1/output/LayerNorm/beta")
"""What adds the same to all logits of a sequence, on which SQuAD's loss does not depend: Adam steps by rounding errors."""


def comparable(name: str, rows: list[list[float]]) -> np.ndarray[Any, Any]:
    """Outputs without what no loss depends on."""
    return np.array(rows) - (0 if name == "logits" else np.mean(rows, axis=1, keepdims=True))


def assert_equal(found: dict[str, Any], expected: dict[str, Any], layout: str) -> None:
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0, atol=1e-5, err_msg=layout)
    np.testing.assert_allclose(found["norms"], expected["norms"], rtol=1e-4, err_msg=layout)
    np.testing.assert_allclose(found["evaluation"], expected["evaluation"], rtol=1e-5, err_msg=layout)
    assert found["outputs"].keys() == expected["outputs"].keys(), layout
    for name, rows in found["outputs"].items():
        np.testing.assert_allclose(
            comparable(name, rows), comparable(name, expected["outputs"][name]), rtol=0, atol=1e-4, err_msg=layout
        )
    assert found["sizes"].keys() == expected["sizes"].keys(), layout
    left_out = SHIFTING if "start_logits" in found["outputs"] else ()
    for name, size in found["sizes"].items():
        if name not in left_out:
            assert size == pytest.approx(expected["sizes"][name], rel=1e-3, abs=1e-5), (layout, name)


def test_something_is_learnt_and_each_optimizer_learns_other_things() -> None:
    adam, lamb = alone(""), alone("--optimizer lamb")
    assert abs(adam["losses"][-1] - adam["losses"][0]) > 0.01
    assert adam["losses"][-1] != pytest.approx(lamb["losses"][-1], abs=0.01)
    assert adam["sizes"]["updates"] == lamb["sizes"]["updates"] == STEPS


@pytest.mark.parametrize("options", ["", "--eager", "--checkpoint-activations", "--optimizer lamb"])
def test_micro_batches_are_as_their_whole(options: str) -> None:
    assert_equal(alone(f"--accumulate 4 {options}"), whole(options), options)


@pytest.mark.parametrize(("processes", "hosts", "layouts"), LAUNCHES.values(), ids=LAUNCHES)
def test_processes_are_as_one(processes: int, hosts: int, layouts: tuple[str, ...], tmp_path: Path) -> None:
    """Several hosts are several launchers on this one."""
    found = run_layouts(processes, tmp_path, layouts, hosts=hosts)
    assert tuple(found) == layouts
    for options, results in found.items():
        assert_equal(results, whole(options), options)


@pytest.mark.parametrize("task", ["pretraining", "classification"])
def test_dropout_is_that_of_a_micro_batch_wherever_it_is_computed(task: str) -> None:
    """In a graph, eagerly, or computed again for the gradients; in stages on other processes it is above."""
    options = f"{DROPOUT} --task {task}"
    expected = alone(options)
    assert expected["losses"][0] != pytest.approx(alone(f"--task {task}")["losses"][0], abs=1e-4)
    for way in ("--eager", "--checkpoint-activations"):
        assert_equal(alone(f"{options} {way}"), expected, way)
