"""`python -m trainer`: see `trainer.cli`."""

import sys

from bertprep.terminal import run_program


def _main() -> int:
    from trainer.cli import main  # here, so that a package that is not installed is reported in one line

    return main()


sys.exit(run_program(_main, "trainer"))
