"""What `bertprep task squad` and `bertprep task glue` are asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bertprep.commands.request import InFormats, InParts, OfVocabulary, Where
from bertprep.config import GOOGLE, SQUAD_VERSIONS, GlueSettings, SquadSettings
from bertprep.errors import UsageError
from bertprep.files.paths import path_arg
from bertprep.options import WHERE, described, option


@dataclass(frozen=True, kw_only=True)
class OfTask(InFormats, Where, OfVocabulary, InParts):
    """Where the files of a task and their records are, and how these are made."""

    group: ClassVar[str] = WHERE
    feature_names: str = field(default=GOOGLE, init=False)  # which readers of tasks expect
    vocab: Path | str | None = option(
        None, "vocabulary: a file, one of the workspace such as books_8000, or a model whose vocabulary was downloaded "
        "(default: that of bert-base)", metavar="FILE|NAME", check=str, also=("--vocab-file",),
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
