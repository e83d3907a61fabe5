"""`python -m trainer`: see `trainer.cli`."""

import sys

try:
    from trainer.cli import run

    run()
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] in ("", "bertprep", "trainer"):
        raise
    sys.exit(
        f"trainer: error: {error.name} is not installed; pip install '.[tensorflow]' in a clone installs all that is needed"
    )
