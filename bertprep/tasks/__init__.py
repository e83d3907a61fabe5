"""Fine-tuning tasks: their files to examples, and a model's outputs to predictions and metrics. No TensorFlow, no OneFlow."""

EXAMPLES_PER_FILE = 8192
"""The number of examples in a record file of a task, so that workers share a large split; it decides the bytes."""
