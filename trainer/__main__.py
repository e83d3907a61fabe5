"""`python -m trainer`: see `trainer.cli`."""

import sys

try:
    from trainer.cli import run
except ModuleNotFoundError as error:
    sys.exit(f"trainer: error: {error.name} is not installed; pip install '.[tensorflow]' in a clone installs what is needed")

run()
