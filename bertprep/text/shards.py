"""Makes text shards: one sentence per line, a blank line after each document; for any amount of text.

Documents are sorted by the hash of their text, and the hashes divided into a range of equal bytes for each shard; the last
ranges are the test split. So duplicates meet, and the order and names of the inputs do not matter.

    copy      dumps and text in memory to files that several processes can read
    sort      inputs, or chunks of a large text file: clean, split into sentences, sort: runs
    merge     many runs to one, so that reading a range of all is a bounded number of reads
    cut       ranges, by the rows of all runs: hash and size of each document
    shard     merge a range of all runs, and drop duplicates

Each step but cut is a call of `work.run`, with files in .map that are named for their content and resumed.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertprep import kernels, pool
from bertprep.config import ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file, remove_folder
from bertprep.files.checksums import BLAKE3, digest, new_hash
from bertprep.files.paths import as_path
from bertprep.progress import Reporter
from bertprep.sources.documents import BATCH_TEXT_BYTES, MEMORY, SPLITTERS, WHOLE, Batch, Source, copy_stream
from bertprep.sources.plain_text import Piece, TextFile, cut_file, hash_file, read_piece
from bertprep.terminal import counted
from bertprep.text.cleaning import write_lines
from bertprep.text.runs import HASHES, Documents, Sorter, merge_runs, read_rows, read_windows, run_file
from bertprep.work.layout import MAPPED, TEST, TRAINING, text_shard
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.made import Made
from bertprep.work.manifest import MAPPED_TEXT, TEXT_SHARDS, Manifest, is_in_place, read_manifest, versions_of
from bertprep.work.parts import Finish, Part
from bertprep.work.run import Job, Maker, Task
from bertprep.work.settings import check_same, make_header

PIECE_BYTES = 24_000_000
"""Inputs, or pieces of text files, of about this size are sorted at once."""
MAX_RUNS = 128
"""Runs are merged until there are no more."""
MERGED_RUNS = 32
"""So many become one."""
BYTES_PER_SHARD = 4_000_000
MIN_SHARDS, MAX_SHARDS = 4, 1_024  # without --shards, of shards up to `MAX_SHARD_BYTES`
MAX_SHARD_BYTES = 64_000_000
MAX_ROWS = 1 << 20
"""Up to so many documents a shard may end after any of them; of more, after any 2**20th of the range of hashes."""
_WRITE_BYTES = 2_000_000
RUNS, ROWS = ".arrow", ".rows"


def shard_corpus(
    folder: Path,
    sources: Sequence[Source],
    settings: ShardSettings,
    *,
    part: Part | Finish | None,
    workers: int,
    reporter: Reporter,
) -> Made:
    """Write the missing shards of a corpus, whose folder is named for it, or of a part of them.

    The manifest's `made_with` has the numbers of shards and the identity of the text; its `files` have the documents,
    sentences, words, bytes and BLAKE3 of each shard. Raises `UsageError` for an impossible request, `BertprepError` for
    unusable text, or a folder of other text or settings.
    """
    corpus = folder.name
    steps = _Steps(folder, corpus, settings, workers, part, reporter)
    copies = {} if all(source.is_known for source in sources) else _copy_streams(steps, sources)
    sources = [
        source if source.is_known else replace(source, identity={BLAKE3: copies[index].content})
        for index, source in enumerate(sources)
    ]
    files = hash_files(sources, corpus, workers, reporter)
    identities = [identify(source, files) for source in sources]
    made_with = {
        "inputs": sorted(identities, key=json.dumps),
        "splitter": settings.splitter,
        "language": settings.language or "en",
        "keep_duplicates": settings.keep_duplicates,
        "test_fraction": settings.test_fraction,
    }
    finished = _find_finished(steps, made_with)
    if finished is None:
        try:
            made = _make_shards(steps, sources, files, copies or _copy_streams(steps, sources), made_with)
        except BertprepError:  # perhaps since another run has finished, and removed what this one was reading
            if (finished := _find_finished(steps, made_with)) is None:
                raise
    if finished:
        ledger = Ledger(folder=steps.folder, kind=TEXT_SHARDS, made_with=finished.made_with, versions=finished.versions)
        tasks = [Task(name, {"text": name}) for name in finished.files]
        made = Job(_Reduce(corpus), {"text": ledger}, tasks).run(part, workers, reporter)
    if made.is_complete:
        remove_folder(steps.folder / MAPPED)
    return made


@dataclass(frozen=True)
class _Steps:
    """What the steps of sharding a corpus have in common: the folder of its shards, the settings, and how the work is done."""

    folder: Path
    corpus: str
    settings: ShardSettings
    workers: int
    part: Part | Finish | None
    reporter: Reporter

    def run(self, maker: Maker, name: str, tasks: Sequence[Task], workers: int | None = None) -> dict[str, Entry]:
        """Make the files of a step, including missing ones of other parts; return their entries."""
        versions = versions_of("sentencex")
        of = json.dumps([self.settings.splitter, self.settings.language, {**versions, "python": ""}])
        folder = self.folder / MAPPED / hashlib.sha256(of.encode()).hexdigest()[:16] / name
        if (self.folder / MAPPED).is_symlink():
            raise BertprepError(f"{self.folder / MAPPED}: is a link, expected a folder of bertprep's own; remove it")
        names = {name for task in tasks for name in task.files.values()}
        if (finished := read_manifest(folder)) and finished.files.keys() != names:
            remove_folder(folder)  # of other inputs
        ledger = Ledger(folder=folder, kind=MAPPED_TEXT, made_with={"rules": 1}, versions=versions)
        ledgers = dict.fromkeys(tasks[0].files, ledger)
        workers = workers or self.workers
        step = Job(maker, ledgers, tasks)
        made = step.run(self.part, workers, self.reporter)
        if not made.is_complete:
            self.reporter.message(f"{folder}: part {self.part} makes what other parts have not made yet")
            made = step.run(None, workers, self.reporter)
        return {str(folder / name): entry for name, entry in made.manifest.files.items()}


def _find_finished(steps: _Steps, made_with: dict[str, Any]) -> Manifest | None:
    """Return the manifest of finished shards, of any number if none is requested; raises `BertprepError` for other text or
    settings.
    """
    if (manifest := read_manifest(steps.folder)) is None:
        return None
    numbers = {name: manifest.made_with.get(name) for name in ("shards", "test_shards")}
    if steps.settings.shards is not None:
        numbers["shards"] = steps.settings.shards
    found = make_header(manifest.kind, manifest.made_with)
    check_same(steps.folder, found, make_header(TEXT_SHARDS, {**made_with, **numbers}), "choose another --workdir or --corpus")
    return manifest if is_in_place(steps.folder, manifest.files) else None


def _make_shards(
    steps: _Steps,
    sources: Sequence[Source],
    files: Mapping[str, TextFile],
    copies: Mapping[int, "_Copied"],
    made_with: dict[str, Any],
) -> Made:
    sorted_texts = _sort(steps, sources, files, copies)
    sorted_runs = _placed(sorted_texts, RUNS)
    documents = sum(entry["documents"] for entry in sorted_runs.values())
    if not documents:
        raise BertprepError(
            f"{steps.corpus}: no document in {counted(len(sources), 'input')}; expected text, a blank line between documents"
        )
    rows = list(_placed(sorted_texts, ROWS))
    keys, sizes = weigh_documents(rows, documents, keep_duplicates=steps.settings.keep_duplicates)
    training, test = count_shards(len(keys), int(sizes.sum()), steps.settings)
    fraction = steps.settings.test_fraction
    fractions = [(1 - fraction) / training] * training + [fraction / max(test, 1)] * test
    names = [text_shard(TRAINING, steps.corpus, index) for index in range(training)]
    names += [text_shard(TEST, steps.corpus, index) for index in range(test)]
    runs = _merge(steps, sorted_runs)
    ledger = ShardLedger(
        folder=steps.folder,
        kind=TEXT_SHARDS,
        made_with={**made_with, "shards": training, "test_shards": test},
        versions=versions_of("sentencex"),
        counts={"dropped_empty": sum(entry["empty"] for entry in sorted_runs.values())},
        copies_of_documents=sum(entry["copies"] for entry in sorted_runs.values()),
    )
    text_bytes = sum(entry["text_bytes"] for entry in runs.values())
    reduce = _Reduce(steps.corpus, tuple(runs), text_bytes, keep_duplicates=steps.settings.keep_duplicates)
    bounds = pairwise(split_by_hash(keys, sizes, fractions))
    tasks = [Task(name, {"text": name}, within) for name, within in zip(names, bounds, strict=True)]
    return Job(reduce, {"text": ledger}, tasks).run(steps.part, steps.workers, steps.reporter)


@dataclass(eq=False, kw_only=True)
class ShardLedger(Ledger):
    """The ledger of shards, which also counts the duplicates that were dropped from so many `copies` of documents."""

    copies_of_documents: int

    def _manifest_of(self, files: dict[str, Entry]) -> Manifest:
        if len(files) == self.made_with["shards"] + self.made_with["test_shards"]:
            documents = sum(entry["documents"] for entry in files.values())
            self.counts = {**self.counts, "dropped_duplicates": self.copies_of_documents - documents}
        return super()._manifest_of(files)


def hash_files(sources: Sequence[Source], corpus: str, workers: int, reporter: Reporter) -> dict[str, TextFile]:
    """Return the size and BLAKE3 of each plain text file, by its location; those of other sources are known."""
    plain = [source.location for source in sources if source.is_plain]
    with (
        reporter.progress(f"read {corpus}", len(plain), "files", enabled=bool(plain)) as shown,
        closing(pool.run(hash_file, [(location, as_path(location)) for location in plain], workers=workers)) as results,
    ):
        files = {}
        for location, file in results:
            files[location] = file
            shown.advance(MB_of_text=file.size_bytes / 1e6)
    return files


def identify(source: Source, files: Mapping[str, TextFile]) -> dict[str, Any]:
    """Return what a manifest has of a source: what determines its documents."""
    if (file := files.get(source.location)) is None:
        return source.metadata()
    return {"bytes": file.size_bytes, BLAKE3: file.blake3, **source.metadata()}


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class _Copied:
    batches: list[Batch]
    content: str  # a checksum


def _copy_streams(steps: _Steps, sources: Sequence[Source]) -> dict[int, _Copied]:
    streams = {index: source for index, source in enumerate(sources) if source.is_stream}
    if not streams:
        return {}
    names = {index: f"{_digest(index, source.metadata())}.arrow" for index, source in streams.items()}
    tasks = [Task(source.location, {"file": names[index]}, source) for index, source in streams.items()]
    is_here = any(source.reader == MEMORY for source in streams.values())  # and nowhere else
    entries = steps.run(_Copy(f"read {steps.corpus}"), "copied", tasks, workers=1 if is_here else None)
    found = {path.name: (path, entry) for path, entry in _placed(entries, "").items()}
    copied = {}
    for index, name in names.items():
        path, entry = found[name]
        copied[index] = _Copied([Batch(path, batch) for batch in range(entry["batches"])], entry["content"])
    return copied


class _Named(Maker):
    """Makes files; its progress is shown under a label."""

    def __init__(self, label: str) -> None:
        self.label = label


class _Copy(_Named):
    things = "inputs"

    def make(self, argument: Source, paths: Mapping[str, Path]) -> dict[str, Entry]:
        return {"file": copy_stream(argument, paths["file"])}


@dataclass(frozen=True)
class _Unsorted:
    text: Piece | Source | Batch
    splitter: str
    language: str
    location: str
    key: list[Any]


def _sort(
    steps: _Steps, sources: Sequence[Source], files: Mapping[str, TextFile], copies: Mapping[int, _Copied]
) -> dict[str, Entry]:
    groups: list[list[_Unsorted]] = [[]]
    filled = 0
    for index, source in enumerate(sources):
        splitter = SPLITTERS.get(source.reader, steps.settings.splitter)
        batches = copies[index].batches if source.is_stream else []
        for piece, (text, size_bytes) in enumerate(_pieces(source, files, batches)):
            if filled >= PIECE_BYTES:
                groups.append([])
                filled = 0
            key = [identify(source, files), piece, PIECE_BYTES, splitter]
            groups[-1].append(_Unsorted(text, splitter, steps.settings.language or "en", source.location, key))
            filled += size_bytes
    tasks, seen = [], Counter[str]()
    for group in groups:
        content = _digest([each.key for each in group])
        seen[content] += 1  # the same text may have two names
        name = _digest(content, seen[content])
        label = group[0].location if group else ""
        tasks.append(Task(label, {"runs": name + RUNS, "rows": name + ROWS}, tuple(group)))
    return steps.run(_Sort(f"sort {steps.corpus}"), "sorted", tasks)


def _pieces(
    source: Source, files: Mapping[str, TextFile], batches: Sequence[Batch]
) -> Iterator[tuple[Piece | Source | Batch, int]]:
    if source.is_stream:
        yield from ((batch, BATCH_TEXT_BYTES) for batch in batches)
    elif (file := files.get(source.location)) and source.reader == WHOLE:
        yield Piece(file, 0, file.size_bytes, one_document=True), file.size_bytes
    elif file:
        yield from ((piece, piece.size_bytes) for piece in cut_file(file, PIECE_BYTES))
    else:
        yield source, source.identity.get("bytes") or PIECE_BYTES


class _Sort(_Named):
    things = "runs"

    def make(self, argument: Sequence[_Unsorted], paths: Mapping[str, Path]) -> dict[str, Entry]:
        path = next(iter(paths.values()))
        with run_file(path.with_suffix(RUNS)) as file:
            sorter = Sorter(file)
            empty = sum(_sort_documents(each, sorter) for each in argument)
            sorter.flush()
        rows = sorter.rows()
        with atomic_file(path.with_suffix(ROWS)) as rows_file:
            rows_file.write(rows)
        entries = {
            "runs": {**file.entry(), "copies": sorter.copies, "empty": empty},
            "rows": {"documents": file.documents, "bytes": len(rows), BLAKE3: digest(rows)},
        }
        return {key: entries[key] for key in paths}


def _sort_documents(unsorted: _Unsorted, sorter: Sorter) -> int:
    text = unsorted.text
    documents = read_piece(text) if isinstance(text, Piece) else text.documents()
    return write_lines(documents, unsorted.splitter, unsorted.language, sorter.add)


def _merge(steps: _Steps, files: dict[Path, Entry]) -> dict[Path, Entry]:
    level = 0
    while sum(entry["runs"] for entry in files.values()) > MAX_RUNS:
        level += 1
        groups: list[list[Path]] = [[]]
        for path in files:
            if sum(files[each]["runs"] for each in groups[-1]) >= MERGED_RUNS:
                groups.append([])
            groups[-1].append(path)
        tasks = []
        for group in groups:
            name = _digest([path.name for path in group]) + RUNS
            tasks.append(Task(name, {"runs": name}, (group, sum(files[path]["text_bytes"] for path in group))))
        files = _placed(steps.run(_Merge(f"merge {steps.corpus}"), f"merged_{level}", tasks), RUNS)
    return files


def _placed(entries: Mapping[str, Entry], suffix: str) -> dict[Path, Entry]:
    """Return the entries of files with a suffix, in the order of names, which is the same to all parts."""
    return {as_path(name): entry for name, entry in sorted(entries.items()) if name.endswith(suffix)}


class _Merge(_Named):
    things = "runs"

    def make(self, argument: tuple[Sequence[Path], int], paths: Mapping[str, Path]) -> dict[str, Entry]:
        runs, text_bytes = argument
        return {"runs": merge_runs(runs, text_bytes, paths["runs"])}


def weigh_documents(
    paths: Sequence[Path], documents: int, *, keep_duplicates: bool
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Return the first 64 bits of each document's hash, sorted, and its bytes in the shards.

    Of more than `MAX_ROWS` documents these are the first bits, and the bytes of all documents with them, copies included.
    """
    if documents <= MAX_ROWS:
        rows = np.concatenate([read_rows(path) for path in paths])
        keys, first, which = np.unique(rows[:, 0], return_index=True, return_inverse=True)
        copies = np.bincount(which, rows[:, 2]) if keep_duplicates else np.ones(len(keys))
        return keys, rows[first, 1].astype(np.int64) * copies.astype(np.int64)
    total = np.zeros(MAX_ROWS, np.int64)
    shift = np.uint64(64 - (MAX_ROWS - 1).bit_length())
    for path in paths:
        rows = read_rows(path)
        sizes = rows[:, 1] * rows[:, 2] if keep_duplicates else rows[:, 1]
        total += np.bincount((rows[:, 0] >> shift).astype(np.int64), sizes.astype(np.float64), MAX_ROWS).astype(np.int64)
    keys = np.flatnonzero(total)
    return keys.astype(np.uint64) << shift, total[keys]


def count_shards(documents: int, text_bytes: int, settings: ShardSettings) -> tuple[int, int]:
    """Return the numbers of training and test shards, of one size, for distinct documents of so many bytes.

    Raises `UsageError` for too few documents.
    """
    fraction = settings.test_fraction
    min_test = 1 if fraction else 0
    most = documents - min_test
    if most < 1:
        raise UsageError(
            f"--test-fraction {fraction}: the text is a single document, which cannot be both training and test data; "
            "give more documents, each a file or with a blank line after it (unless --one-document-per-file is given), or "
            "--test-fraction 0"
        )
    if settings.shards is None:
        by_size = -(-text_bytes // BYTES_PER_SHARD)
        by_documents = max(1, min(most, int(documents * (1 - fraction))))
        training = min(max(by_size, MIN_SHARDS), max(MAX_SHARDS, text_bytes // MAX_SHARD_BYTES), by_documents)
    elif settings.shards > most:
        kept = ", one of them for testing" if fraction else ""
        raise UsageError(
            f"--shards {settings.shards}: the text has {counted(documents, 'document')}{kept}; give at most {most:,}"
        )
    else:
        training = settings.shards
    test = max(min_test, min(round(training * fraction / (1 - fraction)), documents - training))
    return training, test


def split_by_hash(keys: npt.NDArray[np.uint64], sizes: npt.NDArray[np.int64], fractions: Sequence[float]) -> list[int]:
    """Return the bounds of the ranges of hashes, one for each shard: what is the training and what the test split.

    `fractions` are of the bytes, those of the test shards last; each range has at least one of the sorted `keys`.

    >>> split_by_hash(np.array([5, 6, 7, 8], np.uint64), np.array([50, 10, 10, 30]), [0.5, 0.4, 0.1])
    [0, 6, 8, 18446744073709551616]
    """
    total = np.cumsum(sizes)
    steps = np.arange(1, len(fractions))
    first = np.searchsorted(total - sizes / 2, np.cumsum(fractions)[:-1] * total[-1])  # the nearest ends of documents
    first = np.maximum.accumulate(first - steps) + steps
    first = np.clip(first, steps, len(keys) - len(fractions) + steps)
    return [0, *keys[first].tolist(), HASHES]


class _Reduce(Maker):
    def __init__(self, corpus: str, runs: Sequence[Path] = (), text_bytes: int = 0, *, keep_duplicates: bool = False) -> None:
        self.label = f"shard {corpus}"
        self._runs, self._text_bytes, self._keep_duplicates = runs, text_bytes, keep_duplicates

    def prepare(self) -> None:
        kernels.load()

    def make(self, argument: tuple[int, int], paths: Mapping[str, Path]) -> dict[str, Entry]:
        hashed, crc32c, documents, spaces, newlines = new_hash(), 0, 0, 0, 0
        with atomic_file(paths["text"], tidies=False) as file:
            for _, _, window in read_windows(self._runs, self._text_bytes, *argument):
                copies = window.copies if self._keep_duplicates else np.ones_like(window.copies)
                documents += int(copies.sum())
                for lines in _in_blocks(window, copies):
                    array = np.frombuffer(lines, np.uint8)
                    spaces += int(np.count_nonzero(array == ord(" ")))
                    newlines += int(np.count_nonzero(array == ord("\n")))
                    crc32c = kernels.load().checksum(crc32c, array, len(array))
                    hashed.update(array.data)
                    file.write(array.data)
        sentences = newlines - documents  # a document ends with a blank line
        words = spaces + sentences  # a sentence has single spaces only
        sizes = {"documents": documents, "sentences": sentences, "words": words, "bytes": file.size_bytes}
        return {"text": {**sizes, BLAKE3: hashed.hexdigest(), "crc32c": f"{crc32c:08x}"}}

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        return {
            "sentences": sum(entry["sentences"] for entry in entries),
            "MB_of_text": sum(entry["bytes"] for entry in entries) / 1e6,
        }


def _in_blocks(documents: Documents, copies: npt.NDArray[np.int64]) -> Iterator[memoryview]:
    which = np.repeat(np.arange(len(copies)), copies)
    ends = np.cumsum(documents.sizes()[which])
    cuts = np.searchsorted(ends, np.arange(_WRITE_BYTES, ends[-1] if len(ends) else 0, _WRITE_BYTES))
    yield from (documents.text(block) for block in np.split(which, cuts) if len(block))
