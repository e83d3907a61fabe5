"""Loading a framework without what its libraries say of themselves, which no setting of theirs keeps off standard error."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what is written to standard error in the block, by compiled code too; it is shown if the block fails."""
    sys.stderr.flush()
    standard_error = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(standard_error, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(standard_error, 2)
            os.close(standard_error)
