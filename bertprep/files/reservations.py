"""What running processes need of the copies of objects: it is not removed, and must fit into the cache together.

    CACHE/.reserved-1f2e3d4c    {"NAME OF A COPY": bytes, ...}; locked by its process as long as it reads them

A set of records names all of its files at its start, so that a set which cannot fit is told before anything is downloaded, and
two runs cannot remove each other's files again and again. The system releases the lock of a process that dies, however it does;
the next process to look removes the file.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import explain_write_error
from bertprep.files.places import CACHE, CACHE_GB, cache_bytes, cache_folder, tolerating_no_locks
from bertprep.untrusted import parse_json

RESERVED = ".reserved-"
_LOCK = ".lock-reservations"
_UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "KB": 10**3}


def size_in_words(size_bytes: int) -> str:
    """A size for people.

    >>> size_in_words(1_234_567_890), size_in_words(2_000_000), size_in_words(700)
    ('1.2 GB', '2.0 MB', '700 bytes')
    """
    for unit, unit_bytes in _UNITS.items():
        if size_bytes >= unit_bytes:
            return f"{size_bytes / unit_bytes:,.1f} {unit}"
    return f"{size_bytes} bytes"


def limit_cache(size_bytes: int) -> None:
    """Keep at most so many bytes of copies, in this process and in those that it starts."""
    os.environ[CACHE_GB] = repr(size_bytes / 1e9)


class Reservation:
    """Copies that stay, and whose bytes are kept free for them, until `release` or the end of the process."""

    def __init__(self, what: str, copies: Mapping[str, int]) -> None:
        """`copies` maps names in the cache to bytes; raises `UsageError`, which calls them `what`, where they do not fit."""
        self._descriptor = -1
        folder = cache_folder()
        try:
            with _one_process(folder):
                _check_fit(what, folder, copies, _reserved(folder))
                self._path = folder / f"{RESERVED}{secrets.token_hex(4)}"
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
                with tolerating_no_locks():
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with open(self._descriptor, "wb", closefd=False) as file:
                    file.write(json.dumps(dict(copies)).encode())
        except OSError as error:
            self.release()
            raise explain_write_error(folder / _LOCK, error) from error

    def release(self) -> None:
        """Let the copies go."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        if self._descriptor >= 0:  # a fork's is a copy, whose end lets nothing go
            os.close(self._descriptor)


def reserved_copies(folder: Path) -> dict[str, int]:
    """The names of copies that running processes have reserved, and their bytes."""
    with _one_process(folder):
        return _reserved(folder)


def _reserved(folder: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in folder.glob(f"{RESERVED}*"):
        with suppress(FileNotFoundError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)  # of a process that died
            except BlockingIOError:
                with suppress(ValueError):
                    content = parse_json(file.read())
                    found.update(content if isinstance(content, dict) else {})
            except OSError:  # a file system without locks does not tell
                path.unlink(missing_ok=True)
    return {name: size for name, size in found.items() if type(size) is int}


@contextmanager
def _one_process(folder: Path) -> Iterator[None]:
    """No other process reserves, or looks at what is reserved, in this block."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        with tolerating_no_locks():
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_fit(what: str, folder: Path, copies: Mapping[str, int], others: Mapping[str, int]) -> None:
    size, capacity = sum(copies.values()), cache_bytes()
    needed = sum({**others, **copies}.values())
    if needed > capacity:
        shared = f", {size_in_words(needed - size)} more of it reserved by running processes" if needed > size else ""
        raise UsageError(
            f"{what}: {size_in_words(size)} do not fit into the cache for objects, {folder} with at most "
            f"{size_in_words(capacity)}{shared}; give --cache-size {_round_up(needed)} or more (elsewhere {CACHE_GB}; "
            f"{size_in_words(shutil.disk_usage(folder).free)} are free there), a larger disk with {CACHE}, or take fewer "
            "records: bertprep convert --pick, or fewer shards"
        )
    there = {path.name for path in folder.iterdir()}
    missing = sum(size for name, size in copies.items() if name not in there)
    if missing > (free := shutil.disk_usage(folder).free):
        raise BertprepError(
            f"{what}: {size_in_words(missing)} are still to be downloaded to {folder}, where {size_in_words(free)} are free; "
            f"free some space, name a folder of a larger disk with {CACHE}, or take fewer records: bertprep convert --pick"
        )


def _round_up(size_bytes: int) -> str:
    """A size that is at least so many bytes, as `--cache-size` takes it."""
    unit = "GB" if size_bytes >= _UNITS["GB"] else "MB"
    return f"{-(-size_bytes // _UNITS[unit])}{unit}"
