"""BERT on OneFlow 0.9: one device a process, several processes as data-parallel pipelines of stages."""

import os

# Read when the library is first loaded, so here and no later: it warns of each driver that a machine without GPUs lacks.
os.environ.setdefault("GLOG_minloglevel", "3")
