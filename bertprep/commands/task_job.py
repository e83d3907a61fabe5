"""The job of `task`: the files of a task with their splits and the vocabulary, as tasks of the work loop.

The vocabulary is that of the model to be fine-tuned.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.commands.record_job import GENERATOR, padding_remark, record_names
from bertprep.commands.vocab import find_vocabulary
from bertprep.config import GLUE, SQUAD, GlueSettings, SquadSettings
from bertprep.errors import UsageError
from bertprep.files.checksums import SHA256
from bertprep.files.paths import as_path, checksum_of
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.options import narrowed
from bertprep.records.dataset_info import ledgers_by_format
from bertprep.sources.catalogue import DEFAULT_MODEL
from bertprep.tasks import EXAMPLES_PER_FILE
from bertprep.tasks.glue import GlueTask, find_task, own_task
from bertprep.tasks.glue_files import find_labels, read_file
from bertprep.tasks.records import TaskRecordMaker, TaskSource, glue_source, squad_source
from bertprep.tasks.squad import read_squad
from bertprep.tasks.squad_features import SquadFeatures, make_features
from bertprep.terminal import listed
from bertprep.untrusted import CORPUS
from bertprep.work.layout import (
    DEV,
    DEV_MISMATCHED,
    QUESTIONS,
    SUBMISSION,
    SUBMISSION_MISMATCHED,
    TRAINING,
    VOCABULARY,
    Workspace,
    task_settings_name,
)
from bertprep.work.ledger import Ledger
from bertprep.work.manifest import TASK_RECORDS
from bertprep.work.run import Job, Task

if TYPE_CHECKING:
    from bertprep.commands.task_request import Glue, Squad

CASED_MODEL = "google-bert/bert-base-cased"
_SPLIT_OF_NAME = {
    "train": TRAINING, "training": TRAINING, "dev_mismatched": DEV_MISMATCHED, "dev": DEV, "validation": DEV, "eval": DEV,
    "test_mismatched": SUBMISSION_MISMATCHED, "test": SUBMISSION, "diagnostic": SUBMISSION,
}  # fmt: skip
"""What the name of a file begins with, and no letter after it -> its split."""
_RULE = f"a name begins with {', '.join(list(_SPLIT_OF_NAME)[:-1])} or {list(_SPLIT_OF_NAME)[-1]}, and no letter follows"
_SUFFIXES = {SQUAD: (".json",), GLUE: (".tsv", ".jsonl", ".json")}


def resolve_task(request: Squad | Glue) -> Job:
    """Return the job that a request describes; the task's files are read."""
    variant, formats, inputs, output = request.variant, request.record_formats, request.inputs, request.output
    workspace = request.workspace
    default = CASED_MODEL if request.cased else DEFAULT_MODEL
    vocabulary = load_vocabulary(find_vocabulary(workspace, request.vocab, default))
    request.check_case(vocabulary, cased=request.cased)
    source: TaskSource
    settings: SquadSettings | GlueSettings
    remarks = list(padding_remark(vocabulary))
    if isinstance(request, SquadSettings):
        settings = squad = narrowed(SquadSettings, request)
        features, asked, files = _squad_features(workspace, request.version, inputs, vocabulary, squad)
        task, data_set, source = SQUAD, f"squad_v{request.version}", squad_source(features)
        remarks += _squad_remarks(features, files, squad)
    else:
        settings = glue = narrowed(GlueSettings, request)
        source, asked, files = _glue_source(workspace, str(request.name), request.labels, inputs, vocabulary, glue)
        task, data_set = GLUE, f"glue_{asked['name']}"
    made_with = {
        "generator": GENERATOR,
        "task": task,
        "corpus": data_set,
        **asked,
        **asdict(settings),
        **variant.made_with,
        "examples_per_file": EXAMPLES_PER_FILE,
        "vocabulary": vocabulary.made_with,
    }
    folders = (
        {each: workspace.records(each, task_settings_name(settings, variant=variant), data_set) for each in formats}
        if output is None
        else {each: as_path(output) / each for each in formats}
    )
    tasks = [
        Task(
            f"{files[split]}, block {number}",
            record_names(formats, data_set, split, number, variant),
            (split, number),
        )
        for split, examples in source.splits.items()
        for number in range(examples.files)
    ]
    template = Ledger(
        folder=workspace.root,
        kind=TASK_RECORDS,
        made_with=made_with,
        versions={},
        counts=source.counts,
        copies={VOCABULARY: vocabulary.path, **({QUESTIONS: files[DEV]} if task == SQUAD and DEV in files else {})},
        advice="choose another --output or --workdir",
    )
    shapes = {split: examples.shape for split, examples in source.splits.items()}
    ledgers = ledgers_by_format(template, folders, tasks, shapes, source.labels)
    return Job(TaskRecordMaker(source, variant), ledgers, tasks, remarks)


def _squad_features(
    workspace: Workspace, version: str, inputs: Sequence[Path | str], vocabulary: Vocabulary, settings: SquadSettings
) -> tuple[dict[str, SquadFeatures], dict[str, Any], dict[str, Path]]:
    folder = workspace.download("squad") / f"v{version}"
    files = _files_of(SQUAD, inputs, [folder / f"{name}-v{version}.json" for name in ("train", "dev")])
    for split, path in files.items():
        if split not in (TRAINING, DEV):
            raise UsageError(f"--input {path}: SQuAD has files for training and dev; name it train... or dev...")
    read = [_describe(split, path.stat().st_size, checksum_of(path, SHA256)) for split, path in files.items()]
    asked = {"version": version, "inputs": read}
    features = {
        split: make_features(
            read_squad(path, f"v{version}", training=split == TRAINING), vocabulary, settings, training=split == TRAINING
        )
        for split, path in files.items()
    }
    return features, asked, files


def _squad_remarks(features: Mapping[str, SquadFeatures], files: Mapping[str, Path], settings: SquadSettings) -> Iterator[str]:
    if dropped := features[TRAINING].dropped if TRAINING in files else []:
        yield f"{files[TRAINING]}: drops {len(dropped):,} questions whose answer is not in their context: {listed(dropped)}"
    smallest = settings.seq - settings.max_query - 3  # [CLS] and two [SEP]
    if settings.doc_stride > smallest:
        yield (
            f"--doc-stride {settings.doc_stride}: a window of --seq {settings.seq} may hold only {smallest} tokens of "
            f"the context; the tokens between two windows are lost; give at most --doc-stride {smallest}"
        )


def _glue_source(
    workspace: Workspace,
    name: str,
    labels: Sequence[str],
    inputs: Sequence[Path | str],
    vocabulary: Vocabulary,
    settings: GlueSettings,
) -> tuple[TaskSource, dict[str, Any], dict[str, Path]]:
    try:
        task = find_task(name)
    except UsageError:
        if not CORPUS.holds(name):
            raise UsageError(f"{name}: must be of letters, digits, '_', '-' and '.'") from None
        task = GlueTask(name=name)
    if task.folder and labels:
        own = ", ".join(task.labels) or "scores"
        raise UsageError(f"--labels {','.join(labels)}: {task.name} has its own ({own}); leave it out")
    downloaded = [workspace.download(task.folder) / file.name for file in task.files.values()]
    paths = _files_of(GLUE, inputs, downloaded)
    for split, path in paths.items():
        if task.folder and split not in task.files:
            expected = ", ".join(file.name for file in task.files.values())
            raise UsageError(f"--input {path}: {task.name} has no {split} split; its files are {expected}")
    files = {split: read_file(path, split, task) for split, path in paths.items()}
    if not task.folder:
        if not labels and TRAINING not in files:
            raise UsageError(f"{name}: its labels are not known; give --labels, or a training file (train...)")
        task = own_task(name, labels or find_labels(files[TRAINING]))
    asked = {
        "name": task.name,
        "labels": list(task.labels),
        "inputs": [_describe(split, file.size_bytes, file.sha256) for split, file in files.items()],
    }
    return glue_source(files, task, vocabulary, settings), asked, paths


def _describe(split: str, size_bytes: int, sha256: str) -> dict[str, Any]:
    return {"split": split, "bytes": size_bytes, "sha256": sha256}


def _files_of(task: str, inputs: Sequence[Path | str], downloaded: Sequence[Path]) -> dict[str, Path]:
    if not inputs:
        for path in downloaded:
            if not path.is_file():
                raise UsageError(f"{path}: does not exist; bertprep download {task} fetches it, or name files with --input")
    found: dict[str, Path] = {}
    for path in _expanded(task, inputs, {path.name for path in downloaded}) if inputs else downloaded:
        split = _split_of(path)
        if split is None:
            raise UsageError(f"--input {path}: its name does not say which split it is; {_RULE}, as in train.tsv; rename it")
        if split in found:
            raise UsageError(f"--input {path}: is for {split}, and so is {found[split]}; name one file for each split")
        found[split] = path
    order = list(dict.fromkeys(_SPLIT_OF_NAME.values()))
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))


def _expanded(task: str, inputs: Sequence[Path | str], published: Container[str]) -> list[Path]:
    """Return the named files, and the task's in folders, of a split the published one.

    GLUE's original folders have other files too: `dev_ids.tsv` next to `dev.tsv`.
    """
    paths: list[Path] = []
    for path in map(as_path, inputs):
        if not path.exists():
            raise UsageError(f"--input {path}: does not exist")
        if not path.is_dir():
            paths.append(path)
            continue
        files = (each for each in sorted(path.iterdir()) if each.suffix in _SUFFIXES[task] and each.is_file())
        inside = [each for each in files if _split_of(each)]
        if not inside:
            suffixes = " or ".join(_SUFFIXES[task])
            raise UsageError(f"--input {path}: holds no {suffixes} file whose name says which split it is; {_RULE}")
        known = {_split_of(each) for each in inside if each.name in published}
        paths += [each for each in inside if each.name in published or _split_of(each) not in known]
    return paths


def _split_of(path: Path) -> str | None:
    """Return the split that a file's name tells.

    >>> _split_of(Path("train-v1.1.json")), _split_of(Path("dev_matched.tsv")), _split_of(Path("trainer.log"))
    ('training', 'dev', None)
    """
    matched = re.match(rf"({'|'.join(_SPLIT_OF_NAME)})(?![a-z])", path.name.lower())
    return _SPLIT_OF_NAME[matched[1]] if matched else None
