"""Makes text shards by the hash of documents, `--assign hash`: for text of any size, and so that growing it moves nothing.

A document's 128-bit hash, of its text as it is in the shard, says all: training is the first part of the range of hashes, the
test split the last, each is cut into equal ranges, the shards, and in a shard documents are sorted by hash. So equal documents
meet, wherever they come from, and neither names, order nor division of the inputs matter.

    map     a task for each input file, or for each `PIECE_BYTES` of a large text file: clean, split into sentences, sort: runs
    merge   where there are very many runs, some become one, so that reading a range of all is a bounded number of reads
    count   ranges of hashes, by their rows alone: are there documents for every shard?
    reduce  some neighbouring shards: merge their range of all runs, drop what repeats, write

Every task is idempotent, and its files depend on its input alone. The runs are in .map beside the shards, with a journal of
their own, until the manifest is there. Of several parts each maps and merges its own, and then, rather than wait, what nobody
has made yet; it counts for itself, reduces its own, and the one that finds all shards there writes the manifest.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from bertprep import config, kernels, pool
from bertprep.config import HASH, ShardSettings
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import remove_folder
from bertprep.progress import Reporter
from bertprep.sources.formatting import SPLITTERS, SourceFile, Task, read_tasks
from bertprep.terminal import counted
from bertprep.text.assignment import BYTES_PER_SHARD, FEWEST_SHARDS, ShardCounts
from bertprep.text.cleaning import Cleaner
from bertprep.text.documents import TextFile, TextInput, check_inputs, hash_file, read_piece
from bertprep.text.sentences import load_splitter
from bertprep.text.sorted_runs import HASHES, MOST_ROWS, Batch, Run, RunWriter, merge_rows, merge_runs, merge_texts
from bertprep.text.writing import WRITE_BYTES, text_file
from bertprep.workspace.journal import Journal, describe_difference
from bertprep.workspace.layout import MAPPED, TEST, TRAINING, Workspace, text_shard
from bertprep.workspace.manifest import MAPPED_TEXT, SCHEMA, TEXT_SHARDS, Manifest, is_in_place, read_manifest, versions_of
from bertprep.workspace.parts import FINISH, Part
from bertprep.workspace.receipts import Receipts, open_journal, sweep, unfinished
from bertprep.workspace.verification import remove_damaged

PIECE_BYTES = 32_000_000
MOST_RUNS = 1_000
"""Runs are merged until there are no more."""
MERGED_RUNS = 32
"""So many become one."""
TASK_BYTES = 32_000_000
TASK_SHARDS = 256
"""Neighbouring shards are one task up to this size and number, but for each worker or part there are `TASKS_EACH`."""
TASKS_EACH = 16
_MOST_TAKERS = 1_024
MOST_SHARDS = 1 << 16  # without --shards
DOCUMENTS_PER_SHARD = 32  # at least, without --shards
_RULES = {"rules": 1}


@dataclass(frozen=True)
class _Job:
    """What all steps need to know."""

    corpus: str
    settings: ShardSettings
    workers: int
    part: Part | None
    reporter: Reporter
    is_over: Callable[[], bool]  # whether others have finished the corpus meanwhile


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
    part: Part | None = None,
) -> Manifest:
    """Write the missing shards of `corpus`, or of a part of them, as `shards.shard_corpus` does, from sources of any kind.

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
        journal = open_journal(folder, TEXT_SHARDS, finished.made_with)
        if not verify or not remove_damaged(finished, journal, label=TEXT_SHARDS, workers=workers, reporter=reporter):
            _remove_mapped(folder)  # which a run that was killed at its end has left
            return finished
    job = _Job(corpus, settings, workers, part, reporter, lambda: bool(_find_finished(folder, made_with, settings)))
    with _open_mapped(folder, verify, job) as mapped:
        try:
            manifest = None if job.is_over() else _make(folder, mapped, sources, files, made_with, already_empty, job)
        except BertprepError:
            if isinstance(mapped, Journal) or not job.is_over():  # else others removed what this one was reading
                raise
            manifest = None
        manifest = manifest or _find_finished(folder, made_with, settings)
        if manifest and len(manifest.files) == manifest.made_with["shards"] + manifest.made_with["test_shards"]:
            _remove_mapped(folder)
    if manifest is None:
        raise BertprepError(f"{folder}: was finished by another run and has changed since; run the same command again")
    return manifest


def _make(
    folder: Path,
    mapped: Journal | Receipts,
    sources: Sequence[TextInput | SourceFile],
    files: dict[TextInput, TextFile],
    made_with: dict[str, Any],
    already_empty: int,
    job: _Job,
) -> Manifest | None:
    """The manifest of the shards, or of some while others make the rest; None if others have finished them meanwhile."""
    if (found := _map(mapped, sources, files, job)) is None:
        return None
    runs, empty = found
    if (merged := _merge(mapped, runs, job)) is None:
        return None
    counts, by_size = _choose_counts(merged, job)
    made_with = {**made_with, "shards": counts.training, "test_shards": counts.test}
    owned = (TRAINING, TEST)
    with open_journal(folder, TEXT_SHARDS, made_with, part=job.part, owned=owned, wait=True) as journal:
        if journal.found:
            return journal.found
        ranges = _ranges(job.corpus, counts)
        _reduce(journal, ranges, merged, job)
        if missing := journal.missing(ranges):
            return unfinished(journal, ranges, missing, job.part, job.reporter)
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
    if not is_in_place(folder, manifest.files):
        return None
    sweep(folder, manifest)
    return manifest


def _open_mapped(folder: Path, verify: bool, job: _Job) -> Journal | Receipts:
    """What notes the runs; a `Journal` holds their folder for the whole work."""
    mapped = folder / MAPPED
    if mapped.is_symlink():
        raise BertprepError(f"{mapped}: is a link, expected a folder of bertprep's own; remove it")
    if verify and mapped.is_dir():
        journal = open_journal(mapped, MAPPED_TEXT, _RULES, wait=True)
        remove_damaged(None, journal, label=MAPPED_TEXT, workers=job.workers, reporter=job.reporter)
    return open_journal(mapped, MAPPED_TEXT, _RULES, part=job.part, wait=True)


def _remove_mapped(folder: Path) -> None:
    remove_folder(folder / MAPPED)


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


@dataclass(frozen=True)
class MergeTask:
    """A worker's task: one run of some."""

    folder: Path
    key: str
    runs: list[Run]


SortTask = TypeVar("SortTask", MapTask, MergeTask)


def _map(
    journal: Journal | Receipts, sources: Sequence[TextInput | SourceFile], files: dict[TextInput, TextFile], job: _Job
) -> tuple[list[Run], int] | None:
    """The runs of all sources, and the number of empty documents; None if others have finished the corpus."""

    def tasks(first: int) -> Iterator[tuple[str, MapTask]]:
        return _map_tasks(journal.folder, [*sources[first:], *sources[:first]], files, job.settings)

    kernels.load()  # for all workers
    if (facts_of := _sort(journal, "sort", tasks, len(sources), map_documents, job)) is None:
        return None
    runs = [_run(journal.folder, name, facts) for name, facts in facts_of.items()]
    if not sum(run.documents for run in runs):
        raise BertprepError(
            f"{job.corpus}: no document found in {len(sources):,} inputs; expected text, with a blank line after each"
        )
    return [run for run in runs if run.documents], sum(facts["empty"] for facts in facts_of.values())


def _sort(
    journal: Journal | Receipts,
    verb: str,
    tasks: Callable[[int], Iterator[tuple[str, SortTask]]],
    starts: int,
    function: Callable[[SortTask], tuple[str, list[tuple[str, dict[str, Any]]]]],
    job: _Job,
) -> dict[str, dict[str, Any]] | None:
    """The runs of all tasks and their facts, sorted by name, made where they are missing.

    `tasks` gives them from one of its `starts` on, all around. None if others have finished the corpus.
    """
    label_of: dict[str, str] = {}
    part = job.part

    def own() -> Iterator[tuple[str, SortTask]]:
        for index, (label, task) in enumerate(tasks(0)):
            label_of[task.key] = label
            if (part is None or part.has(index)) and _runs_of(journal, task.key) is None:
                yield label, task

    def others(absent: Collection[str], first: int) -> Iterator[tuple[str, SortTask]]:
        for label, task in tasks(first):
            if task.key in absent and not journal.is_noted(run_name(task.key)):
                yield label, task

    def make(given: Iterator[tuple[str, SortTask]]) -> list[str]:
        """Make some, and return the keys of those that are still missing."""
        with (
            job.reporter.progress(f"{verb} {job.corpus}", None, "runs") as shown,
            closing(pool.run(function, given, workers=job.workers)) as results,
        ):
            for _, (_, written) in results:
                journal.add_all(written[1:])
                journal.add(*written[0])  # so all are noted when the first one is
                for _, facts in written:
                    shown.advance(documents=facts["copies"], MB_of_text=facts["copied_bytes"] / 1e6)
        journal.look(journal.noted() - journal.done.keys())
        return [key for key in label_of if _runs_of(journal, key) is None]

    journal.look()
    made_by = {facts["made_by"] for facts in journal.done.values() if "made_by" in facts}
    if others_versions := made_by - set(map(_made_by, config.SPLITTERS)):
        ours = _made_by(job.settings.splitter)
        job.reporter.say(f"{journal.folder}: has text sorted by {min(others_versions)[:200]}; it is made anew by {ours}")
    absent = make(own())
    if absent and part and part != FINISH:
        if job.is_over():
            return None
        job.reporter.say(f"{journal.folder}: {len(absent):,} of {len(label_of):,} are missing; part {part} makes them too")
        absent = make(others(set(absent), starts * part.index // part.count))
    if absent:
        if not isinstance(journal, Journal) and job.is_over():
            return None
        unfinished(journal, label_of, [label_of[key] for key in absent], None, job.reporter)
    return {name: journal.done[name] for key in sorted(label_of) for name in _runs_of(journal, key) or ()}


def run_name(key: str, number: int = 0) -> str:
    """The name of a task's n-th run."""
    return f"{key}_{number:05d}.run"


def _runs_of(journal: Journal | Receipts, key: str) -> list[str] | None:
    """The names of a task's runs; None if not all are there."""
    names: list[str] = []
    while (name := run_name(key, len(names))) in journal.done:
        names.append(name)
        if len(names) == journal.done[name]["runs"]:
            return names
    return None


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
            made_of = json.dumps([identity, number, PIECE_BYTES, splitter, language, _made_by(splitter)])
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
    writer = RunWriter(lambda number: task.folder / run_name(task.key, number))
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
        (name, {**facts, "runs": len(writer.written), "empty": 0 if number else empty, "made_by": _made_by(task.splitter)})
        for number, (name, facts) in enumerate(writer.written)
    ]


@cache
def _made_by(splitter: str) -> str:
    """The versions that decide the bytes of a run."""
    versions = versions_of() if splitter == "lines" else versions_of("sentencex")
    return ", ".join(f"{package} {version}" for package, version in versions.items() if package != "python")


def _merge(journal: Journal | Receipts, runs: list[Run], job: _Job) -> list[Run] | None:
    """At most `MOST_RUNS` runs of the same documents; None if others have finished the corpus."""
    while len(runs) > MOST_RUNS:
        count = min(-(-(len(runs) - MOST_RUNS) // (MERGED_RUNS - 1)), len(runs) // MERGED_RUNS)
        groups = [runs[MERGED_RUNS * at : MERGED_RUNS * (at + 1)] for at in range(count)]

        def tasks(first: int, groups: list[list[Run]] = groups) -> Iterator[tuple[str, MergeTask]]:
            for group in [*groups[first:], *groups[:first]]:
                names = json.dumps([run.path.name for run in group])
                key = f"{hashlib.sha256(names.encode()).hexdigest()[:24]}-merged"
                yield run_name(key), MergeTask(journal.folder, key, group)

        if (merged := _sort(journal, "merge", tasks, count, merge_group, job)) is None:
            return None
        runs = [*runs[MERGED_RUNS * count :], *(_run(journal.folder, name, facts) for name, facts in merged.items())]
    return runs


def merge_group(task: MergeTask) -> tuple[str, list[tuple[str, dict[str, Any]]]]:
    """Write the run of a task; returns the same as `map_documents`."""
    name = run_name(task.key)
    return task.key, [(name, {**merge_runs(task.runs, task.folder / name), "runs": 1, "empty": 0})]


def _choose_counts(runs: Sequence[Run], job: _Job) -> tuple[ShardCounts, bool]:
    """The numbers of shards, and whether they follow from the size of the text: powers of two then, so that they seldom change.

    Every shard has a document. Raises `UsageError` if the number asked for is too large for that.
    """
    settings = job.settings
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
    training_in = _count(runs, 0, _first_of_test(fraction), shards, job)
    while by_size and shards > 1 and not training_in.all():
        training_in = training_in.reshape(-1, 2).sum(axis=1)
        shards //= 2
    test_in = _count(runs, _first_of_test(fraction), HASHES, test, job)
    while test > 1 and not test_in.all():
        test //= 2
        test_in = _count(runs, _first_of_test(fraction), HASHES, test, job)
    documents = int(training_in.sum() + test_in.sum())
    if empty := int((training_in == 0).sum()):
        advice = f"ask for fewer, such as {max(1, documents // DOCUMENTS_PER_SHARD):,}, or give --assign balanced"
        raise UsageError(
            f"--shards {shards}: with --assign hash {empty:,} of them would have no document, since chance deals "
            f"{counted(documents, 'document')}; {advice}"
        )
    if test and not test_in.all():
        raise UsageError(
            f"--test-fraction {fraction}: with --assign hash the test split would have none of "
            f"{counted(documents, 'document')}, since chance deals them; give more documents, "
            "--test-fraction 0 or --assign balanced"
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


def _count(runs: Sequence[Run], low: int, high: int, shards: int, job: _Job) -> npt.NDArray[np.int64]:
    """How many different documents each of the shards of a range of hashes has."""
    if not shards:
        return np.zeros(0, np.int64)
    bounds = _bounds(low, high, shards)
    expected = sum(run.documents for run in runs) * (high - low) // HASHES // shards
    step = max(1, MOST_ROWS // max(1, expected))
    tasks = [(f"shards {at}", bounds[at : at + step + 1]) for at in range(0, shards, step)]
    found: dict[str, npt.NDArray[np.int64]] = {}
    with (
        job.reporter.progress("count", len(tasks), "ranges", enabled=len(tasks) > 100) as shown,
        closing(pool.run(partial(count_documents, tuple(runs)), tasks, workers=job.workers)) as results,
    ):
        for name, of_task in results:
            found[name] = of_task
            shown.advance()
    return np.concatenate([found[name] for name, _ in tasks])


def count_documents(runs: Sequence[Run], bounds: list[int]) -> npt.NDArray[np.int64]:
    """The number of different documents between each two bounds."""
    counts = np.zeros(len(bounds) - 1, np.int64)
    inner = np.array(bounds[1:-1], np.uint64)
    for rows in merge_rows(runs, bounds[0], bounds[-1]):
        counts += np.bincount(np.searchsorted(inner, rows.digests[:, 0], side="right"), minlength=len(counts))
    return counts


Shards = list[tuple[str, int, int]]
"""Neighbouring shards: name and range of hashes of each."""


@dataclass(frozen=True)
class Reducer:
    """Writes shards, some neighbouring ones at once."""

    folder: Path
    runs: tuple[Run, ...]
    keep_duplicates: bool

    def write(self, shards: Shards) -> list[tuple[str, dict[str, Any]]]:
        """Write shards; returns their names and facts for the manifest."""
        batches = merge_texts(self.runs, shards[0][1], shards[-1][2])
        batch, at = next(batches, None), 0
        written = []
        for name, _, high in shards:
            documents, spaces, newlines = 0, 0, np.zeros(1, np.int64)
            with text_file(self.folder / name) as file:
                while batch is not None:
                    stop = int(np.searchsorted(batch.digests[:, 0], np.uint64(high - 1), side="right"))
                    for text, copies in _texts(batch, at, stop, self.keep_duplicates):
                        of_text = np.zeros(1, np.int64)
                        spaces += copies * kernels.load().count_spaces(np.frombuffer(text, np.uint8), len(text), of_text)
                        newlines += copies * of_text
                        for _ in range(copies):
                            file.add(text)
                    documents += int(batch.copies[at:stop].sum()) if self.keep_duplicates else stop - at
                    at = stop
                    if stop < len(batch.ends):
                        break
                    batch, at = next(batches, None), 0
            if not documents:
                raise BertprepError(f"{self.folder / name}: no document has a hash in its range; ask for fewer --shards")
            sentences = int(newlines[0]) - documents  # a document ends with a blank line
            words = spaces + sentences  # a sentence has single spaces only
            written.append((name, {"documents": documents, "sentences": sentences, "words": words, **file.facts()}))
        return written


def _reduce(journal: Journal | Receipts, ranges: dict[str, tuple[int, int]], runs: Sequence[Run], job: _Job) -> None:
    """Write the missing shards, of a part its own."""
    groups = _group(ranges, sum(run.copied_bytes for run in runs), job)
    own = job.part.deal(groups) if job.part else groups
    journal.look([name for group in own for name, _, _ in group])
    tasks = [(missing[0][0], missing) for group in own for missing in _missing(group, journal)]
    reducer = Reducer(journal.folder, tuple(runs), job.settings.keep_duplicates)
    with (
        job.reporter.progress(f"shard {job.corpus}", sum(len(shards) for _, shards in tasks)) as shown,
        closing(pool.run(reducer.write, tasks, workers=job.workers)) as results,
    ):
        for _, written in results:
            journal.add_all(written)
            for _, facts in written:
                shown.advance(sentences=facts["sentences"], MB_of_text=facts["bytes"] / 1e6)


def _group(ranges: dict[str, tuple[int, int]], text_bytes: int, job: _Job) -> list[Shards]:
    """Neighbouring shards that are one task; the same ones in all parts of a number of parts."""
    takers = job.part.count if job.part else min(job.workers, _MOST_TAKERS)
    most = max(1, min(TASK_SHARDS, len(ranges) // (TASKS_EACH * max(1, takers))))
    groups: list[Shards] = []
    filled = 0
    for name, (low, high) in ranges.items():
        size = text_bytes * (high - low) // HASHES
        if not groups or filled + size > TASK_BYTES or len(groups[-1]) == most:
            groups.append([])
            filled = 0
        groups[-1].append((name, low, high))
        filled += size
    return groups


def _missing(group: Shards, journal: Journal | Receipts) -> list[Shards]:
    """What is not finished of neighbouring shards, still as neighbours."""
    found: list[Shards] = []
    for shard in group:
        if shard[0] in journal.done:
            continue
        if not found or found[-1][-1][2] != shard[1]:
            found.append([])
        found[-1].append(shard)
    return found


def _texts(batch: Batch, at: int, stop: int, keep_duplicates: bool) -> Iterator[tuple[memoryview, int]]:
    """The documents from number `at` to `stop`, in stretches, and how often each is to be written."""
    text, ends = memoryview(batch.text), np.append(0, batch.ends)
    if not keep_duplicates or (batch.copies[at:stop] == 1).all():
        for start in range(int(ends[at]), int(ends[stop]), WRITE_BYTES):
            yield text[start : min(start + WRITE_BYTES, int(ends[stop]))], 1
        return
    for number in range(at, stop):
        yield text[int(ends[number]) : int(ends[number + 1])], int(batch.copies[number])
