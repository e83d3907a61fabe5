"""Run `trainer.cli` for `python -m trainer`, and for `bertprep train`, which sets `PROGRAM` to its own name."""

import sys

from bertprep.terminal import run_program


def _main() -> int:
    from trainer import cli  # imported here, so that a missing package is reported in one line

    return cli.main(program=globals().get("PROGRAM", cli.PROGRAM))


sys.exit(run_program(_main, "trainer"))
