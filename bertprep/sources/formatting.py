"""Converts source files of any kind to cleaned plain text: one paragraph per line, a blank line after each document.

Text that cannot be read by seeking (compressed, Parquet, JSON Lines, a dump, behind a URL) is written out once, one text file
for each source file, in worker processes; the sharder then indexes these as any other text. Finished files are listed in a
journal, so a killed run resumes with the missing ones. A plain text file on disk is read in place.
"""

import json
import pickle
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bertprep import kernels, pool
from bertprep.errors import BertprepError
from bertprep.files.places import place
from bertprep.progress import Reporter
from bertprep.sources import readers
from bertprep.sources.dump import Page, SiteInfo, read_dump
from bertprep.sources.readers import is_local, open_stream
from bertprep.sources.wikitext import prose_of, to_prose
from bertprep.text.cleaning import Cleaner
from bertprep.text.documents import MOST_DOCUMENT_BYTES, TextInput
from bertprep.text.writing import text_file
from bertprep.workspace.layout import Workspace, formatted_text
from bertprep.workspace.manifest import CLEANED_TEXT, Manifest, read_manifest, versions_of
from bertprep.workspace.parts import FINISH, Part
from bertprep.workspace.receipts import find_finished, open_journal, unfinished
from bertprep.workspace.verification import remove_damaged

KIND = CLEANED_TEXT
MADE_WITH = {"rules": 1}
"""The version of the cleaning rules; the facts of each file identify its source."""
OWN_TEXT = {"own_text": True}
"""Marks, in a manifest, the user's own text under the name of a download, so that the two never mix."""
DUMP = "dump"
"""A Wikimedia dump, which has no entry in READERS: one process reads it for all workers."""
RULES = {DUMP: 2, "csv": 2, "tsv": 2}
"""The version of the rules of readers whose text has changed, so that theirs never mixes with that of an earlier version."""
BATCH_CHARACTERS = 8_000_000
MOST_TIMES_ITS_SIZE, ALWAYS_TAKEN = 2_000, 1 << 30
"""The characters of text that a file may hold: so many times its bytes, or the second number, whichever is more.

gzip shrinks nothing to less than 1/1,032, and logs, the most repetitive text there is, shrink to about 1/100. Other formats
make a terabyte of a few kilobytes, which would fill the disk.
"""
MIN_SENTENCES, MAX_SENTENCES = 500, 10_000
"""Of a book of BookCorpus: front matter has many lines on copyright, as may the end of a book."""
_FRONT_MATTER = re.compile(
    r"all rights reserved|smashwords edition|\bisbn\b|published (by|at) .*smashwords|copyright [\W\dc]{0,8}(19|20)\d\d"
)
Text = TypeVar("Text")


@dataclass(frozen=True)
class SourceFile:
    """A file whose cleaned text is wanted."""

    location: str  # a path or a URL
    reader: str  # one of READERS, or DUMP
    identity: dict[str, Any]  # its name, and a value that changes with its content
    field: str = "text"  # column or key that holds the text, if the reader needs one

    def facts(self) -> dict[str, Any]:
        """Everything that determines its cleaned text, apart from the rules."""
        rules = {"rules": RULES[self.reader]} if self.reader in RULES else {}
        return {**self.identity, "reader": self.reader, "field": self.field, **rules}


@dataclass(frozen=True)
class MemorySource(SourceFile):
    """Text from an object of the caller; this process reads it once, in order, for all workers."""

    texts: Callable[[], Iterable[str]] = tuple


def join_books(sentences: Iterable[str]) -> Iterator[str]:
    """Yield the books of BookCorpus, whose rows are lower-cased, tokenized sentences in the order of the books.

    Where a book begins is not marked, but nearly all open with lines on copyright and editions. A book without them is appended
    to the one before, up to `MAX_SENTENCES`; the mean book has 6,700.
    """
    book: list[str] = []
    characters = 0
    for sentence in sentences:
        begins = len(book) >= MIN_SENTENCES and _FRONT_MATTER.search(sentence)
        if begins or len(book) >= MAX_SENTENCES or characters > MOST_DOCUMENT_BYTES // 2:
            yield "\n".join(book)
            book, characters = [], 0
        book.append(sentence)
        characters += len(sentence)
    if book:
        yield "\n".join(book)


READERS: dict[str, Callable[[SourceFile], Iterable[str]]] = {
    "text": lambda source: readers.read_text(source.location),
    "whole": lambda source: readers.read_text(source.location, one_document=True),
    "json lines": lambda source: readers.read_json_lines(source.location, source.field),
    "parquet": lambda source: readers.read_parquet(source.location, source.field),
    "arrow": lambda source: readers.read_arrow(source.location, source.field),
    "csv": lambda source: readers.read_table(source.location, source.field, ","),
    "tsv": lambda source: readers.read_table(source.location, source.field, "\t"),
    "wikipedia": lambda source: map(prose_of, readers.read_parquet(source.location, source.field)),
    "bookcorpus": lambda source: join_books(readers.read_parquet(source.location, source.field)),
}
SPLITTERS = {"bookcorpus": "lines"}
"""The splitter by reader, for readers whose lines are known to be sentences."""


@dataclass(frozen=True)
class FormattedText:
    """The sharder's input: files of plain text, and the number of empty documents that were dropped from them."""

    inputs: list[TextInput]
    empty: int


@dataclass(frozen=True)
class FileTask:
    """A worker's task: the cleaned text of one source file."""

    path: Path
    number: int  # of the source file
    source: SourceFile

    def documents(self) -> Iterable[str]:
        return _bounded(READERS[self.source.reader](self.source), len, self.source)


@dataclass(frozen=True)
class PagesTask:
    """A worker's task: some pages of a dump, which one process reads sequentially while the workers clean."""

    path: Path
    number: int
    pages: list[Page]
    site: SiteInfo

    def documents(self) -> Iterable[str]:
        return (to_prose(page.wikitext, self.site) for page in self.pages)


@dataclass(frozen=True)
class TextsTask:
    """A worker's task: some texts of a `MemorySource`; the pool's own pickling of many strings takes six times as long."""

    path: Path
    number: int
    pickled: bytes

    def documents(self) -> Iterable[str]:
        texts: list[str] = pickle.loads(self.pickled)
        return texts


Task = FileTask | PagesTask | TextsTask


def format_corpus(
    workspace: Workspace,
    corpus: str,
    sources: Sequence[TextInput | SourceFile],
    *,
    about: dict[str, Any] | None = None,
    workers: int,
    verify: bool = False,
    part: Part | None = None,
    reporter: Reporter,
) -> FormattedText:
    """Write the cleaned text of the `sources` that are not plain text; returns plain text for all, in their order.

    All of it is needed to go on. So a `part` makes its own files, and then, rather than wait, what others have not made yet.

    Text of changed sources is rewritten, and with `verify` text whose own sha256 has changed. `about` goes into the manifest.
    Raises `BertprepError` if the folder was made with other settings or a source cannot be read.
    """
    numbered = {number: source for number, source in enumerate(sources) if isinstance(source, SourceFile)}
    if not numbered:
        return FormattedText([source for source in sources if isinstance(source, TextInput)], 0)
    folder = workspace.formatted(corpus)
    made_with = {**MADE_WITH, **(about or {})}
    manifest = find_finished(folder, KIND, made_with)
    if verify:
        journal = open_journal(folder, KIND, made_with)
        if remove_damaged(manifest, journal, label=KIND, workers=workers, reporter=reporter):
            manifest = None
    if manifest is None or not _is_of(manifest, numbered):
        manifest = _format(folder, corpus, numbered, made_with, workers, part, reporter)
    written = _inputs_by_source(folder, manifest)
    inputs = [[source] if isinstance(source, TextInput) else written[number] for number, source in enumerate(sources)]
    return FormattedText([given for of_source in inputs for given in of_source], _sum_empty(manifest))


def _is_of(manifest: Manifest, sources: dict[int, SourceFile]) -> bool:
    """Whether finished text was made from these sources in their present state."""
    found = {(facts["source"], json.dumps(facts["made_of"])) for facts in manifest.files.values()}
    return found == {(number, json.dumps(source.facts())) for number, source in sources.items()}


def find_formatted(workspace: Workspace, corpus: str) -> FormattedText | None:
    """The finished cleaned text of a download whose files have been removed."""
    folder = workspace.formatted(corpus)
    manifest = read_manifest(folder)
    if manifest is None or manifest.kind != KIND or manifest.made_with.items() >= OWN_TEXT.items():
        return None
    written = _inputs_by_source(folder, manifest)
    return FormattedText([given for number in sorted(written) for given in written[number]], _sum_empty(manifest))


def _inputs_by_source(folder: Path, manifest: Manifest) -> dict[int, list[TextInput]]:
    inputs: dict[int, list[TextInput]] = defaultdict(list)
    for name, facts in sorted(manifest.files.items()):
        inputs[facts["source"]].append(TextInput(folder / name, splitter=facts.get("splitter")))
    return inputs


def _sum_empty(manifest: Manifest) -> int:
    return sum(facts["empty"] for facts in manifest.files.values())


def _format(
    folder: Path,
    corpus: str,
    sources: dict[int, SourceFile],
    made_with: dict[str, Any],
    workers: int,
    part: Part | None,
    reporter: Reporter,
) -> Manifest:
    with open_journal(folder, KIND, made_with, part=part, wait=True) as journal:
        if journal.found and _is_of(journal.found, sources):
            return journal.found
        kernels.load()  # for all workers
        journal.look()
        number_of: dict[str, int] = {}  # of the source of each file

        def is_made(name: str) -> bool:
            facts = journal.done.get(name, {})
            number = number_of[name]
            return (facts.get("source"), facts.get("made_of")) == (number, sources[number].facts())

        def missing() -> list[str]:
            return journal.missing(number_of) or [name for name in number_of if not is_made(name)]

        def own() -> Iterator[tuple[str, Task]]:
            for index, (label, task) in enumerate(read_tasks(sources, folder, corpus)):
                number_of[task.path.name] = task.number
                if (part is None or part.has(index)) and not is_made(task.path.name):
                    yield label, task

        def others(part: Part, absent: Collection[str]) -> Iterator[tuple[str, Task]]:
            first = len(sources) * part.index // part.count  # so that parts begin at different ones
            for label, task in read_tasks({number: sources[number] for number in _rotated(sources, first)}, folder, corpus):
                if task.path.name in absent and not journal.is_noted(task.path.name):
                    yield label, task

        def make(tasks: Iterator[tuple[str, Task]]) -> None:
            with (
                reporter.progress(f"clean {corpus}", None if part or _has_parts(sources) else len(sources), "files") as shown,
                closing(pool.run(write_text, tasks, workers=workers)) as results,
            ):
                for _, (name, facts) in results:
                    journal.add(name, {**facts, "made_of": sources[facts["source"]].facts()})
                    shown.advance(documents=facts["documents"], MB_of_text=facts["bytes"] / 1e6)

        make(own())
        if (absent := missing()) and part and part != FINISH:
            reporter.say(f"{folder}: {len(absent):,} of {len(number_of):,} files are still missing; part {part} makes them too")
            make(others(part, set(absent)))
            absent = missing()
        if absent:
            return unfinished(journal, number_of, absent, None, reporter)
        for name in journal.done.keys() - number_of.keys():  # of sources that the corpus no longer has
            (folder / name).unlink(missing_ok=True)
        return journal.finish(number_of, versions_of())


def _rotated(sources: dict[int, SourceFile], first: int) -> list[int]:
    numbers = list(sources)
    return numbers[first:] + numbers[:first]


def _has_parts(sources: dict[int, SourceFile]) -> bool:
    """Whether the text of a source is written to several files."""
    return any(source.reader == DUMP or isinstance(source, MemorySource) for source in sources.values())


def read_tasks(sources: Mapping[int, SourceFile], folder: Path = Path(), corpus: str = "") -> Iterator[tuple[str, Task]]:
    """A task for each source or part of one, and its label; its text is meant for a file of `corpus` in `folder`."""
    for number, source in sources.items():
        if isinstance(source, MemorySource):
            for part, texts in enumerate(_batches(source.texts(), lambda text: len(text) + 1)):
                yield source.location, TextsTask(folder / formatted_text(corpus, number, part), number, pickle.dumps(texts))
            continue
        if source.reader != DUMP:
            yield source.location, FileTask(folder / formatted_text(corpus, number), number, source)
            continue
        with open_stream(source.location) as file:
            site, articles = read_dump(file, source.location)
            bounded = _bounded(articles, lambda page: len(page.wikitext), source)
            for part, pages in enumerate(_batches(bounded, lambda page: len(page.wikitext))):
                label = f"{source.location}, articles from {pages[0].title!r} on"
                yield label, PagesTask(folder / formatted_text(corpus, number, part), number, pages, site)


def _bounded(texts: Iterable[Text], count: Callable[[Text], int], source: SourceFile) -> Iterator[Text]:
    """The texts of a file, as long as they are not more than a file of its size may hold."""
    size = place(source.location).stat().st_size if is_local(source.location) else source.identity.get("bytes")
    most = max(MOST_TIMES_ITS_SIZE * size, ALWAYS_TAKEN) if size is not None else float("inf")
    characters = 0
    for text in texts:
        characters += count(text)
        if characters > most:
            raise BertprepError(
                f"{source.location}: has {size:,} bytes and more than {most:,} characters of text, as only files made to fill "
                "a disk have; if it is what you want, write it as plain text, and give that"
            )
        yield text


def _batches(texts: Iterable[Text], count: Callable[[Text], int]) -> Iterator[list[Text]]:
    """Pages or texts in batches of about `BATCH_CHARACTERS` each, as `count` counts them."""
    batch: list[Text] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += count(text)
        if characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def write_text(task: Task) -> tuple[str, dict[str, Any]]:
    """Write the cleaned text of a task; returns the file's name and its facts for the manifest."""
    with text_file(task.path) as file:
        cleaner = Cleaner(file)
        for text in task.documents():
            cleaner.add(text)
        cleaner.flush()
    facts: dict[str, Any] = {"source": task.number, "documents": cleaner.documents, "empty": cleaner.empty, **file.facts()}
    if isinstance(task, FileTask) and (splitter := SPLITTERS.get(task.source.reader)):
        facts["splitter"] = splitter
    return task.path.name, facts
