"""BERT on TensorFlow. The model and the optimizers are Keras 3's operations alone and run on its other backends too."""
