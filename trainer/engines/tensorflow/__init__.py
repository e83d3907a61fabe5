"""BERT on TensorFlow: a model and optimizers of Keras 3's operations, and TensorFlow's own where those are faster."""

import os

# Both are read when the libraries are first loaded, so here and no later. What else uses Keras on this machine may have another
# backend as its default; TensorFlow's warnings are for who builds it.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
