"""Shards to files: each text shard is one task, to tokenize, generate, encode and write one file a format.

Every finished file is in the journal beside the manifest that will list it, so a killed run resumes with the shards it lacks,
with any number of workers, and the bytes are the same. A folder of the user's own has one manifest for all formats, which may
be made one after the other. Makers of token shards and of another kind of records
(`tasks.records`) have the same guarantees.
"""

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from bertprep import kernels, pool
from bertprep.config import DEFAULT_DIALECT, Dialect, InstanceSettings, RecordFormat
from bertprep.errors import BertprepError
from bertprep.files.object_cache import open_local
from bertprep.instances import Tokenizer, Vocabulary, generate_instances
from bertprep.instances.tokenizer import TokenizedShard
from bertprep.progress import Reporter
from bertprep.records.dataset_info import DatasetFolder
from bertprep.records.examples import Shape, kind_made_with
from bertprep.records.rows import RowMaker
from bertprep.records.token_shards import TokenFile, TokenShard, token_files, write_token_shard
from bertprep.records.write import write_examples
from bertprep.workspace.journal import Journal
from bertprep.workspace.layout import MANIFEST, TRAIN, TRAINING, split_order
from bertprep.workspace.manifest import RECORDS, TOKEN_SHARDS, Manifest, packages_of, sha256_of, versions_of
from bertprep.workspace.parts import FINISH, Part
from bertprep.workspace.receipts import Receipts, find_finished, open_journal, unfinished
from bertprep.workspace.record_home import (
    RecordHome,
    check_free,
    check_not_another,
    check_vocabulary_place,
    keep_copy,
    keep_vocabulary,
)
from bertprep.workspace.verification import remove_damaged


@dataclass(frozen=True)
class TextShard:
    """A text shard and the names of the files made of it, relative to the folder of each kind of file.

    Those kinds are formats of records, or the two files of a token shard. Where token shards were given, `path` is the .bin.
    """

    path: Path
    number: int
    names: dict[str, str]
    tokens: TokenShard | None = field(default=None, kw_only=True)  # where it is tokenized already
    expected: Mapping[str, Any] | None = field(default=None, kw_only=True)  # the text's entry in the text shards' manifest


@dataclass(frozen=True)
class ShardTask:
    """All a worker needs to know: the shard, its seed, and the files that are still to be made."""

    shard: TextShard
    seed: int
    paths: dict[str, Path]


@dataclass(frozen=True)
class ShardResult:
    """What a worker made of one shard: a manifest entry for each file, and how much text it was, where that is known."""

    shard: TextShard
    facts: dict[str, dict[str, Any]]
    records: int
    text_bytes: int = 0


class Maker(Protocol):
    """Makes the files of one shard after another."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    def prepare(self) -> None:
        """Load all that workers share, so that a forked worker has it at once."""

    def task(self, shard: TextShard, paths: dict[str, Path]) -> Any:
        """What a worker needs to know to make the files `paths` of a shard."""

    def make(self, task: Any) -> ShardResult:
        """Make the files of a task."""


class RecordsMaker(Maker, Protocol):
    """The same of records."""

    @property
    def labels(self) -> Sequence[str]:
        """The names of the records' classes, where they have some."""

    def shape(self, split: str) -> Shape:
        """What all records of a split have in common."""


@dataclass(frozen=True)
class RecordMaker:
    """Makes the record files of one shard after another; its tokenizer and patterns serve all of them."""

    vocabulary: Vocabulary
    settings: InstanceSettings
    dialect: Dialect = DEFAULT_DIALECT
    labels: tuple[str, ...] = ()

    def shape(self, split: str) -> Shape:  # noqa: ARG002 - all splits have the same
        """What all records have in common."""
        return Shape(kind_made_with(self.settings), self.settings.seq, self.settings.pred)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.vocabulary, lower=not self.settings.cased)

    @cached_property
    def rows(self) -> RowMaker:
        return RowMaker(self.vocabulary, self.shape(TRAINING))

    def __getstate__(self) -> dict[str, Any]:
        """Only what the tables are made of: a process builds its own."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def prepare(self) -> None:
        """Preload what all workers use, so that forked workers inherit it."""
        kernels.load()
        _ = self.tokenizer, self.rows

    def task(self, shard: TextShard, paths: dict[str, Path]) -> ShardTask:
        """What is to be made of a shard."""
        return ShardTask(shard, self.settings.shard_seed(shard.number), paths)

    def make(self, task: ShardTask) -> ShardResult:
        """Make the missing record files of a shard."""
        shard, text = self._read(task.shard)
        instances = generate_instances(shard, self.vocabulary, self.settings, seed=task.seed)
        if not len(instances):
            raise BertprepError(f"{task.shard.path}: gives no example; expected at least one for each of its documents")
        paths = {RecordFormat(name): path for name, path in task.paths.items()}
        written = write_examples(self.rows.blocks(instances), paths, self.dialect, self.labels, tidies=False)
        facts: dict[str, dict[str, Any]] = {
            name: {
                "documents": shard.documents,
                "examples": file.records,
                "bytes": file.bytes,
                "sha256": file.sha256,
                "seed": task.seed,
                "text": text,
            }
            for name, file in written.items()
        }
        return ShardResult(task.shard, facts, len(instances), text["bytes"])

    def _read(self, shard: TextShard) -> tuple[TokenizedShard, dict[str, Any]]:
        """(the tokens of a shard, what the manifest says of its text): kept ones, unless the text has changed since."""
        tokens, pairs = shard.tokens, self.settings.has_pairs
        if tokens and tokens.bin == shard.path:
            return tokens.read(self.vocabulary, pairs=pairs), tokens.text or _text(shard.path.name, *identify(shard))
        if tokens and tokens.text and identify_text(shard.path) == (tokens.text["bytes"], tokens.text["crc32c"]):
            _check_text(shard, tokens.text)
            return tokens.read(self.vocabulary, pairs=pairs), tokens.text
        tokenized = self.tokenizer.tokenize_file(shard.path)
        return tokenized, _text_of(shard, tokenized)


@dataclass(frozen=True)
class TokenMaker:
    """Makes the token shard of one text shard after another."""

    vocabulary: Vocabulary
    cased: bool

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.vocabulary, lower=not self.cased)

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def prepare(self) -> None:
        """Preload what all workers use, so that forked workers inherit it."""
        kernels.load()
        _ = self.tokenizer

    def task(self, shard: TextShard, paths: dict[str, Path]) -> tuple[TextShard, dict[str, Path]]:
        """What is to be made of a shard."""
        return shard, paths

    def make(self, task: tuple[TextShard, dict[str, Path]]) -> ShardResult:
        """Make the missing files of a token shard."""
        shard, paths = task
        tokenized = self.tokenizer.tokenize_file(shard.path)
        text = _text_of(shard, tokenized)
        files = {TokenFile(name): path for name, path in paths.items()}
        written = write_token_shard(tokenized, files, vocabulary_tokens=len(self.vocabulary))
        counts = {"documents": tokenized.documents, "sentences": tokenized.sentences, "tokens": len(tokenized.tokens)}
        facts = {
            str(name): {
                **(counts if name == TokenFile.BIN else {}),
                "bytes": file.bytes,
                "sha256": file.sha256,
                "text": text,
            }
            for name, file in written.items()
        }
        return ShardResult(shard, facts, tokenized.sentences, tokenized.text_bytes)


def _text_of(shard: TextShard, tokenized: TokenizedShard) -> dict[str, Any]:
    """What a manifest says of the text that a file was made of; raises where that is not the text of the shards' manifest."""
    text = _text(shard.path.name, tokenized.text_bytes, f"{tokenized.text_crc32c:08x}")
    _check_text(shard, text)
    return text


def _check_text(shard: TextShard, read: Mapping[str, Any]) -> None:
    """Raise where the text that was read is not that of the shards' manifest: changed on a disk, in a store or on the way.

    Only a manifest of 0.2.0, which has no CRC-32C, costs a sha256 of the text.
    """
    if (expected := shard.expected) is None:
        return
    name = "crc32c" if "crc32c" in expected else "sha256"
    found = read[name] if name in read else sha256_of(shard.path)
    if (read["bytes"], found) == (expected["bytes"], expected[name]):
        return
    raise BertprepError(
        f"{shard.path}: {read['bytes']:,} bytes of {name} {found[:16]} were read, expected {expected['bytes']:,} of "
        f"{expected[name][:16]} by the {MANIFEST} of the text shards; run the same command again, and where that finds the "
        "same, make the shard again with bertprep shard --verify"
    )


def _text(name: str, size_bytes: int, crc32c: str) -> dict[str, Any]:
    return {"name": name, "bytes": size_bytes, "crc32c": crc32c}


def make_records(
    shards: Sequence[TextShard],
    homes: Mapping[str, RecordHome],
    made_with: dict[str, Any],
    maker: Maker,
    workers: int,
    reporter: Reporter,
    *,
    check_texts: bool,
    verify: bool = False,
    kind: str = RECORDS,
    counts: Mapping[str, int] | None = None,
    kept: Mapping[str, Path] | None = None,
    advice: str = "",
    part: Part | None = None,
    command: str = "create",
) -> tuple[dict[str, Manifest], int]:
    """Make what is missing in the home of each kind of file, and the manifests; returns those by kind, and for how many shards.

    Of a `part` only its own files are made, and a manifest that lists these is returned until all parts are there.

    With `check_texts`, where `made_with` does not identify the texts, what is there already must be of these. With
    `verify` a file whose sha256 is not what it was is missing too. `kind` and `counts` go into the manifests; copies of the
    files `kept` are beside them, by name. `advice` is for a folder that was made with other settings.
    """
    advice = advice or f"choose another {'--output' if check_texts else '--workdir or --corpus'}"
    unit = "sentences" if kind == TOKEN_SHARDS else "records"
    names: dict[Path, list[str]] = defaultdict(list)  # of each manifest
    for (name, home), shard in product(homes.items(), shards):
        names[home.folder].append(home.prefix + shard.names[name])
    manifests = {folder: find_finished(folder, kind, made_with, wanted) for folder, wanted in names.items()}
    if verify:
        for folder, manifest in manifests.items():
            journal = open_journal(folder, kind, made_with, owned=_owned(folder, homes), advice=advice)
            label = " and ".join(name for name, home in homes.items() if home.folder == folder)
            if remove_damaged(manifest, journal, names=names[folder], label=label, workers=workers, reporter=reporter):
                manifests[folder] = None
    for folder, manifest in manifests.items():
        if not manifest:
            check_vocabulary_place(folder, maker.vocabulary.sha256)
            for copy, path in (kept or {}).items():
                check_not_another(folder / copy, sha256_of(path), f"a copy of {path}, which these records are made of")
    arrow = homes.get(RecordFormat.ARROW)
    dataset = _dataset_folder(arrow, shards, cast(RecordsMaker, maker)) if arrow else None
    if arrow and dataset:
        check_free(arrow.folder, dataset.paths)
    with contextlib.ExitStack() as stack:
        journals = {
            folder: open_journal(folder, kind, made_with, part=part, owned=_owned(folder, homes), advice=advice)
            for folder, manifest in manifests.items()
            if not manifest
        }
        for journal in journals.values():
            stack.enter_context(journal)
        own = part.deal(shards) if part else shards
        for folder, journal in journals.items():
            of_folder = {name: home for name, home in homes.items() if home.folder == folder}
            journal.look([home.prefix + shard.names[name] for shard in own for name, home in of_folder.items()])

        def keep(folder: Path) -> None:
            keep_vocabulary(maker.vocabulary.path, folder)
            for copy, path in (kept or {}).items():
                keep_copy(path, folder / copy)

        for folder in manifests if part != FINISH else ():
            keep(folder)
        listed = {folder: manifest.files if manifest else journals[folder].done for folder, manifest in manifests.items()}
        done = {name: listed[home.folder] for name, home in homes.items()}
        tasks = [(str(shard.path), maker.task(shard, paths)) for shard in own if (paths := _missing(shard, homes, done))]
        if check_texts:
            for shard, (name, home) in product(own, homes.items()):
                if facts := done[name].get(home.prefix + shard.names[name]):
                    _check_same_text(shard, facts, home.folder)
        if tasks:
            maker.prepare()
            if folders := {shard.tokens.bin.parent for shard in own if shard.tokens and shard.tokens.bin != shard.path}:
                reporter.say(f"{command}: takes the tokens in {min(folders).parent} as long as the text is the same")
        elif part != FINISH:
            how = "checksums compared" if verify else "sizes compared; --verify compares checksums"
            reporter.say(f"{command}: all {len(own):,} shards{f' of part {part}' if part else ''} are made already ({how})")
        with (
            reporter.progress(command, len(tasks), enabled=bool(tasks)) as shown,
            contextlib.closing(pool.run(maker.make, tasks, workers=workers)) as results,
        ):
            for _, result in results:
                for name, facts in result.facts.items():
                    journals[homes[name].folder].add_soon(homes[name].prefix + result.shard.names[name], facts)
                amounts: dict[str, float] = {"MB_of_text": result.text_bytes / 1e6} if result.text_bytes else {}
                shown.advance(1, **{unit: result.records}, **amounts)
        if arrow and arrow.folder not in journals:
            _write_dataset(dataset, arrow, shards, done[RecordFormat.ARROW])
        for folder, journal in journals.items():
            if missing := journal.missing(names[folder]):
                manifests[folder] = unfinished(journal, names[folder], missing, part, reporter)
                continue
            if part == FINISH:
                keep(folder)
            if check_texts and part == FINISH:
                for shard, (name, home) in product(shards, homes.items()):
                    if home.folder == folder:
                        _check_same_text(shard, journal.done[home.prefix + shard.names[name]], folder)
            if arrow and arrow.folder == folder:
                _write_dataset(dataset, arrow, shards, journal.done)
            versions = versions_of(*packages_of([*journal.listed, *journal.done]))
            manifests[folder] = _finish(journal, names[folder], versions, homes, dict(counts or {}))
    found = {name: home.part_of(manifests[home.folder]) for name, home in homes.items()}
    return {name: manifest for name, manifest in found.items() if manifest}, len(tasks)


def _dataset_folder(home: RecordHome, shards: Sequence[TextShard], maker: RecordsMaker) -> DatasetFolder:
    """What `datasets` is to open of the Arrow files."""
    folders = sorted({shard.names[RecordFormat.ARROW].rpartition("/")[0] for shard in shards}, key=split_order)
    shapes = {folder: maker.shape(TRAINING if folder == TRAIN else folder) for folder in folders}
    return DatasetFolder(home.records, shapes, maker.labels)


def _write_dataset(
    dataset: DatasetFolder | None, home: RecordHome, shards: Sequence[TextShard], files: Mapping[str, dict[str, Any]]
) -> None:
    """Write what `datasets` reads of the Arrow files, which are all there."""
    if dataset:
        made = (shard.names[RecordFormat.ARROW] for shard in shards)
        dataset.write({name: files[home.prefix + name] for name in made})


def _missing(shard: TextShard, homes: Mapping[str, RecordHome], done: Mapping[str, Mapping[str, Any]]) -> dict[str, Path]:
    """The files of a shard that are still to be made, where `done` has what manifest or journal of each format list."""
    return {
        name: home.records / shard.names[name]
        for name, home in homes.items()
        if home.prefix + shard.names[name] not in done[name]
    }


def _owned(folder: Path, homes: Mapping[str, RecordHome]) -> list[str]:
    """Of a folder, what only runs like this one write to: all of it, or in a user's own the folders of the formats."""
    return [home.prefix or "." for home in homes.values() if home.folder == folder]


def _finish(
    journal: Journal | Receipts,
    names: Sequence[str],
    versions: dict[str, str],
    homes: Mapping[str, RecordHome],
    counts: dict[str, int],
) -> Manifest:
    """The manifest of the files `names`, and of those of other formats, which stay as they are, finished or not."""
    asked_for = tuple(home.prefix for home in homes.values() if home.folder == journal.folder)
    others = [name for name in {**journal.listed, **journal.done} if not name.startswith(asked_for)]
    kept = [name for name in others if name in journal.listed and (journal.folder / name).parent.is_dir()]
    resumable = [name for name in others if name not in journal.listed]
    return journal.finish(names, versions, counts, keep=kept, resumable=resumable)


def _check_same_text(shard: TextShard, done: dict[str, Any], folder: Path) -> None:
    """Raise where a finished record file was made from a text other than the one there now."""
    size_bytes, crc32c = identify(shard)
    if (size_bytes, crc32c) != (done["text"]["bytes"], done["text"]["crc32c"]):
        raise BertprepError(
            f"{folder}: was made from {done['text']['bytes']:,} bytes of text (crc32c {done['text']['crc32c']}), "
            f"and {shard.path} has changed since: {size_bytes:,} bytes ({crc32c}); "
            "choose another --output, or remove this folder"
        )


def identify(shard: TextShard) -> tuple[int, str]:
    """Size and CRC-32C of the text of a shard; where token shards were given and nothing is known of that, of both files."""
    if shard.tokens and shard.tokens.text:
        return shard.tokens.text["bytes"], shard.tokens.text["crc32c"]
    return identify_text(*(token_files(shard.path).values() if shard.tokens else [shard.path]))


def identify_text(*paths: Path) -> tuple[int, str]:
    """Size and CRC-32C of a file, or of several together."""
    block = np.empty(1 << 20, np.uint8)
    size_bytes = crc32c = 0
    for path in paths:
        try:
            with open_local(path) as file:
                while read := file.readinto(block):
                    size_bytes += read
                    crc32c = kernels.load().checksum(crc32c, block, read)
        except OSError as error:
            raise BertprepError(f"{path}: cannot be read: {error.strerror}; expected a text shard") from error
    return size_bytes, f"{crc32c:08x}"
