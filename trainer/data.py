"""The records that a run trains on: found or named, and checked before anything heavy is loaded.

A workspace gives its newest finished records of a length; folders that are named may be written by any tool and are mixed.
Records go together when they share a vocabulary, by its sha256 and by whether it is cased.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bertprep.config import RECORD_FORMATS, RecordFormat
from bertprep.errors import BertprepError, UsageError
from bertprep.instances import load_vocabulary
from bertprep.records import Examples, MaskedExamples, PretrainingExamples
from bertprep.records.data_sets import DataSet, find_data_sets, find_training_records, find_training_tokens, search
from bertprep.records.live import DEFAULT_GROUP, LiveExamples
from bertprep.records.record_set import RecordSet
from bertprep.workspace.layout import MANIFEST, TEST, TOKENS, TRAINING, VOCABULARY
from bertprep.workspace.manifest import RECORDS, TASK_RECORDS, TOKEN_SHARDS, sha256_of_vocabulary, tokens_of_vocabulary
from trainer.model_config import PRESETS, ModelConfig
from trainer.settings import LiveSettings

DEFAULT_SEQ = 128
_PREFERRED = RecordFormat.OFRECORD, RecordFormat.TFRECORD, RecordFormat.ARROW, RecordFormat.PARQUET


@dataclass(frozen=True, kw_only=True)
class Data:
    """Folders of records of one shape and one vocabulary, and what is known of them; None for what is not known."""

    folders: tuple[Path, ...]
    format: str  # as "ofrecord", or several with " and "
    seq: int
    pred: int
    records: int  # of the training split, or of the one that was opened
    has_test: bool  # every folder has a test split
    vocabulary: Path | None = None
    vocabulary_size: int | None = None
    vocabulary_sha256: str | None = None
    cased: bool | None = None
    choice: str = ""  # how the folder was chosen, for people
    kind: type[Examples] = PretrainingExamples
    notes: tuple[str, ...] = ()  # on files that are passed over, for people
    live: LiveSettings | None = None  # for token shards; `records` are then the examples of epoch 0

    def describe(self) -> str:
        """One line: where, how many, of which shape."""
        others = f" and {len(self.folders) - 1:,} more" if len(self.folders) > 1 else ""
        choice = f" ({self.choice})" if self.choice else ""
        test = "" if self.has_test else ", no test split"
        shape = f"{self.seq}/{self.pred}, {self.format}" if self.pred else f"{self.seq} tokens, {self.format}"
        what = f"training records of {shape}" if self.live is None else self._describe_live(self.live)
        found = f"{self.folders[0]}{others}{choice}: {self.records:,} {what}{test}"
        return "; ".join((found, *self.notes))

    def _describe_live(self, live: LiveSettings) -> str:
        passes = f"an epoch is {live.instances.dupe:,} pass{'es' * (live.instances.dupe > 1)} over the documents, "
        drawn = "all as the first" if live.repeat_epochs else "each drawn anew"
        return f"training examples of {self.seq}/{self.pred}, made of token shards as they are read; {passes}{drawn}"


def find_data(
    workdir: Path, seq: int = DEFAULT_SEQ, record_format: str | None = None, *, vocabulary: Path | None = None
) -> Data:
    """The newest finished records of `seq` tokens in a workspace, of any format where none is asked for."""
    found: list[DataSet] = []
    unfinished: list[Path] = []
    other_lengths: set[int] = set()
    for data_set in search(workdir):
        is_of_task = data_set.manifest is not None and data_set.manifest.kind == TASK_RECORDS
        if data_set.kind != RECORDS or is_of_task or record_format not in (None, data_set.format):
            continue
        if data_set.is_unfinished:
            if _named_length(data_set.folder) in (None, seq):
                unfinished.append(data_set.folder)
        elif data_set.manifest and data_set.manifest.made_with["seq"] == seq:
            found.append(data_set)
        elif data_set.manifest:
            other_lengths.add(data_set.manifest.made_with["seq"])
    if not found:
        raise UsageError(_nothing_found(workdir, seq, record_format, unfinished, other_lengths))
    newest = _newest(found).folder
    among = f"the newest of {len(found):,}" if len(found) > 1 else "the only one"
    data = name_data([newest], seq, record_format, vocabulary=vocabulary)
    return replace(data, choice=f"{among} of {seq} tokens in {workdir}")


def _named_length(folder: Path) -> int | None:
    """The tokens of records by the name of their folder in a workspace, which says it before there is a manifest."""
    named = re.search(r"_seq_len_(\d{1,9})_", folder.parent.name)
    return int(named[1]) if named else None


def _newest(found: Sequence[DataSet]) -> DataSet:
    """The newest data set; of one in several formats, which are made in one go, always the same."""
    newest = max(found, key=lambda each: (each.modified_ns, each.folder))
    same = [each for each in found if _without_format(each.folder) == _without_format(newest.folder)]
    return min(same, key=lambda each: _PREFERRED.index(each.format) if each.format else len(_PREFERRED))


def _without_format(folder: Path) -> list[str]:
    return [part for part in folder.parts if part not in RECORD_FORMATS]


def find_tokens(workdir: Path, live: Callable[[DataSet], LiveSettings]) -> Data:
    """The newest finished token shards of a workspace; `live` gives the settings of the examples that are made of them."""
    found = [each for each in search(workdir) if each.kind == TOKEN_SHARDS and each.manifest and not each.is_unfinished]
    if not found:
        raise UsageError(
            f"{workdir}: has no finished token shards; bertprep tokenize --workdir {workdir} makes them, --data names others"
        )
    newest = _newest(found)
    among = f"the newest of {len(found):,}" if len(found) > 1 else "the only token shards"
    return replace(name_tokens([newest.folder], live), choice=f"{among} in {workdir}")


def holds_tokens(path: Path) -> bool:
    """Whether there are token shards in what a path names."""
    return any(each.kind == TOKEN_SHARDS for each in find_data_sets([path]))


def name_tokens(folders: Sequence[Path], live: Callable[[DataSet], LiveSettings]) -> Data:
    """The token shards of folders, mixed; the examples of an epoch are counted, where that was not done before."""
    sets = [find_training_tokens(folder) for folder in folders]
    folders = tuple(each.folder if each.is_whole else folder for folder, each in zip(folders, sets, strict=True))
    settings = live(sets[0])
    cased = [each.manifest.made_with["cased"] if each.manifest else None for each in sets]
    for other, its in zip(sets, cased, strict=True):
        if its != cased[0]:
            raise UsageError(f"{other.folder}: is {_case(its)}, {sets[0].folder} is {_case(cased[0])}; name one of them")
    with settings.open(folders, TRAINING, seed=0, shuffle_shards=DEFAULT_GROUP) as examples:
        return Data(
            folders=folders,
            format=TOKENS,
            kind=examples.kind,
            seq=examples.seq,
            pred=examples.pred,
            records=len(examples),
            has_test=all(each.paths(TEST) for each in sets),
            vocabulary=examples.vocabulary.path,
            vocabulary_size=len(examples.vocabulary),
            vocabulary_sha256=examples.vocabulary.sha256,
            cased=cased[0],
            notes=tuple(note for each in sets for note in each.notes),
            live=settings,
        )


def _case(cased: bool | None) -> str:
    return "of unknown case" if cased is None else "cased" if cased else "uncased"


def find_task_data(workdir: Path, name: str, record_format: str | None, *, make: str) -> Data:
    """The newest finished records of a task in a workspace, as squad_v1.1; `make` is the command that makes them."""
    found = [
        each
        for each in search(workdir)
        if each.manifest and each.manifest.kind == TASK_RECORDS and each.manifest.made_with.get("corpus") == name
        and not each.is_unfinished and record_format in (None, each.format)
    ]  # fmt: skip
    if not found:
        of_format = f" as {record_format} files" if record_format else ""
        raise UsageError(f"{workdir}: has no finished records of {name}{of_format}; {make} makes them, --data names others")
    newest = _newest(found)
    among = f"the newest of {len(found):,}" if len(found) > 1 else "the only one"
    return replace(name_data([newest.folder], None, record_format, kind=None), choice=f"{among} of {name} in {workdir}")


def name_data(
    folders: Sequence[Path],
    seq: int | None = None,
    record_format: str | None = None,
    *,
    vocabulary: Path | None = None,
    kind: type[Examples] | None = PretrainingExamples,
) -> Data:
    """The records of folders, mixed; each has training/ below it, record files, or a folder of these for each format.

    Without `seq` it is that of the first, without `kind` that is the task's to check.
    """
    parts = [_read_folder(folder, record_format, vocabulary, kind) for folder in folders]
    seq = parts[0].seq if seq is None else seq
    for part in parts:
        if part.seq != seq:
            wanted = f"--seq {seq}" if part is parts[0] else f"{seq}, as {parts[0].folders[0]} has"
            raise UsageError(
                f"{part.folders[0]}: has records of {part.seq} tokens, asked for is {wanted}; "
                f"name records of that length, or make them: bertprep create --seq {seq}"
            )
        if part.kind is not parts[0].kind:
            raise UsageError(_of_two_kinds(part, parts[0]))
        if part.pred != parts[0].pred:
            raise UsageError(
                f"{part.folders[0]}: has {part.pred} predictions a record, {parts[0].folders[0]} has {parts[0].pred}; "
                f"mix records of one shape, such as bertprep create --seq {seq} --pred {parts[0].pred} makes"
            )
        if record_format not in (None, part.format):
            raise UsageError(
                f"{part.folders[0]}: holds {part.format} files, asked for is --format {record_format}; "
                f"leave that out, or make the other: bertprep convert {part.folders[0]} DIR"
            )
    check_same_vocabulary(parts)
    return replace(
        next((part for part in parts if part.vocabulary), parts[0]),
        cased=next((part.cased for part in parts if part.cased is not None), None),
        folders=tuple(part.folders[0] for part in parts),
        format=" and ".join(sorted({name for part in parts for name in part.format.split(" and ")})),
        records=sum(part.records for part in parts),
        notes=tuple(note for part in parts for note in part.notes),
        has_test=all(part.has_test for part in parts),
    )


def check_same_kind(phases: Sequence[Data]) -> None:
    """Raise `UsageError` where some phases have sentence pairs and others have none: a model has one set of heads."""
    if other := next((data for data in phases if data.kind is not phases[0].kind), None):
        raise UsageError(_of_two_kinds(other, phases[0]))


def _of_two_kinds(data: Data, first: Data) -> str:
    return (
        f"{data.folders[0]}: has {data.kind.title} records, {first.folders[0]} has {first.kind.title} records; a run has one "
        "kind: make both with the same --pairs"
    )


def check_same_vocabulary(parts: Sequence[Data]) -> None:
    """Raise `UsageError` where folders or phases are known to be made with different vocabularies."""
    for what in ("cased", "vocabulary_sha256"):
        known = [part for part in parts if getattr(part, what) is not None]
        for part in known[1:]:
            first = known[0]
            if getattr(part, what) == getattr(first, what):
                continue
            differs = "is {}, {} is {}" if what == "cased" else "was made with a vocabulary of sha256 {}, {} with one of {}"
            raise UsageError(
                f"{part.folders[0]}: {differs.format(_shown(part, what), first.folders[0], _shown(first, what))}; "
                "a model has one vocabulary: name records that were made with the same"
            )


def load_model(name: str, data: Sequence[Data], *, advice: str) -> ModelConfig:
    """The model that `--model` names; a preset takes the size of its vocabulary from the data.

    Raises `UsageError`, which ends in `advice`, where the data do not tell it.
    """
    size = next((each.vocabulary_size for each in data if each.vocabulary_size is not None), None)
    if size is None and name in PRESETS:
        raise UsageError(
            f"{data[0].folders[0]}: has no {VOCABULARY} beside its records, so the size of the model's vocabulary is not "
            f"known; {advice}"
        )
    return ModelConfig.load(name, vocab_size=size or 1)


def check_fits_model(data: Data, model: ModelConfig, name: str) -> None:
    """Raise `UsageError` where a model called `name` cannot be trained on the data."""
    if data.seq > model.max_position_embeddings:
        raise UsageError(
            f"{data.folders[0]}: has records of {data.seq} tokens, the model {name} has max_position_embeddings "
            f"{model.max_position_embeddings}; take shorter records, or a model with more positions"
        )
    if data.vocabulary_size not in (None, model.vocab_size):
        raise UsageError(
            f"{data.folders[0]}: was made with a vocabulary of {data.vocabulary_size:,} tokens, the model {name} has "
            f"vocab_size {model.vocab_size:,}; give the model the vocabulary's size, or take records made with its vocabulary"
        )


def _nothing_found(
    workdir: Path, seq: int, record_format: str | None, unfinished: Sequence[Path], other_lengths: set[int]
) -> str:
    asked = f"records of --seq {seq}" + (f" and --format {record_format}" if record_format else "")
    others = ""
    if lengths := sorted(other_lengths):
        others = f", but has records of {', '.join(map(str, lengths))} tokens: give --seq {lengths[-1]}"
    if unfinished:
        begun = f"{unfinished[0]} is not finished; run bertprep create again, it resumes"
        return f"{workdir}: has no finished {asked}{others}{';' if others else ','} {begun}"
    made_by = f"bertprep create --seq {seq}" + (f" --format {record_format}" if record_format else "")
    return f"{workdir}: has no {asked}{others}; {made_by} --workdir {workdir} makes them, --data names others"


def _read_folder(path: Path, record_format: str | None, vocabulary: Path | None, kind: type[Examples] | None) -> Data:
    """What a folder holds; its records are counted by their index, which is made where it is missing."""
    data_set = find_training_records(path, (record_format,) if record_format else ())
    folder = data_set.folder if data_set.is_whole else path
    is_pretraining = kind is PretrainingExamples  # of either kind
    with RecordSet([folder], kind=None if is_pretraining else kind) as records:
        if is_pretraining and not issubclass(records.kind, MaskedExamples):
            raise records.is_of_another_kind(PretrainingExamples)
        return data_of(data_set, folder, records, vocabulary)


def data_of(data_set: DataSet, folder: Path, records: RecordSet | LiveExamples, vocabulary: Path | None = None) -> Data:
    """What is known of the opened records of a split."""
    vocabulary, size, sha256 = _vocabulary_of(data_set, vocabulary)
    return Data(
        folders=(folder,),
        format=" and ".join(records.formats),
        seq=records.seq,
        pred=records.pred,
        records=len(records),
        has_test=bool(data_set.paths(TEST)),
        kind=records.kind,
        vocabulary=vocabulary,
        vocabulary_size=size,
        vocabulary_sha256=sha256,
        cased=data_set.manifest.made_with.get("cased") if data_set.manifest else None,
        notes=data_set.notes,
    )


def _vocabulary_of(data_set: DataSet, given: Path | None) -> tuple[Path | None, int | None, str | None]:
    """(file, tokens, sha256) of the vocabulary that is given or beside the records, which must be the manifest's."""
    manifest = data_set.manifest
    expected = sha256_of_vocabulary(manifest) if manifest else None
    path = given or data_set.vocabulary
    if path is None:
        return None, tokens_of_vocabulary(manifest) if manifest else None, expected
    vocabulary = load_vocabulary(path)
    if expected not in (None, vocabulary.sha256):
        raise BertprepError(
            f"{path}: is not the vocabulary that the records were made with: sha256 {vocabulary.sha256[:16]}..., expected "
            f"{str(expected)[:16]}... by {data_set.home.folder / MANIFEST}; name the right one with --vocab"
        )
    return path, len(vocabulary), vocabulary.sha256


def _shown(part: Data, what: str) -> str:
    if what == "cased":
        return "cased" if part.cased else "uncased"
    return f"{str(part.vocabulary_sha256)[:16]}..."
