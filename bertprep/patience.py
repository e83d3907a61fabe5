"""Defines the retries and timeouts of downloads, uploads and object stores.

All times scale with the first wait: one second, or $BERTPREP_RETRY_SECONDS. Eight tries with seven waits between them take
127 s. A try with a server that does not answer times out after 30 s.
"""

import os

from bertprep.errors import BertprepError

FIRST_WAIT = "BERTPREP_RETRY_SECONDS"
TRIES = 8
"""The maximum number of consecutive tries without progress."""
MAX_WAIT, SILENCE = 64, 30
"""The longest wait between two tries, and the timeout of a connection without data, both in units of the first wait."""
MIN_SILENCE_SECONDS = 20.0
"""The shortest timeout, however short the first wait is: the machine may be busy."""
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses for which another try may succeed."""


def first_wait_seconds() -> float:
    """Return the first wait, which scales all other times; raise `BertprepError` if the variable is not a positive number."""
    text = os.environ.get(FIRST_WAIT, "1")
    try:
        if (seconds := float(text)) > 0:
            return seconds
    except ValueError:
        pass
    raise BertprepError(f"{FIRST_WAIT}={text}: must be a number of seconds greater than 0")


def silence_seconds(times: int = 1) -> float:
    """Return the timeout for an answer, multiplied by `times`."""
    return max(times * SILENCE * first_wait_seconds(), MIN_SILENCE_SECONDS)


def wait_seconds(tried: int) -> float:
    """Return the wait after `tried` tries: 1, 2, 4 ... times the first wait.

    >>> [wait_seconds(tried) for tried in (1, 4, 7, 9)]
    [1.0, 8.0, 64.0, 64.0]
    """
    return float(min(2 ** (tried - 1), MAX_WAIT)) * first_wait_seconds()
