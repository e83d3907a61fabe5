"""What `tokenize --tokenizer` does: the documents of any source, or of a corpus of the workspace, as tasks of the work loop.

A source file, or a text shard, becomes a token shard. It is read as a stream: memory holds some batches of documents. The
threads are those of `tokenizers`, so tasks run one after another, but for the compiled tokenizer, which has none.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bertprep import kernels
from bertprep.commands import Created
from bertprep.commands.record_job import Job, find_texts
from bertprep.commands.shard import find_given
from bertprep.errors import BertprepError, UsageError
from bertprep.files.paths import as_path
from bertprep.instances.document_tokenizer import Documents, DocumentTokenizer
from bertprep.pool import ClusterWorkers
from bertprep.records.make import MANY_UNKNOWN, check_text, check_unchanged, identify_text, text_entry
from bertprep.records.token_documents import BIN, DOCUMENT_FILES, write_documents
from bertprep.sources.catalogue import is_repository
from bertprep.sources.corpora import GIVEN, name_corpus, name_data_set
from bertprep.sources.documents import TEXT, WHOLE, Source
from bertprep.sources.readers import is_local
from bertprep.work.layout import MDS_FORMAT, TOKENIZER, TOKENS, TRAINING, token_shard_name
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.manifest import TOKEN_SHARDS, versions_of
from bertprep.work.run import Maker, Task

if TYPE_CHECKING:
    from bertprep.commands.tokenize import Tokenize

_BATCH_CHARACTERS = 1 << 20  # which take some 100 MB in `tokenizers`
_AT_ONCE = 2  # batches, so that its threads have work while Python copies
_FIRST_DOCUMENTS, _FIRST_CHARACTERS = 16, 4096  # in which unknown tokens are counted


@dataclass(frozen=True)
class Text:
    """A source file; `expected` is its entry in the manifest where it is a text shard of the workspace."""

    source: Source
    expected: Entry | None = None

    def documents(self) -> Iterator[str]:
        """Yield the documents; sentences of a text shard are joined by spaces, and plain text ends without a line end."""
        for text in self.source.documents():
            if self.expected is not None:
                yield " ".join(text.split("\n")).strip(" ")
            else:
                yield text.rstrip("\r\n") if self.source.reader in (TEXT, WHOLE) else text

    def identify(self) -> tuple[int, str]:
        """Return the size and CRC-32C of the file; of one that is streamed from elsewhere what its server knows it by."""
        if is_local(self.source.location):
            return identify_text(as_path(self.source.location))
        data = np.frombuffer(repr(sorted(self.source.identity.items())).encode(), np.uint8)
        return self.source.identity.get("bytes") or 0, f"{kernels.load().checksum(0, data, len(data)):08x}"


@dataclass(frozen=True, kw_only=True)
class DocumentMaker(Maker):
    """Makes the token shard of one text after another; `threads` are those of `tokenizers`, by default one per CPU."""

    tokenizer: DocumentTokenizer
    threads: int | None = None
    ensure: Callable[[], object] | None = None  # what has to be there before anything is made
    label = "tokenize"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "ensure": None}

    def prepare(self) -> None:
        if self.ensure:
            self.ensure()
        self._limit_threads()
        kernels.load()

    def remarks(self, todo: Sequence[Task]) -> Iterator[str]:
        text: Text = todo[0].argument
        first = [document[:_FIRST_CHARACTERS] for document in islice(text.documents(), _FIRST_DOCUMENTS)]
        tokens = self.tokenizer.encode(first).tokens
        unknown = float(np.mean(tokens == self.tokenizer.info.unk)) if len(tokens) else 0.0
        if unknown > MANY_UNKNOWN:
            yield (
                f"{self.label}: {unknown:.0%} of the first tokens of {text.source.location} are unknown: "
                f"{self.tokenizer.path} does not fit this text"
            )

    def check(self, task: Task, folder: Path, entry: Entry) -> None:
        text: Text = task.argument
        if text.expected is None:
            check_unchanged(folder, entry["text"], text.source.location, *text.identify())

    def make(self, argument: Text, paths: Mapping[str, Path]) -> dict[str, Entry]:
        self._limit_threads()  # in a process on another machine too
        location = argument.source.location
        text = text_entry(Path(location).name, *argument.identify())
        check_text(as_path(location), argument.expected, text)
        with write_documents(paths, width=self.tokenizer.info.width) as writer:
            for documents in self._encode(argument.documents()):
                writer.add(*documents)
            if not writer.documents:
                raise BertprepError(f"{location}: holds no document with a token; leave it out")
        counts = {"documents": writer.documents, "tokens": writer.tokens}
        return {
            end: {**(counts if end == BIN else {}), "bytes": file.bytes, "sha256": file.sha256, "text": text}
            for end, file in writer.written.items()
        }

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        documents = sum(entry.get("documents", 0) for entry in entries)
        return {"documents": documents, "MB_of_text": entries[0]["text"]["bytes"] / 1e6}

    def _limit_threads(self) -> None:
        if self.threads:  # which `tokenizers` reads when it first encodes several texts
            os.environ["RAYON_NUM_THREADS"] = str(self.threads)

    def _encode(self, texts: Iterable[str]) -> Iterator[Documents]:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            at_work: deque[Future[Documents]] = deque()
            for batch in _in_batches(texts):
                if len(at_work) == _AT_ONCE:
                    yield at_work.popleft().result()
                at_work.append(threads.submit(self.tokenizer.encode, batch))
            while at_work:
                yield at_work.popleft().result()


def make_documents(request: Tokenize, workers: int) -> Created:
    """Make what a request with --tokenizer describes; the files of a token shard have one ledger."""
    tokenizer = DocumentTokenizer(*_find_tokenizer(request))
    info = tokenizer.info
    ensure, advice = None, "choose another --output"
    if request.output is None:
        found = find_texts(request, workers, pairs=False)
        corpus, made_from, ensure, advice = found.corpus, found.made_from, found.ensure, "choose another --workdir or --corpus"
        folder = request.workspace.tokens(f"{info.name}_{info.sha256[:8]}", corpus)
        texts = [(each.split, each.number, Text(Source(str(each.path), TEXT, {}), each.entry)) for each in found.shards]
    else:
        corpus, folder = _name_given(request), as_path(request.output) / (TOKENS if request.format == MDS_FORMAT else "")
        texts = [(TRAINING, number, Text(_checked(source))) for number, source in enumerate(find_given(request))]
        made_from = {"shards": len(texts), "field": request.field, "one_document": request.one_document}
    ledger = Ledger(
        folder=folder,
        kind=TOKEN_SHARDS,
        made_with={"tokenizer": info.made_with, "corpus": corpus, **made_from},
        versions=versions_of("llvmlite", "numpy", "tokenizers"),
        copies={TOKENIZER: tokenizer.path},
        advice=advice,
    )
    tasks = []
    for split, number, text in texts:
        prefix = f"{split}/" if request.output is None else ""
        files = {end: prefix + token_shard_name(split, corpus, number, end) for end in DOCUMENT_FILES}
        tasks.append(Task(text.source.location, files, text))
    is_remote = isinstance(workers, ClusterWorkers)
    maker = DocumentMaker(tokenizer=tokenizer, threads=1 if is_remote else request.workers, ensure=ensure)
    job = Job(maker, dict.fromkeys(DOCUMENT_FILES, ledger), tasks)
    return job.run(request, workers if is_remote or tokenizer.is_compiled else 1)


def _find_tokenizer(request: Tokenize) -> tuple[Path, str]:
    """Return the tokenizer.json that a request names, by a file, a folder or a model of the Hub, and what to call it."""
    given = str(request.tokenizer)
    path = as_path(given)
    path = path / TOKENIZER if path.is_dir() else path
    name = path.resolve().parent.name if path.name == TOKENIZER else path.stem
    if not path.is_file():
        if path.suffix == ".json" or not is_repository(given):
            raise UsageError(f"--tokenizer {given}: not found; name a {TOKENIZER}, a folder with one, or OWNER/NAME of a model")
        from bertprep.sources.splits import fetch_address

        try:
            [(path, _)] = fetch_address(f"hf://{given}/{TOKENIZER}", request.workspace, reporter=request.reporter)
        except UsageError as error:
            raise UsageError(f"--tokenizer {given}: this model has no {TOKENIZER}; name another") from error
        name = given.rpartition("/")[2]
    return path, re.sub(r"[^\w.-]+", "_", name).lstrip(".-") or "tokenizer"


def _name_given(request: Tokenize) -> str:
    named = GIVEN if request.dataset is None else name_data_set(request.dataset, request.split)
    return name_corpus(request.corpus or named, request.workspace)


def _checked(source: Source) -> Source:
    """Return a source that is read file by file; raise `UsageError` for one that is not."""
    if source.is_stream:
        raise UsageError(
            f"{source.location}: is not read file by file; make text shards of it first: bertprep shard, then "
            "bertprep tokenize --tokenizer --corpus NAME"
        )
    return source


def _in_batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
