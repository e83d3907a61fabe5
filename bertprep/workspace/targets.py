"""Checks output paths before the work begins, so that results never overwrite data."""

from pathlib import Path

from bertprep.errors import UsageError
from bertprep.files.places import is_object
from bertprep.workspace.layout import LISTING, MANIFEST


def check_target(option: str, path: Path | None, suffix: str) -> None:
    """Raise `UsageError` if `path` cannot be written, or exists and is not a file that such a command wrote.

    An existing file is overwritten only if its name ends in `suffix` and is not one of bertprep's own; so a forgotten option
    value never turns a record file into a report.
    """
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; name the file to write, such as {path / ('report' + suffix)}")
    if path.exists() and (path.suffix != suffix or path.name in (MANIFEST, LISTING)):
        raise UsageError(f"{option} {path}: exists and is not a {suffix} file of this command; choose another name")
    if not path.name.strip("-"):
        raise UsageError(f"{option} {path}: is not a file name")
    if not is_object(path) and not path.absolute().parent.is_dir():
        raise UsageError(f"{option} {path}: the folder {path.absolute().parent} does not exist; make it first")
