"""Find the data sets of records, text shards, token shards and MDS at a path, for every command and the trainer.

A folder is listed once, with its folders of splits. Each kind of data set has one rule (`_RULES`), which takes its files from
that listing; only text shards are found by their manifest. docs/reference/formats.md describes the rules. A file that is named
like records always counts, so that a corrupt one is reported and not skipped.

`work.choose` has functions that return one complete data set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import TEMPORARY_SUFFIX
from bertprep.files.paths import as_path, real_path
from bertprep.work.data_set import DataSet, in_order, note_skipped, token_bins
from bertprep.work.format import FormatError
from bertprep.work.layout import (
    LEDGER,
    LISTING,
    MANIFEST,
    MAPPED,
    MODELS,
    SPLIT_NAMES,
    SPLITS,
    TASK_SPLITS,
    VOCABULARY,
    TokenFile,
    find_vocabulary,
    token_files,
)
from bertprep.work.ledger import is_unfinished
from bertprep.work.manifest import MDS, RECORD_KINDS, RECORDS, TEXT_SHARDS, TOKEN_SHARDS, Manifest, read_manifest
from bertprep.work.recognize import is_token_index, sniff_format
from bertprep.work.resume import what_finishes
from bertprep.work.settings import read_settings

MDS_SUFFIX = ".mds"
_BIN, _IDX = f".{TokenFile.BIN}", f".{TokenFile.IDX}"
_RECORD_NAME = re.compile(
    r"part-\d+(-of-\d+)?(\.gz)?|(.*[._-])?(tf|of)_?rec(ord)?s?([._-]?\d+([._-]of[._-]\d+)?)?(\.gz)?"
    rf"|.+_({'|'.join((*SPLITS, *TASK_SPLITS))})_\d{{5}}\.(arrow|parquet)",
    re.IGNORECASE,
)
_NOT_RECORDS = re.compile(
    r"[._].*|.*~|(readme|license|notice|makefile)\b.*|.*\.(json|txt|md|html|log|journal|crc|index|idx|words|mds|tmp|part)(\.gz)?"
    r"|cache-[0-9a-f]+\.arrow|tmp[a-z0-9_]{8}"  # which `datasets` leaves next to what it has loaded
    r"|.*\.tfevents\..*",  # TensorBoard's, which are TFRecord files of other messages
    re.IGNORECASE,
)
_NOT_SEARCHED = {"download", "vocab", MODELS}
_TEXT_SUFFIXES = {".txt", ".jsonl", ".ndjson", ".xml"}
_UNKNOWN = "neither TFRecord nor OFRecord, nor Arrow or Parquet with records"


def find_data_sets(paths: Iterable[Path | str], *, with_empty: bool = False) -> list[DataSet]:
    """Return the data sets at files and folders. Raises `UsageError` if a path does not exist or has none.

    A file, or the folder of a split, stands for a fraction of its data set; several of one data set are joined. With
    `with_empty`, unfinished data sets that have no finished file yet are returned too.
    """
    found: list[DataSet] = []
    parts: dict[tuple[Path, str], list[Path]] = {}
    unknown: list[Path] = []
    for path in map(as_path, paths):
        if not path.name and path.absolute().name in SPLIT_NAMES:  # the user is in the folder of a split and names "."
            path = path.absolute()
        named = _files_of_split(path) if path.is_dir() else _named_file(path)
        if not named.files:
            found += _search_named(path, with_empty=with_empty)
            continue
        unknown += named.unknown
        for kind, files in named.files.items():
            parts.setdefault((_root_of(files[0]), kind), []).extend(files)
    for (root, kind), files in parts.items():
        part = _make(root, kind, [_name(file, root) for file in files], *_read_manifest(root))
        _refuse_format(part.problem)
        notes = note_skipped([file for file in unknown if _root_of(file) == root], _UNKNOWN) if kind == RECORDS else ()
        found.append(replace(part, is_whole=False, notes=notes))
    return list({(real_path(each.folder), each.content, each.is_whole): each for each in found}.values())


def search(folder: Path) -> list[DataSet]:
    """Return the data sets in a folder and its subfolders."""
    return [each for each in _search(folder, set(), []) if not each.is_empty] if folder.is_dir() else []


@dataclass(frozen=True)
class _ByKind:
    """The files of a listing by kind, and those that match no rule."""

    files: dict[str, list[Path]]
    unknown: list[Path]


def _by_kind(listed: Sequence[Path]) -> _ByKind:
    """Return the files of a listing by kind. Each rule takes from the files that earlier rules have left."""
    files: dict[str, list[Path]] = {}
    left = list(listed)
    for kind, rule in _RULES.items():
        if taken := rule(left):
            files[kind] = taken
            left = _without(left, taken)
    return _ByKind(files, [path for path in left if _may_be_records(path) and path.is_file() and path.stat().st_size])


def _without(paths: Sequence[Path], taken: Iterable[Path]) -> list[Path]:
    gone = set(taken)
    return [path for path in paths if path not in gone]


def _take_token_shards(paths: Sequence[Path]) -> list[Path]:
    """Return the .bin of each token shard whose .idx is among the files, even if the .bin is missing."""
    indexes = [path for path in paths if path.suffix == _IDX and not path.name.startswith((".", "_"))]
    return [token_files(path)[TokenFile.BIN] for path in indexes if is_token_index(path)]


def _take_mds(paths: Sequence[Path]) -> list[Path]:
    return [path for path in paths if path.suffix == MDS_SUFFIX]


def _take_records(paths: Sequence[Path]) -> list[Path]:
    """Return the files that are records by name or first bytes, and those whose names differ from these only in digits."""
    candidates = [path for path in paths if _may_be_records(path)]
    known = [path for path in candidates if _RECORD_NAME.fullmatch(path.name) or sniff_format(path)]
    patterns = {_without_digits(path) for path in known}
    return [path for path in candidates if _without_digits(path) in patterns]


def _may_be_records(path: Path) -> bool:
    return not _NOT_RECORDS.fullmatch(path.name)


def _without_digits(path: Path) -> str:
    return re.sub(r"\d+", "0", path.name)


_RULES: Mapping[str, Callable[[Sequence[Path]], list[Path]]] = {
    TOKEN_SHARDS: _take_token_shards,
    MDS: _take_mds,
    RECORDS: _take_records,
}


def _named_file(path: Path) -> _ByKind:
    """Return a file that the user named, with its kind. A file of no other kind counts as records, whatever it contains."""
    if not path.exists():
        pattern = ", patterns are not expanded" if any(character in str(path) for character in "*?[") else ""
        raise UsageError(f"{path}: does not exist; name a file or folder of records or token shards{pattern}")
    if not path.is_file():  # such as /dev/null or a pipe, which can be read only once
        raise UsageError(f"{path}: is neither a folder nor a file; name a file or folder of records or token shards")
    if path.suffix == MDS_SUFFIX:
        return _ByKind({MDS: [path]}, [])
    if path.suffix in (_BIN, _IDX):
        shard = token_files(path)
        if is_token_index(shard[TokenFile.IDX]) or (path.suffix == _BIN and path.is_file() and not sniff_format(path)):
            return _ByKind({TOKEN_SHARDS: [shard[TokenFile.BIN]]}, [])
    return _ByKind({RECORDS: [path]}, [])


def _files_of_split(folder: Path) -> _ByKind:
    """Return the files in the folder of a split, whose manifest is above it; no files for any other folder."""
    if folder.name not in SPLIT_NAMES:
        return _ByKind({}, [])
    return _by_kind(_list(folder).files)


def _root_of(file: Path) -> Path:
    """Return the folder of the data set that a file belongs to."""
    return file.parent.parent if file.parent.name in SPLIT_NAMES else file.parent


def _name(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix()


def _search_named(folder: Path, *, with_empty: bool) -> list[DataSet]:
    """Return the data sets of a folder that the user named. Raises `UsageError` if there are none."""
    unknown: list[Path] = []
    if sets := [each for each in _search(folder, set(), unknown) if with_empty or not each.is_empty]:
        return sets
    above = folder
    if folder.name in SPLIT_NAMES:
        above = folder.absolute().parent
        of_split = [each for each in _search(above, set(), []) if each.is_empty or each.content == TEXT_SHARDS]
        if of_split := [each for each in of_split if with_empty or not each.is_empty]:
            return of_split
    if unfinished := _unfinished_in(above):
        raise UsageError(f"{unfinished}: is not finished; {what_finishes(unfinished)}")
    if (folder / LISTING).exists():
        raise UsageError(
            f"{folder}: has no records, but is a download; bertprep shard and create, or task, make records from downloads"
        )
    if text := _text_in(folder):
        raise UsageError(
            f"{folder}: has no records, but text such as {text.relative_to(folder)}; make records from it with bertprep shard "
            f"--input {folder}, then bertprep create"
        )
    why = f" ({unknown[0]} is {_UNKNOWN})" if unknown else ""
    raise UsageError(
        f"{folder}: has no record files{why}; name a record file, or a folder with record files or with training/ and test/"
    )


def _text_in(folder: Path) -> Path | None:
    """Return a file of a folder from whose text records could be made, if there is one."""
    texts = (path for path in _list(folder).files if path.suffix in _TEXT_SUFFIXES and path.name != VOCABULARY)
    return next(texts, None)


def _unfinished_in(path: Path) -> Path | None:
    for name in (MAPPED, LEDGER):
        found = (each.parent for each in path.rglob(name) if not (each.parent / MANIFEST).exists())
        if unfinished := min(found, default=None):
            return unfinished
    return None


@dataclass(frozen=True)
class _Listing:
    """The files and the folders in a folder, sorted, without hidden and temporary folders."""

    files: list[Path]
    folders: list[Path]


def _list(folder: Path) -> _Listing:
    try:
        inside = sorted(folder.iterdir())
    except OSError as error:
        raise BertprepError(f"{folder}: cannot be read: {error.strerror}") from error
    listing = _Listing([], [])
    for path in inside:
        if path.is_dir():
            if _may_be_searched(path):
                listing.folders.append(path)
        elif path.is_file() or path.is_symlink():  # a broken link counts as a file that cannot be read
            listing.files.append(path)
    return listing


def _may_be_searched(folder: Path) -> bool:
    return folder.name not in _NOT_SEARCHED and not folder.name.startswith(".") and folder.suffix != TEMPORARY_SUFFIX


def _search(folder: Path, seen: set[Path], unknown: list[Path]) -> Iterator[DataSet]:
    """Yield the data sets in a folder and below it.

    `seen` collects the folders that were searched, `unknown` the files in folders without records that match no rule.
    """
    real = real_path(folder)
    if real in seen:  # links may form a circle
        return
    seen.add(real)
    manifest, problem = _read_manifest(folder)
    if manifest and manifest.kind == TEXT_SHARDS:
        yield DataSet(folder, TEXT_SHARDS, in_order(manifest.files), manifest, is_unfinished=is_unfinished(folder))
        return
    listing = _list(folder)
    splits = [path for path in listing.folders if path.name in SPLIT_NAMES]
    in_splits = [file for split in splits for file in _list(split).files]
    found = _by_kind([*listing.files, *in_splits])
    sets = _make_each(folder, found, manifest, problem)
    if problem and not sets:
        texts = [_name(path, folder) for path in in_splits if path.suffix == ".txt"]
        sets = [DataSet(folder, TEXT_SHARDS, in_order(texts), problem=problem)] if texts else []
    if sets:
        _refuse_format(problem)
    if not sets and not problem and (is_unfinished(folder) or _has_no_shards_yet(folder)):
        sets = [DataSet(folder, _content_of_run(folder), {}, is_unfinished=True)]
    if not any(each.content in (RECORDS, TEXT_SHARDS) for each in sets):
        unknown += found.unknown
    yield from sets
    read = {path.parent for files in found.files.values() for path in files}.intersection(splits)
    for below in listing.folders:
        if below not in read:
            yield from _search(below, seen, unknown)


def _has_no_shards_yet(folder: Path) -> bool:
    """Return whether `bertprep shard` is still preparing the text of a folder."""
    return (folder / MAPPED).is_dir() and not (folder / MANIFEST).exists()


def _content_of_run(folder: Path) -> str:
    """Return the kind of files that an unfinished run makes, by its ledger; records if the ledger does not tell."""
    if (folder / MAPPED).is_dir():
        return TEXT_SHARDS
    try:
        settings = read_settings(folder)
    except BertprepError as error:
        _refuse_format(error)
        return RECORDS  # the ledger is corrupt
    return str(settings["kind"]) if settings and settings["kind"] in (TEXT_SHARDS, TOKEN_SHARDS, MDS) else RECORDS


def _read_manifest(folder: Path) -> tuple[Manifest | None, BertprepError | None]:
    """Return the manifest of a folder, and the error if it is invalid."""
    try:
        return read_manifest(folder), None
    except BertprepError as error:
        return None, error


def _refuse_format(problem: BertprepError | None) -> None:
    """Raise the error about a manifest or ledger of another format, since its files may mean something else there."""
    if isinstance(problem, FormatError):
        raise problem


def _is_of_kind(manifest: Manifest | None, kind: str) -> bool:
    """Return whether the manifest describes this kind of data set; a fine-tuning task's describes records."""
    return manifest is not None and manifest.kind in (RECORD_KINDS if kind == RECORDS else (kind,))


def _listed_names(manifest: Manifest | None, kind: str) -> list[str]:
    """Return the files of token shards or MDS that a manifest lists; they count even if they are missing."""
    if manifest is None or not _is_of_kind(manifest, kind) or kind == RECORDS:
        return []
    return token_bins(manifest.files) if kind == TOKEN_SHARDS else list(manifest.files)


def _make_each(folder: Path, found: _ByKind, manifest: Manifest | None, problem: BertprepError | None) -> list[DataSet]:
    """Return a data set for each kind of file in a folder or in its manifest."""
    sets = []
    for kind in _RULES:
        names = [_name(path, folder) for path in found.files.get(kind, ())] + _listed_names(manifest, kind)
        is_listed = manifest is not None and bool(manifest.files) and _is_of_kind(manifest, kind)
        if names or (kind == RECORDS and is_listed):  # all listed records may be missing
            data_set = _make(folder, kind, names, manifest, problem)
            sets.append(_with_notes(data_set, found.unknown) if kind == RECORDS else data_set)
    return sets


def _make(folder: Path, kind: str, names: Sequence[str], manifest: Manifest | None, problem: BertprepError | None) -> DataSet:
    files = in_order(names)
    folders = dict.fromkeys((folder, *((folder / name).parent for name in files)))
    vocabulary = next(filter(None, map(find_vocabulary, folders)), None)
    unfinished = problem is None and is_unfinished(folder)
    return DataSet(folder, kind, files, manifest if _is_of_kind(manifest, kind) else None, problem, unfinished, vocabulary)


def _with_notes(data_set: DataSet, unknown: Sequence[Path]) -> DataSet:
    """Return a data set of records with a note about files that match no rule, and with only one test split."""
    noted = replace(data_set, notes=note_skipped(unknown, _UNKNOWN))
    return noted if data_set.manifest else noted.without_second_tests()
