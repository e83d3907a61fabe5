"""Elements of the page as strings, in which nothing that data says can be taken for markup.

Whatever is not `Markup` is escaped when it enters an element. The result is well-formed XML as well as HTML, so that a test
can parse it, and holds no character that XML forbids, nor one that turns what is read around: vocabularies do hold control
characters.
"""

from __future__ import annotations

import re

_VOID = frozenset({"circle", "line", "meta", "path", "rect"})
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2029\u202f-\u2065\u206a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | int | None


def escape(text: Child) -> Markup:
    """Text as it must stand in an element or an attribute.

    >>> escape('<a title="&">')
    '&lt;a title=&quot;&amp;&quot;&gt;'
    """
    if isinstance(text, Markup):
        return text
    return Markup(_FORBIDDEN.sub("\ufffd", str(text)).translate(_ESCAPES))


def element(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """One element; None stands for a child or an attribute that is left out, `class_` for `class`, `x_y` for `x-y`.

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
    """Parts one after the other."""
    return Markup("".join(escape(part) for part in parts if part is not None))


def table(header: list[Child], rows: list[list[Child]], caption: str) -> Markup:
    """A table whose first column names its rows and whose other columns are numbers."""

    def cells(row: list[Child], kind: str) -> Markup:
        first = element("th", row[0], scope="col" if kind == "th" else "row")
        return element("tr", first, *(element(kind, cell, scope="col" if kind == "th" else None) for cell in row[1:]))

    body = join(*(cells(row, "td") for row in rows))
    content = join(element("caption", caption), element("thead", cells(header, "th")), element("tbody", body))
    return element("div", element("table", content), class_="scroll")
