"""`bertprep task squad` and `task glue`: the files of a fine-tuning task become record files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bertprep.commands import Created, print_created, tell_files
from bertprep.commands.request import InFormats, InParts, Where, function_of
from bertprep.config import GOOGLE, SQUAD_VERSIONS, GlueSettings, SquadSettings
from bertprep.errors import UsageError
from bertprep.files.paths import as_path, path_arg
from bertprep.options import WHERE, described, option
from bertprep.terminal import print_results
from bertprep.work.layout import TRAINING

_UNUSUAL = {
    "dropped": "whose answer is not in their context",
    "recovered": "which run_squad.py drops for the white space in or around their answer",
}
"""What the manifest counts of SQuAD's questions for training besides all of them."""


@dataclass(frozen=True, kw_only=True)
class OfTask(InFormats, Where, InParts):
    """Where the files of a task and their records are, and how these are made."""

    group: ClassVar[str] = WHERE
    feature_names: str = field(default=GOOGLE, init=False)  # which readers of tasks expect
    vocab: Path | str | None = option(
        None, "vocabulary: a file, or a model whose vocabulary was downloaded (default: that of bert-base)",
        metavar="FILE|MODEL", check=str, also=("--vocab-file",),
    )  # fmt: skip
    inputs: Sequence[Path | str] = option(
        (), "files whose names begin with train, dev or test, or a folder of them (default: what was downloaded)",
        name="--input", metavar="PATH", check=path_arg,
    )  # fmt: skip
    output: Path | str | None = option(None, "folder for the records (default: the workspace)", metavar="DIR", check=path_arg)


@dataclass(frozen=True, kw_only=True)
class Squad(OfTask, SquadSettings):
    """The windows of SQuAD's questions, as `run_squad.py` makes them."""

    version: str = option(SQUAD_VERSIONS[0], "version of SQuAD", choices=SQUAD_VERSIONS)


@dataclass(frozen=True, kw_only=True)
class Glue(OfTask, GlueSettings):
    """Labelled texts, of GLUE or your own, as `run_classifier.py` makes them."""

    name: str | None = field(
        default=None,
        kw_only=False,
        metadata=described("task of GLUE, such as mrpc, or a name of your own for --input", metavar="NAME", positional=True),
    )
    labels: Sequence[str] = option(
        (), "labels of your own task, in the order of their numbers (default: those of the training file, sorted)",
        metavar="NAME,NAME[,...]", separator=",",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name:
            raise UsageError("which task of GLUE? name it, as in bertprep task glue mrpc")
        if not self.inputs:
            from bertprep.tasks.glue import find_task

            find_task(self.name)


def create_task(request: Squad | Glue) -> Created:
    """Make record files of a task: the examples of Google's `run_squad.py` or `run_classifier.py`.

    The files are downloaded ones, or `inputs`, whose names begin with train, dev or test. `version` is SQuAD's; `name` is a
    task of GLUE, or the user's own with texts and labels in TSV or JSON Lines, whose classes are `labels` or those of the
    training file. `vocab` is a file or a downloaded model, bert-base by default. Finished files are kept. `part`, such as
    "3/400", makes only that part.

    Raises `UsageError` for a request that cannot be met, `BertprepError` for wrong files, vocabulary or machine, or other
    settings.

        bertprep.create_glue("mrpc", workdir="data")
    """
    from bertprep.commands.task_job import resolve_task

    workers = request.start_workers(shared=as_path(request.output or request.workdir))
    return resolve_task(request).run(request, workers)


REQUEST = {"squad": Squad, "glue": Glue}
create_squad = function_of(Squad, create_task)
create_glue = function_of(Glue, create_task)


def run(request: Squad | Glue) -> None:
    """Make the records of a task, and print what each format and split has."""
    created = create_task(request)
    tell_files(created.manifests, "examples")
    manifest = next(iter(created.manifests.values()))
    counts, labels = manifest.counts, manifest.made_with.get("labels")
    if labels:
        print_results(f"labels: {', '.join(labels)}")  # a misspelled one would be a class of its own
    for name, why in _UNUSUAL.items():
        if found := counts.get(f"{TRAINING}_{name}"):
            print_results(f"{name}: {found:,} of {counts[f'{TRAINING}_questions']:,} questions for training, {why}")
    print_created(created, request)
