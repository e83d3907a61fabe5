"""A file on its way: `NAME.part`, with `NAME.part.json` beside it that says which content it is a beginning of.

What arrives is written at once, without a buffer, so that a killed process loses nothing that it had; the next one reads
what is there into the sums and goes on. Only when size and sums are right does the file get its final name.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from bertprep.files.atomic import atomic_file, explain_write_error, sync_folder
from bertprep.sources.transfer.listing import RemoteFile
from bertprep.untrusted import parse_json, read_bounded

PARTIAL_SUFFIX = ".part"
LARGEST_WRITE_BYTES = 1 << 20


class Sums:
    """The sums by which a file is known, over the bytes seen so far."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._sums: list[tuple[str, str, Any]] = []  # what it is called, what it must be, the hash
        if file.sha256:
            self._sums.append(("sha256", file.sha256, hashlib.sha256()))
        if file.git_sha1:
            header = b"blob %d\0" % (file.size_bytes or 0)
            self._sums.append(("git's sha1", file.git_sha1, hashlib.sha1(header, usedforsecurity=False)))

    def update(self, data: bytes | memoryview) -> None:
        for _, _, digest in self._sums:
            digest.update(data)

    def problem(self, size_bytes: int) -> str | None:
        """What is wrong with a file of these bytes, or None."""
        if self._file.size_bytes not in (None, size_bytes):
            return f"has {size_bytes:,} bytes, expected {self._file.size_bytes:,}"
        for name, expected, digest in self._sums:
            if (found := digest.hexdigest()) != expected:
                return f"has {name} {found}, expected {expected}"
        return None


def problem_of(path: Path, file: RemoteFile) -> str | None:
    """What is wrong with a file that is there, or None."""
    size_bytes = path.stat().st_size
    if file.size_bytes not in (None, size_bytes):
        return Sums(file).problem(size_bytes)
    sums = Sums(file)
    with path.open("rb") as content:
        while block := content.read(LARGEST_WRITE_BYTES):
            sums.update(block)
    return sums.problem(size_bytes)


def partial_bytes(path: Path, file: RemoteFile) -> int:
    """How many bytes of a file are there from an earlier run, and can be continued."""
    part, note = _places(path)
    try:
        if (identity := _identity(file)) and parse_json(read_bounded(note)) == identity:
            return min(part.stat().st_size, file.size_bytes or part.stat().st_size)
    except (OSError, ValueError):
        pass
    return 0


class PartialFile:
    """The beginning of a file; use as a context manager, which only closes it: what has arrived is kept."""

    def __init__(self, path: Path, file: RemoteFile) -> None:
        self.path, self._file = path, file
        self._part, self._note = _places(path)
        self.size_bytes = partial_bytes(path, file)
        self._sums = Sums(file)

    def __enter__(self) -> "PartialFile":
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise explain_write_error(self.path, error) from error
        try:
            if self.size_bytes:
                self._read_what_is_there()
            else:
                self.restart()
                with atomic_file(self._note) as note:
                    note.write(json.dumps(_identity(self._file)).encode())
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._descriptor)

    def _read_what_is_there(self) -> None:
        os.ftruncate(self._descriptor, self.size_bytes)
        while block := os.read(self._descriptor, LARGEST_WRITE_BYTES):
            self._sums.update(block)

    def restart(self) -> None:
        """Forget what has arrived."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.size_bytes = 0
        self._sums = Sums(self._file)

    def append(self, data: bytes) -> None:
        """Write what arrived; returns when the system has it."""
        rest = memoryview(data)
        try:
            while rest:
                written = os.write(self._descriptor, rest[:LARGEST_WRITE_BYTES])
                self._sums.update(rest[:written])
                self.size_bytes += written
                rest = rest[written:]
        except OSError as error:
            raise explain_write_error(self.path, error) from error

    def discard(self) -> None:
        """Take the beginning away."""
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def problem(self) -> str | None:
        """What is wrong with it as a whole file, or None."""
        return self._sums.problem(self.size_bytes)

    def commit(self) -> None:
        """Bring the bytes to the disk, then give the file its name."""
        try:
            os.fsync(self._descriptor)
            self._part.replace(self.path)
            self._note.unlink(missing_ok=True)
            sync_folder(self.path.parent)
        except OSError as error:
            raise explain_write_error(self.path, error) from error


def _places(path: Path) -> tuple[Path, Path]:
    part = path.with_name(path.name + PARTIAL_SUFFIX)
    return part, part.with_name(part.name + ".json")


def _identity(file: RemoteFile) -> dict[str, str] | None:
    """By which a beginning is known to be one of the same content; None where nothing is known: it cannot be continued."""
    names = ("sha256", "git_sha1", "etag")
    return next(({name: value} for name in names if (value := getattr(file, name))), None)
