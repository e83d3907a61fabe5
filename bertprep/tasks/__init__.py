"""Fine-tuning tasks: turns their files into examples, and a model's outputs into predictions and metrics.

Nothing here needs a framework such as TensorFlow or OneFlow.
"""

EXAMPLES_PER_FILE = 8192
"""The number of examples in a record file of a task. Several workers can then make a large split. It decides the bytes."""
