"""The page's elements and numbers as strings, in which no data can be taken for markup.

Everything but `Markup` is escaped when it enters an element. The result is well-formed XML as well as HTML, so a test can parse
it, and has no characters that XML forbids or that change text direction: vocabularies do contain control characters.
"""

from __future__ import annotations

import math
import re

_VOID = frozenset({"circle", "line", "meta", "path", "rect"})
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2029\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})
_BILLION = 1_000_000_000
_SPACE = "\N{NO-BREAK SPACE}"  # a number and its unit stay on one line


class Markup(str):
    """Text that is already markup."""

    __slots__ = ()


Child = str | int | None


def escape(text: Child) -> Markup:
    """Text escaped for an element or an attribute.

    >>> escape('<a title="&">')
    '&lt;a title=&quot;&amp;&quot;&gt;'
    """
    if isinstance(text, Markup):
        return text
    return Markup(_FORBIDDEN.sub("\ufffd", str(text)).translate(_ESCAPES))


def element(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """One element; None is an omitted child or attribute, `class_` stands for `class`, `x_y` for `x-y`.

    >>> element("td", "a<b", None, class_="number")
    '<td class="number">a&lt;b</td>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(f"{value:g}" if isinstance(value, float) else str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written} />")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def join(*parts: Child) -> Markup:
    """The concatenation of parts."""
    return Markup("".join(escape(part) for part in parts if part is not None))


def table(header: list[Child], rows: list[list[Child]], caption: str) -> Markup:
    """A table whose first column names its rows and whose other columns are numbers."""

    def cells(row: list[Child], kind: str) -> Markup:
        first = element("th", row[0], scope="col" if kind == "th" else "row")
        return element("tr", first, *(element(kind, cell, scope="col" if kind == "th" else None) for cell in row[1:]))

    body = join(*(cells(row, "td") for row in rows))
    content = join(element("caption", caption), element("thead", cells(header, "th")), element("tbody", body))
    return element("div", element("table", content), class_="scroll")


def count(number: int) -> str:
    """A count, in full as long as it is readable.

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


def percent(fraction: float, digits: int = 1) -> str:
    r"""A fraction in percent.

    >>> percent(0.0625), percent(0.8, 2)
    ('6.2\xa0%', '80.00\xa0%')
    """
    return f"{fraction * 100:.{digits}f}{_SPACE}%"


def plain_percent(fraction: float) -> str:
    r"""A fraction in percent with as many digits as it needs, for axis labels.

    >>> plain_percent(0.05), plain_percent(0.0025)
    ('5\xa0%', '0.25\xa0%')
    """
    return f"{fraction * 100:.6g}{_SPACE}%"


def nice_step(extent: float, steps: int) -> float:
    """The smallest step of 1, 2, 2.5 or 5 times a power of ten that covers `extent` in `steps` steps.

    >>> nice_step(97, 4), nice_step(0.3, 4)
    (25.0, 0.1)
    """
    if extent <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(extent / steps))
    wanted = extent / steps / power
    return next((step for step in (1, 2, 2.5, 5) if step >= wanted - 1e-9), 10) * power
