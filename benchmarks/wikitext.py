"""Compare the prose that tools make of wikitext: of a dump's excerpt in English, and of short pages in seven languages.

python -m benchmarks wikitext --write pages.xml          # writes all pages as one dump, for tools that read only dumps
python -m benchmarks wikitext --json NAME=FOLDER ...     # FOLDER has the JSON Lines that a tool made of that dump

bertprep and mwparserfromhell's strip_code run here; the latter needs `pip install mwparserfromhell`. WikiExtractor 3.1.0 needs
an environment of its own: `python -m wikiextractor.WikiExtractor --json --no-templates -o FOLDER pages.xml`.
"""

import argparse
import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from bertprep.sources.dump import Page, SiteInfo, read_dump
from bertprep.sources.readers import open_stream
from bertprep.sources.wiki.template_rules import APOSTROPHE, read_arguments
from bertprep.sources.wiki.templates import find_rule
from bertprep.sources.wiki.wikitext import to_prose
from tests.golden.wikimedia import EXPECTED, excerpt
from tests.golden.wikimedia.languages import PAGES

SITE = SiteInfo(
    frozenset({"file", "image", "media", "datei", "fichier"}),
    frozenset({"category", "kategorie", "catégorie", "категория", "หมวดหมู่"}),
)
MARKUP = re.compile(
    r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|</?[a-z]+[^<>\n]*>|&[a-z]+;|__\w+__|'''?|https?://|\bthumb\||^\s*[*#|!]|-\{", re.MULTILINE
)
WRONG = re.compile(r"\(\s*[,;:)]|[,;]\s*\)|(?<=\w) +[,;](?= )|^[,;)]|[,;]\s*[,;]|\be\d+[a-z]+\b|\(-\)|\s\.\s", re.MULTILINE)
"""Signs of a sentence with a hole: empty brackets, doubled commas, a space before a comma or a dot, convert's prefixes."""
_INNER = re.compile(r"\{\{([^{}|\n]+)((?:\|[^{}]*)?)\}\}")
_DROPPED = re.compile(r"<ref\b[^<>]*/>|<ref\b[^<>]*>.*?</ref>|<!--.*?-->", re.DOTALL | re.IGNORECASE)
_PLAIN = re.compile(r"[\w“\"(][^\[\]{}<>'|=*#\n]{20,}")
_WORD = re.compile(r"\w+")


@dataclass
class Figures:
    """What a tool made of a set of pages; all but the shares are numbers of faults."""

    pages: int = 0
    kept: int = 0
    expected: int = 0
    more: int = 0
    markup: int = 0
    wrong: int = 0
    templates: int = 0
    line_ends: int = 0

    def row(self, tool: str, pages: str) -> str:
        faults = (self.markup, self.wrong, self.templates, self.line_ends)
        shown = " | ".join(f"{100 * count / self.pages:.0f}" for count in faults)
        return f"| {tool} | {pages} | {self.kept / self.expected:.1%} | {self.more / self.expected:.1%} | {shown} |"


def strip_code(page: Page) -> str:
    import mwparserfromhell  # which nothing else here needs

    return str(mwparserfromhell.parse(page.wikitext).strip_code())


def measure(pages: list[Page], texts: dict[str, str], expected: dict[str, str]) -> Figures:
    """Count the words of expected sentences that are kept, those that are no part of one, and the faults."""
    figures = Figures(pages=len(pages))
    for page in pages:
        text = texts.get(page.title, "")
        if (prose := expected.get(page.title)) is not None:
            wanted, found = Counter(_WORD.findall(prose)), Counter(_WORD.findall(text))
            figures.kept += (wanted & found).total()
            figures.expected += wanted.total()
            figures.more += (found - wanted).total()
        figures.markup += len(MARKUP.findall(text))
        figures.wrong += len(WRONG.findall(text))
        flat = " ".join(text.split())
        figures.templates += sum(words not in flat for words in template_words(page))
        figures.line_ends += sum(joined not in flat for joined in wrapped_ends(page))
    return figures


def template_words(page: Page) -> set[str]:
    """Return the words that templates carry in the sentences of a page, as bertprep's table has them."""
    ours = " ".join(to_prose(page.wikitext, SITE).split())
    found = set()
    for name, arguments in _INNER.findall(_DROPPED.sub("", page.wikitext)):
        rule = find_rule(name.strip())
        words = rule(read_arguments(arguments.split("|")[1:])) if rule else ""
        words = " ".join(html.unescape(re.sub(r"'{2,}|\[\[|\]\]", "", words)).replace(APOSTROPHE, "'").split())
        if re.search(r"\w{2}", words) and words in ours:
            found.add(words)
    return found


def wrapped_ends(page: Page) -> Iterator[str]:
    """Yield the words around the line ends of wrapped paragraphs: the last two of a line, and the first two of the next."""
    for line, following in pairwise(_DROPPED.sub("", page.wikitext).split("\n")):
        if _PLAIN.fullmatch(line) and _PLAIN.fullmatch(following) and following[0].islower():
            yield " ".join([*line.split()[-2:], *following.split()[:2]])


def main() -> None:
    """Print a row for each tool and set of pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="write all pages as a dump to this file, and do nothing else")
    parser.add_argument("--json", nargs="*", default=[], metavar="NAME=FOLDER", help="what other tools made of that dump")
    options = parser.parse_args()
    assert find_spec("gensim"), "pip install -e '.[test]'"
    with open_stream(str(excerpt())) as file:
        english = [*read_dump(file, excerpt().name)[1]]
    others = [Page(f"Page {number} {page.language}", page.wikitext) for number, page in enumerate(PAGES)]
    if options.write:
        write_dump(options.write, english + others)
        return
    articles = {path.stem.replace("_", " ").title(): path.read_text(encoding="utf-8") for path in EXPECTED.glob("*.txt")}
    prose = {page.title: known.prose for page, known in zip(others, PAGES, strict=True)}
    tools: dict[str, Callable[[Page], str]] = {"bertprep": lambda page: to_prose(page.wikitext, SITE), "strip_code": strip_code}
    texts = {name: {page.title: tool(page) for page in english + others} for name, tool in tools.items()}
    for given in options.json:
        name, folder = given.split("=", 1)
        texts[name] = {row["title"]: row["text"] for row in rows_in(Path(folder))}
    print("| tool | pages | words kept | more words | markup left | sentences wrong | templates lost | line ends lost |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for name, of_tool in texts.items():
        print(measure(english, of_tool, articles).row(name, "English"))
        print(measure(others, of_tool, prose).row(name, "seven languages"))


def rows_in(folder: Path) -> Iterator[dict[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def write_dump(path: Path, pages: list[Page]) -> None:
    """Write pages as an export of MediaWiki."""
    written = "".join(
        f"<page>\n<title>{html.escape(page.title)}</title>\n<ns>0</ns>\n<id>{number}</id>\n<revision>\n<id>{number}</id>\n"
        f'<text xml:space="preserve">{html.escape(page.wikitext)}</text>\n</revision>\n</page>\n'
        for number, page in enumerate(pages, 1)
    )
    names = '<namespaces>\n<namespace key="10" case="first-letter">Template</namespace>\n</namespaces>'
    site = f"<siteinfo>\n<base>http://en/wiki/A</base>\n{names}\n</siteinfo>"
    path.write_text(f"<mediawiki>\n{site}\n{written}</mediawiki>\n", encoding="utf-8")
