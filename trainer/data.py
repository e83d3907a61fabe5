"""Find, check and open the data of a run.

Without --data a run uses the newest finished data set of the workspace that has the right length or task. The folders that
--data names may come from any tool. Several are mixed, if their records have the same shape, and their vocabularies the same
sha256 and case.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from hashlib import sha256 as sha256_of
from pathlib import Path
from typing import Any

from bertprep.config import RECORD_FORMATS, InstanceSettings, RecordFormat, read_mask_as
from bertprep.errors import UsageError
from bertprep.files.checksums import new_hash
from bertprep.files.object_cache import read_range
from bertprep.files.paths import as_path, real_path
from bertprep.instances import load_vocabulary
from bertprep.instances.vocabulary import load_vocabulary_of
from bertprep.options import command_line, fields_of, narrowed, option
from bertprep.progress import Reporter
from bertprep.records import MaskedExamples, PretrainingExamples
from bertprep.records.records import Records
from bertprep.tokens.live import DEFAULT_GROUP, LiveExamples
from bertprep.work.choose import find_training_records, find_training_tokens
from bertprep.work.data_set import DataSet
from bertprep.work.find import find_data_sets, search
from bertprep.work.layout import TEST, TOKENIZER, TOKENS, TRAINING, VOCABULARY, TokenFile
from bertprep.work.manifest import TOKEN_SHARDS
from trainer.batches import AnyRecords
from trainer.checkpoint import is_checkpoint, read_header
from trainer.model_config import PRESETS, ModelConfig
from trainer.settings import RunOptions
from trainer.tasks import task_of_records
from trainer.tasks.pretraining import DEFAULT_SEQ, Pretraining, PretrainOptions
from trainer.tasks.task import Task
from trainer.token_records import DEFAULT_MASK_AS, TokenRecords

_OF_SENTENCES = {each.name for each in fields(InstanceSettings)} - {"masked_lm_prob", "whole_word", "seed"}
_OF_DOCUMENTS = {"mask_as", "packed", "temperature"}
"""The settings that apply only to token shards of sentences, and those that apply only to token shards of documents."""
_SAMPLE_BYTES = 1 << 20
_PREFERRED = RecordFormat.OFRECORD, RecordFormat.TFRECORD, RecordFormat.ARROW, RecordFormat.PARQUET, None


@dataclass(frozen=True, kw_only=True)
class ExampleSettings(InstanceSettings):
    """How on-the-fly examples are made from token shards: the settings of `create`, whose --seed is --data-seed here."""

    seed: int = option(
        InstanceSettings.seed,
        "random seed of the examples, as create's --seed (the run's own seed is --seed)",
        name="--data-seed",
        least=0,
    )
    mask_as: tuple[float, ...] = option(
        DEFAULT_MASK_AS, "made with --tokenizer: the fractions of masked tokens that become [MASK], another token, or stay",
        metavar="MASK,RANDOM,KEEP", separator=",", least=0, most=1,
    )  # fmt: skip
    packed: bool = option(True, "made with --tokenizer: one document per row (default: pack several documents into a row)")
    temperature: float | None = option(
        None, "made with --tokenizer: weight each folder of --data by its number of tokens to this power (default: 1)",
        least=0, most=1,
    )  # fmt: skip
    repeat_epochs: bool = option(False, "make the same examples in every epoch, as records are (default: re-sample them)")

    def __post_init__(self) -> None:
        super().__post_init__()
        read_mask_as(self.mask_as, f"--mask-as {','.join(f'{share:g}' for share in self.mask_as)}")

    @property
    def instances(self) -> InstanceSettings:
        return narrowed(InstanceSettings, self)


@dataclass(frozen=True, kw_only=True)
class Data:
    """The opened records of a run and their metadata; None means unknown."""

    sets: tuple[DataSet, ...]
    folders: tuple[Path, ...]
    task: Task
    records: AnyRecords  # the training split, or the only split
    test: AnyRecords | None  # the test split, of those folders that have one
    vocabulary: Path | None
    vocabulary_size: int | None
    vocabulary_sha256: str | None
    cased: bool | None
    choice: str = ""  # how the folder was chosen, for the plan

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """A fingerprint of the files of each split, by split and format, by which a resumed run knows its data again."""
        splits = {TRAINING: self.records, TEST: self.test}
        return {
            f"{split} {'+'.join(records.formats)}": fingerprint(path for each in self.sets for path in _files_of(each, split))
            for split, records in splits.items()
            if records is not None
        }

    @property
    def is_packed(self) -> bool:
        """Whether a row of the data has several sequences; `--pack` makes such rows from other data."""
        return isinstance(self.records, TokenRecords) and self.records.is_packed

    def describe(self) -> str:
        """Return the folder, number and shape of the records, as one line of the plan."""
        records = self.records
        others = f" and {len(self.folders) - 1:,} more" if len(self.folders) > 1 else ""
        shape = f"{records.seq}/{records.pred}" if records.pred else f"{records.seq} tokens"
        what = f"{len(records):,} training records of {shape}, {' and '.join(records.formats)}"
        if isinstance(records, LiveExamples):
            sampled = "the same in every epoch" if records.repeat_epochs else "re-sampled in each epoch"
            what = f"{len(records):,} on-the-fly examples of {shape} an epoch, dupe {records.settings.dupe:,}, {sampled}"
        if isinstance(records, TokenRecords):
            what = f"{len(records):,} {records.describe()}"
        without_test = [str(each.folder) for each in self.sets if not each.paths(TEST)]
        if self.test is None:
            what += ", no test split"
        elif without_test:
            what += f", no test split in {', '.join(without_test)}"
        notes = [note for each in self.sets for note in each.notes]
        return "; ".join([f"{self.folders[0]}{others}{self.choice}: {what}", *notes])


def fingerprint(paths: Iterable[Path]) -> str:
    """Return a hash of the names of files, their sizes, and their first, middle and last MiB, whatever their folder."""
    digest = new_hash()
    for path in paths:
        size = path.stat().st_size
        digest.update(os.fsencode(f"{path.name}\n{size}\n"))
        for start in sorted({0, max(0, size - _SAMPLE_BYTES) // 2, max(0, size - _SAMPLE_BYTES)}):
            digest.update(read_range(path, start, min(size, _SAMPLE_BYTES)))
    return str(digest.hexdigest())[:32]


def _files_of(data_set: DataSet, split: str) -> Iterator[Path]:
    """Yield the files of a split; a token shard has several."""
    for path in data_set.paths(split):
        files = [path.with_suffix(f".{end}") for end in TokenFile] if data_set.content == TOKEN_SHARDS else [path]
        yield from (file for file in files if file.is_file())


def open_data(options: RunOptions, examples: ExampleSettings, opened: ExitStack) -> Data:
    if isinstance(options, PretrainOptions) and not options.data and options.format is None:
        _check_without_data(examples)
    given_data, choice = (options.data, "") if options.data else _find_newest(options)
    named, weights = read_weights(given_data)
    vocab = options.vocab if isinstance(options, PretrainOptions) else None
    open_split: Callable[..., Any] = Records
    if isinstance(options, PretrainOptions) and _are_tokens(options, named):
        sets = [find_training_tokens(path) for path in named]
        are_documents = sets[0].manifest is not None and sets[0].manifest.tokenizer is not None
        open_split = (_open_documents if are_documents else _open_sentences)(options, examples, sets[0].folder)
        if weights and not are_documents:
            raise _no_weights(given_data[0], f"{sets[0].folder} contains token shards of sentences")
        if weights:
            open_split = partial(open_split, weights=weights)
    else:
        sets = [_find_records(path, options) for path in named]
        if weights:
            raise _no_weights(given_data[0], f"{sets[0].folder} contains records, each of which is read once per epoch")
        given = command_line(examples)
        if isinstance(options, PretrainOptions) and options.pred is not None:
            given.insert(0, "--pred")
        if given:
            raise UsageError(
                f"{given[0]}: applies to token shards, but {sets[0].folder} contains records; leave it out, and any --recipe "
                "that sets it, or name token shards"
            )
    _check_distinct(sets)
    folders = tuple(each.folder if each.is_whole else path for path, each in zip(named, sets, strict=True))
    records = opened.enter_context(open_split(folders, TRAINING))
    test = _open_test(open_split, dict(zip(folders, sets, strict=True)), opened, is_mixed=bool(weights or examples.temperature))
    task = _check_pretraining(options, folders[0], records) if isinstance(options, PretrainOptions) else _task_of(options, sets)
    if test is not None:
        task.check_scoring([TEST])
    return make_data(sets, folders, task, records, test, vocab, choice)


def _open_test(
    open_split: Callable[..., Any], sets: Mapping[Path, DataSet], opened: ExitStack, *, is_mixed: bool
) -> AnyRecords | None:
    """Return the test splits of the folders; None if there is none, or if a folder of a weighted mixture has none."""
    folders = [folder for folder, each in sets.items() if each.paths(TEST)]
    if not folders or (is_mixed and len(folders) < len(sets)):
        return None
    test: AnyRecords = opened.enter_context(open_split(folders, TEST))
    return test


def _check_without_data(examples: ExampleSettings) -> None:
    """Raise `UsageError` if settings of on-the-fly examples are given, but the run would use records of the workspace."""
    given = command_line(examples)
    if given:
        raise UsageError(
            f"{given[0]}: applies to token shards only; make some with bertprep tokenize --recipe or --tokenizer and name them "
            "with --data, or leave it out"
        )


def read_weights(given: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[float, ...]]:
    """Return the folders that `--data wiki=0.7 code=0.3` names, and their weights, if there are any.

    An existing path is a folder even if its name has a =. Raises `UsageError` if only some folders have weights.
    """
    separated = [(path, None) if path.exists() else _read_weight(path) for path in given]
    weights = [weight for _, weight in separated if weight is not None]
    if weights and len(weights) < len(given):
        without = next(path for path, weight in separated if weight is None)
        raise UsageError(
            f"--data {without}: has no weight, but other folders do; give every folder a weight, such as {without}=0.3, or none"
        )
    if not all(0 < weight < math.inf for weight in weights):
        raise UsageError(f"--data {' '.join(map(str, given))}: expected weights above 0, such as 0.5")
    return tuple(path for path, _ in separated), tuple(weights)


def _read_weight(path: Path) -> tuple[Path, float | None]:
    """Return a folder without the weight after the last = in its name, and that weight, if it is a number."""
    folder, _, weight = str(path).rpartition("=")
    try:
        return (as_path(folder), float(weight)) if folder and "/" not in weight else (path, None)
    except ValueError:
        return path, None


def _check_distinct(sets: Sequence[DataSet]) -> None:
    """Raise `UsageError` if a file is in two sets, since it would count twice."""
    found: set[Path] = set()
    for each in sets:
        folder = real_path(each.folder)
        if found & (files := {folder / name for name in each.files}):
            raise UsageError(f"--data {each.folder}: is given twice; name each folder once, with a larger weight if it has one")
        found |= files


def _no_weights(given: Path, why: str) -> UsageError:
    return UsageError(f"--data {given}: weights apply to token shards made with --tokenizer, but {why}; leave the weights out")


def _open_sentences(options: PretrainOptions, examples: ExampleSettings, folder: Path) -> Callable[..., LiveExamples]:
    _refuse(examples, _OF_DOCUMENTS, f"applies to token shards made with --tokenizer, but those in {folder} are of sentences")
    settings = replace(examples, seq=options.seq or DEFAULT_SEQ, pred=options.pred or ExampleSettings.pred)

    def open_split(folders: Sequence[Path], split: str) -> LiveExamples:
        seed = options.seed if split == TRAINING else PretrainOptions.seed  # all runs evaluate on the same examples
        return LiveExamples(
            folders, split, settings=settings.instances, vocab=options.vocab, repeat_epochs=settings.repeat_epochs, seed=seed,
            shuffle_shards=options.shuffle_shards or DEFAULT_GROUP, reporter=Reporter(),
        )  # fmt: skip

    return open_split


def _open_documents(options: PretrainOptions, examples: ExampleSettings, folder: Path) -> Callable[..., TokenRecords]:
    why = f"applies to token shards of sentences, but {folder} was made with --tokenizer"
    _refuse(examples, {*_OF_SENTENCES, "repeat_epochs"}, why)
    _refuse(options, {"pred", "vocab", "shuffle_shards"}, why)
    if examples.masked_lm_prob == 1:
        raise UsageError("--masked-lm-prob 1: must be below 1 for token shards made with --tokenizer")
    return partial(
        TokenRecords, seq=options.seq or DEFAULT_SEQ, masked_lm_prob=examples.masked_lm_prob, mask_as=examples.mask_as,
        whole_word=examples.whole_word, packed=examples.packed, seed=examples.seed, temperature=examples.temperature,
    )  # fmt: skip


def _refuse(settings: Any, names: Collection[str], why: str) -> None:
    """Raise `UsageError` if one of these settings was given."""
    for field in fields_of(type(settings)):
        if field.keyword in names and getattr(settings, field.keyword) != field.default:
            raise UsageError(f"{field.flag}: {why}; leave it out")


def _are_tokens(options: PretrainOptions, named: Sequence[Path]) -> bool:
    if options.format is None:
        return any(each.content == TOKEN_SHARDS for each in find_data_sets(named[:1]))
    return options.format == TOKENS


def _find_records(path: Path, options: RunOptions) -> DataSet:
    found = find_training_records(path, (options.format,) if options.format else ())
    if options.format not in (None, found.format):
        raise UsageError(
            f"{found.folder}: contains {found.format} files, expected --format {options.format}; leave --format out, or "
            f"convert the files: bertprep convert {found.folder} DIR"
        )
    return found


def _check_pretraining(options: PretrainOptions, folder: Path, records: AnyRecords) -> Task:
    if isinstance(records, Records) and not issubclass(records.kind, MaskedExamples):
        raise records.is_of_another_kind(PretrainingExamples)
    if options.seq not in (None, records.seq):
        raise UsageError(
            f"{folder}: has records of {records.seq} tokens, expected --seq {options.seq}; name other records, or make them: "
            f"bertprep create --seq {options.seq}"
        )
    return Pretraining.from_examples(records.kind)


def _task_of(options: RunOptions, sets: Sequence[DataSet]) -> Task:
    for each in sets:
        task = task_of_records(each)
        if not task.is_requested_by(options):
            raise UsageError(f"{each.folder}: has records for {task.describe()}; name records made by {options.wanted.make}")
    return task


def _find_newest(options: RunOptions) -> tuple[tuple[Path], str]:
    kind, setting, value, make = options.wanted
    sets = [
        (each, each.manifest.made_with.get(setting))
        for each in search(options.workdir)
        if each.manifest and each.manifest.kind == kind and not each.is_unfinished
    ]
    found = [each for each, has in sets if has == value and options.format in (None, TOKENS, each.format)]
    if not found:
        wanted = f"{kind} with {setting} {value}" if setting else kind
        if options.format not in (None, TOKENS):
            wanted, make = f"{wanted} as {options.format} files", f"{make} --format {options.format}"
        others = sorted({str(has) for _, has in sets if has != value})
        only = f", only with {', '.join(others)}" if others else ""
        raise UsageError(
            f"{options.workdir}: has no finished {wanted}{only}; make them by {make} --workdir {options.workdir}, or name "
            "others with --data"
        )
    newest = max(found, key=lambda each: (each.modified_ns, each.folder))
    of_newest = [each for each in found if _without_format(each) == _without_format(newest)]
    chosen = min(of_newest, key=lambda each: _PREFERRED.index(each.format))
    count = len({_without_format(each) for each in found})
    choice = f" (the newest of {count:,} in {options.workdir}; --data DIR chooses another)" if count > 1 else ""
    return (chosen.folder,), choice


def _without_format(data_set: DataSet) -> tuple[str, ...]:
    return tuple(part for part in data_set.folder.parts if part not in RECORD_FORMATS)


def make_data(
    sets: Sequence[DataSet], folders: tuple[Path, ...], task: Task, records: AnyRecords, test: AnyRecords | None,
    vocab: Path | None = None, choice: str = "",
) -> Data:  # fmt: skip
    """Return opened records with their metadata; raises `UsageError` if folders have different vocabularies or cases."""
    paths: list[Path] = []
    known: list[dict[str, Any]] = []
    for each in sets:
        settings = each.manifest.made_with if each.manifest else {}
        vocabulary = settings.get("vocabulary", {})
        if each.manifest and each.manifest.tokenizer:
            tokenizer, path = each.manifest.tokenizer, each.folder / TOKENIZER
            if not path.is_file():
                raise UsageError(
                    f"{path}: does not exist, but a trained model is saved with it; put the tokenizer there that made the "
                    "tokens, or run bertprep tokenize again"
                )
            paths, vocabulary = [*paths, path], {"sha256": tokenizer["sha256"], "tokens": tokenizer["width"]}
        elif vocab or each.vocabulary:
            loaded = load_vocabulary_of(each, vocab)
            paths, vocabulary = [*paths, loaded.path], loaded.made_with
        sha256, size = vocabulary.get("sha256"), vocabulary.get("tokens")
        known.append({"vocabulary_sha256": sha256, "vocabulary_size": size, "cased": settings.get("cased")})
    return Data(
        sets=tuple(sets), folders=folders, task=task, records=records, test=test, vocabulary=paths[0] if paths else None,
        choice=choice, **agree(zip(folders, known, strict=True)),
    )  # fmt: skip


def agree(known: Iterable[tuple[Path, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the properties on which all folders agree; raises `UsageError` if two differ. None means unknown."""
    agreed: dict[str, tuple[Path, Any]] = {}
    for folder, traits in known:
        for name, value in traits.items():
            first, expected = agreed.get(name, (folder, None))
            if expected is None:
                agreed[name] = (folder, value)
            elif value not in (None, expected):
                raise UsageError(
                    f"{folder}: has {name.replace('_', ' ')} {str(value)[:16]}, but {first} has {str(expected)[:16]}; one "
                    "model cannot have both: name data that were made alike"
                )
    return {name: value for name, (_, value) in agreed.items()}


def load_model(name: str, data: Data) -> ModelConfig:
    """Return the model that `--model` names; a preset takes its vocabulary size from the data."""
    if data.vocabulary_size is None and name in PRESETS:
        raise UsageError(
            f"{data.folders[0]}: has no {VOCABULARY} next to its records, so the size of the model's vocabulary is not known; "
            "name a bert_config.json with --model or, for pretraining, the vocabulary with --vocab"
        )
    return ModelConfig.load(name, vocab_size=data.vocabulary_size or 1)


def check_fits_model(data: Data, model: ModelConfig, name: str) -> None:
    """Raise `UsageError` if the model cannot be trained on the data, and have each record's ids checked when it is read."""
    if data.records.seq > model.max_position_embeddings:
        raise UsageError(
            f"{data.folders[0]}: has records of {data.records.seq} tokens, but the model {name} has max_position_embeddings "
            f"{model.max_position_embeddings}; use shorter records, or a model with more positions"
        )
    tokens = data.vocabulary_size or model.vocab_size
    if tokens > model.vocab_size:  # fewer are fine: many models are padded to a multiple of 8 or 64
        raise UsageError(
            f"{data.folders[0]}: was made with a vocabulary of {tokens:,} tokens, but the model {name} has only vocab_size "
            f"{model.vocab_size:,}; name a model with at least as many, or use records made with the model's vocabulary"
        )
    for records in (data.records, data.test):
        if isinstance(records, Records):
            classes = len(data.task.labels) if data.task.labels else None
            records.limit_ids(tokens, model.type_vocab_size, labels=classes)


def check_vocabulary(weights: Path, data: Data) -> str:
    """Raise `UsageError` if weights have another vocabulary or tokenizer than the data; warn if theirs is unknown.

    A checkpoint has the sha256 of its vocabulary in its header; other weights have the file next to them. Returns the warning,
    which begins with the folder of the weights, or "".
    """
    are_documents = isinstance(data.records, TokenRecords)
    path = weights.parent / (TOKENIZER if are_documents else VOCABULARY)
    found, sha256 = weights, read_header(weights).get("vocabulary_sha256") if is_checkpoint(weights) else None
    if sha256 is None and path.is_file():
        found, sha256 = path, sha256_of(path.read_bytes()).hexdigest() if are_documents else load_vocabulary(path).sha256
    expected = data.vocabulary_sha256
    if expected is None or sha256 == expected:
        return ""
    if sha256 is None:
        what = "tokenizer" if are_documents else "vocabulary"
        return (
            f"{weights.parent}: has no {path.name}, so its {what} cannot be compared with that of {data.folders[0]}; make sure "
            f"that they are the same, and copy the model's {path.name} there"
        )
    option = f"--{'tokenizer' if are_documents else 'vocab'} {path if path.is_file() else path.name}"
    raise UsageError(
        f"{found}: has vocabulary sha256 {sha256[:16]}, but {data.folders[0]} has {expected[:16]}; make the data with the "
        f"vocabulary of the model, by {option}, or name a model that has the vocabulary of the data"
    )
