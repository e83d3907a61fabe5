"""Makes text shards by the hash of documents, `--assign hash`: for text of any size, and so that growing it moves nothing.

A document's 128-bit hash, of its text as it is in the shard, says all: training is the first part of the range of hashes, the
test split the last, each is cut into equal ranges, the shards, and in a shard documents are sorted by hash. So equal documents
meet, wherever they come from, and neither names, order nor division of the inputs matter.

    map     a task for each input file, or for each `PIECE_BYTES` of a large text file: clean, split into sentences, sort: runs
    merge   where there are very many runs, some become one, so that reading a range of all is a bounded number of reads
    count   ranges of hashes, by their rows alone: are there documents for every shard?
    reduce  some neighbouring shards: merge their range of all runs, drop what repeats, write

Every task is idempotent. The runs are in .map beside the shards, with a journal of their own, until the manifest is there.
"""

import hashlib
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from bertprep import kernels, pool
from bertprep.config import HASH, ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.progress import Reporter
from bertprep.sources.formatting import SPLITTERS, SourceFile, Task, read_tasks
from bertprep.text.assignment import BYTES_PER_SHARD, FEWEST_SHARDS, ShardCounts
from bertprep.text.cleaning import Cleaner
from bertprep.text.documents import TextFile, TextInput, check_inputs, hash_file, read_piece
from bertprep.text.sentences import load_splitter
from bertprep.text.sorted_runs import HASHES, MOST_ROWS, Batch, Run, RunWriter, merge_rows, merge_runs, merge_texts
from bertprep.text.writing import WRITE_BYTES, text_file
from bertprep.workspace.journal import Journal, describe_difference
from bertprep.workspace.layout import MAPPED, TEST, TRAINING, Workspace, text_shard
from bertprep.workspace.manifest import MAPPED_TEXT, SCHEMA, TEXT_SHARDS, Manifest, is_in_place, read_manifest, versions_of
from bertprep.workspace.verification import remove_damaged

PIECE_BYTES = 32_000_000
MOST_RUNS = 1_000
"""Runs are merged until there are no more."""
MERGED_RUNS = 32
"""So many become one."""
TASK_BYTES = 32_000_000
TASK_SHARDS = 256
"""Neighbouring shards are one task up to this size and number."""
MOST_SHARDS = 1 << 16  # without --shards
DOCUMENTS_PER_SHARD = 32  # at least, without --shards
_RULES = {"rules": 1}


def hash_corpus(
    workspace: Workspace,
    corpus: str,
    sources: Sequence[TextInput | SourceFile],
    settings: ShardSettings,
    *,
    workers: int,
    verify: bool = False,
    reporter: Reporter,
    already_empty: int = 0,
    about: dict[str, Any] | None = None,
) -> Manifest:
    """Write the missing shards of `corpus`, as `shards.shard_corpus` does, but assigned by hash and from sources of any kind.

    The manifest's `made_with` says `"assign": "hash"`, and lists the inputs by content, sorted. Raises `UsageError` if a shard
    would have no document.
    """
    folder = workspace.sharded(corpus)
    files = _hash_files(corpus, sources, workers, reporter)
    made_with = {
        "assign": HASH,
        "inputs": _identities(sources, files),
        "splitter": settings.splitter,
        "language": settings.language or "en",
        "keep_duplicates": settings.keep_duplicates,
        "test_fraction": settings.test_fraction,
        **(about or {}),
    }
    if finished := _find_finished(folder, made_with, settings):
        journal = Journal(folder, TEXT_SHARDS, finished.made_with)
        if not verify or not remove_damaged(finished, journal, label=TEXT_SHARDS, workers=workers, reporter=reporter):
            return finished
    with _mapped(folder, verify, workers, reporter) as mapped:
        if finished := _find_finished(folder, made_with, settings):  # another run made it meanwhile
            return finished
        runs, empty = _map(mapped, corpus, sources, files, settings, workers, reporter)
        runs = _merge(mapped, corpus, runs, workers, reporter)
        counts, by_size = _choose_counts(runs, settings, workers, reporter)
        made_with |= {"shards": counts.training, "test_shards": counts.test}
        with Journal(folder, TEXT_SHARDS, made_with, owned=(TRAINING, TEST), wait=True) as journal:
            if journal.found:
                return journal.found
            ranges = _ranges(corpus, counts)
            _reduce(journal, corpus, ranges, runs, settings, workers, reporter)
            documents = sum(journal.done[name]["documents"] for name in ranges)
            dropped = {
                "dropped_empty": empty + already_empty,
                "dropped_duplicates": sum(run.copies for run in runs) - documents,
                "shards_by_size": int(by_size),
            }
            return journal.finish(ranges, versions_of("sentencex"), dropped)


def _hash_files(
    corpus: str, sources: Sequence[TextInput | SourceFile], workers: int, reporter: Reporter
) -> dict[TextInput, TextFile]:
    """The size and sha256 of each plain text file; those of other sources are known."""
    inputs = [source for source in sources if isinstance(source, TextInput)]
    check_inputs(inputs)
    with (
        reporter.progress(f"read {corpus}", len(inputs), "files", enabled=bool(inputs)) as shown,
        closing(pool.run(hash_file, [(str(given.path), given) for given in inputs], workers=workers)) as results,
    ):
        files = {}
        for _, file in results:
            files[file.input] = file
            shown.advance(MB_of_text=file.size_bytes / 1e6)
    return files


def _identities(sources: Sequence[TextInput | SourceFile], files: dict[TextInput, TextFile]) -> list[dict[str, Any]]:
    """What determines the documents of each source, sorted: without names, where the content is known by a hash."""
    return sorted((_identity(source, files) for source in sources), key=json.dumps)


def _identity(source: TextInput | SourceFile, files: dict[TextInput, TextFile]) -> dict[str, Any]:
    if isinstance(source, TextInput):
        identity: dict[str, Any] = {"bytes": files[source].size_bytes, "sha256": files[source].sha256}
        if source.one_document:
            identity["one_document"] = True
        if source.splitter:
            identity["splitter"] = source.splitter
        return identity
    facts = source.facts()
    return {key: value for key, value in facts.items() if key != "name" or "sha256" not in facts}


def _find_finished(folder: Path, made_with: dict[str, Any], settings: ShardSettings) -> Manifest | None:
    """The manifest of finished shards; raises `BertprepError` for one of other text or settings.

    The numbers of shards are not known before the text is read, but whether they were asked for, or chosen by its size.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    numbers = {name: manifest.made_with.get(name) for name in ("shards", "test_shards")}
    by_size = bool(manifest.counts.get("shards_by_size"))
    if settings.shards is not None or not by_size:
        asked = {**made_with, **numbers, "shards": settings.shards}
    else:
        asked = {**made_with, **numbers}
    header = {"schema": SCHEMA, "kind": TEXT_SHARDS, "made_with": json.loads(json.dumps(asked))}
    found = {"schema": SCHEMA, "kind": manifest.kind, "made_with": manifest.made_with}
    if found != header:
        difference = describe_difference(found, header)
        raise BertprepError(f"{folder}: {difference}; choose another --workdir or --corpus, or remove this folder")
    return manifest if is_in_place(folder, manifest.files) else None


@contextmanager
def _mapped(folder: Path, verify: bool, workers: int, reporter: Reporter) -> Iterator[Journal]:
    """The journal of the runs, which holds their folder for the whole work; the folder is removed when the shards are there."""
    mapped = folder / MAPPED
    if mapped.is_symlink():
        raise BertprepError(f"{mapped}: is a link, expected a folder of bertprep's own; remove it")
    if verify and mapped.is_dir():
        journal = Journal(mapped, MAPPED_TEXT, _RULES, wait=True)
        remove_damaged(None, journal, label=MAPPED_TEXT, workers=workers, reporter=reporter)
    with Journal(mapped, MAPPED_TEXT, _RULES, wait=True) as journal:
        yield journal
        shutil.rmtree(mapped, ignore_errors=True)


@dataclass(frozen=True)
class Piece:
    """A worker's task: the documents that begin in some bytes of a text file."""

    file: TextFile
    start: int
    end: int


@dataclass(frozen=True)
class MapTask:
    """A worker's task: runs of some documents."""

    folder: Path
    key: str  # the names of its runs begin with it
    source: Piece | Task
    splitter: str
    language: str


def _map(
    journal: Journal,
    corpus: str,
    sources: Sequence[TextInput | SourceFile],
    files: dict[TextInput, TextFile],
    settings: ShardSettings,
    workers: int,
    reporter: Reporter,
) -> tuple[list[Run], int]:
    """The runs of all sources, and the number of empty documents."""
    done: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)  # by key
    for name, facts in journal.done.items():
        done[name.partition("_")[0]][name] = facts
    wanted: set[str] = set()

    def tasks() -> Iterator[tuple[str, MapTask]]:
        for label, task in _map_tasks(journal.folder, sources, files, settings):
            wanted.add(task.key)
            of_task = done[task.key]
            if not of_task or len(of_task) != next(iter(of_task.values())).get("runs"):
                of_task.clear()
                yield label, task

    kernels.load()  # for all workers
    with (
        reporter.progress(f"sort {corpus}", None, "runs") as shown,
        closing(pool.run(map_documents, tasks(), workers=workers)) as results,
    ):
        for _, (key, written) in results:
            for name, facts in written:
                journal.add(name, facts)
                done[key][name] = facts
                shown.advance(documents=facts["copies"], MB_of_text=facts["copied_bytes"] / 1e6)
    facts_of = {name: facts for key in sorted(wanted) for name, facts in sorted(done[key].items())}
    runs = [_run(journal.folder, name, facts) for name, facts in facts_of.items()]
    if not sum(run.documents for run in runs):
        raise BertprepError(
            f"{corpus}: no document found in {len(sources):,} inputs; expected text, with a blank line after each"
        )
    return [run for run in runs if run.documents], sum(facts["empty"] for facts in facts_of.values())


def _run(folder: Path, name: str, facts: dict[str, Any]) -> Run:
    run = Run.of(folder / name, facts)
    if run.size_bytes != facts["bytes"]:
        raise BertprepError(f"{run.path}: is not as its journal says; remove {folder}, and the same command makes it again")
    return run


def _map_tasks(
    folder: Path, sources: Sequence[TextInput | SourceFile], files: dict[TextInput, TextFile], settings: ShardSettings
) -> Iterator[tuple[str, MapTask]]:
    seen: Counter[str] = Counter()
    language = settings.language or "en"
    for source in sources:
        identity = _identity(source, files)
        splitter = (source.splitter if isinstance(source, TextInput) else SPLITTERS.get(source.reader)) or settings.splitter
        parts: Iterable[tuple[str, Piece | Task]]
        if isinstance(source, TextInput):
            parts = ((str(source.path), piece) for piece in _cut(files[source]))
        else:
            parts = read_tasks({0: source})
        for number, (label, part) in enumerate(parts):
            made_of = json.dumps([identity, number, PIECE_BYTES, splitter, language])
            seen[made_of] += 1  # the same file twice, under two names
            key = hashlib.sha256(f"{made_of} {seen[made_of]}".encode()).hexdigest()[:24]
            yield label, MapTask(folder, key, part, splitter, language)


def _cut(file: TextFile) -> Iterator[Piece]:
    """The pieces of a text file: they end at the first blank line after a multiple of `PIECE_BYTES`."""
    start = 0
    if file.size_bytes > PIECE_BYTES and not file.input.one_document:
        with file.input.path.open("rb") as opened:
            while start + PIECE_BYTES < file.size_bytes:
                end = _after_blank_line(opened, (start // PIECE_BYTES + 1) * PIECE_BYTES)
                yield Piece(file, start, end)
                start = end
    if start < file.size_bytes or not start:
        yield Piece(file, start, file.size_bytes)


def _after_blank_line(file: BinaryIO, position: int) -> int:
    """The end of the first blank line that begins after `position`, or of the file."""
    file.seek(position)
    file.readline()
    while (line := file.readline()) and line.strip():
        pass
    return file.tell()


def map_documents(task: MapTask) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """Write the runs of a task; returns its key, and their names and facts: "runs", how many, and "empty" documents dropped."""
    splitter = load_splitter(task.splitter, task.language)
    writer = RunWriter(lambda number: task.folder / f"{task.key}_{number:05d}.run")
    empty = 0
    if isinstance(task.source, Piece):
        for text, ends, dropped in read_piece(task.source.file, task.source.start, task.source.end):
            empty += dropped
            if len(ends):
                writer.add(splitter.split(text, ends))
    else:
        cleaner = Cleaner(writer, splitter)
        for document in task.source.documents():
            cleaner.add(document)
        cleaner.flush()
        empty = cleaner.empty
    if len(writer) or not writer.written:
        writer.flush()
    return task.key, [
        (name, {**facts, "runs": len(writer.written), "empty": 0 if number else empty})
        for number, (name, facts) in enumerate(writer.written)
    ]


def _merge(journal: Journal, corpus: str, runs: list[Run], workers: int, reporter: Reporter) -> list[Run]:
    """At most `MOST_RUNS` runs of the same documents."""
    while len(runs) > MOST_RUNS:
        groups = min(-(-(len(runs) - MOST_RUNS) // (MERGED_RUNS - 1)), len(runs) // MERGED_RUNS)
        merged: dict[str, dict[str, Any]] = {}
        tasks = []
        for at in range(groups):
            group = runs[MERGED_RUNS * at : MERGED_RUNS * (at + 1)]
            names = json.dumps([run.path.name for run in group])
            name = f"{hashlib.sha256(names.encode()).hexdigest()[:24]}_merged.run"
            if name in journal.done:
                merged[name] = journal.done[name]
            else:
                tasks.append((name, (journal.folder / name, group)))
        with (
            reporter.progress(f"merge {corpus}", len(tasks), "runs") as shown,
            closing(pool.run(_merge_group, tasks, workers=workers)) as results,
        ):
            for name, facts in results:
                journal.add(name, facts)
                merged[name] = facts
                shown.advance(MB_of_text=facts["text_bytes"] / 1e6)
        rest = runs[MERGED_RUNS * groups :]
        runs = [*rest, *(_run(journal.folder, name, facts) for name, facts in sorted(merged.items()))]
    return runs


def _merge_group(task: tuple[Path, list[Run]]) -> dict[str, Any]:
    path, runs = task
    return {**merge_runs(runs, path), "runs": 1, "empty": 0}


def _choose_counts(runs: Sequence[Run], settings: ShardSettings, workers: int, reporter: Reporter) -> tuple[ShardCounts, bool]:
    """The numbers of shards, and whether they follow from the size of the text: powers of two then, so that they seldom change.

    Every shard has a document. Raises `UsageError` if the number asked for is too large for that.
    """
    fraction = settings.test_fraction
    by_size = settings.shards is None
    if settings.shards is None:
        size_bytes, documents = sum(run.copied_bytes for run in runs), sum(run.copies for run in runs)
        shards = max(FEWEST_SHARDS, min(_power_of_two(Fraction(size_bytes, BYTES_PER_SHARD)), MOST_SHARDS))
        shards = min(shards, _power_of_two(Fraction(documents, DOCUMENTS_PER_SHARD)))
    else:
        shards = settings.shards
    wanted = shards * fraction / (1 - fraction)
    test = 0 if not fraction else max(1, _power_of_two(Fraction(wanted)) if by_size else round(wanted))
    training_in = _count(runs, 0, _first_of_test(fraction), shards, workers, reporter)
    while by_size and shards > 1 and not training_in.all():
        training_in = training_in.reshape(-1, 2).sum(axis=1)
        shards //= 2
    test_in = _count(runs, _first_of_test(fraction), HASHES, test, workers, reporter)
    while test > 1 and not test_in.all():
        test //= 2
        test_in = _count(runs, _first_of_test(fraction), HASHES, test, workers, reporter)
    documents = int(training_in.sum() + test_in.sum())
    if empty := int((training_in == 0).sum()):
        advice = f"ask for fewer, such as {max(1, documents // DOCUMENTS_PER_SHARD):,}, or give --assign balanced"
        raise UsageError(
            f"--shards {shards}: with --assign hash {empty:,} of them would have no document, since chance deals "
            f"{documents:,} documents; {advice}"
        )
    if test and not test_in.all():
        raise UsageError(
            f"--test-fraction {fraction}: with --assign hash the test split would have none of the {documents:,} documents, "
            "since chance deals them; give more documents, --test-fraction 0 or --assign balanced"
        )
    return ShardCounts(shards, test, fraction), by_size


def _power_of_two(value: Fraction) -> int:
    """The power of two that is nearest by ratio, at least 1; exact, since numbers of shards must be the same everywhere.

    >>> [_power_of_two(Fraction(value)) for value in (0, 1.4, 1.5, 724, 725)]
    [1, 1, 2, 512, 1024]
    """
    power = 1
    while value * value >= 2 * power * power:
        power *= 2
    return power


def _first_of_test(fraction: float) -> int:
    return int((1 - fraction) * float(HASHES))


def _bounds(low: int, high: int, shards: int) -> list[int]:
    return [low + (high - low) * n // shards for n in range(shards + 1)] if shards else []


def _ranges(corpus: str, counts: ShardCounts) -> dict[str, tuple[int, int]]:
    """The range of hashes of each shard, in their order."""
    border = _first_of_test(counts.test_fraction)
    found = {}
    for split, shards, low, high in ((TRAINING, counts.training, 0, border), (TEST, counts.test, border, HASHES)):
        bounds = _bounds(low, high, shards)
        for n in range(shards):
            found[text_shard(split, corpus, n)] = bounds[n], bounds[n + 1]
    return found


def _count(runs: Sequence[Run], low: int, high: int, shards: int, workers: int, reporter: Reporter) -> npt.NDArray[np.int64]:
    """How many different documents each of the shards of a range of hashes has."""
    if not shards:
        return np.zeros(0, np.int64)
    bounds = _bounds(low, high, shards)
    expected = sum(run.documents for run in runs) * (high - low) // HASHES // shards
    step = max(1, MOST_ROWS // max(1, expected))
    tasks = [(f"shards {at}", (tuple(runs), bounds[at : at + step + 1])) for at in range(0, shards, step)]
    found: dict[str, npt.NDArray[np.int64]] = {}
    with (
        reporter.progress("count", len(tasks), "ranges", enabled=len(tasks) > 100) as shown,
        closing(pool.run(count_documents, tasks, workers=workers)) as results,
    ):
        for name, of_task in results:
            found[name] = of_task
            shown.advance()
    return np.concatenate([found[name] for name, _ in tasks])


def count_documents(task: tuple[tuple[Run, ...], list[int]]) -> npt.NDArray[np.int64]:
    """The number of different documents between each two bounds."""
    runs, bounds = task
    counts = np.zeros(len(bounds) - 1, np.int64)
    inner = np.array(bounds[1:-1], np.uint64)
    for rows in merge_rows(runs, bounds[0], bounds[-1]):
        counts += np.bincount(np.searchsorted(inner, rows.digests[:, 0], side="right"), minlength=len(counts))
    return counts


@dataclass(frozen=True)
class ReduceTask:
    """A worker's task: some neighbouring shards."""

    folder: Path
    shards: list[tuple[str, int, int]]  # name and range of hashes
    runs: tuple[Run, ...]
    keep_duplicates: bool


def _reduce(
    journal: Journal,
    corpus: str,
    ranges: dict[str, tuple[int, int]],
    runs: Sequence[Run],
    settings: ShardSettings,
    workers: int,
    reporter: Reporter,
) -> None:
    """Write the missing shards."""
    text_bytes = sum(run.copied_bytes for run in runs)
    groups: list[list[tuple[str, int, int]]] = []
    filled = 0
    for name, (low, high) in ranges.items():
        if name in journal.done:
            continue
        size = text_bytes * (high - low) // HASHES
        if not groups or groups[-1][-1][2] != low or filled + size > TASK_BYTES or len(groups[-1]) == TASK_SHARDS:
            groups.append([])
            filled = 0
        groups[-1].append((name, low, high))
        filled += size
    tasks = [(group[0][0], ReduceTask(journal.folder, group, tuple(runs), settings.keep_duplicates)) for group in groups]
    with (
        reporter.progress(f"shard {corpus}", sum(map(len, groups))) as shown,
        closing(pool.run(write_shards, tasks, workers=workers)) as results,
    ):
        for _, written in results:
            for name, facts in written:
                journal.add(name, facts)
                shown.advance(sentences=facts["sentences"], MB_of_text=facts["bytes"] / 1e6)


def write_shards(task: ReduceTask) -> list[tuple[str, dict[str, Any]]]:
    """Write the shards of a task; returns their names and facts for the manifest."""
    batches = merge_texts(task.runs, task.shards[0][1], task.shards[-1][2])
    batch, at = next(batches, None), 0
    written = []
    for name, _, high in task.shards:
        documents, spaces, newlines = 0, 0, np.zeros(1, np.int64)
        with text_file(task.folder / name, tidies=False) as file:
            while batch is not None:
                stop = int(np.searchsorted(batch.digests[:, 0], np.uint64(high - 1), side="right"))
                for text, copies in _texts(batch, at, stop, task.keep_duplicates):
                    of_text = np.zeros(1, np.int64)
                    spaces += copies * kernels.load().count_spaces(np.frombuffer(text, np.uint8), len(text), of_text)
                    newlines += copies * of_text
                    for _ in range(copies):
                        file.add(text)
                documents += int(batch.copies[at:stop].sum()) if task.keep_duplicates else stop - at
                at = stop
                if stop < len(batch.ends):
                    break
                batch, at = next(batches, None), 0
        if not documents:
            raise BertprepError(f"{task.folder / name}: no document has a hash in its range; ask for fewer --shards")
        sentences = int(newlines[0]) - documents  # a document ends with a blank line
        words = spaces + sentences  # a sentence has single spaces only
        written.append((name, {"documents": documents, "sentences": sentences, "words": words, **file.facts()}))
    return written


def _texts(batch: Batch, at: int, stop: int, keep_duplicates: bool) -> Iterator[tuple[memoryview, int]]:
    """The documents from number `at` to `stop`, in stretches, and how often each is to be written."""
    text, ends = memoryview(batch.text), np.append(0, batch.ends)
    if not keep_duplicates or (batch.copies[at:stop] == 1).all():
        for start in range(int(ends[at]), int(ends[stop]), WRITE_BYTES):
            yield text[start : min(start + WRITE_BYTES, int(ends[stop]))], 1
        return
    for number in range(at, stop):
        yield text[int(ends[number]) : int(ends[number + 1])], int(batch.copies[number])
