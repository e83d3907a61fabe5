"""What `--verify` does: files that an earlier run made are known by their sha256, not only by their size.

A run trusts a finished file that has the size that manifest or journal says, which costs nothing. With `--verify` each is read
whole, in the workers, at the speed of the disk or of the processor's sha256. A file that is wrong is removed, under the lock of
its folder, and so is made again by the run that follows, or by a later one where that is killed.
"""

from collections.abc import Collection, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from bertprep import pool
from bertprep.errors import BertprepError
from bertprep.files.atomic import explain_write_error
from bertprep.progress import SILENT, Reporter, say
from bertprep.workspace.journal import Journal
from bertprep.workspace.manifest import Manifest, read_manifest, sha256_of

Files = Mapping[str, Mapping[str, Any]]
"""The files of a manifest: relative name -> facts, of which `bytes` and `sha256` are looked at."""


def remove_damaged(
    finished: Manifest | None,
    journal: Journal,
    *,
    names: Collection[str] | None = None,
    label: str,
    workers: int,
    reporter: Reporter,
) -> bool:
    """Remove the files that are not as they were made, with a line for each; whether the folder is not finished any more.

    `finished` is what `read_finished` gives of the folder, `journal` one that is not open yet, `label` a name for its files, of
    which only `names` are looked at where they are given. A folder that is right is only read. Raises `BertprepError` where the
    folder was made with other settings, or another run writes there.
    """
    folder = journal.folder
    if finished and not find_damaged(folder, _of(finished.files, names), label=label, workers=workers, reporter=reporter):
        return False
    if not folder.is_dir():
        return True
    with journal:
        manifest = read_manifest(folder)
        files = _of({**(manifest.files if manifest else {}), **journal.done}, names)
        damaged = find_damaged(folder, files, label=label, workers=workers, reporter=SILENT if finished else reporter)
        for name, why in damaged.items():
            path = folder / name
            say(f"{path}: {why}; it is made again")
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise explain_write_error(path, error) from error
    return True


def _of(files: Files, names: Collection[str] | None) -> Files:
    return files if names is None else {name: files[name] for name in names if name in files}


def check_undamaged(folder: Path, manifest: Manifest, *, label: str, advice: str, workers: int, reporter: Reporter) -> None:
    """Raise `BertprepError` where a file of a finished folder is not as it was made; `advice` says how it is made again."""
    damaged = find_damaged(folder, manifest.files, label=label, workers=workers, reporter=reporter)
    for name, why in damaged.items():
        more = f" (and {len(damaged) - 1:,} more)" if len(damaged) > 1 else ""
        raise BertprepError(f"{folder / name}: {why}{more}; {advice}")


def find_damaged(folder: Path, files: Files, *, label: str, workers: int, reporter: Reporter) -> dict[str, str]:
    """Which of the files are not as they were made, and why, in the order of their names; reads all of them."""
    damaged: dict[str, str] = {}
    with (
        reporter.progress(f"verify {label}", len(files), "files", enabled=bool(files)) as shown,
        closing(pool.run(partial(_look_at, folder), [(n, (n, facts)) for n, facts in files.items()], workers=workers)) as found,
    ):
        for name, (why, read_bytes) in found:
            if why:
                damaged[name] = why
            shown.advance(MB=read_bytes / 1e6)
    return dict(sorted(damaged.items()))


def _look_at(folder: Path, entry: tuple[str, Mapping[str, Any]]) -> tuple[str, int]:
    """What is wrong with a file, "" for nothing, and how many bytes were read to know it."""
    name, facts = entry
    path = folder / name
    try:
        size_bytes = path.stat().st_size
        if size_bytes != facts["bytes"]:
            return f"has {size_bytes:,} bytes, expected {facts['bytes']:,}", 0
        sha256 = sha256_of(path)
    except FileNotFoundError:
        return "is missing", 0
    except OSError as error:
        return f"cannot be read: {error.strerror or error}", 0
    if sha256 != facts.get("sha256"):
        return f"has sha256 {sha256[:16]}..., expected {str(facts.get('sha256'))[:16]}...", size_bytes
    return "", size_bytes
