"""A file that is being downloaded: `NAME.part`, with `NAME.part.json` beside it that identifies the content.

Received bytes are written at once, unbuffered, so a killed process loses none; the next one hashes them and resumes. The file
gets its final name only if size and checksums are right.
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


class Checksums:
    """The checksums of a file, over the bytes seen so far."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self._checksums: list[tuple[str, str, Any]] = []  # (name, expected value, hash)
        if file.sha256:
            self._checksums.append(("sha256", file.sha256, hashlib.sha256()))
        if file.git_sha1:
            header = b"blob %d\0" % (file.size_bytes or 0)
            self._checksums.append(("git's sha1", file.git_sha1, hashlib.sha1(header, usedforsecurity=False)))

    def update(self, data: bytes | bytearray | memoryview) -> None:
        for _, _, digest in self._checksums:
            digest.update(data)

    def problem(self, size_bytes: int) -> str | None:
        """The fault of a file with these bytes, or None."""
        if self._file.size_bytes not in (None, size_bytes):
            return f"has {size_bytes:,} bytes, expected {self._file.size_bytes:,}"
        for name, expected, digest in self._checksums:
            if (found := digest.hexdigest()) != expected:
                return f"has {name} {found}, expected {expected}"
        return None


def problem_of(path: Path, file: RemoteFile) -> str | None:
    """The fault of an existing file, or None."""
    size_bytes = path.stat().st_size
    if file.size_bytes not in (None, size_bytes):
        return Checksums(file).problem(size_bytes)
    checksums = Checksums(file)
    with path.open("rb") as content:
        while block := content.read(LARGEST_WRITE_BYTES):
            checksums.update(block)
    return checksums.problem(size_bytes)


def partial_bytes(path: Path, file: RemoteFile) -> int:
    """The bytes of a file that an earlier run received and from which this one can resume."""
    part, note = _paths(path)
    try:
        if (identity := _identity(file)) and parse_json(read_bounded(note)) == identity:
            return min(part.stat().st_size, file.size_bytes or part.stat().st_size)
    except (OSError, ValueError):
        pass
    return 0


class PartialFile:
    """The first bytes of a file; a context manager that only closes it and keeps the received bytes."""

    def __init__(self, path: Path, file: RemoteFile) -> None:
        self.path, self._file = path, file
        self._part, self._note = _paths(path)
        self.size_bytes = partial_bytes(path, file)
        self._checksums = Checksums(file)

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
            self._checksums.update(block)

    def restart(self) -> None:
        """Discard the received bytes and start over."""
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.size_bytes = 0
        self._checksums = Checksums(self._file)

    def append(self, data: bytes) -> None:
        """Write received bytes; returns when the operating system has them."""
        rest = memoryview(data)
        try:
            while rest:
                written = os.write(self._descriptor, rest[:LARGEST_WRITE_BYTES])
                self._checksums.update(rest[:written])
                self.size_bytes += written
                rest = rest[written:]
        except OSError as error:
            raise explain_write_error(self.path, error) from error

    def discard(self) -> None:
        """Delete the received bytes."""
        self._part.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def problem(self) -> str | None:
        """The fault of the complete file, or None."""
        return self._checksums.problem(self.size_bytes)

    def commit(self) -> None:
        """Sync the bytes to disk, then give the file its name."""
        try:
            os.fsync(self._descriptor)
            self._part.replace(self.path)
            self._note.unlink(missing_ok=True)
            sync_folder(self.path.parent)
        except OSError as error:
            raise explain_write_error(self.path, error) from error


def _paths(path: Path) -> tuple[Path, Path]:
    part = path.with_name(path.name + PARTIAL_SUFFIX)
    return part, part.with_name(part.name + ".json")


def _identity(file: RemoteFile) -> dict[str, str] | None:
    """The identity of the content; None if nothing identifies it, so that it cannot be resumed."""
    names = ("sha256", "git_sha1", "etag")
    return next(({name: value} for name in names if (value := getattr(file, name))), None)
