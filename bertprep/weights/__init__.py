"""Reads and writes BERT weights: Hugging Face's safetensors, Google's TensorFlow checkpoints, and their variable names."""
