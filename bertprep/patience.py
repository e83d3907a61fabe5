"""The retries and timeouts of downloads, uploads and object stores.

All times scale with the first wait, a second, or $BERTPREP_RETRY_SECONDS. Eight tries with seven waits take 127 s; each try to
a silent server has a timeout of 30 s.
"""

import os

from bertprep.errors import BertprepError

FIRST_WAIT = "BERTPREP_RETRY_SECONDS"
TRIES = 8
"""Consecutive tries without progress."""
MAX_WAIT, SILENCE = 64, 30
"""In units of the first wait: between two tries, and until a silent connection counts as broken."""
MIN_SILENCE_SECONDS = 20.0
"""However short the first wait: the machine may be busy."""
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of answers that another try may not get."""


def first_wait_seconds() -> float:
    """Return the first wait, which scales all other times; raises `BertprepError` if the environment has no number."""
    text = os.environ.get(FIRST_WAIT, "1")
    try:
        if (seconds := float(text)) > 0:
            return seconds
    except ValueError:
        pass
    raise BertprepError(f"{FIRST_WAIT}={text}: must be a number of seconds above 0")


def silence_seconds(times: int = 1) -> float:
    """Return the timeout of an answer, or so many times that."""
    return max(times * SILENCE * first_wait_seconds(), MIN_SILENCE_SECONDS)


def wait_seconds(tried: int) -> float:
    """Return the wait after so many tries: 1, 2, 4 ... first waits.

    >>> [wait_seconds(tried) for tried in (1, 4, 7, 9)]
    [1.0, 8.0, 64.0, 64.0]
    """
    return float(min(2 ** (tried - 1), MAX_WAIT)) * first_wait_seconds()
