"""`bertprep inspect DUMP`: print pages of a Wikimedia dump as they are, next to the prose that `shard` makes of them.

On a terminal of 120 columns or more, source and prose are side by side; elsewhere one follows the other.
"""

from __future__ import annotations

import textwrap
from itertools import islice, zip_longest
from pathlib import Path

from bertprep.errors import UsageError
from bertprep.sources.dump import Page, read_dump
from bertprep.sources.readers import open_stream
from bertprep.sources.wiki.paragraphs import REASONS, Removed
from bertprep.sources.wiki.wikitext import to_prose
from bertprep.terminal import counted, print_results

_SHOWN = 4_000
"""The maximum number of characters to show of a page and of its prose."""
_MIN_COLUMNS = 120
_GAP = " | "


def show_pages(path: Path, first: int, count: int, columns: int | None) -> None:
    """Print `count` articles of a dump, from number `first` on, each with its prose and with what was removed.

    `columns` is the width of the terminal, or None if there is none.
    """
    templates = Removed().templates
    number = -1
    with open_stream(str(path)) as file:
        site, articles = read_dump(file, str(path))
        for number, page in enumerate(islice(articles, first + count)):
            if number < first:
                continue
            removed = Removed()
            prose = to_prose(page.wikitext, site, removed)
            templates += removed.templates
            heading = f"page {number}: {page.title}: {describe(removed) or 'nothing was removed'}"
            is_wide = columns is not None and columns >= _MIN_COLUMNS
            if not print_results(
                "", heading, *(_side_by_side(page, prose, columns or 0) if is_wide else _in_turn(page, prose))
            ):
                return
    if number < first:
        raise UsageError(f"--record {first}: {path} has {counted(number + 1, 'article')}; choose one of 0 to {number}")
    if templates:
        names = ", ".join(f"{{{{{name}}}}} {count:,}" for name, count in templates.most_common(20))
        print_results("", f"templates without a rule in paragraphs: {names}")


def describe(removed: Removed) -> str:
    """Return what was removed from a page, most first, or ""."""
    ordered = sorted(removed.counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{REASONS[reason]} {count:,}" for reason, count in ordered if count)


def _in_turn(page: Page, prose: str) -> list[str]:
    return ["--- wikitext", *_head(page.wikitext), "--- text", *_head(prose)]


def _side_by_side(page: Page, prose: str, columns: int) -> list[str]:
    width = (columns - len(_GAP)) // 2
    left, right = (_wrap(_head(text), width) for text in (page.wikitext, prose))
    rows = zip_longest(["wikitext", "", *left], ["text", "", *right], fillvalue="")
    return [f"{one:<{width}}{_GAP}{other}".rstrip() for one, other in rows]


def _head(text: str) -> list[str]:
    lines = text[:_SHOWN].split("\n")
    return [*lines, f"... ({len(text):,} characters)"] if len(text) > _SHOWN else lines


def _wrap(lines: list[str], width: int) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(line, width) or [""]]
