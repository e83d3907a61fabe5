"""The input of `create` and `plan`: text shards, a vocabulary and the output folders, found or made beforehand."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertprep import pool
from bertprep.commands.shard import check_text_files, choose_corpus, ensure_shards
from bertprep.commands.vocab import find_vocabulary, trained_vocabulary
from bertprep.config import Dialect, InstanceSettings, RecordFormat, check_formats
from bertprep.errors import UsageError
from bertprep.files.places import place
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.progress import Reporter
from bertprep.records.make import TextShard
from bertprep.sources.corpora import GIVEN, name_corpus
from bertprep.workspace.layout import SPLITS, TRAINING, Workspace, record_file_name, settings_name, split_folder, text_shard
from bertprep.workspace.manifest import Manifest, read_manifest
from bertprep.workspace.parts import Part
from bertprep.workspace.record_home import RecordHome, home_for, part_digits
from bertprep.workspace.verification import check_undamaged

GENERATOR = "google-research/bert eedf5716"


@dataclass(frozen=True)
class RecordJob:
    """Everything that determines the records and their paths; `homes` is by format, `made_with` goes into the manifest."""

    shards: list[TextShard]
    homes: dict[RecordFormat, RecordHome]
    made_with: dict[str, Any]
    vocabulary: Vocabulary
    settings: InstanceSettings
    dialect: Dialect
    workers: int


def resolve(
    *,
    settings: InstanceSettings,
    dialect: Dialect,
    formats: str | tuple[str, ...],
    vocab: Path | str | None,
    vocab_size: int,
    inputs: Sequence[Path | str],
    output: Path | str | None,
    workdir: Path | str,
    corpus: str | None,
    workers: int | None,
    verify: bool = False,
    part: Part | None = None,
    reporter: Reporter,
) -> RecordJob:
    """The job that `create`'s arguments describe; missing text shards and a missing vocabulary are made and kept.

    With `inputs` and no `output` the records would go to the current folder. With `verify`, text shards are checked by their
    sha256. A `part` needs finished text shards, which many can have made no other way.
    """
    checked = check_formats(formats)
    dialect.check_fits(checked, "--format")
    workers = workers or pool.default_workers()
    workspace = Workspace(place(workdir))
    if inputs:
        corpus = name_corpus(GIVEN if corpus is None else corpus, workspace)
        homes = {name: home_for(place(output or "."), name) for name in checked}
        shards = _given_shards(inputs, corpus, homes, dialect)
        made_from: dict[str, Any] = {"shards": len(shards)}
        training = [shard.path for shard in shards]
    else:
        corpus = choose_corpus(workspace, corpus, reporter)
        if part and read_manifest(folder := workspace.sharded(corpus)) is None:
            raise UsageError(
                f"{folder}: has no finished text shards of {corpus}, which parts need; make them first: bertprep shard"
            )
        sharded = ensure_shards(workspace, corpus, workers, reporter)
        if verify:
            advice = f"bertprep shard --verify --corpus {corpus}, with the --input it was made of, if any, makes it again"
            check_undamaged(
                workspace.sharded(corpus), sharded, label="text shards", advice=advice, workers=workers, reporter=reporter
            )
        homes = _homes_in_workspace(workspace, corpus, settings, dialect, sharded, checked)
        shards = _corpus_shards(workspace, corpus, sharded, homes, dialect)
        made_from = {name: sharded.made_with[name] for name in ("shards", "test_shards", "test_fraction")}
        made_from["text_sha256"] = digest_of_shards(sharded)
        training = [shard.path for shard in shards if shard.path.parent.name == TRAINING]
    path = (
        find_vocabulary(workspace, vocab)
        if vocab is not None
        else trained_vocabulary(
            workspace,
            corpus,
            training,
            size=vocab_size,
            cased=settings.cased,
            part=part,
            workers=workers,
            reporter=reporter,
        )
    )
    vocabulary = load_vocabulary(path)
    made_with = {
        "generator": GENERATOR,
        **asdict(settings),
        **dialect.made_with,
        "corpus": corpus,
        **made_from,
        "vocabulary": vocabulary.made_with,
    }
    return RecordJob(shards, homes, made_with, vocabulary, settings, dialect, workers)


def padding_remark(vocabulary: Vocabulary) -> Iterator[str]:
    """A line for those whose tools take padding to be 0, where it is not."""
    if vocabulary.pad:
        yield f"create: [PAD] is token {vocabulary.pad} of {vocabulary.path}: padding of input_ids has that id"


def _given_shards(
    inputs: Sequence[Path | str], corpus: str, homes: dict[RecordFormat, RecordHome], dialect: Dialect
) -> list[TextShard]:
    """The user's text files as shards, with the names of the record files in each format's home."""
    digits = {name: part_digits(home.records) for name, home in homes.items()}
    return [
        TextShard(
            path,
            number,
            {name: record_file_name(name, corpus, TRAINING, number, dialect, part_digits=digits[name]) for name in homes},
        )
        for number, path in enumerate(check_text_files(inputs))
    ]


def _homes_in_workspace(
    workspace: Workspace,
    corpus: str,
    settings: InstanceSettings,
    dialect: Dialect,
    sharded: Manifest,
    formats: tuple[RecordFormat, ...],
) -> dict[RecordFormat, RecordHome]:
    """The home of a corpus's records, by format; with --one-seed, bertprep 0.1.0 gave the folder another name."""
    made_with = sharded.made_with
    name = settings_name(settings, shards=made_with["shards"], test_fraction=made_with["test_fraction"], dialect=dialect)
    homes = {}
    for record_format in formats:
        folder, old = (workspace.records(record_format, name + end, corpus) for end in ("", "_one_seed"))
        homes[record_format] = RecordHome(old if settings.one_seed and old.is_dir() else folder)
    return homes


def _corpus_shards(
    workspace: Workspace, corpus: str, sharded: Manifest, homes: dict[RecordFormat, RecordHome], dialect: Dialect
) -> list[TextShard]:
    """The text shards of a corpus, with the names of the record files in each format's home."""
    folder = workspace.sharded(corpus)
    digits = {name: part_digits(home.records) for name, home in homes.items()}
    counts = dict(zip(SPLITS, (sharded.made_with["shards"], sharded.made_with["test_shards"]), strict=True))
    return [
        TextShard(
            folder / text_shard(split, corpus, number),
            number,
            {
                name: f"{split_folder(name, split)}/"
                + record_file_name(name, corpus, split, number, dialect, part_digits=digits[name])
                for name in homes
            },
        )
        for split in SPLITS
        for number in range(counts[split])
    ]


def digest_of_shards(sharded: Manifest) -> str:
    """One sha256 for the text of all shards."""
    return hashlib.sha256("".join(facts["sha256"] for _, facts in sorted(sharded.files.items())).encode()).hexdigest()
