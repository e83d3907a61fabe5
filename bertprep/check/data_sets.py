"""Which data sets lie under a path: record files that belong together, and text shards.

Found by names and by manifests: a manifest tells what a folder is; without one, record files and split folders are known by
the names of the field (`x.tfrecord`, `tf_examples.tfrecord-00000-of-00010`, `part-00000`; `training` and `test`). A workspace
is searched through, but for downloads and cleaned text, which hold neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertprep.atomic import TEMPORARY_SUFFIX
from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.errors import BertprepError, UsageError
from bertprep.layout import MANIFEST, TEST, TRAINING, VOCABULARY
from bertprep.manifest import JOURNAL_SUFFIX, Manifest, read_manifest

TEXT_SHARDS = "text shards"
_RECORD_NAME = re.compile(r"^part-\d+$|\.(tf_?record|of_?record)s?(\b|_|$)", re.IGNORECASE)
_SPLIT_NAMES = {TRAINING: TRAINING, "train": TRAINING, TEST: TEST, "eval": TEST, "validation": TEST, "dev": TEST}
_NOT_SEARCHED = {"download", "formatted", "vocab"}
_LEVELS_UP = 2  # from record files to the vocabulary beside them


@dataclass(frozen=True)
class DataSet:
    """Files that belong together; `files` maps their names, relative to the folder, to their splits, training first."""

    folder: Path
    kind: str  # "records", or TEXT_SHARDS
    files: dict[str, str]
    manifest: Manifest | None = None
    vocabulary: Path | None = None
    findings: list[Finding] = field(default_factory=list)
    is_whole: bool = True  # False where only some of its files were asked for

    @property
    def splits(self) -> list[str]:
        """The splits that have files, training first."""
        return sorted(set(self.files.values()), key=lambda split: (split == TEST, split))


def find_data_sets(paths: Iterable[Path | str]) -> list[DataSet]:
    """The data sets of files and folders; raises `UsageError` where a path does not exist or holds none."""
    found: list[DataSet] = []
    single: dict[Path, list[Path]] = {}
    for path in map(Path, paths):
        if path.is_dir() and path.absolute().name in _SPLIT_NAMES and (files := _record_files(path)):
            single.setdefault(path.parent, []).extend(files)  # one split: what is known of it lies above
        elif path.is_dir():
            sets = list(_search(path))
            if not sets and path.absolute().name in _SPLIT_NAMES:
                sets = [of for of in _search(path.absolute().parent) if of.kind == TEXT_SHARDS]
            if not sets:
                raise UsageError(
                    f"{path}: holds no record files, and no text shards with their {MANIFEST}; name a workspace, a folder of "
                    ".tfrecord or part-00000 files, or such files"
                )
            found += sets
        elif path.exists():
            folder = path.parent
            single.setdefault(folder.parent if folder.name in _SPLIT_NAMES else folder, []).append(path)
        else:
            raise UsageError(f"{path}: does not exist; name a workspace, a folder of records, or record files")
    for folder, files in single.items():
        names = {str(file.relative_to(folder)): _split_of(file.relative_to(folder)) for file in files}
        found.append(_records(folder, names, is_whole=False))
    unique = {(data_set.folder.resolve(), data_set.is_whole): data_set for data_set in found}
    return list(unique.values())


def vocabulary_beside(folder: Path) -> Path | None:
    """The vocabulary that lies with the records of a folder, or above it."""
    for place in [folder.absolute(), *folder.absolute().parents][:_LEVELS_UP]:
        if (place / VOCABULARY).is_file():
            return place / VOCABULARY
    return None


def _search(folder: Path) -> Iterable[DataSet]:
    """The data set that a folder is, or those in the folders below it."""
    manifest, findings = _read_manifest(folder)
    if manifest and manifest.kind == TEXT_SHARDS:
        yield DataSet(folder, TEXT_SHARDS, _ordered(manifest.files), manifest, None, findings)
        return
    is_of_records = bool(manifest and "seq" in manifest.made_with)
    inside, files = _list(folder), _record_files(folder)
    for split in (path for path in inside if path.is_dir() and path.name in _SPLIT_NAMES):
        files += _record_files(split)
    if files or is_of_records:
        names = [path.relative_to(folder) for path in files]
        yield _records(folder, {str(name): _split_of(name) for name in names})
    for path in inside:
        if path.is_dir() and path.name not in _NOT_SEARCHED and not path.name.startswith("."):
            if path.name in _SPLIT_NAMES and (files or is_of_records):
                continue
            yield from _search(path)


def _list(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise BertprepError(f"{folder}: cannot be read: {error.strerror}") from error


def _record_files(folder: Path) -> list[Path]:
    """The files of a folder that have the name of a finished record file; a link to nowhere is one that cannot be read."""
    named = (path for path in _list(folder) if _RECORD_NAME.search(path.name) and path.suffix != TEMPORARY_SUFFIX)
    return [path for path in named if path.is_file() or path.is_symlink()]


def _records(folder: Path, files: dict[str, str], *, is_whole: bool = True) -> DataSet:
    manifest, findings = _read_manifest(folder)
    if manifest and "seq" not in manifest.made_with:
        manifest = None
    return DataSet(folder, "records", _ordered(files), manifest, vocabulary_beside(folder), findings, is_whole)


def _read_manifest(folder: Path) -> tuple[Manifest | None, list[Finding]]:
    findings = []
    if (folder / (MANIFEST + JOURNAL_SUFFIX)).exists():
        expected, found = "a finished run", "one that was stopped; the same command continues it"
        findings.append(Finding(WARNING, "manifest", MANIFEST + JOURNAL_SUFFIX, None, expected, found))
    try:
        manifest = read_manifest(folder)
        if manifest and not _is_sound(manifest):
            raise BertprepError("values of other types than bertprep writes")
    except BertprepError as error:
        found = str(error).removeprefix(f"{folder / MANIFEST}: ")
        return None, [*findings, Finding(ERROR, "manifest", MANIFEST, None, "a manifest of bertprep", found)]
    return manifest, findings


def _is_sound(manifest: Manifest) -> bool:
    """Whether what is read from a manifest has the types it was written with."""
    kinds: dict[str, Any] = {
        "seq": int,
        "pred": int,
        "dupe": int,
        "masked_lm_prob": (int, float),
        "whole_word": bool,
        "vocabulary": dict,
    }
    return (
        isinstance(manifest.made_with, dict)
        and all(isinstance(manifest.made_with[name], kind) for name, kind in kinds.items() if name in manifest.made_with)
        and isinstance(manifest.files, dict)
        and all(isinstance(facts, dict) and {"bytes", "sha256"} <= facts.keys() for facts in manifest.files.values())
    )


def _split_of(name: Path) -> str:
    return _SPLIT_NAMES.get(name.parts[0], "") if len(name.parts) > 1 else ""


def _ordered(names: Iterable[str]) -> dict[str, str]:
    """Names with their splits: training first, then by name."""
    splits = {name: _split_of(Path(name)) for name in names}
    return dict(sorted(splits.items(), key=lambda item: (item[1] == TEST, item[0])))
