"""Finds data sets of records, text shards and token shards in a path, for every command and the trainer.

docs/formats.md has the rules. Files named like records always count, so that a corrupt one is reported and not skipped. Arrow
and Parquet need the columns of records. Test splits other than the first are left out with a note.

`find_data_sets` returns everything, for `validate`; `find_records` and `find_token_shards` return one complete data set.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from bertprep.config import RECORD_FORMATS, RecordFormat
from bertprep.errors import BertprepError, UsageError
from bertprep.files.archives import GZIP, BrokenArchiveError, decompress
from bertprep.files.atomic import TEMPORARY_SUFFIX
from bertprep.files.paths import as_path, open_head, real_path, sizes_of
from bertprep.instances import Vocabulary, load_vocabulary
from bertprep.records.file_bytes import find_format
from bertprep.records.token_shards import WORDS, TokenFile, has_index, token_files
from bertprep.untrusted import CORPUS
from bertprep.work.layout import (
    DEV,
    LEDGER,
    MANIFEST,
    MAPPED,
    MODELS,
    SPLIT_NAMES,
    SPLITS,
    TASK_SPLITS,
    TEST,
    TRAIN,
    TRAINING,
    VOCABULARY,
    by_number,
    find_vocabulary,
    split_order,
)
from bertprep.work.ledger import is_unfinished, resuming_command
from bertprep.work.manifest import (
    MDS,
    RECORD_KINDS,
    RECORDS,
    TEXT_SHARDS,
    TOKEN_SHARDS,
    Manifest,
    read_manifest,
    sha256_of_vocabulary,
)

_RECORD_NAME = re.compile(
    r"part-\d+(-of-\d+)?(\.gz)?|(.*[._-])?(tf|of)_?rec(ord)?s?([._-]?\d+([._-]of[._-]\d+)?)?(\.gz)?"
    rf"|.+_({'|'.join((*SPLITS, *TASK_SPLITS))})_\d{{5}}\.(arrow|parquet)",
    re.IGNORECASE,
)
_SPLIT_NAME = re.compile(rf"({'|'.join(SPLIT_NAMES)})(-\d+-of-\d+(-[0-9a-f]+)?)?\.(arrow|parquet)")
_NOT_RECORDS = re.compile(
    r"[._].*|.*~|(readme|license|notice|makefile)\b.*|.*\.(json|txt|md|html|log|journal|crc|index|idx|words|mds|tmp|part)(\.gz)?"
    r"|cache-[0-9a-f]+\.arrow|tmp[a-z0-9_]{8}"  # which `datasets` leaves next to what it has loaded
    r"|.*\.tfevents\..*",  # TensorBoard's, which are TFRecord files of other messages
    re.IGNORECASE,
)
MDS_SUFFIX = ".mds"
_NOT_SEARCHED = {"download", "vocab", MODELS}
_UNKNOWN = "neither TFRecord, OFRecord, nor Arrow or Parquet of records"
_HEAD_BYTES = 16
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class DataSet:
    """Files of one data set; `files` maps names, relative to the folder, to splits, training first.

    `manifest` uses the same names, relative to `home`; it is None if there is none or it is unusable, which `problem` explains.
    `notes` are lines about skipped files.
    """

    folder: Path
    kind: str  # RECORDS, TEXT_SHARDS, MDS, or TOKEN_SHARDS, whose files are the .bin alone
    files: dict[str, str]
    manifest: Manifest | None = None
    problem: BertprepError | None = None
    is_unfinished: bool = False  # a run that makes it was stopped, or is working
    vocabulary: Path | None = None
    is_whole: bool = True  # False where a split or single files of it were named
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()  # files of splits other than the test split that would be it too, such as validation/

    @cached_property
    def has_documents(self) -> bool:
        """Whether it is token shards of whole documents; those without a manifest have a .words next to them."""
        if self.kind != TOKEN_SHARDS or self.manifest:
            return self.kind == TOKEN_SHARDS and self.manifest is not None and self.manifest.tokenizer is not None
        return bool(sizes_of(self.folder, [Path(name).with_suffix(f".{WORDS}").as_posix() for name in self.files]))

    @property
    def split_names(self) -> list[str]:
        """The splits as their folders or files call them, those left out too; none where there are no splits."""
        return list(dict.fromkeys(filter(None, map(_own_name, (*self.files, *self.left_out)))))

    def named(self, split: str) -> list[Path]:
        """Return the files of a split (`train` and `training` are the same); all files are `train` if there are no splits."""
        names = self.split_names
        if split in (TRAIN, TRAINING) and (not names or not self.is_whole):
            return [self.folder / name for name in self.files]
        own = find_split(split, names)
        if own is None:
            raise UsageError(f"{self.folder}: has no split {split}, it has {', '.join(names or [TRAIN])}")
        return [self.folder / name for name in (*self.files, *self.left_out) if _own_name(name) == own]

    @property
    def splits(self) -> list[str]:
        """The splits that have files, training first; "" for files in none."""
        return sorted(set(self.files.values()), key=split_order)

    @property
    def format(self) -> RecordFormat | None:
        """The format of the first file, None where there is none or it has neither."""
        return next((sniff_format(self.folder / name) for name in self.files), None)

    @property
    def modified_ns(self) -> int:
        """When it was finished, or where no manifest tells, when a file came to the folder."""
        manifest = self.folder / MANIFEST
        return (manifest if manifest.is_file() else self.folder).stat().st_mtime_ns

    @property
    def corpus(self) -> str:
        """The name of the corpus, from the manifest or the names of the files, or else "corpus"."""
        if self.manifest and "corpus" in self.manifest.made_with:
            return str(self.manifest.made_with["corpus"])
        matched = re.fullmatch(rf"(.+)_({'|'.join(SPLITS)})_\d+\.(tfrecord|arrow|parquet).*", Path(next(iter(self.files))).name)
        return matched[1] if matched and CORPUS.holds(matched[1]) else "corpus"

    def paths(self, split: str) -> list[Path]:
        """Return the files of a split; without splits all files are training data."""
        has_no_splits = not self.is_whole or self.splits == [""]
        return [self.folder / name for name, of in self.files.items() if (TRAINING if has_no_splits else of) == split]

    @property
    def second_tests(self) -> list[str]:
        return list(dict.fromkeys(map(_own_name, self.left_out)))

    def second_test(self, split: str) -> DataSet:
        files = {name: TEST for name in self.left_out if _own_name(name) == split}
        return replace(self, files=files, left_out=(), is_whole=False)

    def by_itself(self) -> DataSet:
        """Return the split or the files that were named, as a folder without splits or a manifest."""
        folder = (self.folder / next(iter(self.files))).parent
        return replace(self, folder=folder, files={Path(name).name: "" for name in self.files}, manifest=None)


def find_data_sets(paths: Iterable[Path | str]) -> list[DataSet]:
    """Return the data sets of files and folders; raises `UsageError` where a path does not exist or holds none."""
    found: list[DataSet] = []
    named: dict[Path, list[Path]] = {}  # folder of a data set -> files of it
    tokens: dict[Path, list[Path]] = {}  # the same of token shards
    mds: dict[Path, list[Path]] = {}
    notes: dict[Path, tuple[str, ...]] = {}
    for path in map(as_path, paths):
        if not path.name and path.absolute().name in SPLIT_NAMES:  # "." in the folder of a split
            path = path.absolute()
        is_folder = path.is_dir()
        if bins := _named_tokens(path, is_folder=is_folder):
            of_split = not is_folder and path.parent.name in SPLIT_NAMES
            tokens.setdefault(path.parent.parent if of_split else path.parent, []).extend(bins)
        elif not is_folder:
            if not path.exists():
                pattern = ", patterns are not expanded" if any(character in str(path) for character in "*?[") else ""
                raise UsageError(f"{path}: does not exist; name a file or folder of records or token shards{pattern}")
            folder = path.parent
            kind = mds if path.suffix == MDS_SUFFIX else named
            kind.setdefault(folder.parent if folder.name in SPLIT_NAMES else folder, []).append(path)
        elif path.name in SPLIT_NAMES and (files := (picked := _pick_records(_list(path)))[0]):
            named.setdefault(path.parent, []).extend(files)  # the metadata of a split is above it
            notes[path.parent] = notes.get(path.parent, ()) + _note(path, picked[1], _UNKNOWN)
        else:
            passed: list[str] = []
            sets = search(path, passed)
            if not sets and path.name in SPLIT_NAMES:
                sets = [each for each in search(path.absolute().parent) if each.kind == TEXT_SHARDS]
            if not sets:
                if unfinished := _unfinished_in(path):
                    raise UsageError(f"{unfinished[0]}: is not finished; run {unfinished[1]} again, which resumes it")
                why = f" ({passed[0]} is {_UNKNOWN})" if passed else ""
                raise UsageError(
                    f"{path}: holds no record files{why}; name a folder that has them, or has training/ and test/, "
                    "or a record file"
                )
            found += sets
    for folder, files in named.items():
        names = (str(file.relative_to(folder)) for file in files)
        found.append(replace(_records(folder, names), is_whole=False, notes=notes.get(folder, ())))
    for folder, files in mds.items():
        found.append(replace(_mds(folder, (str(file.relative_to(folder)) for file in files)), is_whole=False))
    for folder, files in tokens.items():
        found.append(replace(_tokens(folder, (str(file.relative_to(folder)) for file in files)), is_whole=False))
    return list({(str(real_path(each.folder)), each.is_whole): each for each in found}.values())


def _unfinished_in(path: Path) -> tuple[Path, str] | None:
    for name in (MAPPED, LEDGER):
        found = (each.parent for each in path.rglob(name) if not (each.parent / MANIFEST).exists())
        if unfinished := min(found, default=None):
            return unfinished, "bertprep shard" if name == MAPPED else resuming_command(unfinished)
    return None


def search(folder: Path, passed: list[str] | None = None) -> list[DataSet]:
    """Yield the data sets in a folder and below; `passed` collects unknown files."""
    return list(_search(folder, set(), [] if passed is None else passed)) if folder.is_dir() else []


def find_records(path: Path, prefer: Sequence[str] = ()) -> DataSet:
    """Return the one finished, complete data set of records in a file or folder.

    Of several formats the first in `prefer` is taken. Raises `UsageError` for none or several, `BertprepError` for a corrupt
    manifest, a missing file or an unfinished run.
    """
    sets = find_data_sets([path])
    found = [each for each in sets if each.kind == RECORDS]
    if not found:
        raise UsageError(f"{path}: holds {_describe(sets[0])}")
    return _finished(path, *_choose(path, found, prefer))


def _describe(data_set: DataSet) -> str:
    """Return what a data set is where records were expected, and what takes it."""
    if data_set.has_documents:
        return (
            f"{TOKEN_SHARDS} of whole documents, expected records; bertprep.TokenDataset and the trainer read these as they "
            "are, and bertprep convert --to mds --seq N makes MDS of them"
        )
    if data_set.kind == MDS:
        return f"{MDS}, expected records; mosaicml-streaming reads it, as do bertprep validate and inspect"
    return f"{data_set.kind}, expected records; bertprep create makes records of {data_set.kind}"


def find_token_shards(paths: Sequence[Path], *, any_tokenizer: bool = False) -> DataSet:
    """Return as `find_records` does the token shards that paths name: `files` are their .bin, by split.

    Those of documents, made with --tokenizer, are refused unless `any_tokenizer`.
    """
    sets = find_data_sets(paths)
    found = [each for each in sets if each.kind == TOKEN_SHARDS]
    if not found:
        raise UsageError(
            f"{paths[0]}: holds {sets[0].kind}, expected token shards; bertprep tokenize makes them of text shards"
        )
    if len(paths) > 1 and len(found) < len(sets):
        other = next(each for each in sets if each.kind != TOKEN_SHARDS)
        raise UsageError(
            f"{other.folder / next(iter(other.files), '')}: is not a token shard; name token shards or text, not both"
        )
    if len(paths) > 1 and len(found) > 1:
        raise UsageError(f"{paths[1]}: is not in the same folder as {paths[0]}; name the token shards of one folder")
    chosen = _finished(paths[0], *_choose(paths[0], found, ()))
    if chosen.manifest and chosen.manifest.tokenizer and not any_tokenizer:
        raise UsageError(
            f"{chosen.folder}: holds whole documents, made with --tokenizer, expected token shards of sentences; "
            "bertprep.TokenDataset reads these, and bertprep tokenize without --tokenizer makes the others"
        )
    return chosen


def load_vocabulary_of(data_set: DataSet, vocab: Path | None = None) -> Vocabulary:
    """Return `vocab`, or the vocabulary next to the data set, checked against the manifest."""
    if data_set.problem:
        raise data_set.problem
    if (path := vocab or data_set.vocabulary) is None:
        raise UsageError(f"{data_set.folder}: has no {VOCABULARY} next to it; name the vocabulary with --vocab FILE")
    vocabulary = load_vocabulary(path)
    expected = sha256_of_vocabulary(data_set.manifest)
    if expected not in (None, vocabulary.sha256):
        raise BertprepError(
            f"{path}: is not the vocabulary that {data_set.folder} was made with: sha256 {vocabulary.sha256[:16]}..., expected "
            f"{expected[:16]}... by {data_set.folder / MANIFEST}; name that with --vocab FILE"
        )
    return vocabulary


def _finished(path: Path, chosen: DataSet, notes: tuple[str, ...]) -> DataSet:
    if chosen.problem:
        raise chosen.problem
    if chosen.is_unfinished and not path.is_file():
        command = resuming_command(chosen.folder)
        raise BertprepError(f"{chosen.folder}: is not finished; run {command} again, which resumes it")
    names = chosen.files
    if manifest := chosen.manifest:
        listed = [name for name in manifest.files if chosen.is_whole or _split_of(name) in chosen.splits]
        there = sizes_of(chosen.folder, listed) if not path.is_file() else listed
        for name in _ordered(listed):
            if name not in there:
                manifest_path = chosen.folder / MANIFEST
                raise BertprepError(f"{chosen.folder / name}: is missing, {manifest_path} lists it; make the folder again")
        if not path.is_file():
            extra = [name for name in names if name not in manifest.files]
            notes += _note(chosen.folder, extra, f"in no {MANIFEST}")
            names = _ordered(_bins(listed) if chosen.kind == TOKEN_SHARDS else listed)
    if any(names.values()) and "" in names.values():
        notes += _note(chosen.folder, [name for name, split in names.items() if not split], "in no split")
        names = {name: split for name, split in names.items() if split}
    return replace(chosen, files=names, notes=(*chosen.notes, *notes))


def find_training_records(path: Path, prefer: Sequence[str] = ()) -> DataSet:
    """As `find_records`; the folder of a training split stands for its whole data set, test split included."""
    found = find_records(path, prefer)
    return found if path.is_file() or found.is_whole or found.splits != [TRAINING] else find_records(found.folder)


def find_training_tokens(path: Path) -> DataSet:
    """Return as `find_training_records` does the data set of token shards."""
    found = find_token_shards([path], any_tokenizer=True)
    is_all = path.is_file() or found.is_whole or found.splits != [TRAINING]
    return found if is_all else find_token_shards([found.folder], any_tokenizer=True)


def _choose(path: Path, found: Sequence[DataSet], prefer: Sequence[str]) -> tuple[DataSet, tuple[str, ...]]:
    own = [each for each in found if each.folder == path or not each.is_whole]
    formats = {each.folder.name: each for each in found if each.folder.parent == path and each.folder.name in RECORD_FORMATS}
    preferred = [formats[name] for name in prefer if name in formats]
    candidates = own or preferred[:1] or list(formats.values()) or list(found)
    chosen = candidates[0]
    if len(candidates) > 1 and formats:
        names = " and ".join(f"{name}/" for name in RECORD_FORMATS if name in formats)
        raise UsageError(f"{path}: holds {names}; name one, such as {path / next(n for n in RECORD_FORMATS if n in formats)}")
    if len(candidates) > 1:
        raise UsageError(f"{path}: holds {len(found):,} data sets; name one, such as {chosen.folder}")
    others = [each for each in found if each is not chosen and each not in formats.values()]
    if others:
        return chosen, (f"{chosen.folder}: using it alone, without the data sets below {path}, such as {others[0].folder}",)
    is_plain = own or formats
    return chosen, () if is_plain else (f"{path}: using the records in {chosen.folder}",)


def _search(folder: Path, seen: set[str], passed: list[str]) -> Iterator[DataSet]:
    if (real := str(real_path(folder))) in seen:  # links may lead in a circle
        return
    seen.add(real)
    listed, problem = None, None
    try:
        listed = read_manifest(folder)
    except BertprepError as error:
        problem = error
    if listed and listed.kind == TEXT_SHARDS:
        yield DataSet(folder, TEXT_SHARDS, _ordered(listed.files), listed, is_unfinished=is_unfinished(folder))
        return
    inside = _list(folder)
    below = [path for path in inside if path.is_dir() and path.name not in _NOT_SEARCHED and _may_be_searched(path)]
    of_splits = {path: _list(path) for path in below if path.name in SPLIT_NAMES}
    bins = set(_token_bins(chain(inside, *of_splits.values())))
    listed_bins = _bins(listed.files) if listed and listed.kind == TOKEN_SHARDS else []
    if bins or listed_bins:
        yield _tokens(folder, {*(path.relative_to(folder).as_posix() for path in bins), *listed_bins})
    rows = [path for path in chain(inside, *of_splits.values()) if path.suffix == MDS_SUFFIX]
    if rows or (listed and listed.kind == MDS):
        listed_rows = listed.files if listed and listed.kind == MDS else ()
        yield _mds(folder, {*(path.relative_to(folder).as_posix() for path in rows), *listed_rows})
    files, foreign = _pick_records(path for path in inside if path not in bins)
    for split, inside_split in of_splits.items():
        of_split, foreign_in_split = _pick_records(path for path in inside_split if path not in bins)
        if of_split or any(path.parent == split for path in chain(bins, rows)):
            below.remove(split)
        files += of_split
        foreign += [f"{split.name}/{name}" for name in foreign_in_split]
    if files or (listed and listed.kind in RECORD_KINDS):
        names = [str(path.relative_to(folder)) for path in files]
        left_out, notes = ((), ()) if listed else _second_tests(folder, names)
        found = _records(folder, (name for name in names if name not in left_out))
        yield replace(found, notes=_note(folder, foreign, _UNKNOWN) + notes, left_out=left_out)
    elif problem and not bins and (texts := [path for each in of_splits.values() for path in each if path.suffix == ".txt"]):
        names = [path.relative_to(folder).as_posix() for path in texts]
        yield DataSet(folder, TEXT_SHARDS, _ordered(names), problem=problem)
    else:
        passed += [str(folder / name) for name in foreign]
    for path in below:
        yield from _search(path, seen, passed)


def _may_be_searched(folder: Path) -> bool:
    return not folder.name.startswith(".") and folder.suffix != TEMPORARY_SUFFIX


def _list(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise BertprepError(f"{folder}: cannot be read: {error.strerror}") from error


def _pick_records(inside: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """Return the record files of a folder, also those whose names differ from them in digits only, and the names of unknown
    files.
    """
    files = [path for path in inside if not path.is_dir() and (path.is_file() or path.is_symlink())]  # to nowhere: unreadable
    files = [path for path in files if not _NOT_RECORDS.fullmatch(path.name)]
    taken = {path for path in files if _RECORD_NAME.fullmatch(path.name) or sniff_format(path)}
    patterns = {_without_numbers(path.name) for path in taken}
    taken.update(path for path in files if _without_numbers(path.name) in patterns)
    unknown = [path.name for path in files if path not in taken and path.is_file() and path.stat().st_size]
    return [path for path in files if path in taken], unknown


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "0", name)


def sniff_format(path: Path) -> RecordFormat | None:
    """Return the format by a file's first bytes, compressed or not; Arrow and Parquet need a column of tokens."""
    try:
        with open_head(path) as file:
            is_compressed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            head = (decompress(file, GZIP) if is_compressed else file).read(_HEAD_BYTES)
        found = find_format(path, np.frombuffer(head, np.uint8), is_whole=False)
        if not found.is_columnar:
            return found
        from bertprep.records.arrow_reader import has_records  # imports pyarrow

        return found if has_records(path) else None
    except (OSError, EOFError, BrokenArchiveError, BertprepError):
        return None


def _named_tokens(path: Path, *, is_folder: bool) -> list[Path]:
    if is_folder:
        return _token_bins(_list(path)) if path.name in SPLIT_NAMES else []
    if path.suffix not in (".bin", ".idx") or not path.is_file():
        return []
    found = _token_bins([token_files(path)[TokenFile.IDX]])
    return found or ([path] if path.suffix == ".bin" and not sniff_format(path) else [])


def _token_bins(paths: Iterable[Path]) -> list[Path]:
    """Return the .bin of each token shard whose .idx is one of these files; that may lack its .bin."""
    found = (path for path in paths if path.suffix == ".idx" and not path.name.startswith((".", "_")) and has_index(path))
    return [token_files(path)[TokenFile.BIN] for path in found]


def _bins(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.endswith(f".{TokenFile.BIN}")]


def _tokens(folder: Path, names: Iterable[str]) -> DataSet:
    return replace(_records(folder, names, (TOKEN_SHARDS,)), kind=TOKEN_SHARDS)


def _mds(folder: Path, names: Iterable[str]) -> DataSet:
    return replace(_records(folder, names, (MDS,)), kind=MDS)


def _records(folder: Path, names: Iterable[str], kinds: Collection[str] = RECORD_KINDS) -> DataSet:
    files = _ordered(names)
    manifest, problem, unfinished = None, None, False
    try:
        unfinished, manifest = is_unfinished(folder), read_manifest(folder)
    except BertprepError as error:
        problem = error
    if manifest and manifest.kind not in kinds:
        manifest = None
    folders = dict.fromkeys((folder, *((folder / name).parent for name in files)))
    vocabulary = next(filter(None, map(find_vocabulary, folders)), None)
    return DataSet(folder, RECORDS, files, manifest, problem, unfinished, vocabulary)


def find_split(split: str, names: Iterable[str]) -> str | None:
    """Return the split with this name or its synonym; None if there is none.

    >>> [find_split(split, ["training", "dev"]) for split in ("train", "test", "validation")]
    ['training', 'dev', None]
    """
    others = {TRAIN: TRAINING, TRAINING: TRAIN, TEST: DEV}  # a task's dev/ is what evaluates
    there = set(names)
    return next((name for name in (split, others.get(split, split)) if name in there), None)


def _own_name(name: str) -> str:
    first, _, rest = name.partition("/")
    if rest:
        return first if first in SPLIT_NAMES else ""
    matched = _SPLIT_NAME.fullmatch(name)
    return matched[1] if matched else ""


def _split_of(name: str) -> str:
    return SPLIT_NAMES.get(_own_name(name), "")


def _second_tests(folder: Path, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for name in names:
        if _split_of(name) == TEST:
            found.setdefault(_own_name(name), []).append(name)
    if len(found) < 2:
        return (), ()
    kept = TEST if TEST in found else min(found)
    others = {split: files for split, files in sorted(found.items()) if split != kept}
    notes = (
        f"{folder / (split if '/' in files[0] else files[0])}: left out, {kept} is the test split; name it by itself"
        for split, files in others.items()
    )
    return tuple(name for files in others.values() for name in files), tuple(notes)


def _ordered(names: Iterable[str]) -> dict[str, str]:
    splits = {name: _split_of(name) for name in names}
    return dict(sorted(splits.items(), key=lambda item: (split_order(item[1]), by_number(item[0]))))


def _note(folder: Path, names: Sequence[str], why: str) -> tuple[str, ...]:
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    are = "are" if len(names) > 1 else "is"
    return (f"{folder / names[0]}{more}: {are} {why}; skipped",) if names else ()
