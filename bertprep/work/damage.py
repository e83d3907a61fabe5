"""Compares files with the checksums that a manifest or a ledger lists; removes those that differ, so that they are made again.

A run trusts a finished file that has its size, which costs nothing. Here workers read every file, at the speed of the disk or
of sha256.
"""

from collections.abc import Collection, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from bertprep import pool
from bertprep.errors import BertprepError
from bertprep.files.atomic import explain_write_error
from bertprep.files.places import is_object
from bertprep.progress import Reporter, say
from bertprep.work.ledger import Entry, listed_entries
from bertprep.work.manifest import sha256_of

MISSING = "is missing"


def find_damaged(folder: Path, files: Mapping[str, Entry], *, label: str, workers: int, reporter: Reporter) -> dict[str, str]:
    """Return what is wrong with each file of another size or checksum than its entry; reads all files."""
    damaged: dict[str, str] = {}
    tasks = [(name, (name, entry)) for name, entry in files.items()]
    with (
        reporter.progress(label, len(files), "files", enabled=bool(files)) as shown,
        closing(pool.run(partial(_compare, folder), tasks, workers=workers)) as found,
    ):
        for name, (why, read_bytes) in found:
            if why:
                damaged[name] = why
            shown.advance(MB=read_bytes / 1e6)
    return dict(sorted(damaged.items()))


def remove_damaged(folder: Path, names: Collection[str] | None, *, workers: int, reporter: Reporter) -> dict[str, str]:
    """Remove the damaged ones of the files that the folder's manifest or ledger lists, or of `names`; return what was wrong.

    A file that neither lists is never removed, nor anything through a link.
    """
    removed: dict[str, str] = {}
    files = {name: entry for name, entry in listed_entries(folder).items() if names is None or name in names}
    for name, why in find_damaged(folder, files, label="compare checksums", workers=workers, reporter=reporter).items():
        path = folder / name
        if why == MISSING:
            continue
        if not is_object(path) and path.parent.resolve() != folder.resolve() / Path(name).parent:
            raise BertprepError(f"{path.parent}: is a link, and nothing is removed there; remove {path.name} there yourself")
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise explain_write_error(path, error) from error
        say(f"{path}: {why}; removed, and the command that made it makes it again")
        removed[name] = why
    return removed


def check_undamaged(folder: Path, files: Mapping[str, Entry], *, advice: str, workers: int, reporter: Reporter) -> None:
    """Raise `BertprepError` if a file of a finished folder is damaged; `advice` says how to make it again."""
    damaged = find_damaged(folder, files, label="compare checksums", workers=workers, reporter=reporter)
    for name, why in damaged.items():
        more = f" (and {len(damaged) - 1:,} more)" if len(damaged) > 1 else ""
        raise BertprepError(f"{folder / name}: {why}{more}; {advice}")


def _compare(folder: Path, listed: tuple[str, Entry]) -> tuple[str, int]:
    """Return what is wrong with a file, "" if nothing is, and how many bytes were read."""
    name, entry = listed
    path = folder / name
    try:
        size_bytes = path.stat().st_size
        if size_bytes != entry["bytes"]:
            return f"has {size_bytes:,} bytes, expected {entry['bytes']:,}", 0
        sha256 = sha256_of(path)
    except FileNotFoundError:
        return MISSING, 0
    except OSError as error:
        return f"cannot be read: {error.strerror or error}", 0
    if sha256 != entry.get("sha256"):
        return f"has sha256 {sha256[:16]}..., expected {str(entry.get('sha256'))[:16]}...", size_bytes
    return "", size_bytes
