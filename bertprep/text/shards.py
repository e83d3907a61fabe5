"""Makes text shards from text files: one sentence per line, a blank line after each document, UTF-8.

The files are indexed once; then each shard is a separate task, in which a worker reads the shard's documents from the input
files, splits them into sentences and writes the shard. So memory is bounded by the largest document, whatever the size of the
corpus; a killed run resumes with the missing shards; and the bytes do not depend on the number of workers.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertprep import kernels, pool
from bertprep.config import ShardSettings
from bertprep.progress import Reporter
from bertprep.text.assignment import assign_documents, count_shards
from bertprep.text.documents import Documents, TextFile, TextIndex, TextInput, index_documents, read_batches
from bertprep.text.sentences import load_splitter
from bertprep.text.writing import text_file
from bertprep.workspace.layout import TEST, TRAINING, Workspace, text_shard
from bertprep.workspace.manifest import TEXT_SHARDS, Manifest, versions_of
from bertprep.workspace.parts import Part
from bertprep.workspace.receipts import find_finished, open_journal, unfinished
from bertprep.workspace.verification import remove_damaged

KIND = TEXT_SHARDS


@dataclass(frozen=True)
class ShardTask:
    """A worker's task: one shard."""

    path: Path
    inputs: dict[int, TextFile]  # only files with documents of the shard: a corpus may have very many
    documents: Documents
    settings: ShardSettings


def shard_corpus(
    workspace: Workspace,
    corpus: str,
    inputs: Sequence[TextInput],
    settings: ShardSettings,
    *,
    workers: int,
    verify: bool = False,
    reporter: Reporter,
    already_empty: int = 0,
    about: dict[str, Any] | None = None,
    part: Part | None = None,
) -> Manifest:
    """Write the missing shards of `corpus`, or of a part of them.

    The manifest's `made_with` holds the resolved numbers of shards, as "shards" and "test_shards", the identity of the text, by
    content, and the entries of `about`; its `files` the documents, sentences, words, bytes and sha256 of each shard; its
    `counts` the dropped documents, including those that were `already_empty` when `inputs` were made. With `verify` a shard
    whose sha256 has changed counts as missing. That of a `part` lists its own shards, until all are there. Raises `UsageError`
    for an impossible request, and `BertprepError` for text that cannot be sharded or a folder with shards of other text or
    settings.
    """
    language = settings.language or "en"
    index = _index(corpus, inputs, settings, workers, reporter)
    documents = index.documents
    counts = count_shards(documents.size_bytes, settings)
    made_with = {
        "inputs": [_identity(file) for file in index.files],
        "splitter": settings.splitter,
        "language": language,
        "keep_duplicates": settings.keep_duplicates,
        "test_fraction": settings.test_fraction,
        "shards": counts.training,
        "test_shards": counts.test,
        **(about or {}),
    }
    dropped = {"dropped_empty": index.empty + already_empty, "dropped_duplicates": index.duplicates}
    folder = workspace.sharded(corpus)
    finished = find_finished(folder, KIND, made_with)
    if verify:
        journal = open_journal(folder, KIND, made_with)
        if remove_damaged(finished, journal, label=KIND, workers=workers, reporter=reporter):
            finished = None
    if finished:
        return finished

    shards = [text_shard(TRAINING, corpus, i) for i in range(counts.training)]
    shards += [text_shard(TEST, corpus, i) for i in range(counts.test)]
    assigned = assign_documents(documents.size_bytes, counts.fractions())
    order = np.argsort(assigned, kind="stable")  # by shard, and within a shard in text order
    of_shard = np.split(order, np.searchsorted(assigned[order], np.arange(1, len(shards))))
    with open_journal(folder, KIND, made_with, part=part, wait=True) as journal:
        if journal.found:
            return journal.found
        own = part.deal(shards) if part else shards
        journal.look(own)
        tasks = []
        for name, which in zip(own, part.deal(of_shard) if part else of_shard, strict=True):
            if name not in journal.done:
                in_shard = documents.take(which)
                inputs_of_shard = {number: index.files[number] for number in set(in_shard.file.tolist())}
                tasks.append((name, ShardTask(folder / name, inputs_of_shard, in_shard, settings)))
        with (
            reporter.progress(f"shard {corpus}", len(tasks)) as shown,
            closing(pool.run(write_shard, tasks, workers=workers)) as results,
        ):
            for name, facts in results:
                journal.add_soon(name, facts)
                shown.advance(sentences=facts["sentences"], MB_of_text=facts["bytes"] / 1e6)
        if missing := journal.missing(shards):
            return unfinished(journal, shards, missing, part, reporter)
        return journal.finish(shards, versions_of("sentencex"), dropped)


def _index(corpus: str, inputs: Sequence[TextInput], settings: ShardSettings, workers: int, reporter: Reporter) -> TextIndex:
    with reporter.progress(f"read {corpus}", len(inputs), "files") as shown:
        return index_documents(
            inputs,
            keep_duplicates=settings.keep_duplicates,
            workers=workers,
            advance=lambda file: shown.advance(MB_of_text=file.size_bytes / 1e6),
        )


def _identity(file: TextFile) -> dict[str, Any]:
    """What determines the documents of a file: its bytes, and how they are read if not by default."""
    identity: dict[str, Any] = {"bytes": file.size_bytes, "sha256": file.sha256}
    if file.input.one_document:
        identity["one_document"] = True
    if file.input.splitter:
        identity["splitter"] = file.input.splitter
    return identity


def write_shard(task: ShardTask) -> dict[str, Any]:
    """Write one shard; returns its facts for the manifest."""
    settings = task.settings
    split = {
        number: load_splitter(given.input.splitter or settings.splitter, settings.language or "en").split
        for number, given in task.inputs.items()
    }
    spaces, newlines = 0, np.zeros(1, np.int64)
    with text_file(task.path) as file:
        for batch in read_batches(task.inputs, task.documents):
            lines = split[batch.file](batch.text, batch.ends)
            spaces += kernels.load().count_spaces(np.frombuffer(lines, np.uint8), len(lines), newlines)
            file.add(lines)
    sentences = int(newlines[0]) - len(task.documents)  # a document ends with a blank line
    words = spaces + sentences  # a sentence has single spaces only
    return {"documents": len(task.documents), "sentences": sentences, "words": words, **file.facts()}
