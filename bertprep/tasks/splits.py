"""Finds out the split of a fine-tuning file by its name, which begins with train, dev or test."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from pathlib import Path

from bertprep.config import GLUE, NER, SQUAD
from bertprep.errors import UsageError
from bertprep.files.paths import as_path
from bertprep.work.layout import DEV, DEV_MISMATCHED, SUBMISSION, SUBMISSION_MISMATCHED, TRAINING

_SPLIT_OF_NAME = {
    "train": TRAINING, "training": TRAINING, "dev_mismatched": DEV_MISMATCHED, "dev": DEV, "validation": DEV, "eval": DEV,
    "valid": DEV,
    "test_mismatched": SUBMISSION_MISMATCHED, "test": SUBMISSION, "diagnostic": SUBMISSION,
}  # fmt: skip
"""The beginning of a file's name, which no letter may follow -> the split."""
_TABLES = (".jsonl", ".json", ".parquet")
_SUFFIXES = {
    SQUAD: _TABLES,
    GLUE: (".tsv", ".csv", *_TABLES),
    NER: (".conll", ".conllu", ".bio", ".iob", ".iob2", ".tsv", ".txt", *_TABLES),
}
"""Task -> the suffixes of the files that are read from a folder; a file that is named may have any."""


def find_splits(task: str, inputs: Sequence[Path | str], downloaded: Sequence[Path]) -> dict[str, Path]:
    """Return the file of each split, training first: the files that `inputs` name, or else the downloaded ones.

    Raises `UsageError` if a file is missing, if its name does not show its split, or if two files are the same split.
    """
    if inputs:
        paths = _expand(task, inputs, {path.name for path in downloaded})
    else:
        paths = list(downloaded)
        for path in paths:
            if not path.is_file():
                raise UsageError(f"{path}: does not exist; fetch it with bertprep download {task}, or name files with --input")
    files: dict[str, Path] = {}
    for path in paths:
        split = split_of_name(path)
        if split is None:
            raise UsageError(f"--input {path}: its name does not show which split it is; {_rule()}, as in train.tsv; rename it")
        if split in files:
            raise UsageError(f"--input {path}: is the {split} split, and so is {files[split]}; give one file for each split")
        files[split] = path
    order = list(dict.fromkeys(_SPLIT_OF_NAME.values()))
    return dict(sorted(files.items(), key=lambda item: order.index(item[0])))


def _expand(task: str, inputs: Sequence[Path | str], published: Container[str]) -> list[Path]:
    """Return the named files and, for each named folder, the files of the task in it.

    If a file in a folder has the published name for its split, other files of that split are left out: GLUE's original
    folders have `dev_ids.tsv` next to `dev.tsv`.
    """
    paths: list[Path] = []
    for path in map(as_path, inputs):
        if not path.exists():
            raise UsageError(f"--input {path}: does not exist")
        if not path.is_dir():
            paths.append(path)
            continue
        files = [file for file in sorted(path.iterdir()) if file.suffix in _SUFFIXES[task] and file.is_file()]
        of_splits = [file for file in files if split_of_name(file)]
        if not of_splits:
            suffixes = " or ".join(_SUFFIXES[task])
            raise UsageError(f"--input {path}: has no {suffixes} file whose name shows which split it is; {_rule()}")
        known = {split_of_name(file) for file in of_splits if file.name in published}
        paths += [file for file in of_splits if file.name in published or split_of_name(file) not in known]
    return paths


def split_of_name(path: Path) -> str | None:
    """Return the split of a file by its name, or None if the name has none.

    >>> split_of_name(Path("train-v1.1.json")), split_of_name(Path("dev_matched.tsv")), split_of_name(Path("trainer.log"))
    ('training', 'dev', None)
    """
    matched = re.match(rf"({'|'.join(_SPLIT_OF_NAME)})(?![a-z])", path.name.lower())
    return _SPLIT_OF_NAME[matched[1]] if matched else None


def _rule() -> str:
    *names, last = _SPLIT_OF_NAME
    return f"the name must begin with {', '.join(names)} or {last}, with no letter after it"
