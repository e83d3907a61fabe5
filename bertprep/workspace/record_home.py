"""Finds the manifest and vocabulary of a folder of record files, and chooses the paths for those of new records.

Trainers read every file in such a folder (NVIDIA's scripts glob `*`), so manifest and vocabulary are one level up: a manifest
of DIR lists "tfrecord/..." and "ofrecord/...", that of a corpus "training/..." and "test/...". bertprep 0.1.0 put them among
the records, and named files part-00000; such folders are read, and resumed under their own names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bertprep.config import RECORD_FORMATS
from bertprep.errors import BertprepError
from bertprep.files.atomic import TEMPORARY_SUFFIX, atomic_file
from bertprep.files.places import is_object, real_path, sizes_of
from bertprep.untrusted import parse_json, read_bounded
from bertprep.workspace.layout import LEDGER, LISTING, MANIFEST, RECEIPTS, SPLIT_NAMES, SPLITS, VOCABULARY
from bertprep.workspace.manifest import JOURNAL_SUFFIX, Manifest, is_in_place, read_manifest, sha256_of

_JOURNAL = MANIFEST + JOURNAL_SUFFIX
_UNFINISHED = rf"((\.[0-9a-f]{{8}})?{re.escape(TEMPORARY_SUFFIX)})?"  # names without digits of 0.1.0
_OLD_PART = re.compile(rf"part-0\d{{4}}{_UNFINISHED}")
_OLD_CONVERTED = re.compile(rf"(part-\d{{5}}|.+_({'|'.join(SPLITS)})_\d{{5}}\.tfrecord){_UNFINISHED}")


@dataclass(frozen=True)
class RecordHome:
    """The folder of the manifest and vocabulary of some records, and the prefix of their names in the manifest.

    >>> RecordHome(Path("DIR"), "ofrecord/").records
    PosixPath('DIR/ofrecord')
    """

    folder: Path
    prefix: str = ""

    @property
    def records(self) -> Path:
        """The folder of the record files."""
        return self.folder / self.prefix

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest's part about these records, by names in their folder; raises `BertprepError` for an invalid one."""
        return self.part_of(read_manifest(self.folder))

    def part_of(self, manifest: Manifest | None) -> Manifest | None:
        """The part of a manifest about these records; None if it lists none of them."""
        if manifest is None or not manifest.files:
            return manifest
        elsewhere = tuple(f"{name}/" for name in formats_in(manifest)) if not self.prefix else ()
        names = (name for name in manifest.files if name.startswith(self.prefix) and not name.startswith(elsewhere))
        files = {name.removeprefix(self.prefix): manifest.files[name] for name in names}
        return replace(manifest, files=files) if files else None

    @property
    def is_unfinished(self) -> bool:
        """Whether a run for these records is unfinished or in progress; one for another format does not count.

        Ask before the manifest is read: the journal or the receipts of a run that ends now go when that is there.
        """
        has_journal = (self.folder / _JOURNAL).exists()
        has_receipts = (self.folder / RECEIPTS).is_dir() or (self.folder / LEDGER).is_dir()
        if not has_journal and not has_receipts:  # a download gets its manifest when it is complete
            return (self.folder / LISTING).exists() and not (self.folder / MANIFEST).exists()
        if has_journal and not self.prefix:
            return True
        return not (self.manifest and is_in_place(self.records, self.manifest.files))


def find_home(folder: Path) -> RecordHome:
    """The home of the records in `folder`: that folder, or the one above a format's folder if its manifest lists them."""
    if not _has_manifest(folder):
        for place in (folder, real_path(folder)):
            if place.name in RECORD_FORMATS and _tells_of(place.parent, f"{place.name}/"):
                return RecordHome(place.parent, f"{place.name}/")
    return RecordHome(folder)


def find_vocabulary(folder: Path) -> Path | None:
    """The vocabulary of the records in `folder`: beside their manifest, among them, or above them or their split."""
    absolute = folder.absolute()
    above = [absolute, *absolute.parents][: 3 if absolute.name in SPLIT_NAMES else 2]
    places = (place / VOCABULARY for place in (find_home(folder).folder, *above))
    return next((path for path in places if path.is_file()), None)


def formats_in(manifest: Manifest | None) -> list[str]:
    """The formats that have a folder beside a manifest."""
    files = manifest.files if manifest else ()
    return [name for name in RECORD_FORMATS if any(file.startswith(f"{name}/") for file in files)]


def home_for(folder: Path, record_format: str) -> RecordHome:
    """The home of a format's records in an --output folder."""
    inner = folder / record_format
    return RecordHome(inner) if _has_manifest(inner) else RecordHome(folder, f"{record_format}/")


def home_for_converted(folder: Path, record_format: str) -> RecordHome:
    """The same for converted records, which bertprep 0.1.0 put directly into the folder."""
    is_old = _has_manifest(folder) and any(_OLD_CONVERTED.fullmatch(path.name) for path in folder.iterdir())
    return RecordHome(folder, "" if is_old else f"{record_format}/")


def part_digits(folder: Path) -> int:
    """The number of digits in the OFRecord names of a folder and its splits: 5 if bertprep 0.1.0 began it, else 1."""
    places = (folder / split for split in ("", *SPLITS))
    files = (path.name for place in places if place.is_dir() for path in place.iterdir())
    return 5 if any(map(_OLD_PART.fullmatch, files)) else 1


def check_free(folder: Path, paths: Iterable[Path]) -> None:
    """Raise if one of the files to be written exists, and bertprep has not written to the folder."""
    named = list(paths)
    there = sizes_of(folder, (path.relative_to(folder).as_posix() for path in named)) if is_object(folder) else None
    for path in named:
        if path.exists() if there is None else path.relative_to(folder).as_posix() in there:
            if _has_manifest(folder):  # in this order: another part may have begun meanwhile
                return
            raise BertprepError(f"{path}: exists and is in no manifest; choose another folder, or remove this one")


def check_vocabulary_place(folder: Path, sha256: str | None) -> None:
    """Raise if a folder that bertprep has not written to has a vocabulary other than that of `sha256`."""
    check_not_another(folder / VOCABULARY, sha256, "the vocabulary of these records")


def check_not_another(kept: Path, sha256: str | None, expected: str) -> None:
    """Raise if `kept` is a file other than that of `sha256`, and bertprep has not written to its folder."""
    is_other = kept.exists() and not (kept.is_file() and sha256_of(kept) == sha256)
    if is_other and not _has_manifest(kept.parent):  # in this order, as above
        raise BertprepError(f"{kept}: exists and is not {expected}; choose another folder, or move it away")


def keep_vocabulary(vocabulary: Path, folder: Path) -> None:
    """Copy the vocabulary beside the manifest if it is missing: the records are useless without it."""
    keep_copy(vocabulary, folder / VOCABULARY)


def keep_copy(path: Path, kept: Path) -> None:
    """Make `kept` a copy of `path`; one that already is stays untouched."""
    content = path.read_bytes()
    if not (kept.is_file() and kept.read_bytes() == content):
        with atomic_file(kept, replace=True) as file:
            file.write(content)


def _has_manifest(folder: Path) -> bool:
    return _is_begun(folder) or (folder / MANIFEST).exists()  # in this order: the manifest is there before the others go


def _is_begun(folder: Path) -> bool:
    return (folder / _JOURNAL).exists() or any((folder / name).is_dir() for name in (LEDGER, RECEIPTS))


def _tells_of(folder: Path, prefix: str) -> bool:
    """Whether `folder` has a manifest of bertprep that lists such files, an unfinished one, or one that cannot be read."""
    if _is_begun(folder):
        return True
    try:
        content = parse_json(read_bounded(folder / MANIFEST))
        if not isinstance(content, dict) or "made_with" not in content:  # another tool's
            return False
        manifest = read_manifest(folder)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, BertprepError):
        return True
    return manifest is not None and any(name.startswith(prefix) for name in manifest.files)
