"""Text shards to record files: each shard is one task, to tokenize, generate, encode and write one file a format.

Every finished file is in the journal of its folder, so a killed run goes on with the shards it lacks, with any number of
workers, and the bytes are the same.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bertprep import kernels, pool
from bertprep.atomic import atomic_file
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError
from bertprep.instances import Tokenizer, Vocabulary, generate_instances, load_vocabulary
from bertprep.layout import VOCABULARY
from bertprep.manifest import Journal, Manifest, read_finished, versions_of
from bertprep.progress import Progress, say
from bertprep.records.writer import RecordEncoder, write_records

KIND = "masked-LM records"


@dataclass(frozen=True)
class TextShard:
    """A text shard and the names of its record files, relative to the folder of each format."""

    path: Path
    number: int
    names: dict[str, str]  # format -> name


@dataclass(frozen=True)
class ShardTask:
    """All a worker needs to know: the shard, its seed, and the files that are still to be made."""

    shard: TextShard
    seed: int
    paths: dict[str, Path]  # format -> file


@dataclass(frozen=True)
class ShardResult:
    """What a worker made of one shard: a manifest entry for each format, and how much text it was."""

    shard: TextShard
    facts: dict[str, dict[str, Any]]
    text_bytes: int
    records: int


@dataclass(frozen=True)
class RecordMaker:
    """Makes the record files of one shard after another; its tokenizer and encoder serve all of them."""

    vocabulary: Vocabulary
    settings: InstanceSettings

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.vocabulary, lower=not self.settings.cased)

    @cached_property
    def encoder(self) -> RecordEncoder:
        return RecordEncoder(self.vocabulary, seq=self.settings.seq, pred=self.settings.pred)

    def prepare(self) -> None:
        """Load all that workers share, so that a forked worker has it at once."""
        kernels.load()
        _ = self.tokenizer, self.encoder

    def task(self, shard: TextShard, journals: dict[str, Journal]) -> ShardTask | None:
        """What is still to be made of a shard."""
        paths = {
            name: journal.folder / shard.names[name]
            for name, journal in journals.items()
            if shard.names[name] not in journal.done
        }
        return ShardTask(shard, self.settings.shard_seed(shard.number), paths) if paths else None

    def make(self, task: ShardTask) -> ShardResult:
        """Make the missing record files of a shard."""
        shard = self.tokenizer.tokenize_file(task.shard.path)
        instances = generate_instances(shard, self.vocabulary, self.settings, seed=task.seed)
        if not len(instances):
            raise BertprepError(f"{task.shard.path}: gives no example; expected at least one for each of its documents")
        written = write_records(instances, self.encoder, task.paths)
        facts = {
            name: {
                "documents": shard.documents,
                "examples": file.records,
                "bytes": file.bytes,
                "sha256": file.sha256,
                "seed": task.seed,
                "text": {"name": task.shard.path.name, "bytes": shard.text_bytes, "crc32c": f"{shard.text_crc32c:08x}"},
            }
            for name, file in written.items()
        }
        return ShardResult(task.shard, facts, shard.text_bytes, len(instances))


def make_records(
    shards: Sequence[TextShard],
    folders: dict[str, Path],
    made_with: dict[str, Any],
    maker: RecordMaker,
    workers: int,
    progress: bool,
    *,
    check_texts: bool,
) -> dict[str, Manifest]:
    """Make what is missing in `folders`, and their manifests; `check_texts` where `made_with` does not identify the texts."""
    finished = {name: manifest for name in folders if (manifest := read_finished(folders[name], KIND, made_with))}
    with contextlib.ExitStack() as stack:
        journals = {
            name: stack.enter_context(Journal(folder, KIND, made_with))
            for name, folder in folders.items()
            if name not in finished
        }
        for folder in folders.values():
            _keep_vocabulary(folder, maker.vocabulary)
        tasks = [(str(shard.path), task) for shard in shards if (task := maker.task(shard, journals))]
        if check_texts:
            for shard, name in product(shards, folders):
                made_already = finished[name].files if name in finished else journals[name].done
                if facts := made_already.get(shard.names[name]):
                    _check_same_text(shard, facts, folders[name])
        if tasks:
            maker.prepare()
        elif progress:
            say(f"create: all {len(shards):,} shards are made already")
        with (
            Progress("create", len(tasks), enabled=progress and bool(tasks)) as shown,
            contextlib.closing(pool.run(maker.make, tasks, workers=workers)) as results,
        ):
            for _, result in results:
                for name, facts in result.facts.items():
                    journals[name].add(result.shard.names[name], facts)
                shown.advance(records=result.records, MB_of_text=result.text_bytes / 1e6)
        versions = versions_of("llvmlite", "numpy") if journals else {}
        made = {name: journal.finish((s.names[name] for s in shards), versions) for name, journal in journals.items()}
    return {name: made.get(name) or finished[name] for name in folders}


def _check_same_text(shard: TextShard, done: dict[str, Any], folder: Path) -> None:
    """Raise where a finished record file was made from another text than lies there now."""
    size_bytes, crc32c = identify_text(shard.path)
    if (size_bytes, crc32c) != (done["text"]["bytes"], done["text"]["crc32c"]):
        raise BertprepError(
            f"{folder}: was made from {done['text']['bytes']:,} bytes of text (crc32c {done['text']['crc32c']}), "
            f"and {shard.path} has changed since: {size_bytes:,} bytes ({crc32c}); "
            "choose another folder (--output), or remove this one"
        )


def identify_text(path: Path) -> tuple[int, str]:
    """Size and CRC-32C of a file."""
    block = np.empty(1 << 20, np.uint8)
    size_bytes = crc32c = 0
    try:
        with path.open("rb", buffering=0) as file:
            while read := file.readinto(block):
                size_bytes += read
                crc32c = kernels.load().checksum(crc32c, block, read, 0)
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror}; expected a text shard") from error
    return size_bytes, f"{crc32c:08x}"


def _keep_vocabulary(folder: Path, vocabulary: Vocabulary) -> None:
    """Lay the vocabulary beside the records, which mean nothing without it."""
    kept = folder / VOCABULARY
    if not (kept.is_file() and load_vocabulary(kept).sha256 == vocabulary.sha256):
        with atomic_file(kept) as file:
            file.write(vocabulary.path.read_bytes())
