"""BERT on TensorFlow. The model and the optimizers are Keras 3's operations alone and run on its other backends too."""

import os

# Both are read when the libraries are first loaded, so here and no later. What else uses Keras on this machine may have another
# backend as its default; TensorFlow's warnings are for who builds it.
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
