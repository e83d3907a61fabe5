"""Whether a disk has room for what is still to come, told before the first byte rather than after the last that fitted."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bertprep.errors import BertprepError


@dataclass(frozen=True)
class Room:
    """What is needed and what is free on one file system, of which `folder` is a part."""

    folder: Path
    needed_bytes: int
    free_bytes: int

    @property
    def enough(self) -> bool:
        return self.needed_bytes <= self.free_bytes


def rooms(needed_bytes: Mapping[Path, int]) -> list[Room]:
    """The room on each of the file systems that these folders are on, or will be on."""
    needs: dict[int, tuple[Path, int]] = {}
    for folder, size_bytes in needed_bytes.items():
        absolute = folder.absolute()
        existing = next(path for path in (absolute, *absolute.parents) if path.is_dir())
        device = existing.stat().st_dev
        first, sum_bytes = needs.get(device, (existing, 0))
        needs[device] = first, sum_bytes + size_bytes
    return [Room(folder, size_bytes, shutil.disk_usage(folder).free) for folder, size_bytes in needs.values()]


def check_room(needed_bytes: Mapping[Path, int]) -> None:
    """Raise `BertprepError` where what is still to come does not fit."""
    for room in rooms(needed_bytes):
        if not room.enough:
            raise BertprepError(
                f"{room.folder}: {room.needed_bytes / 1e6:,.0f} MB are still to come and {room.free_bytes / 1e6:,.0f} MB are "
                "free; make room, or take another --workdir"
            )
