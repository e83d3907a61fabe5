"""The documents of a source: a file, text in memory, or a Wikimedia dump.

Several workers share a plain text file, a chunk each; any other file is read by one worker. Only one process can read a dump or
text in memory, so that process first copies it to an Arrow file for the workers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.files.checksums import BLAKE3, SHA256, new_hash
from bertprep.files.hashed import HashedFile
from bertprep.files.paths import as_path
from bertprep.sources import readers
from bertprep.sources.fields import batch_texts, find_columns
from bertprep.sources.joined_rows import join_rows, read_keys
from bertprep.sources.kinds import ARROW, CSV, DOC_TAGS, DUMP, JSON_LINES, PARQUET, TEXT, TSV
from bertprep.sources.plain_text import MAX_DOCUMENT_BYTES
from bertprep.sources.readers import is_local, open_raw, open_stream
from bertprep.work.layout import TRAINING

if TYPE_CHECKING:
    from bertprep.sources.wiki.paragraphs import Removed

MEMORY, WHOLE, WIKIPEDIA = "memory", "whole", "wikipedia"
BATCH_TEXT_BYTES = 8_000_000
MAX_EXPANSION, ALWAYS_TAKEN = 2_000, 1 << 30
"""The limit on the characters of a file: `MAX_EXPANSION` times its bytes, but at least `ALWAYS_TAKEN`.

gzip shrinks nothing to less than 1/1,032 of its size, and even logs, which repeat themselves most, shrink to about 1/100. Some
other formats expand a few kilobytes to a terabyte, which would fill the disk.
"""
MIN_SENTENCES, MAX_SENTENCES = 500, 10_000
"""The limits on the sentences of a book in BookCorpus.

There is a minimum because a book may have copyright lines both in its front matter and at its end.
"""
_FRONT_MATTER = re.compile(
    r"all rights reserved|smashwords edition|\bisbn\b|published (by|at) .*smashwords|copyright [\W\dc]{0,8}(19|20)\d\d"
)


@dataclass(frozen=True)
class Source:
    """A file, or text in memory, and how to read its documents."""

    location: str  # a path or a URL
    reader: str  # one of READERS, WIKIPEDIA, DUMP or MEMORY
    identity: dict[str, Any]  # its name, and a value that changes with its content
    field: str = "text"  # column or key that holds the text, if the reader needs one
    texts: Callable[[], Iterable[str]] = tuple  # for MEMORY: yields the texts in order, in one process
    is_read_once: bool = False  # for MEMORY: it is a stream, which may not begin again
    split: str = TRAINING  # or TEST, if the user gives the test documents
    words: str | None = None  # column or key that holds the words of each text
    words_in_memory: Callable[[], Iterable[Any]] = tuple  # for MEMORY: yields the values of that column
    joined_by: str | None = None  # column or key whose value is the same in all rows of a document

    @property
    def is_plain(self) -> bool:
        """Whether it is uncompressed plain text, which several workers can read in pieces. It has no identity yet."""
        return self.reader in (TEXT, WHOLE) and not self.identity

    @property
    def is_stream(self) -> bool:
        """Whether only one process can read it, from beginning to end."""
        return self.reader in (DUMP, MEMORY)

    @property
    def is_known(self) -> bool:
        return self.reader != MEMORY or self._has_checksum

    @property
    def _has_checksum(self) -> bool:
        """Whether its identity has a checksum of its content: its BLAKE3, or the sha256 that the Hub publishes."""
        return BLAKE3 in self.identity or SHA256 in self.identity

    def metadata(self) -> dict[str, Any]:
        """Return the values that determine its documents. The name is one of them only if there is no checksum."""
        known = {key: value for key, value in self.identity.items() if key != "name" or not self._has_checksum}
        if self.is_plain:
            return known | ({"one_document": True} if self.reader == WHOLE else {})
        words = {} if self.words is None else {"words": self.words}
        joined = {} if self.joined_by is None else {"joined_by": self.joined_by}
        return {**known, "reader": self.reader, "field": self.field, **words, **joined}

    def languages(self) -> list[str]:
        """Return the codes that a dump has for its language, its xml:lang first; [] for any other source."""
        if self.reader != DUMP:
            return []
        from bertprep.sources.dump import read_languages

        with open_stream(self.location) as file:
            return read_languages(file, self.location)

    def documents(self, removed: Removed | None = None) -> Iterable[str]:
        """Yield all documents, empty ones too. They are unchanged, except that BookCorpus is joined and Wikipedia cleaned.

        What cleaning removes is counted in `removed`.
        """
        if self.reader == WIKIPEDIA:
            from bertprep.sources.wiki.paragraphs import Removed, clean_articles

            return _bounded(clean_articles(_read_articles(self), Removed() if removed is None else removed), self)
        texts = READERS[self.reader](self)
        if self.joined_by is not None:
            texts = join_rows(texts, read_keys(self.location, self.reader, self.joined_by), self.location)
        return _bounded(texts, self)


@dataclass(frozen=True)
class Batch:
    """One batch of an Arrow file that `copy_stream` wrote."""

    path: Path
    index: int

    def documents(self, removed: Removed | None = None) -> Iterator[str]:
        """Yield its documents. If they are articles of a dump, their wikitext is converted to prose.

        What the conversion removes is counted in `removed`.
        """
        import pyarrow as pa

        from bertprep.sources.dump import SiteInfo  # imported here because other sources need neither of the two
        from bertprep.sources.wiki.wikitext import to_prose

        with open_raw(str(self.path)) as raw, pa.ipc.open_file(pa.PythonFile(raw, mode="r")) as reader:
            names = json.loads((reader.schema.metadata or {}).get(b"namespaces", b"null"))
            texts = (value.as_py().decode() for value in reader.get_batch(self.index).column(0))
            if names is None:
                yield from texts
                return
            site = SiteInfo(*map(frozenset, names))
            yield from (to_prose(text, site, removed) for text in texts)


def copy_stream(source: Source, path: Path) -> dict[str, Any]:
    """Copy the texts of a dump or a source in memory to an Arrow file; return the manifest entry of the file.

    A batch has about `BATCH_TEXT_BYTES` of text.
    """
    import pyarrow as pa

    documents = batches = 0
    content = new_hash()
    with ExitStack() as stack:
        metadata, texts, skipped = _open_stream(source, stack)
        file = stack.enter_context(atomic_file(path))
        copy = HashedFile(file)
        schema = pa.schema([pa.field("text", pa.binary())], metadata)
        with pa.ipc.new_file(copy, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            for batch in in_batches(texts, BATCH_TEXT_BYTES):
                writer.write_batch(pa.record_batch([pa.array(batch, pa.binary())], schema=schema))
                batches += 1
                documents += len(batch)
                content.update(b"".join(b"%d:%b" % (len(text), text) for text in batch))
        blake3 = copy.finish()
    sizes = {"documents": documents, "batches": batches, "bytes": file.size_bytes}
    return {**sizes, BLAKE3: blake3, "content": content.hexdigest(), **skipped}


def _open_stream(source: Source, stack: ExitStack) -> tuple[dict[str, str] | None, Iterator[str], Mapping[str, int]]:
    """Return the namespaces that cleaning a wiki needs, the texts, and counts of skipped pages, which grow during reading."""
    if source.reader == MEMORY:
        return None, iter(source.texts()), {}
    from bertprep.sources.dump import read_dump

    site, articles = read_dump(stack.enter_context(open_stream(source.location)), source.location)
    names = [sorted(site.file_namespaces), sorted(site.category_namespaces)]
    return {"namespaces": json.dumps(names)}, _bounded((page.wikitext for page in articles), source), articles.skipped


def in_batches(texts: Iterable[str], size_bytes: int) -> Iterator[list[bytes]]:
    """Yield the texts as UTF-8, in batches of about `size_bytes`. A lone surrogate from JSON becomes a question mark."""
    batch: list[bytes] = []
    filled = 0
    for text in texts:
        batch.append(text.encode(errors="replace"))
        filled += len(batch[-1]) + 1
        if filled >= size_bytes:
            yield batch
            batch, filled = [], 0
    if batch:
        yield batch


def join_books(sentences: Iterable[str]) -> Iterator[str]:
    """Yield the books of BookCorpus, whose rows are sentences in the order of the books.

    A book begins with its lines on copyright and editions. A book without such lines is joined to the previous one, up to
    `MAX_SENTENCES`.
    """
    book: list[str] = []
    characters = 0
    for sentence in sentences:
        begins = len(book) >= MIN_SENTENCES and _FRONT_MATTER.search(sentence)
        if begins or len(book) >= MAX_SENTENCES or characters > MAX_DOCUMENT_BYTES // 2:
            yield "\n".join(book)
            book, characters = [], 0
        book.append(sentence)
        characters += len(sentence)
    if book:
        yield "\n".join(book)


_TITLE = "title"  # the column with the titles of the Hub's extraction
READERS: dict[str, Callable[[Source], Iterable[str]]] = {
    TEXT: lambda source: readers.read_text(source.location),
    WHOLE: lambda source: readers.read_text(source.location, one_document=True),
    JSON_LINES: lambda source: readers.read_json_lines(source.location, source.field),
    PARQUET: lambda source: readers.read_parquet(source.location, source.field),
    ARROW: lambda source: readers.read_arrow(source.location, source.field),
    CSV: lambda source: readers.read_table(source.location, source.field, ","),
    TSV: lambda source: readers.read_table(source.location, source.field, "\t"),
    DOC_TAGS: lambda source: readers.read_doc_tags(source.location),
    "bookcorpus": lambda source: join_books(readers.read_parquet(source.location, source.field)),
}
SPLITTERS = {"bookcorpus": "lines"}
"""Reader -> sentence splitter, for readers whose lines are known to be sentences."""


def _read_articles(source: Source) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each article of the Hub's extraction; the title is "" if a file has no titles."""

    def find(schema: Any) -> list[str]:
        titles = [_TITLE] if _TITLE in schema.names else []
        return [*titles, *find_columns(schema, source.field, source.location)]

    with readers.parquet_batches(source.location, find) as (names, batches):
        has_titles = names[0] == _TITLE and len(names) > 1
        columns = names[1:] if has_titles else names
        for batch in batches:
            texts = batch_texts([batch], columns, source.field, source.location)
            titles = batch.column(_TITLE).to_pylist() if has_titles else [""] * len(batch)
            yield from ((title or "", text) for title, text in zip(titles, texts, strict=True))


def _bounded(texts: Iterable[str], source: Source) -> Iterator[str]:
    size = as_path(source.location).stat().st_size if is_local(source.location) else source.identity.get("bytes")
    most = max(MAX_EXPANSION * size, ALWAYS_TAKEN) if size is not None else float("inf")
    characters = 0
    for text in texts:
        characters += len(text)
        if characters > most:
            raise BertprepError(
                f"{source.location}: has {size:,} bytes and more than {most:,} characters of text, which suggests a file made "
                "to fill the disk; if the text is really that long, give it as plain text"
            )
        yield text
