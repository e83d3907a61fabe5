"""`bertprep task squad`, `task glue` and `task ner`: make record files from the files of a fine-tuning task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bertprep.commands.function import function_of
from bertprep.commands.request import InFormats, InParts, OfVocabulary, Where
from bertprep.config import GLUE, GOOGLE, NER, SQUAD, SQUAD_VERSIONS, GlueSettings, SquadSettings
from bertprep.errors import UsageError
from bertprep.files.paths import as_path, path_arg
from bertprep.options import WHERE, described, narrowed, option
from bertprep.terminal import print_results
from bertprep.work.layout import TRAINING, task_settings_name

if TYPE_CHECKING:
    from bertprep.instances import Vocabulary
    from bertprep.tasks.job import TaskRecords
    from bertprep.work.made import Made

CASED_MODEL = "google-bert/bert-base-cased"
_UNUSUAL = {
    "dropped": "since the answer is not at its answer_start",
    "misplaced": "kept: the answer is not at its answer_start, but in the words there, where run_squad.py finds it too",
    "without_tokens": "dropped, since no token is left of the answer",
    "recovered": "which run_squad.py drops because of white space in or around the answer",
}
"""Further counts of SQuAD's training questions in the manifest, next to their total, and what each means."""


@dataclass(frozen=True, kw_only=True)
class TaskRequest(InFormats, Where, OfVocabulary, InParts):
    """The options that the three tasks share: files, vocabulary, output folder and formats."""

    group: ClassVar[str] = WHERE
    feature_names: str = field(default=GOOGLE, init=False)  # readers of these tasks expect Google's names
    vocab: Path | str | None = option(
        None, "vocabulary: a file, one in the workspace such as books_8000, or a model whose vocabulary was downloaded "
        "(default: that of bert-base)", metavar="FILE|NAME", check=str, also=("--vocab-file",),
    )  # fmt: skip
    inputs: Sequence[Path | str] = option(
        (), "files whose names begin with train, dev or test, or a folder of such files (default: what was downloaded)",
        name="--input", metavar="PATH", check=path_arg,
    )  # fmt: skip
    output: Path | str | None = option(
        None, "folder for the records (default: in the workspace)", metavar="DIR", check=path_arg
    )

    def read(self, vocabulary: Vocabulary) -> TaskRecords:
        """Read the files of the task, and return their examples."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Squad(TaskRequest, SquadSettings):
    """Make records from SQuAD's questions and contexts, as `run_squad.py` does."""

    version: str = option(SQUAD_VERSIONS[0], "version of SQuAD", choices=SQUAD_VERSIONS)

    @property
    def settings(self) -> SquadSettings:
        return narrowed(SquadSettings, self)

    def read(self, vocabulary: Vocabulary) -> TaskRecords:
        from bertprep.tasks.job import squad_records
        from bertprep.tasks.splits import find_splits

        folder = self.workspace.download("squad") / f"v{self.version}"
        downloaded = [folder / f"{name}-v{self.version}.json" for name in ("train", "dev")]
        return squad_records(find_splits(SQUAD, self.inputs, downloaded), self.version, vocabulary, self.settings)


@dataclass(frozen=True, kw_only=True)
class Glue(TaskRequest, GlueSettings):
    """Make records from labelled texts, GLUE's or your own, as `run_classifier.py` does."""

    name: str | None = field(
        default=None,
        kw_only=False,
        metadata=described("task of GLUE, such as mrpc, or a name of your choice for --input", metavar="NAME", positional=True),
    )
    labels: Sequence[str] = option(
        (), "labels of your own task, ordered by their ids (default: those in the training file, sorted)",
        metavar="NAME,NAME[,...]", separator=",",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name:
            raise UsageError("task glue: expected the name of a task, as in bertprep task glue mrpc")
        if not self.inputs:
            from bertprep.tasks.glue import find_task

            find_task(self.name)

    @property
    def settings(self) -> GlueSettings:
        return narrowed(GlueSettings, self)

    def read(self, vocabulary: Vocabulary) -> TaskRecords:
        from bertprep.tasks.job import glue_records, name_glue_task
        from bertprep.tasks.splits import find_splits

        task = name_glue_task(str(self.name), self.labels)
        downloaded = [self.workspace.download(task.folder) / file.name for file in task.files.values()]
        return glue_records(find_splits(GLUE, self.inputs, downloaded), task, self.labels, vocabulary, self.settings)


@dataclass(frozen=True, kw_only=True)
class Ner(TaskRequest, GlueSettings):
    """Make records for token classification from tagged words, in CoNLL files or files of `datasets`."""

    name: str | None = field(
        default=None,
        kw_only=False,
        metadata=described("name of your choice for the task, such as conll2003", metavar="NAME", positional=True),
    )
    labels: Sequence[str] = option(
        (), "tags, ordered by their ids (default: those in the training file, O first)", metavar="NAME,NAME[,...]",
        separator=",",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name or not self.inputs:
            raise UsageError("task ner: expected a name and files, as in bertprep task ner conll2003 --input train.txt dev.txt")

    @property
    def settings(self) -> GlueSettings:
        return narrowed(GlueSettings, self)

    def read(self, vocabulary: Vocabulary) -> TaskRecords:
        from bertprep.tasks.ner import ner_records
        from bertprep.tasks.splits import find_splits

        return ner_records(find_splits(NER, self.inputs, []), str(self.name), self.labels, vocabulary, self.settings)


def create_task(request: Squad | Glue | Ner) -> Made:
    """Make record files of a fine-tuning task: the examples of Google's `run_squad.py` or `run_classifier.py`, or tagged words.

    The files are downloaded ones, or `inputs`, whose names begin with train, dev or test. SQuAD has a `version`. `name` is a
    task of GLUE, or names your own: labelled texts in TSV, CSV, JSON or Parquet, or tagged words in CoNLL files, JSON or
    Parquet. `labels` are the classes or tags, by default those in the training file. `vocab` is a file or the name of a
    downloaded model, by default bert-base. Finished files are kept. `part`, such as "3/400", makes only that part.

    Raises `UsageError` for contradictory or impossible arguments, and `BertprepError` for invalid files or vocabulary, a
    failing machine, or an output folder with other settings.

        bertprep.create_glue("mrpc", workdir="data")
    """
    from bertprep.instances import load_vocabulary
    from bertprep.sources.catalogue import DEFAULT_MODEL
    from bertprep.tasks.job import task_job
    from bertprep.text.vocabulary import find_vocabulary

    started = time.monotonic()
    workers = request.start_workers(shared=as_path(request.output or request.workdir))
    default = CASED_MODEL if request.cased else DEFAULT_MODEL
    vocabulary = load_vocabulary(find_vocabulary(request.workspace, request.vocab, default, cased=request.cased))
    request.check_case(vocabulary, cased=request.cased)
    records, variant = request.read(vocabulary), request.variant
    if request.output is None:
        of_settings = task_settings_name(request.settings, variant=variant)
        folders = {name: request.workspace.records(name, of_settings, records.data_set) for name in request.record_formats}
    else:
        folders = {name: as_path(request.output) / name for name in request.record_formats}
    return request.make(task_job(records, vocabulary, variant, folders), workers).since(started)


REQUEST = {"squad": Squad, "glue": Glue, "ner": Ner}
create_squad = function_of(Squad, create_task, "create_squad")
create_glue = function_of(Glue, create_task, "create_glue")
create_ner = function_of(Ner, create_task, "create_ner")


def run(request: Squad | Glue | Ner) -> None:
    """Make the records of a task, and print a summary of each format and split."""
    made = create_task(request)
    print_results(*made.lines())
    counts, labels = made.manifest.counts, made.manifest.made_with.get("labels")
    if labels:
        print_results(f"labels: {', '.join(labels)}")  # shows a misspelled label, which would be a class of its own
    for name, why in _UNUSUAL.items():
        if found := counts.get(f"{TRAINING}_{name}"):
            print_results(
                f"{name.replace('_', ' ')}: {found:,} of {counts[f'{TRAINING}_questions']:,} questions for training, {why}"
            )
    print_results(*request.finished_lines())
