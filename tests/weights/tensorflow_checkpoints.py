"""Checkpoints as TensorFlow's Saver writes them; `python -m tests.weights.tensorflow_checkpoints` makes the golden one.

google_checkpoint.{index,data-0000?-of-00002}   a tiny BERT after 300 steps of Google's Adam, in two data files
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tests.golden import GOLDEN
from trainer.model_config import ModelConfig
from trainer.tasks.pretraining import Pretraining
from trainer.weights import initial_values

CHECKPOINT = GOLDEN / "google_checkpoint"
CONFIG = ModelConfig(
    vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=32
)
WEIGHTS = initial_values(CONFIG, seed=1, task=Pretraining())


def save(prefix: Path, values: dict[str, Any]) -> None:
    """Save variables as Google's and NVIDIA's scripts do."""
    import tensorflow as tf

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [tf.compat.v1.get_variable(name, initializer=tf.constant(value)) for name, value in values.items()]
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver(variables).save(session, str(prefix), write_meta_graph=False, write_state=False)


def write_golden() -> None:
    """Write the golden checkpoint with TensorFlow."""
    import tensorflow as tf

    slots = {f"{name}/adam_{slot}": np.full_like(value, 7) for name, value in WEIGHTS.items() for slot in "mv"}
    with TemporaryDirectory() as folder:
        halves = [f"{folder}/half", f"{folder}/other_half"]
        for half, values in zip(halves, (WEIGHTS, {**slots, "global_step": np.int64(300)}), strict=True):
            save(Path(half), values)
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=halves, destination_prefix=str(CHECKPOINT))


if __name__ == "__main__":
    write_golden()
