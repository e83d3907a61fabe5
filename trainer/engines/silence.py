"""Loading a framework without what its libraries say of themselves, which no setting of theirs keeps off standard error."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_STANDARD_ERROR = 2  # the descriptor, which compiled code writes to


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what is written to standard error in the block, by compiled code too; it is shown if the block fails."""
    sys.stderr.flush()
    with os.fdopen(os.dup(_STANDARD_ERROR), "wb") as standard_error, tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), _STANDARD_ERROR)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            held.seek(0)
            shutil.copyfileobj(held, standard_error)
            raise
        finally:
            sys.stderr.flush()
            os.dup2(standard_error.fileno(), _STANDARD_ERROR)
