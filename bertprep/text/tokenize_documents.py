"""Documents of any source to token shards of whole documents: some small files in a row, a large one, or a text shard each.

Documents are read as a stream: memory holds some batches of them. The threads are those of `tokenizers`, so tasks run one after
another; only the compiled tokenizer, which has none, uses processes.
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
from itertools import islice
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
from bertprep.instances.tokenizer_files import TOKENIZER_CONFIG
from bertprep.instances.vocabulary import MANY_UNKNOWN
from bertprep.progress import Reporter
from bertprep.sources.documents import TEXT, WHOLE, Source
from bertprep.sources.plain_text import FIELD_GAP, TextFile, version_of
from bertprep.sources.word_columns import read_words, word_starts
from bertprep.terminal import counted, warn
from bertprep.text.padding import FIRST_FILES
from bertprep.text.shards import hash_files, identify, identify_split
from bertprep.text.summary import report_token_shards
from bertprep.tokens.make import Texts
from bertprep.tokens.shard import BIN, DOCUMENT_FILES, write_token_shard
from bertprep.work.layout import SPLITS, TEST, TOKENIZER, TRAINING, token_shard_name
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.made import Made
from bertprep.work.manifest import TOKEN_SHARDS, versions_of
from bertprep.work.run import Job, Maker, Task
from bertprep.work.text_identity import check_text, identify_text, text_entry

_BATCH_CHARACTERS = 1 << 20  # which take some 100 MB in `tokenizers`
_AT_ONCE = 2  # batches, so that its threads have work while Python copies
_TASK_BYTES = 64_000_000  # of source files that become a shard together
_BLANK_BYTES = 1024  # the largest file that is looked at for whether it is blank
_MANY_LINES = 50  # without a blank one, of which each may be meant as a document
_THREADS = "RAYON_NUM_THREADS"
IN_TEST = "in_test"
"""What the manifest's entry of a token shard calls the documents that were left out since the test split has them."""
_FIRST_DOCUMENTS, _FIRST_CHARACTERS = 16, 4096  # in which unknown tokens are counted


Row = tuple[str, NDArray[np.int64] | None]
"""A document, and where its words start in characters, if a column has them."""


@dataclass(frozen=True)
class SourceText:
    """A source of documents: a `file` as it was hashed, or a text shard of the workspace, whose entry is `expected`."""

    source: Source
    expected: Entry | None = None
    file: TextFile | None = None

    @property
    def size_bytes(self) -> int:
        """The size in bytes; for a stream of unknown size, the largest that fits in a shard."""
        return self.file.size_bytes if self.file else self.source.identity.get("bytes") or _TASK_BYTES

    @property
    def is_blank(self) -> bool:
        """Whether it is a small file of nothing but white space."""
        return self.file is not None and self.size_bytes <= _BLANK_BYTES and not self.file.path.read_bytes().strip()

    def documents(self) -> Iterator[str]:
        """Yield the documents: sentences of a text shard are joined by spaces, fields of a row by a blank line, and plain text
        ends without a line end.
        """
        if self.file:
            with reading(self.file.path):
                is_as_hashed = version_of(self.file.path) == self.file.version
            if not is_as_hashed:
                raise BertprepError(f"{self.file.path}: was changed since the start of the run; run the command again")
        for text in self.source.documents():
            if self.expected is not None:
                yield " ".join(text.split("\n")).strip(" ")
            else:
                yield text.rstrip("\r\n") if self.source.reader in (TEXT, WHOLE) else text.replace(FIELD_GAP, "\n\n")

    def rows(self) -> Iterator[Row]:
        """Yield each document, and where its words start if a column has them."""
        if self.source.words is None:
            yield from ((text, None) for text in self.documents())
            return
        for text, (where, words) in zip(self.documents(), read_words(self.source), strict=True):
            yield text, word_starts(words, text, where)


@dataclass(frozen=True)
class DocumentShard:
    """The texts that become a token shard together, the `number`-th of its split."""

    split: str
    number: int
    texts: Sequence[SourceText]


@dataclass(frozen=True)
class DocumentShards:
    """The texts of each token shard of a corpus; `made_from` describes them in the manifest."""

    corpus: str
    shards: Sequence[DocumentShard]
    made_from: dict[str, Any]
    is_of_workspace: bool = False
    advice: str = "choose another --output"

    @property
    def has_splits(self) -> bool:
        """Whether each split has a folder of its own."""
        return self.is_of_workspace or any(shard.split == TEST for shard in self.shards)

    @property
    def given_test(self) -> Sequence[SourceText]:
        """The texts that were given as the test split, which no training shard may repeat."""
        return [] if self.is_of_workspace else [text for each in self.shards if each.split == TEST for text in each.texts]

    def report(self, made: Made, reporter: Reporter) -> None:
        """Report what given files became."""
        texts = [text for shard in self.shards for text in shard.texts]
        documents = sum(entry["documents"] for entry in made.manifest.files.values() if "documents" in entry)
        first = (document for text in texts[:FIRST_FILES] for document in text.documents())
        report_token_shards(reporter, counted(len(texts), "file"), documents, first)
        if in_test := sum(entry.get(IN_TEST, 0) for entry in made.manifest.files.values()):
            warn(f"{counted(in_test, 'document')} left out of the training split, since --test-input has them too")


def shards_of_corpus(texts: Texts) -> DocumentShards:
    """Return a token shard for each text shard of a corpus of the workspace."""
    shards = [
        DocumentShard(shard.split, shard.number, [SourceText(Source(str(shard.path), TEXT, {}), shard.expected)])
        for shard in texts.shards
    ]
    return DocumentShards(texts.corpus, shards, texts.made_from, is_of_workspace=True, advice=texts.advice)


def shards_of_sources(sources: Sequence[Source], corpus: str, workers: int, reporter: Reporter) -> DocumentShards:
    """Return a token shard for each large file or run of small ones, all of which are read for their checksums.

    Raises `UsageError` for a source that is not a file, `BertprepError` where all files are blank.
    """
    for source in sources:
        if source.is_stream:
            raise UsageError(
                f"{source.location}: is not read file by file; make text shards of it first: bertprep shard, then "
                "bertprep tokenize --tokenizer --corpus NAME"
            )
    files = hash_files(sources, corpus, workers, reporter)
    test_inputs = identify_split(sources, files, TEST)
    made_from = {"inputs": identify_split(sources, files, TRAINING)}
    if test_inputs:
        made_from["test_inputs"] = test_inputs
    texts: dict[str, list[SourceText]] = {split: [] for split in SPLITS}
    for source in sources:
        if source.split == TEST or identify(source, files) not in test_inputs:
            texts[source.split].append(SourceText(source, file=files.get(source.location)))
    if not texts[TRAINING]:
        raise UsageError("--test-input: has all of --input, so none is left to train on; give other test text")
    groups = {split: _group(_leave_out_blank(of_split)) for split, of_split in texts.items() if of_split}
    shards = [DocumentShard(split, number, group) for split in groups for number, group in enumerate(groups[split])]
    return DocumentShards(corpus, shards, {**made_from, "shards": len(groups[TRAINING])})


def document_job(
    tokenizer: DocumentTokenizer,
    documents: DocumentShards,
    folder: Path,
    *,
    threads: int | None = None,
    eod: int | None = None,
) -> Job:
    """Return the job that makes token shards of documents; each split of a corpus has a folder of its own.

    `eod` is a token to put after each document.
    """
    info = tokenizer.info
    copies = {TOKENIZER: tokenizer.path}
    if tokenizer.config:
        copies[TOKENIZER_CONFIG] = tokenizer.config
    ledger = Ledger(
        folder=folder,
        kind=TOKEN_SHARDS,
        made_with={
            "tokenizer": info.made_with, "corpus": documents.corpus, **({} if eod is None else {"eod": eod}),
            **documents.made_from,
        },
        versions=versions_of("llvmlite", "numpy", "tokenizers"),
        copies=copies,
        advice=documents.advice,
    )  # fmt: skip
    tasks = []
    for shard in documents.shards:
        prefix = f"{shard.split}/" if documents.has_splits else ""
        names = {end: prefix + token_shard_name(shard.split, documents.corpus, shard.number, end) for end in DOCUMENT_FILES}
        tasks.append(Task(shard.texts[0].source.location, names, shard.texts))
    maker = DocumentMaker(tokenizer=tokenizer, threads=threads, test=documents.given_test, eod=eod)
    return Job(maker, dict.fromkeys(DOCUMENT_FILES, ledger), tasks)


@dataclass(frozen=True, kw_only=True)
class DocumentMaker(Maker):
    """Makes one token shard after another, each of some texts; `threads` are those of `tokenizers`, by default one per CPU.

    Training documents that the `test` texts have too are left out: the hashes of these, 64 bits each, are in memory.
    `eod` is a token to put after each document.
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
        text: SourceText = todo[0].argument[0]
        first = [_cut(row) for row in islice(text.rows(), _FIRST_DOCUMENTS)]
        with self._limited_threads():
            tokens, _, begins_word = self._encode_batch(first)
        unknown = float(np.mean(tokens == self.tokenizer.info.unk)) if len(tokens) else 0.0
        if unknown > MANY_UNKNOWN:
            yield (
                f"{unknown:.0%} of the first tokens of {text.source.location} are unknown: "
                f"{self.tokenizer.path} does not fit this text"
            )
        if (share := share_in_long_words(begins_word)) > MANY_LONG_WORDS:
            yield (
                f"{self.label}: {share:.0%} of the first tokens of {text.source.location} are in words of more than "
                f"{MAX_WORD_TOKENS} tokens by the rule {self.tokenizer.info.words}: whole words and spans mask these token by "
                "token"
            )
        if found := next((path for path in _plain_text(todo[0].argument[:FIRST_FILES]) if _has_many_lines(path)), None):
            yield (
                f"the first {_MANY_LINES} lines of {found} are one document, as no blank line is between them; "
                'where each is one, write JSON Lines, {"text": "..."} on each, to a file that ends in .jsonl'
            )

    def make(self, argument: Sequence[SourceText], paths: Mapping[str, Path]) -> dict[str, Entry]:
        made_of = self._check_shard(argument[0])
        documents_of = _Documents(argument, self.test_hashes if argument[0].source.split == TRAINING else frozenset())
        with self._limited_threads(), write_token_shard(paths, width=self.tokenizer.info.width) as writer:
            for documents in self._encode(documents_of):
                if self.eod is not None:
                    documents = documents.ended_by(self.eod)
                writer.add(documents.tokens, documents.lengths, begins_word=documents.begins_word)
            if not writer.documents:
                names = argument[0].source.location + (f" and the {len(argument) - 1:,} after it" if argument[1:] else "")
                why = " that --test-input does not have too" if documents_of.in_test else ""
                raise BertprepError(f"{names}: no document with a token{why}; leave these files out")
        counts = {"documents": writer.documents, "tokens": writer.tokens}
        if self.test:
            counts[IN_TEST] = documents_of.in_test
        return {end: {**(counts if end == BIN else {}), **entry, **made_of} for end, entry in writer.entries.items()}

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {each: sum(entry.get(each, 0) for entry in entries) for each in ("documents", "tokens")}

    def _check_shard(self, text: SourceText) -> dict[str, Any]:
        """Return the manifest's entry for a text shard; files given by --input are in `made_with` instead."""
        if text.expected is None:
            return {}
        path = as_path(text.source.location)
        check_text(path, text.expected, found := text_entry(path.name, *identify_text(path)))
        return {"text": found}

    @contextmanager
    def _limited_threads(self) -> Iterator[None]:
        """Limit the threads of `tokenizers`, which reads their number when a process first encodes several texts."""
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
    """The documents of some texts without those that have one of these hashes, which `in_test` counts."""

    def __init__(self, texts: Sequence[SourceText], left_out: frozenset[int]) -> None:
        self._texts, self._left_out = texts, left_out
        self.in_test = 0

    def __iter__(self) -> Iterator[Row]:
        for text in self._texts:
            for row in text.rows():
                if self._left_out and _hash(row[0]) in self._left_out:
                    self.in_test += 1
                else:
                    yield row


def _hash(document: str) -> int:
    return int.from_bytes(hashlib.sha256(document.encode(errors="replace")).digest()[:8], "little")


def _leave_out_blank(texts: Sequence[SourceText]) -> list[SourceText]:
    """Return the texts that are not blank, and warn of the others; raise `BertprepError` if all are blank."""
    are_blank = [each.is_blank for each in texts]
    if any(are_blank):
        first = texts[are_blank.index(True)].source.location
        warn(f"{counted(sum(are_blank), 'blank file')} left out, such as {first}")
        if all(are_blank):
            raise BertprepError(f"{first}: is blank, as is all of the input; expected text")
    return [each for each, is_blank in zip(texts, are_blank, strict=True) if not is_blank]


def _group(texts: Iterable[SourceText]) -> list[list[SourceText]]:
    """Return runs of texts that have at most `_TASK_BYTES` together, or are one that has more.

    A run of less than a 64th of that, between large files, joins the one before: it may have no document.
    """
    runs = _join([[text] for text in texts], lambda size, following: size + following <= _TASK_BYTES)
    return _join(runs, lambda size, following: min(size, following) < _TASK_BYTES // 64)


def _join(groups: Sequence[list[SourceText]], fits: Callable[[int, int], bool]) -> list[list[SourceText]]:
    """Return groups of which each is joined to the one before where their sizes fit."""
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
    """Yield the files in which a blank line ends a document."""
    return (text.file.path for text in texts if text.file and text.source.reader == TEXT)


def _has_many_lines(path: Path) -> bool:
    with reading(path), open_head(path) as file:
        lines = file.read(HEAD_BYTES).splitlines()[:_MANY_LINES]
    return len(lines) == _MANY_LINES and all(map(bytes.strip, lines))


def _cut(row: Row) -> Row:
    """Return the beginning of a document."""
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
