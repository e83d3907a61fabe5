"""Checks that the disks have space for everything still to be written, before the first byte."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bertprep.errors import BertprepError
from bertprep.files.paths import is_object


@dataclass(frozen=True)
class FreeSpace:
    """The needed and the free space on the file system of `folder`."""

    folder: Path
    needed_bytes: int
    free_bytes: int

    @property
    def enough(self) -> bool:
        return self.needed_bytes <= self.free_bytes


def free_space(needed_bytes: Mapping[Path, int]) -> list[FreeSpace]:
    """Return the space on each file system of these folders, which may not exist yet; a store's is infinite."""
    needs: dict[int, tuple[Path, int]] = {}
    for folder, size_bytes in needed_bytes.items():
        if is_object(folder):
            continue
        absolute = folder.absolute()
        existing = next(path for path in (absolute, *absolute.parents) if path.is_dir())
        device = existing.stat().st_dev
        first, total_bytes = needs.get(device, (existing, 0))
        needs[device] = first, total_bytes + size_bytes
    return [FreeSpace(folder, size_bytes, shutil.disk_usage(folder).free) for folder, size_bytes in needs.values()]


def check_free_space(needed_bytes: Mapping[Path, int]) -> None:
    """Raise `BertprepError` if the rest does not fit."""
    for disk in free_space(needed_bytes):
        if not disk.enough:
            raise BertprepError(
                f"{disk.folder}: {disk.needed_bytes / 1e6:,.0f} MB still to write, and {disk.free_bytes / 1e6:,.0f} MB are "
                "free; free some space, or choose another --workdir"
            )
