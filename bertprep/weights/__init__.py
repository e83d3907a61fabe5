"""BERT weights as files: Hugging Face's safetensors, Google's TensorFlow checkpoints, and their variable names."""
