"""The checkpoint of each engine loads in the other: the same logits, and the same steps from there on."""

import json

import numpy as np
import pytest

from bertprep.weights.safetensors import read_safetensors
from tests.trainer.exchanged import ENGINES, SAID, TINY, checkpoint_of, go_on, open_tiny
from trainer.weights import variable_shapes

HERE = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ENGINES]


@pytest.mark.parametrize("written_by", ENGINES)
@pytest.mark.parametrize("engine", HERE)
def test_a_checkpoint_of_any_engine_goes_on_in_this_one(engine: str, written_by: str) -> None:
    opened = open_tiny(engine)
    state = read_safetensors(checkpoint_of(written_by))
    opened.restore(state)
    for name, value in opened.state().items():
        np.testing.assert_array_equal(value, state[name], err_msg=name)
    expected, found = json.loads(SAID.read_bytes())[written_by], go_on(opened)
    np.testing.assert_allclose(found["evaluation"], expected["evaluation"], rtol=1e-5)
    np.testing.assert_allclose(found["losses"], expected["losses"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("written_by", ENGINES)
def test_checkpoints_hold_the_same_names_and_shapes(written_by: str) -> None:
    state = read_safetensors(checkpoint_of(written_by))
    shapes = {name: value.shape for name, value in state.items()}
    expected = variable_shapes(TINY)
    moments = {f"{name}/adam_{slot}": shape for name, shape in expected.items() for slot in "mv"}
    assert shapes == {**expected, **moments, "updates": (), "loss_scale": (), "good_steps": ()}
    assert state["updates"] == 3
