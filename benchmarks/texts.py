"""Judge how real text is divided into sentences: what is cut off, glued or torn, and how fast it goes.

    python -m benchmarks texts --folder FOLDER                 # fetches the texts into FOLDER, once; prints a table
    python -m benchmarks texts --folder FOLDER --examples 20   # and what was counted, twenty of each kind and text

The texts are novels, a glossary, a handbook in six languages, manual pages and articles of Wikipedia. They come from Debian's packages,
by apt-get, dpkg-deb, man and the PyPI package rdata, and from gensim's wheel. Nothing of them is committed.
"""

import argparse
import gzip
import os
import random
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

PACKAGES = ("r-cran-janeaustenr", "jargon-text", "debian-handbook", "manpages-ja")
LANGUAGES = {"de": "de-DE", "fr": "fr-FR", "ru": "ru-RU", "zh": "zh-CN", "ja": "ja-JP", "ar": "ar-MA"}
SCRIPTS = {"ru": "[а-яё]", "zh": "[\u4e00-\u9fff]", "ja": "[\u3041-\u30ff\u4e00-\u9fff]", "ar": "[\u0620-\u064a]"}
"""What a translated line has at least once, where the script is not Latin."""
_ENGLISH = {"the", "of", "and", "to", "is", "that", "this", "with", "for", "are"}
_BLOCKS = {"body", "dd", "div", "dl", "dt", "h1", "h2", "h3", "h4", "li", "p", "table", "td", "th", "tr", "ul", "ol"}
_SKIPPED = {"head", "pre", "script", "style"}


class _Page(HTMLParser):
    """Collects the text of a page, a line for each block element."""

    def __init__(self) -> None:
        super().__init__()
        self.lines, self._words, self._skipped, self._navigation = [], [], 0, 0  # type: ignore[var-annotated]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS:
            self._end_line()
        if tag in _SKIPPED or (tag == "ul" and "docnav" in (dict(attrs).get("class") or "")):
            self._skipped += 1
            self._navigation += tag == "ul"

    def handle_endtag(self, tag: str) -> None:
        if tag in _BLOCKS:
            self._end_line()
        if tag in _SKIPPED or (tag == "ul" and self._navigation):
            self._skipped -= 1
            self._navigation -= tag == "ul"

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._words.append(data)

    def _end_line(self) -> None:
        line = " ".join("".join(self._words).split())
        self._words.clear()
        if line:
            self.lines.append(line)


def fetch(folder: Path) -> None:
    """Download the packages and extract their texts, unless the folder has them."""
    if (folder / "man.ja").is_dir():
        return
    source = folder / "packages"
    source.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if not (source / package).is_dir():
            subprocess.run(["apt-get", "download", package], cwd=source, check=True, stdout=subprocess.DEVNULL)
            found = next(source.glob(f"{package}_*.deb"))
            subprocess.run(["dpkg-deb", "-x", found, source / package], check=True)
    (folder / "austen").mkdir(exist_ok=True)
    for name, lines in read_novels(source / "r-cran-janeaustenr"):
        (folder / "austen" / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    jargon = source / "jargon-text" / "usr/share/doc/jargon-text/jargon.txt.gz"
    (folder / "jargon.txt").write_bytes(gzip.decompress(jargon.read_bytes()))
    html = source / "debian-handbook" / "usr/share/doc/debian-handbook/html"
    english = {line for page in read_pages(html / "en-US") for line in page}
    for language, locale in LANGUAGES.items():
        script = re.compile(SCRIPTS.get(language, "[a-z]"))
        pages = [
            [line for line in page if line not in english and script.search(line) and not is_english(line)]
            for page in read_pages(html / locale)
        ]
        text = "\n\n".join("\n".join(page) for page in pages if page)
        (folder / f"handbook.{language}.txt").write_text(text + "\n", encoding="utf-8")
    rendered = folder / "man.ja.unfinished"
    rendered.mkdir(exist_ok=True)
    for path in sorted((source / "manpages-ja" / "usr/share/man/ja").glob("man*/*.gz")):
        text = render(path)
        if len(text) > 500:
            (rendered / f"{path.name.removesuffix('.gz')}.txt").write_text(text, encoding="utf-8")
    rendered.rename(folder / "man.ja")


def read_novels(package: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the lines of each novel in R's database of lazily loaded data: an index, and compressed values."""
    import rdata

    base = package / "usr/lib/R/site-library/janeaustenr/data/Rdata"
    index = rdata.conversion.convert(rdata.parser.parse_data(gzip.decompress(base.with_suffix(".rdx").read_bytes())))
    values = base.with_suffix(".rdb").read_bytes()
    for name, (start, size) in index["variables"].items():
        data = values[int(start) : int(start) + int(size)]
        kind, data = data[4:5], data[4:]  # the size, then the compression's letter if it is not zlib's
        plain = zlib.decompress(data) if kind == b"x" else _decompress(kind, data[1:])
        yield name, [str(line) for line in rdata.conversion.convert(rdata.parser.parse_data(plain))]


def _decompress(kind: bytes, data: bytes) -> bytes:
    import bz2
    import lzma

    if kind == b"2":
        return bz2.decompress(data)
    return lzma.decompress(data, lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 6}])


def read_pages(folder: Path) -> Iterator[list[str]]:
    """Yield the lines of each page of HTML."""
    for path in sorted(folder.glob("*.html")):
        page = _Page()
        page.feed(path.read_text(encoding="utf-8"))
        page.close()
        yield page.lines


def is_english(line: str) -> bool:
    """Return whether a tenth of the words are English ones that no other language here has."""
    words = line.lower().split()
    return 10 * sum(word in _ENGLISH for word in words) > len(words)


def render(path: Path) -> str:
    """Return a manual page as `man` shows it on a terminal of 80 columns, without overstriking."""
    environment = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": ""}
    shown = subprocess.run(
        ["man", "-Tutf8", "-l", path], env=environment, check=False, capture_output=True, text=True, encoding="utf-8"
    ).stdout
    return re.sub(".\b", "", shown)
