r"""All that is printed: results to standard output, everything else to standard error, and nothing raw.

Names, tokens and servers' answers come from outside. A terminal would obey the control characters in them, a bidirectional
mark would show another text than there is, and a newline could forge a line of ours. So each of these is shown as its escape,
such as `\x1b` or `\u202e`; letters of all languages stay as they are.
"""

import re
import sys
import warnings
from collections.abc import Sequence
from typing import TextIO

LONGEST_LINE = 10_000
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Printable(str):
    """Text that may be printed as it is."""

    __slots__ = ()


def printable(text: str) -> Printable:
    r"""The text with what a terminal would obey, and lone surrogates, as escapes.

    >>> print(printable("part\x1b[2J\nerror: \u202egpj.exe\u05d0"))
    part\x1b[2J\nerror: \u202egpj.exe\u05d0
    """
    if isinstance(text, Printable):
        return text
    return Printable(_UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text))


def styled(text: str, codes: Sequence[str]) -> Printable:
    """Text in the colours that the codes (of SGR, such as "36" for cyan) stand for."""
    return Printable(f"\x1b[{';'.join(codes)}m{printable(text)}\x1b[0m")


def tell(*lines: str) -> None:
    """Lines of a result, to standard output."""
    for line in lines:
        _write(line, sys.stdout)


def say(text: str) -> None:
    """One line to whoever watches, cut where no one would read on; standard output is for results."""
    _write(text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}...", sys.stderr)
    sys.stderr.flush()


def tell_table(rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they must be, numbers to the right."""
    table = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (
            cell.rjust(width) if table[-1][i][:1].isdigit() else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        tell("  ".join(cells).rstrip())


def say_warnings() -> None:
    """Let libraries' warnings be one line each, as all else is; for the process of a command line."""

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object) -> None:
        say(f"{filename}:{lineno}: {category.__name__}: {message}")

    warnings.showwarning = show  # type: ignore[assignment]  # what else it is given is not shown


def _write(line: str, stream: TextIO) -> None:
    stream.write(f"{printable(line)}\n")
