"""The offsets of the records of a folder's files: found once, by a walk over all lengths, and stored.

    CORPUS/.record-index.training    above the files, since other trainers read everything next to them
    DIR/.record-index.tfrecord
    FOLDER/.record-index             with the files, where the folder above is not of the data set

    a line of JSON: name, size, time of change, format, kind, shape and number of records of each file, and a checksum
    int64 little-endian: for each file the offsets of its records and its end; nothing for Arrow and Parquet

An index counts only while sizes and times match.
"""

from __future__ import annotations

import contextlib
import json
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.files.object_cache import kept_about
from bertprep.files.paths import ObjectPath
from bertprep.records.examples import KINDS, MAX_VALUES, Examples, Shape
from bertprep.records.file_bytes import masked_checksum
from bertprep.records.reader import RecordFile
from bertprep.untrusted import MAX_JSON_BYTES, parse_json
from bertprep.work.layout import SPLIT_NAMES

INDEX = ".record-index"
_VERSION = 2


@dataclass(frozen=True, eq=False)
class IndexedFile:
    """What the index says of a file; `data_bytes` are what its records are read from, where it `is_rewritten` elsewhere."""

    path: Path
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
    offsets: NDArray[np.int64]  # as `RecordFile.offsets`

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, self.seq, self.pred)

    @property
    def fits(self) -> bool:
        """Whether the offsets lead nowhere but into the file: kernels read wherever they say."""
        if not (0 < self.seq <= MAX_VALUES and 0 <= self.pred <= MAX_VALUES and self.records > 0):
            return False
        if self.format.is_columnar:
            return True
        begins, ends = self.offsets[:-1], self.offsets[1:]
        return bool(len(begins) == self.records and begins[0] == 0 and ends[-1] == self.data_bytes and (begins < ends).all())

    def check_unchanged(self) -> None:
        if _identity(self.path) != (self.size_bytes, self.changed_ns):
            raise self.changed()

    def changed(self) -> BertprepError:
        return BertprepError(f"{self.path}: was changed since its records were found; leave the data alone, and start again")


def index_records(paths: Sequence[Path], kept_at: Path) -> list[IndexedFile]:
    """Return the index of files, the kept one if still valid; raises `BertprepError` for a file without records."""
    identities = [_identity(path) for path in paths]
    kept = _read(kept_at, paths)
    if kept and [(file.size_bytes, file.changed_ns) for file in kept] == identities:
        return kept
    files = [_find_records(path, *identity) for path, identity in zip(paths, identities, strict=True)]
    _write(kept_at, files)
    return files


def index_path(folder: Path) -> Path:
    """Return where the index of the files in a folder is kept; that of objects is among their copies."""
    if isinstance(folder, ObjectPath):
        return kept_about(folder / INDEX)
    is_split = folder.name in SPLIT_NAMES
    return folder.with_name(f"{INDEX}.{folder.name}") if is_split else folder / INDEX


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise BertprepError(f"{path}: cannot be read: {error.strerror or error}") from error
    return status.st_size, status.st_mtime_ns


def _find_records(path: Path, size_bytes: int, changed_ns: int) -> IndexedFile:
    with RecordFile(path) as file:
        return IndexedFile(
            path, size_bytes, changed_ns, file.data_bytes, file.format, file.seq, file.pred, len(file), file.kind,
            file.is_rewritten, file.knows_pred, file.offsets,
        )  # fmt: skip


def _read(kept_at: Path, paths: Sequence[Path]) -> list[IndexedFile] | None:
    kinds = {kind.title: kind for kind in KINDS}
    try:
        with kept_at.open("rb") as file:
            line = file.readline(MAX_JSON_BYTES)
            content = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.int64, offset=len(line))
        header = parse_json(line)
        if header["version"] != _VERSION or header["checksum"] != masked_checksum(content.view(np.uint8)):
            return None
        files = []
        for path, entry in zip(paths, header["files"], strict=True):
            record_format, kind = RecordFormat(entry["format"]), kinds[entry["kind"]]
            offsets, content = np.split(content, [0 if record_format.is_columnar else entry["records"] + 1])
            if entry.pop("name") != path.name:
                return None
            files.append(IndexedFile(path, **{**entry, "format": record_format, "kind": kind}, offsets=offsets))
        return files if all(file.fits for file in files) and not content.size else None
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, MemoryError):
        return None


def _write(kept_at: Path, files: Sequence[IndexedFile]) -> None:
    offsets = np.concatenate([file.offsets for file in files])
    entries = [{"name": file.path.name, **vars(file), "kind": file.kind.title} for file in files]
    for entry in entries:
        del entry["path"], entry["offsets"]
    header = {"version": _VERSION, "checksum": masked_checksum(offsets.view(np.uint8)), "files": entries}
    line = json.dumps(header).encode()
    with contextlib.suppress(BertprepError), atomic_file(kept_at) as file:
        file.write(line + b" " * (-len(line) % 8 + 7) + b"\n")
        file.write(offsets.data)
