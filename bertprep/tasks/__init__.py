"""Fine-tuning tasks: their files to examples, and a model's outputs to predictions and metrics. No TensorFlow, no OneFlow."""

EXAMPLES_PER_FILE = 8192
"""What a record file of a task holds, so that workers share a large split; it decides bytes, as settings do."""
