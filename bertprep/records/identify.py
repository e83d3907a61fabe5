"""Identifies the sources of a conversion: each file is read once for its checksum, its shape and its number of records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from bertprep import kernels, pool
from bertprep.config import RecordFormat
from bertprep.errors import BertprepError
from bertprep.files.checksums import BLAKE3, SHA256, show_checksum
from bertprep.files.paths import checksum_of
from bertprep.progress import SILENT, Reporter
from bertprep.records.examples import Shape
from bertprep.records.records import Records
from bertprep.work.data_set import DataSet
from bertprep.work.layout import MANIFEST
from bertprep.work.manifest import sha256_of_vocabulary

SAME_SETTINGS = "give files that were made with the same settings"


@dataclass(frozen=True)
class IdentifiedFile:
    """The contents and the checksum of a record file, and its name and split in the data set."""

    path: Path
    name: str
    split: str
    format: RecordFormat
    shape: Shape
    records: int
    size_bytes: int
    blake3: str


def identify(path: Path, name: str = "", split: str = "", *, pred: int | None = None) -> IdentifiedFile:
    """Compute the checksum of a record file and count its records; raises `BertprepError` if it is not a record file.

    `pred` is the number of predictions for Arrow and Parquet files that do not state it.
    """
    with Records.open(path, pred=pred) as file:
        records, size_bytes = len(file), path.stat().st_size
        return IdentifiedFile(path, name, split, file.format, file.shape, records, size_bytes, checksum_of(path))


def with_one_pred(files: Sequence[IdentifiedFile]) -> list[IdentifiedFile]:
    """Return the files; those that do not state their number of predictions get the largest number of any file."""
    most = max((file.shape.pred for file in files), default=0)
    return [_with_pred(file, most) if file.format.is_columnar and file.shape.pred < most else file for file in files]


def _with_pred(file: IdentifiedFile, pred: int) -> IdentifiedFile:
    with Records.open(file.path, pred=pred) as opened:
        return replace(file, shape=opened.shape)


def check_identified(data_set: DataSet, files: Sequence[IdentifiedFile]) -> None:
    """Raise `BertprepError` if a file differs from the manifest, or if its shape differs from the first file of its split."""
    manifest, manifest_path = data_set.manifest, data_set.folder / MANIFEST
    expected = sha256_of_vocabulary(manifest)
    if data_set.vocabulary and expected and (found_sum := checksum_of(data_set.vocabulary, SHA256)) != expected:
        raise BertprepError(
            f"{data_set.vocabulary}: is not the vocabulary that the records were made with: its sha256 is {found_sum[:16]}..., "
            f"but {manifest_path} lists {expected[:16]}...; copy the right one over it, or run the command "
            "that made the records again, which writes it"
        )
    first_of: dict[str, IdentifiedFile] = {}
    for found in files:
        first = first_of.setdefault(found.split, found)
        found.shape.check_same(found.path, first.shape, first.path, SAME_SETTINGS)
        if manifest and (listed := manifest.files[found.name][BLAKE3]) != found.blake3:
            raise BertprepError(
                f"{found.path}: has {show_checksum(found.blake3)}, but {manifest_path} lists {show_checksum(listed)}; the file "
                "is corrupt or was changed; remove it and make it again"
            )


def identify_all(
    data_set: DataSet, workers: int = 1, reporter: Reporter = SILENT, *, pred: int | None = None
) -> list[IdentifiedFile]:
    """Read and identify all files of a data set; raise `BertprepError` if one differs from its entry in the manifest."""
    kernels.load()

    def read(name: str) -> IdentifiedFile:
        return identify(data_set.folder / name, name, data_set.files[name], pred=pred)

    identified: dict[str, IdentifiedFile] = {}
    with (
        reporter.progress("read", len(data_set.files), "files") as shown,
        closing(pool.run(read, [(name, name) for name in data_set.files], workers=workers)) as results,
    ):
        for name, file in results:
            identified[name] = file
            shown.advance(records=file.records, MB=file.size_bytes / 1e6)
    files = with_one_pred([identified[name] for name in data_set.files])
    check_identified(data_set, files)
    return files
