"""Which data sets lie under a path: record files that belong together, and text shards.

Found by names and by manifests: a manifest tells what a folder is; without one, record files and split folders are known by
the names of the field (`x.tfrecord`, `tf_examples.tfrecord-00000-of-00010`, `part-0`; `training` and `test`). A workspace
is searched through, but for downloads and cleaned text, which hold neither.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from bertprep.check.findings import ERROR, WARNING, Finding
from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import TEMPORARY_SUFFIX
from bertprep.workspace.layout import MANIFEST, SPLIT_NAMES, TEST, by_number
from bertprep.workspace.manifest import JOURNAL_SUFFIX, Manifest, read_manifest
from bertprep.workspace.manifest_schema import RECORDS, TEXT_SHARDS
from bertprep.workspace.record_home import RecordHome, find_home, find_vocabulary, formats_listed

_RECORD_NAME = re.compile(r"^part-\d+$|\.(tf_?record|of_?record)s?(\b|_|$)", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*?)(\d+)(-of-\d+\D*|\D*)")  # the last number of a name, but for that of all files
_NOT_SEARCHED = {"download", "formatted", "vocab"}


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
        if path.is_dir() and path.absolute().name in SPLIT_NAMES and (files := _record_files(path)):
            single.setdefault(path.parent, []).extend(files)  # one split: what is known of it lies above
        elif path.is_dir():
            sets = list(_search(path))
            if not sets and path.absolute().name in SPLIT_NAMES:
                sets = [of for of in _search(path.absolute().parent) if of.kind == TEXT_SHARDS]
            if not sets:
                raise UsageError(
                    f"{path}: holds no record files, and no text shards with their {MANIFEST}; name a workspace, a folder of "
                    ".tfrecord or part-0 files, or such files"
                )
            found += sets
        elif path.exists():
            folder = path.parent
            single.setdefault(folder.parent if folder.name in SPLIT_NAMES else folder, []).append(path)
        else:
            raise UsageError(f"{path}: does not exist; name a workspace, a folder of records, or record files")
    for folder, files in single.items():
        names = {str(file.relative_to(folder)): _split_of(file.relative_to(folder)) for file in files}
        found.append(_records(folder, names, is_whole=False))
    unique = {(data_set.folder.resolve(), data_set.is_whole): data_set for data_set in found}
    return list(unique.values())


def _search(folder: Path) -> Iterable[DataSet]:
    """The data set that a folder is, or those in the folders below it."""
    manifest, findings = _read_manifest(find_home(folder))
    if manifest and manifest.kind == TEXT_SHARDS:
        yield DataSet(folder, TEXT_SHARDS, _ordered(manifest.files), manifest, None, findings)
        return
    is_of_records = manifest is not None and manifest.kind == RECORDS
    inside, files = _list(folder), _record_files(folder)
    for split in (path for path in inside if path.is_dir() and path.name in SPLIT_NAMES):
        files += _record_files(split)
    if files or is_of_records:
        names = [path.relative_to(folder) for path in files]
        yield _records(folder, {str(name): _split_of(name) for name in names})
    for path in inside:
        if path.is_dir() and path.name not in _NOT_SEARCHED and not path.name.startswith("."):
            if path.name in SPLIT_NAMES and (files or is_of_records):
                continue
            yield from _search(path)
    for name in () if findings else formats_listed(folder):
        if not (folder / name).is_dir():
            yield _records(folder / name, {})


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
    manifest, findings = _read_manifest(find_home(folder))
    if manifest and manifest.kind != RECORDS:
        manifest = None
    return DataSet(folder, "records", _ordered(files), manifest, find_vocabulary(folder), findings, is_whole)


def _read_manifest(home: RecordHome) -> tuple[Manifest | None, list[Finding]]:
    """What the manifest says of the records of a folder, and what is wrong with it."""
    name = str(home.folder.absolute() / MANIFEST) if home.prefix else MANIFEST  # relative to the records where it is with them
    try:
        read_manifest(home.folder)
    except BertprepError as error:
        found = str(error).removeprefix(f"{home.folder / MANIFEST}: ")
        return None, [Finding(ERROR, "manifest", name, None, "a manifest of bertprep", found)]
    if not home.is_unfinished:
        return home.manifest, []
    expected, found = "a finished run", "one that was stopped; the same command continues it"
    return home.manifest, [Finding(WARNING, "manifest", name + JOURNAL_SUFFIX, None, expected, found)]


def _split_of(name: Path) -> str:
    return SPLIT_NAMES.get(name.parts[0], "") if len(name.parts) > 1 else ""


def _ordered(names: Iterable[str]) -> dict[str, str]:
    """Names with their splits: training first, then by the numbers in the names."""
    splits = {name: _split_of(Path(name)) for name in names}
    return dict(sorted(splits.items(), key=lambda item: (item[1] == TEST, by_number(item[0]))))


def find_gaps(data_set: DataSet) -> list[Finding]:
    """Numbers that are missing in the names of files, such as part-0, part-2 or x-00003-of-00010, and are not on the disk.

    A manifest says better which files there must be. A sequence starts at 0 or 1 and has at least half of its numbers, so that
    names with a year or a length are none; one that tells how many files there are must have all.
    """
    sequences: dict[tuple[str, str], list[str]] = {}
    for name in data_set.files if data_set.manifest is None else ():
        if numbered := _NUMBERED.fullmatch(name):
            before, number, after = numbered.groups()
            sequences.setdefault((before, after), []).append(number)
    findings = []
    for (before, after), written in sequences.items():
        numbers, total = set(map(int, written)), re.match(r"-of-(\d+)", after)
        first, end = (0, int(total[1])) if total else (min(numbers), max(numbers) + 1)
        if first > 1 or (not total and end - first > 2 * len(numbers)):
            continue
        width = max((len(number) for number in written if number.startswith("0")), default=0)
        names = (f"{before}{number:0{width}}{after}" for number in range(first, end) if number not in numbers)
        if missing := next((name for name in names if not os.path.lexists(data_set.folder / name)), None):
            found = f"{sum(first <= number < end for number in numbers):,} of them"
            findings.append(Finding(ERROR, "file-missing", missing, None, f"the files {first} to {end - 1}", found))
    return findings
