"""Judge how real text is divided into sentences: what is cut off, glued or torn, and how fast it goes.

    python -m benchmarks texts FOLDER                   # fetches the texts into FOLDER, once; prints a table
    python -m benchmarks texts FOLDER --examples 20     # and what was counted, so many of each kind and text
    python -m benchmarks texts FOLDER --splitters       # other splitters on the same paragraphs, those that can be imported
    python -m benchmarks texts FOLDER --read 50         # sentences drawn by a seed, to be read

The texts are novels, a glossary, a handbook in several languages, manual pages and articles of Wikipedia. They come from
Debian's packages, by apt-get, dpkg-deb, man and the PyPI package rdata, and from gensim's wheel. Nothing of them is committed.
"""

import argparse
import gzip
import io
import os
import random
import re
import subprocess
import tempfile
import time
import warnings
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from functools import partial
from html.parser import HTMLParser
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

import bertprep
from benchmarks.data import EXCERPT
from bertprep.config import BY_RULES
from bertprep.sources.dump import read_dump
from bertprep.sources.readers import open_stream
from bertprep.sources.wiki.wikitext import to_prose
from bertprep.text.boundaries import SentenceSplitter
from bertprep.text.cleaning import write_lines
from bertprep.text.wrapping import Counts, find_paragraphs

PACKAGES = ("r-cran-janeaustenr", "jargon-text", "debian-handbook", "manpages-ja")
LANGUAGES = {"de": "de-DE", "fr": "fr-FR", "ru": "ru-RU", "zh": "zh-CN", "ja": "ja-JP", "ar": "ar-MA"}
SCRIPTS = {"ru": "[а-яё]", "zh": "[\u4e00-\u9fff]", "ja": "[\u3041-\u30ff\u4e00-\u9fff]", "ar": "[\u0620-\u064a]"}
"""What a translated line has at least once, where the script is not Latin."""
PUNKT = {"en": "english", "de": "german", "fr": "french", "ru": "russian"}
STRAY = re.compile(r"[)\]}”»」』）】、。，！？¹²³](?!\w)|[)\]}”」』）】、。，！？¹²³]|[\"'’»:;,!?] ")
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


@dataclass(frozen=True)
class Text:
    """A text: its documents, its language, and the size of a usual vocabulary for it."""

    name: str
    documents: Sequence[str]
    language: str = "en"
    vocabulary: int = 8000

    @property
    def size_bytes(self) -> int:
        return sum(len(document.encode()) for document in self.documents)


def read_texts(folder: Path) -> Iterator[Text]:
    """Yield the texts of the folder."""
    for path in sorted((folder / "austen").glob("*.txt")):
        yield Text(path.stem, [path.read_text(encoding="utf-8")])
    yield Text("jargon", [(folder / "jargon.txt").read_text(encoding="utf-8")])
    for language in LANGUAGES:
        pages = (folder / f"handbook.{language}.txt").read_text(encoding="utf-8").split("\n\n")
        yield Text(f"handbook, {language}", pages, language, 21_128 if language in ("zh", "ja") else 8000)
    manuals = [path.read_text(encoding="utf-8") for path in sorted((folder / "man.ja").glob("*.txt"))]
    yield Text("manual pages, ja", manuals, "ja", 21_128)
    if gensim := find_spec("gensim"):
        articles = [*read_articles(Path((gensim.submodule_search_locations or [""])[0], EXCERPT))]
        yield Text("Wikipedia, en", articles)


def read_articles(dump: Path) -> Iterator[str]:
    """Yield the cleaned articles of a dump that ends in the middle."""
    with open_stream(str(dump)) as file, suppress(bertprep.BertprepError):
        site, pages = read_dump(file, dump.name)
        for page in pages:
            if text := to_prose(page.wikitext, site):
                yield text


def find_headings(documents: Sequence[str]) -> list[str]:
    """Return the headings of documents: short lines without a mark at the end, alone between blank lines or between long ones.

    A longer line follows, which begins a paragraph.
    """
    found = []
    for document in documents:
        lines = [" ".join(line.split()) for line in document.split("\n")]
        is_page = max(map(len, lines)) > 200  # a line for each paragraph, without blank lines
        for index, line in enumerate(lines):
            is_alone = is_page or (index and not lines[index - 1] and index + 1 < len(lines) and not lines[index + 1])
            following = next(filter(None, lines[index + 1 : index + 5]), "")
            is_short = 2 < len(line) <= 80 and len(following) > len(line)
            if (
                is_alone
                and is_short
                and re.fullmatch(r"[^\W_a-zа-яё].*[^\W_]", line)
                and not re.search("[.!?。！？][ ”]", line[:-1])
            ):
                found.append(line)
    return found


def find_glued(headings: Sequence[str], sentences: Sequence[str]) -> list[str]:
    """Return the sentences that begin with a heading and go on."""
    known, starts = set(sentences), defaultdict(list)
    for sentence in sentences:
        starts[sentence[:12]].append(sentence)
    glued = []
    for heading in dict.fromkeys(headings):
        if heading not in known:
            at = starts[heading[:12]] if len(heading) >= 12 else [each for each in sentences if each.startswith(heading)]
            glued += [each for each in at if each.startswith(f"{heading} ")][:1]
    return glued


def find_stray(sentences: Sequence[str], lines: set[str]) -> list[str]:
    """Return the sentences that begin with a mark that belongs to the one before; a line may begin so by itself."""
    return [each for each in sentences if STRAY.match(each) and each[:8] not in lines]


def judge(text: Text, sentences: Sequence[Sequence[str]], folder: Path, examples: int) -> list[str]:
    """Return the columns of a text's row; print examples of what was counted."""
    flat = [each for document in sentences for each in document]
    path, vocab = folder / "sentences.txt", folder / "vocab.txt"
    path.write_text("".join("\n".join((*document, "", "")) for document in sentences), encoding="utf-8")
    vocab.unlink(missing_ok=True)
    with redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bertprep.train_vocabulary([path], output=vocab, size=text.vocabulary)
    encoded = BertWordPieceTokenizer(str(vocab), lowercase=True).encode_batch(flat, add_special_tokens=False)
    sizes = [len(each.ids) for each in encoded]
    beyond = sum(max(0, size - 125) for size in sizes)
    headings = find_headings(text.documents)
    glued = find_glued(headings, flat)
    lines = {" ".join(line.split())[:8] for document in text.documents for line in document.split("\n")}
    stray = find_stray(flat, lines)
    long = [sentence for sentence, size in zip(flat, sizes, strict=True) if size > 125]
    for kind, found in (("beyond 125 tokens", long), ("heading glued", glued), ("stray mark", stray)):
        for each in random.Random(1).sample(found, min(examples, len(found))):
            print(f"  {kind}: {each[:200]}")
    return [
        f"{len(flat):,}", f"{max(map(len, flat)):,}", f"{beyond / sum(sizes):.2%}",
        f"{len(glued) / max(1, len(set(headings))):.1%} of {len(set(headings)):,}", f"{len(stray) / len(flat):.2%}",
    ]  # fmt: skip


def measure(split: Callable[[], object], size_bytes: int, runs: int) -> float:
    """Return the MB of text that a function splits in a CPU-second, at best."""
    times = []
    for _ in range(runs):
        started = time.process_time()
        split()
        times.append(time.process_time() - started)
    return size_bytes / 1e6 / min(times)


def write(text: Text, lines: bytearray) -> None:
    """Add the lines that text shards have of a text."""
    write_lines(text.documents, BY_RULES, text.language, Counts(), lines.extend)


def split_all(text: Text) -> list[list[str]]:
    """Return the sentences of each document, as text shards have them."""
    lines = bytearray()
    write(text, lines)
    return [document.split("\n") for document in lines.decode().split("\n\n") if document]


def splitters(language: str) -> dict[str, Callable[[str], list[str]]]:
    """Return the splitters that can be imported: each takes a paragraph."""
    ours = SentenceSplitter(language)
    found: dict[str, Callable[[str], list[str]]] = {"bertprep": lambda paragraph: ours.split([paragraph])}
    plain = re.compile(r"(?<=[.!?。！？।؟])(?<!\b[A-Z]\.)[\"'”’»)\]]*\s+(?=[^a-z\s])|(?<=[。！？।])")
    found["a regular expression"] = lambda paragraph: [each for each in plain.split(paragraph) if each]
    if find_spec("sentencex"):
        from sentencex import segment

        found["sentencex"] = lambda paragraph: segment(language, paragraph)
    if find_spec("icu"):
        from icu import BreakIterator, Locale

        boundaries = BreakIterator.createSentenceInstance(Locale(language))

        def by_icu(paragraph: str) -> list[str]:
            boundaries.setText(paragraph)
            data = paragraph.encode("utf-16-le")  # its offsets are of UTF-16
            places = [0, *boundaries]
            return [data[2 * a : 2 * b].decode("utf-16-le") for a, b in pairwise(places)]

        found["ICU"] = by_icu
    if find_spec("punkt"):
        from punkt import sent_tokenize

        name = PUNKT.get(language)
        if name:
            found["Punkt"] = lambda paragraph: sent_tokenize(paragraph, language=name)
    if find_spec("blingfire"):
        from blingfire import text_to_sentences

        found["blingfire"] = lambda paragraph: text_to_sentences(paragraph).split("\n")
    return found


def split_each(split: Callable[[str], list[str]], documents: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the sentences of each document, whose paragraphs are split one by one."""
    return [[part.strip() for each in document for part in split(each) if part.strip()] for document in documents]


def compare(texts: Sequence[Text], folder: Path, runs: int) -> None:
    """Print a table of splitters, each on the paragraphs of each text."""
    print("| text | splitter | sentences | longest | tokens beyond 125 | headings glued | stray marks | MB a CPU-second |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for text in texts:
        paragraphs = [find_paragraphs(document, Counts()) for document in text.documents]
        for name, split in splitters(text.language).items():
            run = partial(split_each, split, paragraphs)

            if name == "bertprep":
                ours = SentenceSplitter(text.language)
                every = [each for document in paragraphs for each in (*document, "")]
                speed = measure(partial(ours.split, every), text.size_bytes, runs)
            else:
                speed = measure(run, text.size_bytes, 1)
            print(f"| {text.name} | {name} | {' | '.join(judge(text, run(), folder, 0))} | {speed:.1f} |", flush=True)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the texts are kept")
    parser.add_argument("--examples", type=int, default=0, help="how many of each kind to print")
    parser.add_argument("--only", default="", help="only texts whose name contains this")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the fastest counts")
    parser.add_argument("--read", type=int, default=0, help="print so many sentences of each text, and no table")
    parser.add_argument("--seed", type=int, default=1, help="of the sentences to read")
    parser.add_argument("--splitters", action="store_true", help="compare splitters on the same paragraphs")
    options = parser.parse_args()
    fetch(options.folder)
    texts = [text for text in read_texts(options.folder) if options.only in text.name]
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        if options.splitters:
            compare(texts, scratch, options.runs)
            return
        if not options.read:
            print("| text | sentences | longest | tokens beyond 125 | headings glued | stray marks | MB a CPU-second |")
            print("|---|---:|---:|---:|---:|---:|---:|")
        for text in texts:
            sentences = split_all(text)
            if options.read:
                flat = [each for document in sentences for each in document]
                print(f"\n== {text.name}", *random.Random(options.seed).sample(flat, options.read), sep="\n")
                continue
            speed = measure(partial(write, text, bytearray()), text.size_bytes, options.runs)
            print(
                f"| {text.name} | {' | '.join(judge(text, sentences, scratch, options.examples))} | {speed:.1f} |", flush=True
            )
    hanzi = "我们今天去了北京，看见了很多人。他说很好" * 25_000
    speed = measure(lambda: write(Text("", [hanzi], "zh"), bytearray()), len(hanzi.encode()), 1)
    print(f"\n{len(hanzi):,} Hanzi in one line: {len(hanzi.encode()) / 1e6 / speed:.2f} s")
