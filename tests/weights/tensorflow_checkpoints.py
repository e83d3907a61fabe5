"""Checkpoints as TensorFlow's own Saver writes them; `python -m tests.weights.tensorflow_checkpoints` makes the golden one.

google_checkpoint.{index,data-0000?-of-00002}   a tiny BERT after 300 steps of Google's Adam, in two data files
google_checkpoint.json                          sha256 of the files that TensorFlow writes for its weights alone, in one data
                                                file, and for so many variables that the index has several blocks
"""

import json
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from bertprep.weights.tensor_bundle import bundle_files
from tests.golden import GOLDEN
from trainer.model_config import ModelConfig
from trainer.weights import initial_values

CHECKPOINT = GOLDEN / "google_checkpoint"
SUMS = GOLDEN / "google_checkpoint.json"
CONFIG = ModelConfig(
    vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=32
)
WEIGHTS = initial_values(CONFIG, seed=1)
MANY = {
    f"bert/encoder/layer_{number}/a/name/as/long/as/those/of/models": np.full(2, number, np.float32) for number in range(9000)
}


def sums(prefix: Path) -> list[str]:
    """The sha256 of an index and its one data file."""
    return [sha256(path.read_bytes()).hexdigest() for path in bundle_files(prefix)]


def save(prefix: Path, values: dict[str, Any]) -> None:
    """Save variables as Google's and NVIDIA's scripts do."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [tf.compat.v1.get_variable(name, initializer=tf.constant(value)) for name, value in values.items()]
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables).save(session, str(prefix), write_meta_graph=False, write_state=False)


def write_golden() -> None:
    """Write the golden checkpoint and sums with TensorFlow."""
    import tensorflow as tf

    slots = {f"{name}/adam_{slot}": np.full_like(value, 7) for name, value in WEIGHTS.items() for slot in "mv"}
    with TemporaryDirectory() as folder:
        halves = [f"{folder}/half", f"{folder}/other_half"]
        for half, values in zip(halves, (WEIGHTS, {**slots, "global_step": np.int64(300)}), strict=True):
            save(Path(half), values)
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=halves, destination_prefix=str(CHECKPOINT))
        save(Path(folder, "weights"), WEIGHTS)
        save(Path(folder, "many"), MANY)
        golden = {
            "about": f"tf.compat.v1.train.Saver of TensorFlow {tf.__version__}; tests/weights/tensorflow_checkpoints.py",
            "weights": sums(Path(folder, "weights")),
            "many": sums(Path(folder, "many")),
        }
    SUMS.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    write_golden()
