"""Numbers as a person reads them, always with what they count."""

from __future__ import annotations

import math

_BILLION = 1_000_000_000
_SPACE = "\N{NO-BREAK SPACE}"  # a number and its unit stay on one line


def count(number: int) -> str:
    """A number of things, whole as long as its digits can be read.

    >>> count(1234567), count(3_210_000_000)
    ('1,234,567', '3.21 billion')
    """
    return f"{number:,}" if number < _BILLION else f"{number / _BILLION:,.2f} billion"


def counted(number: int, thing: str) -> str:
    """A number with its noun.

    >>> counted(1, "error"), counted(0, "error")
    ('1 error', '0 errors')
    """
    return f"{count(number)} {thing}{'' if number == 1 else 's'}"


def megabytes(size_bytes: int) -> str:
    r"""A size in MB or, from a thousand of them on, in GB; both decimal.

    >>> megabytes(85_300_000), megabytes(31_400_000_000)
    ('85.3\xa0MB', '31.4\xa0GB')
    """
    return f"{size_bytes / 1e6:,.1f}{_SPACE}MB" if size_bytes < _BILLION else f"{size_bytes / 1e9:,.1f}{_SPACE}GB"


def percent(share: float, digits: int = 1) -> str:
    r"""A share in percent.

    >>> percent(0.0625), percent(0.8, 2)
    ('6.2\xa0%', '80.00\xa0%')
    """
    return f"{share * 100:.{digits}f}{_SPACE}%"


def plain_percent(share: float) -> str:
    r"""A share in percent with as many digits as it needs: for the marks of an axis.

    >>> plain_percent(0.05), plain_percent(0.0025)
    ('5\xa0%', '0.25\xa0%')
    """
    return f"{share * 100:.6g}{_SPACE}%"


def nice_step(extent: float, steps: int) -> float:
    """The least of 1, 2, 2.5 or 5 times a power of ten that covers `extent` in `steps` steps.

    >>> nice_step(97, 4), nice_step(0.3, 4)
    (25.0, 0.1)
    """
    if extent <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(extent / steps))
    wanted = extent / steps / power
    return next((step for step in (1, 2, 2.5, 5) if step >= wanted - 1e-9), 10) * power
