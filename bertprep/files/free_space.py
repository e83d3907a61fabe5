"""Checks before the first byte is written that the disks have space for everything that is still to come."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bertprep.errors import BertprepError, WriteError
from bertprep.files.paths import is_object

_CERTAIN = 0.8  # of a forecast from a sample


@dataclass(frozen=True)
class FreeSpace:
    """The space that is needed and free on the file system of `folder`, in bytes."""

    folder: Path
    needed_bytes: int
    free_bytes: int

    @property
    def enough(self) -> bool:
        return self.needed_bytes <= self.free_bytes


def free_space(needed_bytes: Mapping[Path, int]) -> list[FreeSpace]:
    """Return the needed and the free space of each file system that these folders are on.

    `needed_bytes` maps each folder to the bytes that will be written there. Folders may not exist yet; stores are skipped,
    since their space has no limit.
    """
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
    """Raise `BertprepError` if a file system has less free space than these folders need, in bytes."""
    for disk in free_space(needed_bytes):
        if not disk.enough:
            raise BertprepError(
                f"{disk.folder}: {disk.needed_bytes / 1e6:,.0f} MB are still to be written, but only "
                f"{disk.free_bytes / 1e6:,.0f} MB are free; free some space, or choose another --workdir"
            )


def check_forecast(needed_bytes: Mapping[Path, int]) -> None:
    """Raise `WriteError` if the forecast for these folders, in bytes, exceeds the free space by more than its own error."""
    for disk in free_space(needed_bytes):
        if _CERTAIN * disk.needed_bytes > disk.free_bytes:
            raise WriteError(
                f"{disk.folder}: about {disk.needed_bytes / 1e6:,.0f} MB are still to write, but only "
                f"{disk.free_bytes / 1e6:,.0f} MB are free; free some space, or choose a folder on another disk"
            )
