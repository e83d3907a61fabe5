"""The record files in a folder, by split: what the manifest lists, or else what lies there, as other tools leave it.

Files are known by their place, not by their names, which differ from tool to tool. Before anything is made of them each is
read once: its sha256, and how many records of which shape it holds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertprep import records
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError, UsageError
from bertprep.records.make import KIND
from bertprep.untrusted import CORPUS
from bertprep.workspace.layout import MANIFEST, SPLITS, TRAINING, by_number
from bertprep.workspace.manifest import Manifest, sha256_of, sha256_of_vocabulary
from bertprep.workspace.record_home import find_home, find_vocabulary, formats_below, record_names


@dataclass(frozen=True)
class FoundFile:
    """A record file of a folder: its name relative to that, and its split, "" where the folder has none."""

    path: Path
    name: str
    split: str


@dataclass(frozen=True)
class IdentifiedFile:
    """A record file that was read: what it holds, and the sha256 of its bytes as they lie there."""

    file: FoundFile
    format: RecordFormat
    seq: int
    pred: int
    records: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class RecordFolder:
    """The record files of one data set, training before test, in the order of the numbers in their names.

    `manifest` calls them as `files` does; it lies in `home`.
    """

    path: Path
    files: tuple[FoundFile, ...]
    manifest: Manifest | None
    vocabulary: Path | None
    home: Path

    @property
    def corpus(self) -> str:
        """The name of the corpus, from the manifest or the names of the files, or else "corpus"."""
        if self.manifest and "corpus" in self.manifest.made_with:
            return str(self.manifest.made_with["corpus"])
        matched = re.fullmatch(rf"(.+)_({'|'.join(SPLITS)})_\d+\.tfrecord.*", self.files[0].path.name)
        return matched[1] if matched and CORPUS.holds(matched[1]) else "corpus"


def choose_format(folder: Path, record_format: str | None = None) -> Path:
    """Of a folder that has one for each format, that of `record_format`, or the only one; else the folder itself."""
    formats = formats_below(folder) if folder.is_dir() else []
    if len(formats) > 1 and record_format is None:
        raise UsageError(
            f"{folder}: holds {' and '.join(f'{name}/' for name in formats)}; name one, such as {folder / formats[0]}"
        )
    return next((folder / name for name in formats if record_format in (None, name)), folder)


def find_records(path: Path) -> RecordFolder:
    """The data set in a folder, or a single file as one; raises `BertprepError` where there is none, or not all of it."""
    if path.is_file():
        return RecordFolder(path.parent, (FoundFile(path, path.name, ""),), None, find_vocabulary(path.parent), path.parent)
    path = choose_format(path)
    home = find_home(path)
    if not path.is_dir() and not home.prefix:
        raise UsageError(f"{path}: does not exist; name a record file or a folder of them")
    if home.is_unfinished:
        raise BertprepError(f"{path}: is not finished; run the command that makes it again, it continues where it was")
    manifest = home.manifest
    names = sorted(manifest.files if manifest else record_names(path), key=by_number)
    if manifest and manifest.kind != KIND:
        raise UsageError(f"{path}: holds {manifest.kind}, expected records; bertprep create makes records of text shards")
    if not names:
        nested = next((folder.parent for folder in sorted(path.rglob(TRAINING))), None)
        advice = f"such as {nested}" if nested else "or a record file"
        raise UsageError(f"{path}: holds no record files; name a folder that has them, or has training/ and test/, {advice}")
    files = [FoundFile(path / name, name, name.rpartition("/")[0]) for name in names]
    for file in files:
        if not file.path.is_file():
            raise BertprepError(f"{file.path}: is missing, {home.folder / MANIFEST} lists it; make the folder again")
    files.sort(key=lambda file: SPLITS.index(file.split) if file.split in SPLITS else -1)
    return RecordFolder(path, tuple(files), manifest, find_vocabulary(path), home.folder)


def identify(file: FoundFile) -> IdentifiedFile:
    """Read a record file's sha256, and find its records; raises `BertprepError` where it is none."""
    with records.open(file.path) as opened:
        found = len(opened)
        size_bytes = file.path.stat().st_size
        return IdentifiedFile(file, opened.format, opened.seq, opened.pred, found, size_bytes, sha256_of(file.path))


def check_identified(folder: RecordFolder, files: Sequence[IdentifiedFile]) -> None:
    """Raise where a file is not what the manifest says, or has records of another shape than the first."""
    expected_vocabulary = sha256_of_vocabulary(folder.manifest) if folder.manifest else None
    if folder.vocabulary and expected_vocabulary and (found_sum := sha256_of(folder.vocabulary)) != expected_vocabulary:
        raise BertprepError(
            f"{folder.vocabulary}: is not the vocabulary that the records were made with: sha256 {found_sum[:16]}..., expected "
            f"{expected_vocabulary[:16]}... by {folder.home / MANIFEST}; put the right one there"
        )
    for found in files:
        path, first = found.file.path, files[0]
        if (found.seq, found.pred) != (first.seq, first.pred):
            raise BertprepError(
                f"{path}: has records of {found.seq} tokens and {found.pred} predictions, expected {first.seq} and "
                f"{first.pred} as {first.file.path} has; give files that were made with the same settings"
            )
        if folder.manifest and (expected := folder.manifest.files[found.file.name].get("sha256")) != found.sha256:
            raise BertprepError(
                f"{path}: has sha256 {found.sha256[:16]}..., expected {str(expected)[:16]}... by {folder.home / MANIFEST}; "
                "it is damaged or was changed, make it again"
            )
