"""`python -m bertprep` is `bertprep`."""

from bertprep.cli import run

run()
