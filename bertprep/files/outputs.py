"""Writes files that a user names for a result, such as --json FILE, without destroying other files of that name.

An existing file is replaced only if the same option wrote it. The writer of each kind of file passes the check that recognizes
its own: by the first bytes, by the content, or by a marker file next to it. Empty files, such as those of `mktemp`, and files
with the same bytes may always be replaced, since nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bertprep.errors import UsageError, reading
from bertprep.files.atomic import atomic_file
from bertprep.files.paths import HEAD_BYTES, open_head


def check_output(path: Path, is_own: Callable[[Path], bool], option: str = "") -> None:
    """Raise `UsageError` if `path`, which the user gave to `option`, is a file that this option did not write."""
    if not path.is_file():  # a folder, a device or a pipe is refused later, when it would be written
        return
    with reading(path):
        is_replaceable = path.stat().st_size == 0 or is_own(path)
    if not is_replaceable:
        named = f"{option} {path}".lstrip()
        raise UsageError(f"{named}: exists, and this option did not write it; name another file, or move this one away")


def is_never_own(_: Path) -> bool:
    """Return False, for files whose writer cannot be recognized: only a file with the same bytes may exist."""
    return False


def write_output(path: Path, content: bytes, is_own: Callable[[Path], bool] = is_never_own, option: str = "") -> None:
    """Write a file that the user named.

    Raises `UsageError` as `check_output` does, because the file may have appeared since the first check, hours ago.
    """
    if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return
    check_output(path, is_own, option)
    with atomic_file(path, replace=True) as file:
        file.write(content)


def begins_with(beginning: bytes) -> Callable[[Path], bool]:
    """Return a check that accepts files which begin with these bytes."""

    def is_own(path: Path) -> bool:
        with open_head(path) as file:
            return file.read(len(beginning)) == beginning

    return is_own


def marked_by(marker: Path) -> Callable[[Path], bool]:
    """Return a check that accepts any file as long as `marker` exists, which bertprep writes into its own folders."""
    return lambda _: marker.is_file()


def has_in_head(mark: bytes) -> Callable[[Path], bool]:
    """Return a check that accepts files which contain these bytes in their first 64 KiB."""

    def is_own(path: Path) -> bool:
        with open_head(path) as file:
            return mark in file.read(HEAD_BYTES)

    return is_own
