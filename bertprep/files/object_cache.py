"""Makes objects of a store available as local files.

`fetch` downloads a data set before it is read, in parallel, to $BERTPREP_OBJECT_CACHE (default: bertprep/objects in
$XDG_CACHE_HOME or ~/.cache). The name of a copy depends on the URL and on the object's version. Copies that nobody has used for
a week are removed. `open_local` downloads a file that is read once when it is opened, and keeps no copy.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from queue import SimpleQueue

from bertprep.errors import BertprepError
from bertprep.files import object_store
from bertprep.files.atomic import atomic_file, remove_leftovers
from bertprep.files.checksums import show_checksum
from bertprep.files.lock import locked
from bertprep.files.paths import ObjectPath, open_download, open_plain
from bertprep.progress import Progress

CACHE = "BERTPREP_OBJECT_CACHE"
_AT_ONCE = 8
"""Number of parallel downloads: a single stream from a store is slower than most networks."""
_KEPT_SECONDS = 7 * 86400
_ID_LENGTH = 40  # hexadecimal digits at the start of a copy's name; the object's suffixes follow


def cache_folder() -> Path:
    """Return the folder with this user's copies; raises `BertprepError` if it cannot be used."""
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "bertprep"
    except RuntimeError:  # HOME is not set, and the OS does not know the user
        base = Path(tempfile.gettempdir()) / f"bertprep-{os.geteuid()}"
    folder = Path(os.environ.get(CACHE) or base / "objects")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise BertprepError(f"{folder}: belongs to another user; name a folder for copies of objects with {CACHE}")
    except OSError as error:
        raise BertprepError(
            f"{folder}: copies of objects cannot be kept there ({error.strerror}); name another folder with {CACHE}"
        ) from error
    return folder


def fetch(files: Mapping[Path, str | None]) -> None:
    """Download those of these files that are objects without a copy, and verify the BLAKE3 of each where it is given.

    Raises `BertprepError` for a wrong checksum, and before any download if the disk has too little space.
    """
    objects = sorted(_in_threads(ObjectPath.with_status, [path for path in files if isinstance(path, ObjectPath)]))
    if all(map(_is_here, objects)):
        return
    folder = cache_folder()
    with locked(folder, f".{_digest(map(str, objects))}.lock", wait=True):
        if not (missing := [path for path in objects if not _is_here(path)]):
            return
        _remove_unused(folder)
        _check_space(folder, missing)
        with Progress(f"fetch {missing[0].parent}", len(missing), "files", enabled=len(missing) > 1) as progress:
            for path in _in_threads(lambda path: _download(path, files[path]), missing):
                progress.advance(MB=path.status().size_bytes / 1e6)


def local_copy(path: Path) -> Path:
    """Return a local file with the bytes of `path`, for reading only: `path` itself, or the copy of an object."""
    if not isinstance(path, ObjectPath):
        return path
    path = path.with_status()
    fetch({path: None})
    return _copy(path)


def open_local(path: Path) -> BufferedReader:
    """Open a local file with the bytes of `path`; an object without a copy is downloaded, and deleted on closing."""
    if not isinstance(path, ObjectPath):
        return open_plain(path)
    path = path.with_status()
    return open_plain(_copy(path)) if _is_here(path) else open_download(path)


def read_range(path: Path, start: int, size_bytes: int) -> bytes:
    """Return bytes of a local file, or of an object, of which only these are downloaded unless there is a copy."""
    if isinstance(path, ObjectPath):
        path = path.with_status()
        if not _is_here(path):
            return object_store.read_range(path, start, size_bytes, path.status())
    with open_plain(local_copy(path)) as file:
        file.seek(start)
        return file.read(size_bytes)


def _copy(path: ObjectPath) -> Path:
    status = path.status()
    suffixes = "".join(path.suffixes)[-32:]
    return cache_folder() / (_digest([str(path), status.version, str(status.size_bytes)]) + suffixes)


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:_ID_LENGTH]


def _is_here(path: ObjectPath) -> bool:
    copy = _copy(path)
    try:
        kept = copy.stat()
        if kept.st_size != path.status().size_bytes:
            return False
        os.utime(copy, ns=(time.time_ns(), kept.st_mtime_ns))
    except FileNotFoundError:
        return False
    return True


def _remove_unused(folder: Path) -> None:
    remove_leftovers(folder)
    for entry in os.scandir(folder):
        with suppress(OSError):
            used = entry.stat(follow_symlinks=False)
            if max(used.st_atime, used.st_mtime) < time.time() - _KEPT_SECONDS:
                Path(entry).unlink()


def _check_space(folder: Path, missing: Sequence[ObjectPath]) -> None:
    needed, free = sum(path.status().size_bytes for path in missing), shutil.disk_usage(folder).free
    if needed > free:
        raise BertprepError(
            f"{missing[0].parent}: the download of {needed / 1e6:,.0f} MB does not fit {folder}, where {free / 1e6:,.0f} MB "
            f"are free; delete copies there that you no longer need, name a folder on a larger disk with {CACHE}, or select "
            "fewer records with bertprep convert --pick"
        )


def _in_threads(work: Callable[[ObjectPath], ObjectPath], paths: Sequence[ObjectPath]) -> Iterator[ObjectPath]:
    """Yield the results of `work` as they finish; the threads are daemons, so Ctrl-C does not wait for a silent store."""
    waiting, done = list(reversed(paths)), SimpleQueue[ObjectPath | BaseException]()

    def take() -> None:
        while waiting:
            with suppress(IndexError):  # another thread took the last path
                path = waiting.pop()
                try:
                    done.put(work(path))
                except BaseException as error:
                    done.put(error)

    for _ in range(min(_AT_ONCE, len(paths))):
        threading.Thread(target=take, name="fetch", daemon=True).start()
    try:
        for _ in paths:
            result = object_store.take(done)
            if isinstance(result, BaseException):
                raise result
            yield result
    finally:
        waiting.clear()


def _download(path: ObjectPath, expected: str | None) -> ObjectPath:
    with atomic_file(_copy(path), mode=0o600, tidies=False) as file:
        found = object_store.download(path, path.status(), file)
        if expected and found != expected:
            raise BertprepError(
                f"{path}: has {show_checksum(found)}, but its manifest lists {show_checksum(expected)}; the file is corrupt; "
                "make it again"
            )
    return path
