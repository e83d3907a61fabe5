"""Where a command may write what it found out: never over data, and known before the work begins."""

from pathlib import Path

from bertprep.errors import UsageError
from bertprep.workspace.layout import LISTING, MANIFEST


def check_target(option: str, path: Path | None, suffix: str) -> None:
    """Raise `UsageError` where `path` cannot be written, or stands already and is not a file that such a command wrote.

    A file that is there is written over only if its name ends in `suffix` and it is none of ours by name; so a name that was
    forgotten behind an option never turns a record file into a report.
    """
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder; name the file to write, such as {path / ('report' + suffix)}")
    if path.exists() and (path.suffix != suffix or path.name in (MANIFEST, LISTING)):
        raise UsageError(f"{option} {path}: stands there already and is no {suffix} file of this command; choose another name")
    if not path.name.strip("-"):
        raise UsageError(f"{option} {path}: is no file's name")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{option} {path}: the folder {path.absolute().parent} does not exist; make it first")
