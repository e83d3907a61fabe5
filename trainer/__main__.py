"""`python -m trainer`: see `trainer.cli`. `bertprep train` runs this module too, with its own name as `PROGRAM`."""

import sys

from bertprep.terminal import run_program

_PROGRAM: str = globals().get("PROGRAM", "python -m trainer")


def _main() -> int:
    from trainer.cli import main  # here, so that a package that is not installed is reported in one line

    return main(program=_PROGRAM)


sys.exit(run_program(_main, "trainer"))
