"""What Hugging Face's BertForPreTraining says of a batch; scripts/make_hf_golden wrote it."""

import json
from typing import Any

import numpy as np

from tests.golden import GOLDEN
from trainer.model_config import ModelConfig

WEIGHTS = GOLDEN / "hugging_face.safetensors"


def read_golden() -> dict[str, Any]:
    """The file's contents, the numbers as arrays."""
    golden = json.loads((GOLDEN / "hugging_face.json").read_bytes())
    batch = {
        name: np.array(values, np.float32 if name == "masked_lm_weights" else np.int32)
        for name, values in golden["batch"].items()
    }
    return {**golden, "batch": batch, "config": ModelConfig.from_settings(golden["config"])}
