"""Where the records of a folder's files begin: found once, by a walk over all lengths, and kept.

    CORPUS/.record-index.training    above the files, since other trainers read everything beside them
    DIR/.record-index.tfrecord
    FOLDER/.record-index             with the files, where the folder above is not of the data set

    a line of JSON: the version, each file's name, size, time of change, format, kind, shape and number of records, and the
    checksum of what follows; padded with spaces so that what follows begins at a multiple of 8
    int64 little-endian: for each file where its records begin, and where the last one ends; nothing of Arrow and Parquet

The index of a single file has its name at the end. An index is believed only while every file has its size and time of change.
Where the folder cannot be written to, nothing is kept, and each run walks again: 0.1 microseconds a record, but of files that
are not in memory that means reading all of them. A kept index is mapped, so that it costs no memory; 8 bytes a record.
"""

from __future__ import annotations

import contextlib
import json
import mmap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.files.object_cache import kept_about
from bertprep.files.places import ObjectPath
from bertprep.records import KINDS, Examples, RecordFile
from bertprep.records.examples import MOST_VALUES, Shape
from bertprep.records.formats import masked_checksum
from bertprep.untrusted import MOST_BYTES, parse_json
from bertprep.workspace.layout import SPLIT_NAMES
from bertprep.workspace.record_home import find_home

INDEX = ".record-index"
_VERSION = 2


@dataclass(frozen=True)
class IndexedFile:
    """What the index says of a file; `data_bytes` are what its records are read from, where it `is_rewritten` elsewhere."""

    name: str
    size_bytes: int
    changed_ns: int
    data_bytes: int
    format: RecordFormat
    seq: int
    pred: int
    records: int
    kind: type[Examples]
    is_rewritten: bool
    knows_pred: bool  # whether it says for how many predictions its records have room; else `pred` is the most of one

    @property
    def entry_count(self) -> int:
        return 0 if self.format.is_columnar else self.records + 1

    @property
    def is_held(self) -> bool:
        """Whether its bytes are held in another form while it is open."""
        return self.is_rewritten or self.data_bytes != self.size_bytes

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, self.seq, self.pred)


@dataclass(frozen=True)
class RecordIndex:
    """Files of one folder; offsets[i] says where the records of file i begin, as `RecordFile.offsets` does."""

    folder: Path
    files: tuple[IndexedFile, ...]
    offsets: tuple[NDArray[np.int64], ...]


def index_records(paths: Sequence[Path], kept_at: Path) -> RecordIndex:
    """The index of files of one folder, the kept one if still valid; raises `BertprepError` for a file without records."""
    if kept := kept_index(paths, kept_at):
        return kept
    found = [_find_records(path) for path in paths]
    files = tuple(file for file, _ in found)
    offsets = np.concatenate([starts for _, starts in found])
    del found
    _write(kept_at, files, offsets)
    return RecordIndex(paths[0].parent, files, _cut(offsets, files))


def kept_index(paths: Sequence[Path], kept_at: Path) -> RecordIndex | None:
    """The kept index of files of one folder; None where there is none, or it is of other files."""
    kept = _read(kept_at, paths[0].parent)
    if kept and [(file.name, file.size_bytes, file.changed_ns) for file in kept.files] == [_identity(path) for path in paths]:
        return kept
    return None


def index_place(folder: Path) -> Path:
    """Where the index of the files in a folder is kept; one that bertprep 0.1.0 left among them is moved there.

    That of objects is among their copies.
    """
    if isinstance(folder, ObjectPath):
        return kept_about(folder / INDEX)
    if folder.name not in SPLIT_NAMES and not find_home(folder).prefix:
        return folder / INDEX
    place = folder.with_name(f"{INDEX}.{folder.name}")
    with contextlib.suppress(OSError):  # there is none, or nothing can be written here
        (folder / INDEX).replace(place)
    return place


def check_unchanged(path: Path, file: IndexedFile) -> None:
    """Raise `BertprepError` if a file has changed since it was indexed."""
    if _identity(path) != (file.name, file.size_bytes, file.changed_ns):
        raise changed(path)


def changed(path: Path) -> BertprepError:
    """The error for a file that has changed since it was indexed."""
    return BertprepError(f"{path}: was changed since its records were found; leave the data alone, and start again")


def _identity(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
    return path.name, status.st_size, status.st_mtime_ns


def _find_records(path: Path) -> tuple[IndexedFile, NDArray[np.int64]]:
    """(the file, where its records begin)."""
    name, size_bytes, changed_ns = _identity(path)
    with RecordFile(path) as file:
        of_file = name, size_bytes, changed_ns, file.data_bytes, file.format
        found = IndexedFile(*of_file, file.seq, file.pred, len(file), file.kind, file.is_rewritten, file.knows_pred)
        return found, file.offsets


def _cut(offsets: NDArray[np.int64], files: Sequence[IndexedFile]) -> tuple[NDArray[np.int64], ...]:
    return tuple(np.split(offsets, np.cumsum([file.entry_count for file in files])[:-1]))


def _read(path: Path, folder: Path) -> RecordIndex | None:
    """The kept index, or None where there is none, or it is of another version or damaged."""
    try:
        with path.open("rb") as file:
            line = file.readline(MOST_BYTES)
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = parse_json(line)
        if header["version"] != _VERSION:
            return None
        files = tuple(_file_of(entry) for entry in header["files"])
        offsets = np.frombuffer(mapping, np.int64, offset=len(line))
        index = RecordIndex(folder, files, _cut(offsets, files))
        is_whole = masked_checksum(offsets.view(np.uint8)) == header["checksum"]
        return index if is_whole and all(map(_fits, files, index.offsets)) else None
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, MemoryError):
        return None


def _fits(file: IndexedFile, offsets: NDArray[np.int64]) -> bool:
    """Whether what is kept of a file leads nowhere but into its bytes: kernels read wherever it says."""
    if len(offsets) != file.entry_count:
        return False
    if not (0 < file.seq <= MOST_VALUES and 0 <= file.pred <= MOST_VALUES and file.records > 0):
        return False
    if file.format.is_columnar:
        return True
    return bool(offsets[0] == 0 and offsets[-1] == file.data_bytes and (offsets[:-1] < offsets[1:]).all())


def _file_of(entry: dict[str, Any]) -> IndexedFile:
    kinds = {kind.title: kind for kind in KINDS}
    return IndexedFile(**{**entry, "format": RecordFormat(entry["format"]), "kind": kinds[entry["kind"]]})


def _entry_of(file: IndexedFile) -> dict[str, Any]:
    return {**asdict(file), "kind": file.kind.title}


def _write(path: Path, files: Sequence[IndexedFile], offsets: NDArray[np.int64]) -> None:
    """Keep an index; several processes may do so at once, and one that cannot goes without."""
    checksum = masked_checksum(offsets.view(np.uint8))
    line = json.dumps({"version": _VERSION, "checksum": checksum, "files": [_entry_of(file) for file in files]})
    with contextlib.suppress(BertprepError), atomic_file(path) as file:
        file.write(line.encode() + b" " * (-len(line) % 8 + 7) + b"\n")
        file.write(offsets.data)
