"""A BERT's weights as files: Hugging Face's safetensors, Google's TensorFlow checkpoints, the variables of both."""
