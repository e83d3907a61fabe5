"""Tokenizes documents of any source into token shards: a shard for each text shard, large file or group of small files.

Documents are read as a stream, so only a few batches of them are in memory. The library `tokenizers` has threads of its own, so
a machine makes one shard after another.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep import kernels
from bertprep.errors import BertprepError, UsageError, reading
from bertprep.files.paths import HEAD_BYTES, as_path, open_head
from bertprep.instances.document_tokenizer import (
    MANY_LONG_WORDS,
    MAX_WORD_TOKENS,
    Documents,
    DocumentTokenizer,
    share_in_long_words,
)
from bertprep.instances.vocabulary import MANY_UNKNOWN
from bertprep.progress import Reporter
from bertprep.sources.documents import WHOLE, Source
from bertprep.sources.kinds import TEXT
from bertprep.sources.plain_text import FIELD_GAP, TextFile, version_of
from bertprep.sources.word_columns import read_words, word_starts
from bertprep.terminal import counted, warn
from bertprep.text.padding import FIRST_FILES
from bertprep.text.shards import hash_files, identify, identify_split
from bertprep.text.summary import report_token_shards
from bertprep.tokens.make import Texts
from bertprep.tokens.shard import BIN, DOCUMENT_FILES, write_token_shard
from bertprep.work.layout import SPLITS, TEST, TRAINING, token_shard_name
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.made import Made
from bertprep.work.manifest import TOKEN_SHARDS, UNCOVERED, versions_of
from bertprep.work.run import Job, Maker, Task
from bertprep.work.text_identity import check_text, identify_text, text_entry

_BATCH_CHARACTERS = 1 << 20  # these take about 100 MB in `tokenizers`
_AT_ONCE = 2  # batches, so that the threads of `tokenizers` have work while Python copies
_TASK_BYTES = 64_000_000  # the size of the source files that make up a shard
_BLANK_BYTES = 1024  # larger files are not checked for being blank
_MANY_LINES = 50  # if so many lines have no blank one between them, each may be meant as a document
_THREADS = "RAYON_NUM_THREADS"
IN_TEST = "in_test"
"""The manifest's key for the number of documents left out of a token shard because the test split has them."""
_FIRST_DOCUMENTS, _FIRST_CHARACTERS = 16, 4096  # the text in which unknown tokens are counted


Row = tuple[str, NDArray[np.int64] | None]
"""A document and, if a column has its words, the character offsets at which they start."""


@dataclass(frozen=True)
class SourceText:
    """A source of documents: a `file` that was hashed, or a text shard of the workspace with its manifest entry `expected`."""

    source: Source
    expected: Entry | None = None
    file: TextFile | None = None

    @property
    def size_bytes(self) -> int:
        """The size in bytes; if it is unknown, `_TASK_BYTES`, so that the source becomes a shard by itself."""
        return self.file.size_bytes if self.file else self.source.identity.get("bytes") or _TASK_BYTES

    @property
    def is_blank(self) -> bool:
        """Whether this is a small file with only white space."""
        return self.file is not None and self.size_bytes <= _BLANK_BYTES and not self.file.path.read_bytes().strip()

    def unchanged_documents(self) -> Iterable[str]:
        """Return the documents as the source has them; raise `BertprepError` if the file was changed since it was hashed."""
        if self.file:
            with reading(self.file.path):
                is_as_hashed = version_of(self.file.path) == self.file.version
            if not is_as_hashed:
                raise BertprepError(f"{self.file.path}: was changed since the start of the run; run the command again")
        return self.source.documents()

    def documents(self) -> Iterator[str]:
        """Yield the documents, without a line end after plain text.

        The sentences of a text shard are joined by spaces, and the fields of a row by a blank line.
        """
        for text in self.unchanged_documents():
            if self.expected is not None:
                yield " ".join(text.split("\n")).strip(" ")
            else:
                yield text.rstrip("\r\n") if self.source.reader in (TEXT, WHOLE) else text.replace(FIELD_GAP, "\n\n")

    def rows(self) -> Iterator[Row]:
        """Yield each document and, if a column has its words, the character offsets at which they start."""
        if self.source.words is None:
            yield from ((text, None) for text in self.documents())
            return
        for text, (where, words) in zip(self.documents(), read_words(self.source), strict=True):
            yield text, word_starts(words, text, where)


@dataclass(frozen=True)
class DocumentShard:
    """The texts that make up one token shard; `number` is its index in the split.

    `chosen` (documents,) says which documents of the texts are in the shard, by default all.
    """

    split: str
    number: int
    texts: Sequence[SourceText]
    chosen: NDArray[np.bool_] | None = None

    @property
    def name(self) -> str:
        """The location of the first text, or the split if the texts are gone."""
        return self.texts[0].source.location if self.texts else f"{self.split} {self.number:,}"

    @property
    def size_bytes(self) -> int:
        """The size of the texts in bytes."""
        return sum(text.size_bytes for text in self.texts)


@dataclass(frozen=True)
class DocumentShards:
    """The token shards of a corpus, each with its texts; `made_from` describes the texts in the manifest.

    `is_split_by_hash` if the test split was chosen by hashes (`text.held_out`).
    """

    corpus: str
    shards: Sequence[DocumentShard]
    made_from: dict[str, Any]
    is_of_workspace: bool = False
    advice: str = "choose another --output"
    is_split_by_hash: bool = False

    @property
    def has_splits(self) -> bool:
        """Whether each split has a folder of its own."""
        return self.is_of_workspace or any(shard.split == TEST for shard in self.shards)

    @property
    def given_test(self) -> Sequence[SourceText]:
        """The texts that the user gave as the test split; their documents are left out of training."""
        if self.is_of_workspace or self.is_split_by_hash:
            return []
        return [text for each in self.shards if each.split == TEST for text in each.texts]

    def report(self, made: Made, reporter: Reporter) -> None:
        """Report the token shards made from the user's files."""
        texts = [*{text.source.location: text for shard in self.shards for text in shard.texts}.values()]
        documents = sum(entry["documents"] for entry in made.manifest.files.values() if "documents" in entry)
        first = (document for text in texts[:FIRST_FILES] for document in text.documents())
        report_token_shards(reporter, counted(len(texts), "file"), documents, first)
        if in_test := sum(entry.get(IN_TEST, 0) for entry in made.manifest.files.values()):
            warn(f"{counted(in_test, 'document')} left out of the training split, because --test-input has them too")


def shards_of_corpus(texts: Texts) -> DocumentShards:
    """Return a token shard for each text shard of a corpus of the workspace."""
    shards = [
        DocumentShard(shard.split, shard.number, [SourceText(Source(str(shard.path), TEXT, {}), shard.expected)])
        for shard in texts.shards
    ]
    return DocumentShards(texts.corpus, shards, texts.made_from, is_of_workspace=True, advice=texts.advice)


def hash_sources(sources: Sequence[Source], corpus: str, workers: int, reporter: Reporter) -> dict[str, TextFile]:
    """Read all plain text files to hash them, and return them by location; raise `UsageError` if a source is not a file."""
    for source in sources:
        if source.is_stream:
            raise UsageError(
                f"{source.location}: cannot be tokenized directly; first make text shards of it with bertprep shard, then "
                "run bertprep tokenize --tokenizer --corpus NAME"
            )
    return hash_files(sources, corpus, workers, reporter)


def shards_of_sources(sources: Sequence[Source], files: Mapping[str, TextFile], corpus: str) -> DocumentShards:
    """Return a token shard for each large file or group of small files; `files` is from `hash_sources`.

    Raises `BertprepError` if all files are blank.
    """
    test_inputs = identify_split(sources, files, TEST)
    made_from = {"inputs": identify_split(sources, files, TRAINING)}
    if test_inputs:
        made_from["test_inputs"] = test_inputs
    texts: dict[str, list[SourceText]] = {split: [] for split in SPLITS}
    for source in sources:
        if source.split == TEST or identify(source, files) not in test_inputs:
            texts[source.split].append(SourceText(source, file=files.get(source.location)))
    if not texts[TRAINING]:
        raise UsageError("--test-input: contains all of --input, which leaves nothing to train on; give a different test text")
    groups = {split: _group(_leave_out_blank(of_split)) for split, of_split in texts.items() if of_split}
    shards = [DocumentShard(split, number, group) for split in groups for number, group in enumerate(groups[split])]
    return DocumentShards(corpus, shards, {**made_from, "shards": len(groups[TRAINING])})


def uncovered_warnings(made: Made) -> list[str]:
    """Return a warning if characters of the text have no token."""
    uncovered = sum(entry.get(UNCOVERED, 0) for entry in made.manifest.files.values())
    if not uncovered:
        return []
    return [
        f"{counted(uncovered, 'character')} of the text left out, since this tokenizer has neither a token for them nor an "
        "unknown token; add them or an unknown token to the tokenizer, or use another one"
    ]


def settings_of(tokenizer: DocumentTokenizer, corpus: str, made_from: Mapping[str, Any], eod: int | None) -> dict[str, Any]:
    """Return the settings of token shards for their manifest."""
    of_eod = {} if eod is None else {"eod": eod}
    return {"tokenizer": tokenizer.info.made_with, "corpus": corpus, **of_eod, **made_from}


def document_job(
    tokenizer: DocumentTokenizer,
    documents: DocumentShards,
    folder: Path,
    *,
    threads: int | None = None,
    eod: int | None = None,
) -> Job:
    """Return the job that makes token shards from documents; a corpus with several splits gets a folder for each.

    If `eod` is given, this token id is added after each document.
    """
    ledger = Ledger(
        folder=folder,
        kind=TOKEN_SHARDS,
        made_with=settings_of(tokenizer, documents.corpus, documents.made_from, eod),
        versions=versions_of("llvmlite", "numpy", "tokenizers"),
        copies=tokenizer.files(),
        advice=documents.advice,
    )
    tasks = []
    for shard in documents.shards:
        prefix = f"{shard.split}/" if documents.has_splits else ""
        names = {end: prefix + token_shard_name(shard.split, documents.corpus, shard.number, end) for end in DOCUMENT_FILES}
        tasks.append(Task(shard.name, names, shard))
    maker = DocumentMaker(tokenizer=tokenizer, threads=threads, test=documents.given_test, eod=eod)
    return Job(maker, dict.fromkeys(DOCUMENT_FILES, ledger), tasks)


@dataclass(frozen=True, kw_only=True)
class DocumentMaker(Maker):
    """Makes one token shard after another. `tokenizers` uses `threads` threads, by default one per CPU.

    Training documents that the `test` texts have too are left out, so the 64-bit hashes of all test documents are in memory.
    If `eod` is given, this token id is added after each document.
    """

    tokenizer: DocumentTokenizer
    threads: int | None = None
    test: Sequence[SourceText] = ()
    eod: int | None = None
    label = "tokenize"

    @cached_property
    def test_hashes(self) -> frozenset[int]:
        return frozenset(_hash(document) for text in self.test for document in text.documents())

    def prepare(self) -> None:
        kernels.load()
        _ = self.test_hashes

    def warnings(self, todo: Sequence[Task]) -> Iterator[str]:
        texts: Sequence[SourceText] = todo[0].argument.texts
        text = texts[0]
        first = [_cut(row) for row in islice(text.rows(), _FIRST_DOCUMENTS)]
        with self._limited_threads():
            tokens, _, begins_word, uncovered = self._encode_batch(first)
        unknown = float(np.mean(tokens == self.tokenizer.info.unk)) if len(tokens) else 0.0
        if unknown > MANY_UNKNOWN:
            yield (
                f"{unknown:.0%} of the first tokens of {text.source.location} are unknown: "
                f"the tokenizer {self.tokenizer.path} does not fit this text"
            )
        if uncovered > MANY_UNKNOWN * sum(len(document) for document, _ in first):
            yield (
                f"{uncovered / sum(len(document) for document, _ in first):.0%} of the first characters of "
                f"{text.source.location} are left out, since {self.tokenizer.path} has neither a token for them nor an unknown "
                "token: the tokenizer does not fit this text"
            )
        if (share := share_in_long_words(begins_word)) > MANY_LONG_WORDS:
            yield (
                f"{self.label}: {share:.0%} of the first tokens of {text.source.location} are in words of more than "
                f"{MAX_WORD_TOKENS} tokens, as found by the rule {self.tokenizer.info.words}: masks of whole words and spans "
                "mask these words token by token"
            )
        if found := next((path for path in _plain_text(texts[:FIRST_FILES]) if _has_many_lines(path)), None):
            yield (
                f"the first {_MANY_LINES} lines of {found} are read as one document, as no blank line separates them; if each "
                'line is a document, write them as JSON Lines, {"text": "..."} on each line, to a file that ends in .jsonl'
            )

    def make(self, argument: DocumentShard, paths: Mapping[str, Path]) -> dict[str, Entry]:
        made_of = self._check_shard(argument.texts[0])
        documents_of = _Documents(argument, self.test_hashes if argument.split == TRAINING else frozenset())
        uncovered = 0
        with self._limited_threads(), write_token_shard(paths, width=self.tokenizer.info.width) as writer:
            for documents in self._encode(documents_of):
                if self.eod is not None:
                    documents = documents.ended_by(self.eod)
                writer.add(documents.tokens, documents.lengths, begins_word=documents.begins_word)
                uncovered += documents.uncovered
            if not writer.documents:
                others = len(argument.texts) - 1
                names = argument.name + (f" and the {others:,} after it" if others else "")
                why = " that is not in --test-input too" if documents_of.in_test else ""
                advice = "leave these files out"
                if uncovered:
                    why += f": {self.tokenizer.path} has no token for any of its {counted(uncovered, 'character')}"
                    advice = "name a tokenizer that was trained on such text"
                raise BertprepError(f"{names}: no document with a token{why}; {advice}")
        counts = {"documents": writer.documents, "tokens": writer.tokens}
        if uncovered:
            counts[UNCOVERED] = uncovered
        if self.test:
            counts[IN_TEST] = documents_of.in_test
        return {end: {**(counts if end == BIN else {}), **entry, **made_of} for end, entry in writer.entries.items()}

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {each: sum(entry.get(each, 0) for entry in entries) for each in ("documents", "tokens")}

    def _check_shard(self, text: SourceText) -> dict[str, Any]:
        """Return the identity of a text shard for the manifest; files given with --input are in `made_with` instead."""
        if text.expected is None:
            return {}
        path = as_path(text.source.location)
        check_text(path, text.expected, found := text_entry(path.name, *identify_text(path)))
        return {"text": found}

    @contextmanager
    def _limited_threads(self) -> Iterator[None]:
        """Limit the threads of `tokenizers`, which reads $RAYON_NUM_THREADS when a process encodes its first batch."""
        before = os.environ.get(_THREADS)
        try:
            if self.threads:
                os.environ[_THREADS] = str(self.threads)
            yield
        finally:
            if before is not None:
                os.environ[_THREADS] = before
            elif self.threads:
                os.environ.pop(_THREADS, None)

    def _encode_batch(self, rows: Sequence[Row]) -> Documents:
        starts = [each for _, each in rows if each is not None]
        return self.tokenizer.encode([text for text, _ in rows], starts)

    def _encode(self, rows: Iterable[Row]) -> Iterator[Documents]:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            at_work: deque[Future[Documents]] = deque()
            for batch in _in_batches(rows):
                if len(at_work) == _AT_ONCE:
                    yield at_work.popleft().result()
                at_work.append(threads.submit(self._encode_batch, batch))
            while at_work:
                yield at_work.popleft().result()


class _Documents:
    """The documents of a shard, without those whose hash is in `left_out`; `in_test` is the number left out so far."""

    def __init__(self, shard: DocumentShard, left_out: frozenset[int]) -> None:
        self._shard, self._left_out = shard, left_out
        self.in_test = 0

    def __iter__(self) -> Iterator[Row]:
        rows = chain.from_iterable(text.rows() for text in self._shard.texts)
        for row in rows if self._shard.chosen is None else self._choose(rows, self._shard.chosen):
            if self._left_out and _hash(row[0]) in self._left_out:
                self.in_test += 1
            else:
                yield row

    def _choose(self, rows: Iterator[Row], chosen: NDArray[np.bool_]) -> Iterator[Row]:
        try:
            yield from (row for row, is_chosen in zip(rows, chosen.tolist(), strict=True) if is_chosen)
        except ValueError as error:
            raise BertprepError(f"{self._shard.name}: was changed since the start of the run; run the command again") from error


def _hash(document: str) -> int:
    return int.from_bytes(hashlib.sha256(document.encode(errors="replace")).digest()[:8], "little")


def _leave_out_blank(texts: Sequence[SourceText]) -> list[SourceText]:
    """Return the texts that are not blank, and warn about the others; raise `BertprepError` if all are blank."""
    are_blank = [each.is_blank for each in texts]
    if any(are_blank):
        first = texts[are_blank.index(True)].source.location
        warn(f"{counted(sum(are_blank), 'blank file')} left out, such as {first}")
        if all(are_blank):
            raise BertprepError(f"{first}: is blank, like all other input; expected text")
    return [each for each, is_blank in zip(texts, are_blank, strict=True) if not is_blank]


def _group(texts: Iterable[SourceText]) -> list[list[SourceText]]:
    """Group consecutive texts up to a total of `_TASK_BYTES`; a larger text is a group by itself.

    A group smaller than a 64th of that joins its neighbour, since it might not contain even one document.
    """
    runs = _join([[text] for text in texts], lambda size, following: size + following <= _TASK_BYTES)
    return _join(runs, lambda size, following: min(size, following) < _TASK_BYTES // 64)


def _join(groups: Sequence[list[SourceText]], fits: Callable[[int, int], bool]) -> list[list[SourceText]]:
    """Join each group to the one before it if `fits` accepts their sizes."""
    joined, sizes = [groups[0]], [sum(text.size_bytes for text in groups[0])]
    for group in groups[1:]:
        size = sum(text.size_bytes for text in group)
        if fits(sizes[-1], size):
            joined[-1] += group
            sizes[-1] += size
        else:
            joined.append(group)
            sizes.append(size)
    return joined


def _plain_text(texts: Iterable[SourceText]) -> Iterator[Path]:
    """Return the plain text files in which a blank line ends a document."""
    return (text.file.path for text in texts if text.file and text.source.reader == TEXT)


def _has_many_lines(path: Path) -> bool:
    with reading(path), open_head(path) as file:
        lines = file.read(HEAD_BYTES).splitlines()[:_MANY_LINES]
    return len(lines) == _MANY_LINES and all(map(bytes.strip, lines))


def _cut(row: Row) -> Row:
    """Return the beginning of a document, with the starts of its words."""
    text, starts = row
    return text[:_FIRST_CHARACTERS], None if starts is None else starts[starts < _FIRST_CHARACTERS]


def _in_batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += len(row[0])
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
