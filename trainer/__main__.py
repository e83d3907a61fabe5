"""`python -m trainer`: see `trainer.cli`."""

from trainer.cli import run

run()
