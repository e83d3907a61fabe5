"""Writes the JSON files by which `datasets.load_from_disk` recognizes a folder of Arrow files.

    CORPUS/dataset_dict.json               the splits
    CORPUS/train/state.json                the files in order, and a fingerprint of their bytes
    CORPUS/train/dataset_info.json         the columns with class names, a description, sizes

Their content depends only on the records and the manifest, so a run writes those that are missing or differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from bertprep.config import RecordFormat
from bertprep.errors import UsageError
from bertprep.files.atomic import write_if_different
from bertprep.files.checksums import BLAKE3, digest
from bertprep.records.columns import features_of
from bertprep.records.examples import Shape
from bertprep.work.layout import DATASET_DICT, DATASET_INFO, STATE, TRAIN, TRAINING, by_number, split_order
from bertprep.work.ledger import Ledger
from bertprep.work.manifest import packages_of, versions_of
from bertprep.work.run import Task

_FINGERPRINT_DIGITS = 16
_FILES_VERSION = 1  # increased when the same records would give other columns


@dataclass(frozen=True)
class DatasetFolder:
    """A folder of Arrow files; `shapes` maps each split, training first, to its shape ("" is the folder itself)."""

    folder: Path
    shapes: Mapping[str, Shape]
    labels: Sequence[str] = ()

    @property
    def paths(self) -> list[Path]:
        paths = [self.folder / split / name for split in self.shapes for name in (STATE, DATASET_INFO)]
        return paths if "" in self.shapes else [self.folder / DATASET_DICT, *paths]

    def write(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Write the JSON files that are missing or differ; `files` maps file names to their entries in the manifest."""
        for split, shape in self.shapes.items():
            names = sorted((name for name in files if name.rpartition("/")[0] == split), key=by_number)
            entries = [files[name] for name in names]
            _write(self.folder / split / DATASET_INFO, _info(split or TRAIN, shape, self.labels, entries))
            _write(self.folder / split / STATE, _state(split or TRAIN, names, entries))  # last: `is_saved` looks for it
        if "" not in self.shapes:
            _write(self.folder / DATASET_DICT, {"splits": list(self.shapes)})


def _state(split: str, names: Sequence[str], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    fingerprint = digest("".join(each[BLAKE3] for each in entries).encode())
    return {
        "_data_files": [{"filename": Path(name).name} for name in names],
        "_fingerprint": fingerprint[:_FINGERPRINT_DIGITS],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }


def _info(split: str, shape: Shape, labels: Sequence[str], entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    size_bytes = sum(each["bytes"] for each in entries)
    records = sum(each["examples"] for each in entries)
    return {
        "citation": "",
        "dataset_size": size_bytes,
        "description": describe(shape),
        "features": features_of(shape, labels),
        "homepage": "",
        "license": "",
        "splits": {split: {"name": split, "num_bytes": size_bytes, "num_examples": records}},
    }


def describe(shape: Shape) -> str:
    """Return a sentence that describes the records; readers get max_predictions_per_seq from it.

    >>> from bertprep.records.examples import PretrainingExamples
    >>> describe(Shape(PretrainingExamples, 128, 20))
    'BERT pretraining records of bertprep: max_seq_length=128, max_predictions_per_seq=20.'
    """
    predictions = f", max_predictions_per_seq={shape.pred}" if shape.pred else ""
    return f"BERT {shape.kind.title} records of bertprep: max_seq_length={shape.seq}{predictions}."


def _write(path: Path, content: dict[str, Any]) -> None:
    write_if_different(path, (json.dumps(content, indent=1) + "\n").encode())


def ledgers_by_format(
    template: Ledger,
    folders: Mapping[RecordFormat, Path],
    tasks: Sequence[Task],
    shapes: Mapping[str, Shape],
    labels: Sequence[str] = (),
) -> dict[str, Ledger]:
    """Return a ledger like `template` for the folder of each format; `shapes` maps each split to the shape of its records."""
    ledgers: dict[str, Ledger] = {}
    for which, folder in folders.items():
        names = [task.files[which] for task in tasks]
        index = None
        if which == RecordFormat.ARROW:
            splits = sorted({name.rpartition("/")[0] for name in names}, key=split_order)
            index = DatasetFolder(folder, {each: shapes[TRAINING if each == TRAIN else each] for each in splits}, labels)
        ledgers[which] = replace(template, folder=folder, versions=versions_of(*packages_of(names)), index=index)
    return ledgers


def import_datasets() -> ModuleType:
    """Import and return `datasets`; raises `UsageError` if it is not installed."""
    try:
        import datasets
    except ImportError as error:
        raise UsageError(f"datasets cannot be imported ({error}); install it with pip install 'bertprep[datasets]'") from error
    module: ModuleType = datasets
    return module


def identify_files(paths: Sequence[Path]) -> str:
    """Return a checksum of the paths, sizes and modification times of files."""
    files = [(str(path.resolve()), (status := path.stat()).st_size, status.st_mtime_ns) for path in paths]
    return hashlib.sha256(json.dumps([_FILES_VERSION, files]).encode()).hexdigest()[:32]
