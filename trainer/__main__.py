"""Run `trainer.cli` for `python -m trainer`, and for `bertprep train`, which sets `PROGRAM` to its own name."""

import os
import sys

from bertprep.terminal import run_program

# The trainer does not use Keras. Asked for Keras 2, which is seldom installed, TensorFlow loads none with all that it imports,
# and so in 8 CPU seconds instead of 13. Set here, in a process of the trainer's own: a program that imports it may need Keras.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


def _main() -> int:
    from trainer import cli  # imported here, so that a missing package is reported in one line

    return cli.main(program=globals().get("PROGRAM", cli.PROGRAM))


sys.exit(run_program(_main, "trainer"))
