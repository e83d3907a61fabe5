"""Files that a user names for a result, such as --json FILE: what is there already is replaced only if that option wrote it.

The rule stands here alone. Who writes a kind of file says how its own are known: by their first bytes, by what is in them, or
by another file next to them. An empty file, as `mktemp` makes, and one with the same bytes are no loss.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bertprep.errors import UsageError, reading
from bertprep.files.atomic import atomic_file
from bertprep.files.paths import HEAD_BYTES, open_head


def check_output(path: Path, is_own: Callable[[Path], bool], option: str = "") -> None:
    """Raise `UsageError` if a file is there that `option`, which names it, did not write."""
    if not path.is_file():  # a folder, a device or a pipe, which is refused where it is written
        return
    with reading(path):
        is_replaceable = path.stat().st_size == 0 or is_own(path)
    if not is_replaceable:
        named = f"{option} {path}".lstrip()
        raise UsageError(f"{named}: exists, and is not a file that this option wrote; name another file, or move this one away")


def is_never_own(_: Path) -> bool:
    """Return False: nothing tells who wrote such a file, so only the same bytes may be there."""
    return False


def write_output(path: Path, content: bytes, is_own: Callable[[Path], bool] = is_never_own, option: str = "") -> None:
    """Write a file that the user named; raise `UsageError` as `check_output` does, for the run may have taken hours."""
    if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return
    check_output(path, is_own, option)
    with atomic_file(path, replace=True) as file:
        file.write(content)


def begins_with(beginning: bytes) -> Callable[[Path], bool]:
    """Return the check for files that begin with these bytes."""

    def is_own(path: Path) -> bool:
        with open_head(path) as file:
            return file.read(len(beginning)) == beginning

    return is_own


def marked_by(marker: Path) -> Callable[[Path], bool]:
    """Return the check for the files of a folder in which bertprep has put `marker`."""
    return lambda _: marker.is_file()


def has_in_head(*marks: bytes) -> Callable[[Path], bool]:
    """Return the check for files that have one of these bytes in their first 64 KiB."""

    def is_own(path: Path) -> bool:
        with open_head(path) as file:
            head = file.read(HEAD_BYTES)
        return any(mark in head for mark in marks)

    return is_own
