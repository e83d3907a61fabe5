"""Fine-tuning tasks: their files to examples, and a model's outputs to predictions and metrics. No TensorFlow, no OneFlow."""
