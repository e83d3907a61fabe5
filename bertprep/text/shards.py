"""Makes text shards from any amount of text: one sentence per line, a blank line after each document.

Documents are sorted by the hash of their text, and each shard gets a range of hashes with about the same number of bytes. The
last ranges are the test split. So duplicates meet, and the order and names of the inputs do not matter. If the user gives the
test split, each split is sorted and divided by itself, and training leaves out documents that are also in the test split.

    copy      write dumps and text in memory to files that several processes can read
    sort      clean inputs or pieces of a large file, split them into sentences, and sort their documents: these are runs
    merge     merge many runs into fewer, which bounds the number of reads for a range of hashes
    cut       choose the ranges, by the hash and size of each document in all runs
    shard     merge one range of all runs, and drop duplicates

Each step but cut is a job of `work.run`. Its files are in .map, have names derived from their content, and allow resuming.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertprep import kernels, pool
from bertprep.config import ShardSettings
from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file, remove_folder, without_empty_folders
from bertprep.files.checksums import BLAKE3, digest, new_hash
from bertprep.files.paths import as_path
from bertprep.progress import Reporter
from bertprep.sources.corpora import printed_name
from bertprep.sources.documents import BATCH_TEXT_BYTES, MEMORY, SPLITTERS, WHOLE, Batch, Source, copy_stream
from bertprep.sources.dump import SKIPPED
from bertprep.sources.plain_text import Piece, TextFile, cut_file, hash_file, read_piece
from bertprep.sources.wiki.paragraphs import Removed, name_count
from bertprep.terminal import counted
from bertprep.text.cleaning import write_lines
from bertprep.text.ranges import Ranges, divide, hold_out, read_keys
from bertprep.text.runs import Documents, Sorter, merge_runs, read_windows, run_file
from bertprep.text.wrapping import Counts
from bertprep.work.data_set import shards_of_split
from bertprep.work.layout import MAPPED, SPLITS, TEST, TRAINING, text_shard
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.made import Made
from bertprep.work.manifest import MAPPED_TEXT, TEXT_SHARDS, Manifest, is_in_place, read_manifest, versions_of
from bertprep.work.parts import Finish, Part
from bertprep.work.resume import without_prepared
from bertprep.work.run import Job, Maker, Task
from bertprep.work.settings import check_same, make_header, read_header

PIECE_BYTES = 24_000_000
"""The amount of text that one task sorts: several small inputs, or a piece of a large file."""
MAX_RUNS = 128
"""Runs are merged until at most this many are left."""
MERGED_RUNS = 32
"""The number of runs that are merged into one."""
_WRITE_BYTES = 2_000_000
RUNS, ROWS = ".arrow", ".rows"
REMOVED = "removed"
"""The key, in the entry of a file of runs, of what was removed from wikis' pages: numbers by reason."""


def shard_corpus(
    folder: Path,
    sources: Sequence[Source],
    settings: ShardSettings,
    *,
    part: Part | Finish | None,
    workers: int,
    reporter: Reporter,
) -> Made:
    """Write the missing text shards of a corpus, or those of one part, to the folder, which is named for the corpus.

    The manifest's `made_with` has the numbers of shards and the identity of the text; its `files` have the documents,
    sentences, words, bytes and BLAKE3 of each shard. Raises `UsageError` if the request cannot be met, and `BertprepError`
    if the text is unusable or the folder has shards of other text or settings.
    """
    steps = _Steps(folder, folder.name, settings, workers, part, reporter)
    with without_empty_folders(folder):
        return _shard(steps, sources)


def _shard(steps: "_Steps", sources: Sequence[Source]) -> Made:
    corpus, settings = steps.corpus, steps.settings
    copies = {} if all(source.is_known for source in sources) else _copy_streams(steps, sources)
    sources = [
        source if source.is_known else replace(source, identity={BLAKE3: copies[index].content})
        for index, source in enumerate(sources)
    ]
    files = hash_files(sources, corpus, steps.workers, steps.reporter)
    made_with = {
        "inputs": sorted(identify_split(sources, files, TRAINING), key=json.dumps),
        "splitter": settings.splitter,
        "language": settings.language or "en",
        "keep_duplicates": settings.keep_duplicates,
        "test_fraction": settings.test_fraction,
    }
    if test_inputs := identify_split(sources, files, TEST):
        made_with |= {"test_inputs": sorted(test_inputs, key=json.dumps), "test_fraction": 0.0}
    finished = _find_finished(steps, made_with)
    if finished is None:
        try:
            made = _make_shards(steps, sources, files, copies or _copy_streams(steps, sources), made_with)
        except BertprepError:  # another run may have finished, and removed the files that this one was reading
            if (finished := _find_finished(steps, made_with)) is None:
                raise
    if finished:
        ledger = Ledger(folder=steps.folder, kind=TEXT_SHARDS, made_with=finished.made_with, versions=finished.versions)
        tasks = [Task(name, {"text": name}) for name in finished.files]
        made = Job(_Reduce(corpus), {"text": ledger}, tasks).run(steps.part, steps.workers, steps.reporter)
    if made.is_complete:
        remove_folder(steps.folder / MAPPED)
    return made


@dataclass(frozen=True)
class _Steps:
    """Values that all steps of sharding a corpus need: the folder of the shards, the settings, and how the work is done."""

    folder: Path
    corpus: str
    settings: ShardSettings
    workers: int
    part: Part | Finish | None
    reporter: Reporter

    @property
    def printed(self) -> str:
        """The name of the corpus in messages."""
        return printed_name(self.corpus)

    @property
    def prepared(self) -> Path:
        """The folder of the files that the steps make, which is named for everything that they depend on except the text."""
        of = json.dumps([self.settings.splitter, self.settings.language, {**versions_of(), "python": ""}])
        return self.folder / MAPPED / hashlib.sha256(of.encode()).hexdigest()[:16]

    def run(self, maker: Maker, name: str, tasks: Sequence[Task], workers: int | None = None) -> dict[str, Entry]:
        """Make all files of a step, even those that other parts have not made yet, and return their entries."""
        folder = self.prepared / name
        if (self.folder / MAPPED).is_symlink():
            raise BertprepError(f"{self.folder / MAPPED}: is a link, expected a folder made by bertprep; remove the link")
        names = {name for task in tasks for name in task.files.values()}
        if (finished := read_manifest(folder)) and finished.files.keys() != names:
            remove_folder(folder)  # it was made from other inputs
        ledger = Ledger(folder=folder, kind=MAPPED_TEXT, made_with={}, versions=versions_of())
        ledgers = dict.fromkeys(tasks[0].files, ledger)
        workers = workers or self.workers
        step = Job(maker, ledgers, tasks, is_step=True)
        made = step.run(self.part, workers, self.reporter)
        if not made.is_complete:
            self.reporter.message(
                f"{maker.label}: every part needs all of the prepared text, so part {self.part} also prepares what the other "
                "parts have not prepared yet"
            )
            made = step.run(None, workers, self.reporter)
        return {str(folder / name): entry for name, entry in made.manifest.files.items()}


def _find_finished(steps: _Steps, made_with: dict[str, Any]) -> Manifest | None:
    """Return the manifest of the shards if they are finished, else None; raise `BertprepError` for other text or settings.

    Without --shards, any number of shards will do. Unfinished shards are compared too, before a step removes what other parts
    have prepared.
    """
    manifest = read_manifest(steps.folder)
    found = make_header(manifest.kind, manifest.made_with) if manifest else read_header(steps.folder)
    if found is None:
        return None
    numbers = {name: found["made_with"].get(name) for name in ("shards", "test_shards")}
    if steps.settings.shards is not None:
        numbers["shards"] = steps.settings.shards
    asked = make_header(TEXT_SHARDS, {**made_with, **numbers})
    is_part = manifest is None and steps.part is not None
    check_same(steps.folder, found, asked, "choose another --workdir or --corpus", is_part=is_part)
    return manifest if manifest and is_in_place(steps.folder, manifest.files) else None


def _make_shards(
    steps: _Steps,
    sources: Sequence[Source],
    files: Mapping[str, TextFile],
    copies: Mapping[int, "_Copied"],
    made_with: dict[str, Any],
) -> Made:
    splits = SPLITS if "test_inputs" in made_with else (TRAINING,)
    texts = {split: _sort(steps, split, sources, files, copies) for split in splits}
    with without_prepared(steps.folder, steps.prepared):
        ranges = _find_ranges(texts, steps)
    runs = {split: _merge(steps, split, text.runs) for split, text in texts.items()}
    skipped = sum((copy.skipped for copy in copies.values()), Counter[str]())
    for text in texts.values():
        skipped += text.removed()
    counts = {**skipped, "dropped_empty": sum(text.count("empty") for text in texts.values())}
    changed = sum((text.changed for text in texts.values()), Counter[str]())
    counts |= {name: count for name, count in changed.items() if count}
    if TEST in texts:
        counts["dropped_in_test"] = ranges.in_test
    ledger = ShardLedger(
        folder=steps.folder,
        kind=TEXT_SHARDS,
        made_with={**made_with, "shards": len(ranges.training), "test_shards": len(ranges.test)},
        versions=versions_of(),
        counts=counts,
        copies_of_documents=sum(text.count("copies") for text in texts.values()) - ranges.in_test,
    )
    reduce = _Reduce(
        steps.corpus,
        runs={split: tuple(runs.get(split, runs[TRAINING])) for split in SPLITS},
        text_bytes=sum(entry["text_bytes"] for of_split in runs.values() for entry in of_split.values()),
        left_out=texts[TEST].rows if TEST in texts else (),
        keep_duplicates=steps.settings.keep_duplicates,
    )
    finished, tasks = read_manifest(steps.folder), []
    for split, of_split in zip(SPLITS, (ranges.training, ranges.test), strict=True):
        names = shards_of_split(finished.files, split) if finished else []  # made in a folder that may have had another name
        if len(names) != len(of_split):
            names = [text_shard(split, steps.corpus, number) for number in range(len(of_split))]
        for name, (low, high) in zip(names, of_split, strict=True):
            tasks.append(Task(name, {"text": name}, _ShardRange(split, low, high)))
    return Job(reduce, {"text": ledger}, tasks).run(steps.part, steps.workers, steps.reporter)


def _find_ranges(texts: Mapping[str, "_Sorted"], steps: _Steps) -> Ranges:
    """Return the hash ranges of all shards, from a text for each split or from one text, part of which is held out."""
    for split, text in texts.items():
        if not text.count("documents"):
            named = "--test-input: no document" if split == TEST else f"{steps.printed}: no document"
            raise BertprepError(
                f"{named} in {counted(text.inputs, 'input')}; expected text with a blank line between documents"
            )
    training, test = texts[TRAINING], texts.get(TEST)
    documents = training.count("documents")
    if test is None:
        return hold_out(training.rows, documents, steps.settings)
    return divide(training.rows, documents, test.rows, test.count("documents"), steps.settings)


@dataclass(eq=False, kw_only=True)
class ShardLedger(Ledger):
    """The ledger of shards, which also counts dropped duplicates; `copies_of_documents` were read, duplicates included."""

    copies_of_documents: int

    def _manifest_of(self, files: dict[str, Entry]) -> Manifest:
        if len(files) == self.made_with["shards"] + self.made_with["test_shards"]:
            documents = sum(entry["documents"] for entry in files.values())
            self.counts = {**self.counts, "dropped_duplicates": self.copies_of_documents - documents}
        return super()._manifest_of(files)


def hash_files(sources: Sequence[Source], corpus: str, workers: int, reporter: Reporter) -> dict[str, TextFile]:
    """Return the size and BLAKE3 of each plain text file, by location; other sources bring their own identity."""
    plain = [source.location for source in sources if source.is_plain]
    with (
        reporter.progress(f"read {printed_name(corpus)}", len(plain), "files", enabled=bool(plain)) as shown,
        closing(pool.run(hash_file, [(location, as_path(location)) for location in plain], workers=workers)) as results,
    ):
        files = {}
        for location, file in results:
            files[location] = file
            shown.advance(MB_of_text=file.size_bytes / 1e6)
    return files


def identify(source: Source, files: Mapping[str, TextFile]) -> dict[str, Any]:
    """Describe a source for a manifest, by the values that determine its documents."""
    if (file := files.get(source.location)) is None:
        return source.metadata()
    return {"bytes": file.size_bytes, BLAKE3: file.blake3, **source.metadata()}


def identify_split(sources: Sequence[Source], files: Mapping[str, TextFile], split: str) -> list[dict[str, Any]]:
    """Describe each source of a split for a manifest, in order."""
    return [identify(source, files) for source in sources if source.split == split]


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class _Copied:
    batches: list[Batch]
    content: str  # a checksum
    skipped: Counter[str]  # pages of a dump, by cause


def _copy_streams(steps: _Steps, sources: Sequence[Source]) -> dict[int, _Copied]:
    streams = {index: source for index, source in enumerate(sources) if source.is_stream}
    if not streams:
        return {}
    names = {index: f"{_digest(index, source.metadata())}.arrow" for index, source in streams.items()}
    tasks = [Task(source.location, {"file": names[index]}, source) for index, source in streams.items()]
    is_here = any(source.reader == MEMORY for source in streams.values())  # no other process can read it
    entries = steps.run(_Copy(f"read {steps.printed}"), "copied", tasks, workers=1 if is_here else None)
    found = {path.name: (path, entry) for path, entry in _placed(entries, "").items()}
    copied = {}
    for index, name in names.items():
        path, entry = found[name]
        batches = [Batch(path, batch) for batch in range(entry["batches"])]
        skipped = Counter({cause: entry[cause] for cause in SKIPPED if cause in entry})
        copied[index] = _Copied(batches, entry["content"], skipped)
    return copied


class _Named(Maker):
    """A maker whose progress is shown under a label."""

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


@dataclass(frozen=True)
class _Sorted:
    """The sorted text of a split: the number of its inputs, the files of runs with their entries, and their files of rows."""

    inputs: int
    runs: dict[Path, Entry]
    rows: tuple[Path, ...]

    def count(self, name: str) -> int:
        return sum(entry[name] for entry in self.runs.values())

    @property
    def changed(self) -> Counter[str]:
        """What was changed in the documents, as in `Counts`."""
        return sum((Counter(entry["changed"]) for entry in self.runs.values()), Counter[str]())

    def removed(self) -> Counter[str]:
        """Return how many lines of wikis' pages, and pages, cleaning removed, by their keys in manifests."""
        total = Counter[str]()
        for entry in self.runs.values():
            total.update(entry.get(REMOVED, {}))
        return Counter({name_count(reason): number for reason, number in sorted(total.items())})


def _sort(
    steps: _Steps, split: str, sources: Sequence[Source], files: Mapping[str, TextFile], copies: Mapping[int, _Copied]
) -> _Sorted:
    groups: list[list[_Unsorted]] = [[]]
    filled = 0
    chosen = [(index, source) for index, source in enumerate(sources) if source.split == split]
    for index, source in chosen:
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
    entries = steps.run(_Sort(f"sort {steps.printed}"), _name_step("sorted", split), tasks)
    return _Sorted(len(chosen), _placed(entries, RUNS), tuple(_placed(entries, ROWS)))


def _name_step(step: str, split: str) -> str:
    """Return the name of a step's folder for a split; one text for both splits uses the names for training."""
    return step if split == TRAINING else f"{step}_{split}"


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
            counts, removed = Counts(), Removed()
            empty = sum(_sort_documents(each, sorter, counts, removed) for each in argument)
            sorter.flush()
        rows = sorter.rows()
        of_wikis = {REMOVED: dict(removed.counts)} if removed.counts else {}
        with atomic_file(path.with_suffix(ROWS)) as rows_file:
            rows_file.write(rows)
        entries = {
            "runs": {**file.entry(), "copies": sorter.copies, "empty": empty, "changed": vars(counts), **of_wikis},
            "rows": {"documents": file.documents, "bytes": len(rows), BLAKE3: digest(rows)},
        }
        return {key: entries[key] for key in paths}


def _sort_documents(unsorted: _Unsorted, sorter: Sorter, counts: Counts, removed: Removed) -> int:
    text = unsorted.text
    documents = read_piece(text) if isinstance(text, Piece) else text.documents(removed)
    return write_lines(documents, unsorted.splitter, unsorted.language, counts, sorter.add)


def _merge(steps: _Steps, split: str, files: dict[Path, Entry]) -> dict[Path, Entry]:
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
        files = _placed(steps.run(_Merge(f"merge {steps.printed}"), _name_step(f"merged_{level}", split), tasks), RUNS)
    return files


def _placed(entries: Mapping[str, Entry], suffix: str) -> dict[Path, Entry]:
    """Return the entries of the files with a suffix, sorted by name, so that all parts see the same order."""
    return {as_path(name): entry for name, entry in sorted(entries.items()) if name.endswith(suffix)}


class _Merge(_Named):
    things = "runs"

    def make(self, argument: tuple[Sequence[Path], int], paths: Mapping[str, Path]) -> dict[str, Entry]:
        runs, text_bytes = argument
        return {"runs": merge_runs(runs, text_bytes, paths["runs"])}


@dataclass(frozen=True)
class _ShardRange:
    """The range of hashes of a shard: `low` is included, `high` is not."""

    split: str
    low: int
    high: int


class _Reduce(Maker):
    """Merges a range of a split's runs into a shard; training leaves out the documents of the test text (`left_out`)."""

    def __init__(
        self,
        corpus: str,
        runs: Mapping[str, Sequence[Path]] | None = None,
        text_bytes: int = 0,
        *,
        left_out: Sequence[Path] = (),
        keep_duplicates: bool = False,
    ) -> None:
        self.label = f"shard {printed_name(corpus)}"
        self._runs, self._text_bytes = runs or {}, text_bytes
        self._left_out, self._keep_duplicates = left_out, keep_duplicates

    def prepare(self) -> None:
        kernels.load()

    def make(self, argument: _ShardRange, paths: Mapping[str, Path]) -> dict[str, Entry]:
        low, high = argument.low, argument.high
        left_out = read_keys(self._left_out if argument.split == TRAINING else (), low, high)
        hashed, crc32c, documents, spaces, newlines = new_hash(), 0, 0, 0, 0
        with atomic_file(paths["text"], tidies=False) as file:
            for _, _, window in read_windows(self._runs[argument.split], self._text_bytes, low, high):
                window = window.without(left_out) if len(left_out) else window
                copies = window.copies if self._keep_duplicates else np.ones_like(window.copies)
                documents += int(copies.sum())
                for lines in _in_blocks(window, copies):
                    array = np.frombuffer(lines, np.uint8)
                    spaces += int(np.count_nonzero(array == ord(" ")))
                    newlines += int(np.count_nonzero(array == ord("\n")))
                    crc32c = kernels.load().checksum(crc32c, array, len(array))
                    hashed.update(array.data)
                    file.write(array.data)
        sentences = newlines - documents  # each document ends with a blank line
        words = spaces + sentences  # each sentence has only single spaces
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
