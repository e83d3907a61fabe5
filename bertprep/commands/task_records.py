"""`bertprep create --task squad` and `--task glue`: the files of a fine-tuning task become record files.

They are what `bertprep download` brought, or the user's own, whose names tell the splits. Nothing is trained on them: the
vocabulary is that of the model which is to be fine-tuned.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep import pool
from bertprep.commands import DEFAULT_VOCABULARY_SIZE, split_rows
from bertprep.commands.created import Created
from bertprep.commands.vocab import find_vocabulary
from bertprep.config import (
    DEFAULT_DIALECT,
    GOOGLE,
    RECORD_FORMATS,
    Dialect,
    GlueSettings,
    InstanceSettings,
    RecordFormat,
    SquadSettings,
    check_formats,
)
from bertprep.errors import UsageError
from bertprep.options import add_options as add_settings
from bertprep.options import read_options
from bertprep.progress import Reporter
from bertprep.sources.catalogue import DEFAULT_MODEL
from bertprep.terminal import tell, tell_table
from bertprep.untrusted import CORPUS
from bertprep.workspace.layout import (
    DEV,
    DEV_MISMATCHED,
    QUESTIONS,
    SUBMISSION,
    SUBMISSION_MISMATCHED,
    TRAINING,
    Workspace,
    record_file_name,
    task_settings_name,
)
from bertprep.workspace.manifest import TASK_RECORDS, sha256_of
from bertprep.workspace.record_home import RecordHome, home_for

if TYPE_CHECKING:
    from bertprep.instances import Vocabulary
    from bertprep.tasks.glue import GlueTask
    from bertprep.tasks.records import GlueSource, SquadSource, TaskShard

TASKS = SQUAD, GLUE = ("squad", "glue")
SQUAD_VERSIONS = ("1.1", "2.0")
CASED_MODEL = "google-bert/bert-base-cased"
_SETTINGS = {SQUAD: SquadSettings, GLUE: GlueSettings}
_OF_TASK = {SQUAD: ("version", "doc_stride", "max_query"), GLUE: ("name", "labels")}
"""The options of each task that the other lacks."""
_SPLIT_OF_NAME = {
    "train": TRAINING, "dev_mismatched": DEV_MISMATCHED, "dev": DEV, "validation": DEV, "eval": DEV,
    "test_mismatched": SUBMISSION_MISMATCHED, "test": SUBMISSION, "diagnostic": SUBMISSION,
}  # fmt: skip
"""What the name of a file begins with -> its split."""
_SUFFIXES = {SQUAD: (".json",), GLUE: (".tsv", ".jsonl", ".json")}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options for fine-tuning tasks; --seq, --cased and those that say where are `create`'s."""
    group = parser.add_argument_group(
        "fine-tuning tasks",
        "Of the options above, tasks take --seq (default: 384 for squad, 128 for glue), --cased, --format, --compress, --vocab "
        "(default: that of bert-base), --input, --output, --workdir, --workers and --verify.",
    )
    group.add_argument("--task", choices=TASKS, help="make records of this task, from what was downloaded or from --input")
    group.add_argument("--version", choices=SQUAD_VERSIONS, help=f"squad: version (default: {SQUAD_VERSIONS[0]})")
    add_settings(group, SquadSettings, without=("seq", "cased"), only_given=True)
    group.add_argument("--name", metavar="NAME", help="glue: task, such as mrpc, or a name of your own for --input")
    group.add_argument(
        "--labels", metavar="NAME,NAME[,...]",
        help="glue: labels of your own task, in the order of their numbers (default: those of the training file, sorted)",
    )  # fmt: skip


def check_no_task(options: argparse.Namespace) -> None:
    """Raise where an option of a task is given without it."""
    for task, names in _OF_TASK.items():
        for name in names:
            if getattr(options, name, None) is not None:
                raise UsageError(f"{_spelled(name)}: is for --task {task}; add it")


def run(options: argparse.Namespace) -> None:
    """Make the records of a task, and print what each format and split has."""
    task = options.task
    _check_fits(options, task)
    created = create_task(
        task,
        settings=read_options(_SETTINGS[task], options),
        version=options.version or SQUAD_VERSIONS[0],
        name=options.name,
        labels=options.labels.split(",") if options.labels else (),
        dialect=read_options(Dialect, options),
        formats=options.format,
        vocab=options.vocab,
        inputs=options.input,
        output=options.output,
        workdir=options.workdir,
        workers=options.workers,
        verify=options.verify,
        progress=True,
    )
    rows: list[tuple[str, ...]] = [("format", "split", "files", "records", "MB")]
    for name, manifest in created.manifests.items():
        rows += [(name, *row) for row in split_rows(manifest.files, "examples")]
    tell_table(rows)
    counts = next(iter(created.manifests.values())).counts
    if dropped := counts.get(f"{TRAINING}_dropped"):
        questions = counts[f"{TRAINING}_questions"]
        tell(f"dropped: {dropped:,} of {questions:,} questions for training, whose answer is not in their context")
    tell(
        f"made in {created.seconds:.1f} s in" if created.made else "nothing was missing in",
        *(f"  {folder}" for folder in created.folders.values()),
    )


def _check_fits(options: argparse.Namespace, task: str) -> None:
    """Raise where an option is given that the task does not have."""
    other = next(name for name in TASKS if name != task)
    for name in _OF_TASK[other]:
        if getattr(options, name, None) is not None:
            raise UsageError(f"{_spelled(name)}: is for --task {other}, not for --task {task}; leave it out")
    own = {field.name for field in fields(_SETTINGS[task])}
    pretraining = [field.name for field in fields(InstanceSettings) if field.name not in own and hasattr(options, field.name)]
    pretraining += ["corpus"] if options.corpus is not None else []
    pretraining += ["vocab_size"] if options.vocab_size != DEFAULT_VOCABULARY_SIZE else []
    if pretraining:
        raise UsageError(f"{_spelled(pretraining[0])}: is for pretraining, not for --task {task}; leave it out")


def _spelled(name: str) -> str:
    return "--" + name.replace("_", "-")


def create_task(
    task: str,
    *,
    settings: SquadSettings | GlueSettings | None = None,
    version: str = SQUAD_VERSIONS[0],
    name: str | None = None,
    labels: Sequence[str] = (),
    dialect: Dialect = DEFAULT_DIALECT,
    formats: str | tuple[str, ...] = RECORD_FORMATS,
    vocab: Path | str | None = None,
    inputs: Sequence[Path | str] = (),
    output: Path | str | None = None,
    workdir: Path | str = "data",
    workers: int | None = None,
    verify: bool = False,
    progress: bool = False,
) -> Created:
    """Make record files of a fine-tuning task, "squad" or "glue": the examples of Google's `run_squad.py` or `run_classifier.py`.

    They are made of what `download` brought, or of `inputs`: files whose names begin with train, dev or test, or a folder of
    them. `version` is SQuAD's; `name` is a task of GLUE, or one of the user's own with texts and labels in TSV or JSON
    Lines, whose classes are `labels` or else those of the training file. `vocab` is a file or the name of a downloaded model,
    bert-base by default. The records are in `output`/FORMAT, or in the workspace. What exists is not made again.

    Raises `UsageError` for a request that cannot be met, `BertprepError` for wrong files, vocabulary or machine, and where the
    output folder was made with other settings.

        bertprep.create_task("glue", name="mrpc", workdir="data")
    """
    from bertprep.instances import load_vocabulary
    from bertprep.records.make import make_records
    from bertprep.tasks.records import TaskRecordMaker

    started = time.monotonic()
    if task not in TASKS:
        raise UsageError(f"--task {task}: unknown; choose one of {', '.join(TASKS)}")
    settings = settings or _SETTINGS[task]()
    if not isinstance(settings, _SETTINGS[task]):
        raise UsageError(f"--task {task}: takes {_SETTINGS[task].__name__}, found {type(settings).__name__}")
    checked = check_formats(formats)
    dialect.check_fits(checked, "--format")
    if dialect.feature_names != GOOGLE:
        raise UsageError(f"--feature-names {dialect.feature_names}: is for pretraining; readers of tasks expect Google's names")
    workspace = Workspace(Path(workdir))
    default = CASED_MODEL if settings.cased else DEFAULT_MODEL
    vocabulary = load_vocabulary(find_vocabulary(workspace, default if vocab is None else vocab))
    if isinstance(settings, SquadSettings):
        data_set = f"squad_v{_check_version(version)}"
        files = _files_of(task, inputs, [workspace.download("squad") / f"v{version}" / f"{each}-v{version}.json" for each in
                                         ("train", "dev")], "squad")  # fmt: skip
        source: SquadSource | GlueSource
        source, asked = _squad_source(files, f"v{version}", vocabulary, settings)
    else:
        source, asked, files = _glue_source(workspace, name, labels, inputs, vocabulary, settings)
        data_set = f"glue_{asked['name']}"
    made_with = {
        "task": task,
        "corpus": data_set,
        **asked,
        **asdict(settings),
        **dialect.made_with,
        **_identify(files, vocabulary),
    }
    homes = {
        each: RecordHome(workspace.records(each, task_settings_name(settings, dialect=dialect), data_set))
        if output is None
        else home_for(Path(output), each)
        for each in checked
    }
    shards = _shards(source, files, data_set, checked, dialect)
    manifests, made = make_records(
        shards,
        homes,
        made_with,
        TaskRecordMaker(source, dialect),
        workers or pool.default_workers(),
        Reporter(enabled=progress),
        check_texts=False,
        verify=verify,
        kind=TASK_RECORDS,
        counts=source.counts,
        kept={QUESTIONS: files[DEV]} if task == SQUAD and DEV in files else {},
        advice="choose another --output or --workdir",
    )
    folders = {each.value: home.records for each, home in homes.items()}
    return Created(folders, {each.value: manifest for each, manifest in manifests.items()}, time.monotonic() - started, made)


def _check_version(version: str) -> str:
    if version not in SQUAD_VERSIONS:
        raise UsageError(f"--version {version}: SQuAD has no such version; choose one of {', '.join(SQUAD_VERSIONS)}")
    return version


def _squad_source(
    files: Mapping[str, Path], version: str, vocabulary: Vocabulary, settings: SquadSettings
) -> tuple[SquadSource, dict[str, Any]]:
    """The windows of SQuAD's files, and what the manifest says of them."""
    from bertprep.tasks.records import make_squad_source

    for split, path in files.items():
        if split not in (TRAINING, DEV):
            raise UsageError(f"--input {path}: SQuAD has files for training and dev; name it train... or dev...")
    return make_squad_source(files, version, vocabulary, settings), {"version": version}


def _glue_source(
    workspace: Workspace,
    name: str | None,
    labels: Sequence[str],
    inputs: Sequence[Path | str],
    vocabulary: Vocabulary,
    settings: GlueSettings,
) -> tuple[GlueSource, dict[str, Any], dict[str, Path]]:
    """The files of one of GLUE's tasks or of the user's own, what the manifest says of them, and their paths."""
    from bertprep.tasks.glue import GlueTask, find_task, own_task
    from bertprep.tasks.glue_files import find_labels, scan_file
    from bertprep.tasks.records import GlueSource

    if not name:
        raise UsageError("--task glue: which? give --name, such as --name mrpc")
    try:
        task = find_task(name)
    except UsageError:
        if not inputs:
            raise
        if not CORPUS.holds(name):
            raise UsageError(f"--name {name}: must be of letters, digits, '_', '-' and '.'") from None
        task = GlueTask(name=name)
    if task.folder and labels:
        raise UsageError(f"--labels {','.join(labels)}: {task.name} has its own ({', '.join(task.labels) or 'scores'}); leave it out")
    downloaded = [workspace.download(task.folder) / file.name for file in task.files.values()]
    paths = _files_of(GLUE, inputs, downloaded, "glue")
    for split, path in paths.items():
        if task.folder and split not in task.files:
            expected = ", ".join(file.name for file in task.files.values())
            raise UsageError(f"--input {path}: {task.name} has no {split} split; its files are {expected}")
    files = {split: scan_file(path, split) for split, path in paths.items()}
    if not task.folder:
        if not labels and TRAINING not in files:
            raise UsageError(f"--name {name}: its labels are not known; give --labels, or a training file (train...)")
        task = own_task(name, labels or find_labels(files[TRAINING], task))
    return GlueSource(files, task, vocabulary, settings), {"name": task.name, "labels": list(task.labels)}, paths


def _files_of(task: str, inputs: Sequence[Path | str], downloaded: Sequence[Path], download: str) -> dict[str, Path]:
    """The files of a task by split, training first: those of `--input`, or else those that were downloaded."""
    if not inputs:
        for path in downloaded:
            if not path.is_file():
                raise UsageError(f"{path}: does not exist; bertprep download {download} fetches it, or name files with --input")
    found: dict[str, Path] = {}
    for path in _expanded(task, inputs) if inputs else downloaded:
        split = _split_of(path)
        if split is None:
            raise UsageError(f"--input {path}: is it for training? Name it train..., dev... or test..., which tells the split")
        if split in found:
            raise UsageError(f"--input {path}: is for {split}, and so is {found[split]}; give one file a split")
        found[split] = path
    order = list(dict.fromkeys(_SPLIT_OF_NAME.values()))
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))


def _expanded(task: str, inputs: Sequence[Path | str]) -> list[Path]:
    """The files that are named, and of folders those that can be the task's."""
    paths: list[Path] = []
    for path in map(Path, inputs):
        if not path.exists():
            raise UsageError(f"--input {path}: does not exist")
        if not path.is_dir():
            paths.append(path)
            continue
        inside = [each for each in sorted(path.iterdir()) if each.suffix in _SUFFIXES[task] and each.is_file() and _split_of(each)]
        if not inside:
            raise UsageError(f"--input {path}: holds no {' or '.join(_SUFFIXES[task])} file named train..., dev... or test...")
        paths += inside
    return paths


def _split_of(path: Path) -> str | None:
    """The split that a file's name tells.

    >>> _split_of(Path("train-v1.1.json")), _split_of(Path("dev_matched.tsv")), _split_of(Path("trainer.log"))
    ('training', 'dev', None)
    """
    matched = re.match(rf"({'|'.join(_SPLIT_OF_NAME)})(?![a-z])", path.name.lower())
    return _SPLIT_OF_NAME[matched[1]] if matched else None


def _identify(files: Mapping[str, Path], vocabulary: Vocabulary) -> dict[str, Any]:
    """What decides the records besides the settings, for the manifest."""
    from bertprep.commands.record_job import GENERATOR
    from bertprep.tasks import EXAMPLES_PER_FILE

    return {
        "generator": GENERATOR,
        "examples_per_file": EXAMPLES_PER_FILE,
        "inputs": [
            {"split": split, "bytes": path.stat().st_size, "sha256": sha256_of(path)} for split, path in files.items()
        ],
        "vocabulary": {"tokens": len(vocabulary), "sha256": vocabulary.sha256},
    }


def _shards(
    source: SquadSource | GlueSource, files: Mapping[str, Path], data_set: str, formats: Sequence[RecordFormat], dialect: Dialect
) -> list[TaskShard]:
    """The blocks of all splits, with the names of the record files that go to each format's home."""
    from bertprep.tasks.records import TaskShard

    return [
        TaskShard(
            files[split],
            number,
            {each: f"{split}/{record_file_name(each, data_set, split, number, dialect)}" for each in formats},
            split,
        )
        for split, count in source.blocks.items()
        for number in range(count)
    ]
