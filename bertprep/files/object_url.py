"""The name of an object in a store, such as `s3://bucket/data/part-0`, taken apart and put together; nothing is read or asked.

`ObjectUrl` is to `files.paths.ObjectPath`, which reads and lists, what `PurePath` is to `Path` in pathlib.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from bertprep.errors import BertprepError

SCHEMES = ("s3", "gs", "az")
"""The stores that there are; `files.object_store` has the client of each."""
_MAX_KEY_BYTES = 1024  # of S3 and of Google
_MAX_SHOWN = 200  # characters of a URL, in errors

Url = TypeVar("Url", bound="ObjectUrl")


class ObjectUrl(PurePosixPath):
    """The URL of an object, or of a folder of them, with the methods of `PurePath`."""

    def __str__(self) -> str:
        if not self.parts or self.parts[0][:-1] not in SCHEMES:  # pathlib makes such of patterns
            return str(PurePosixPath(*self.parts))
        return f"{self.parts[0]}//{'/'.join(self.parts[1:])}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __fspath__(self) -> str:
        raise TypeError(f"{self}: is not a file of this machine; read it by open_local(), write it through atomic_file()")

    @property
    def scheme(self) -> str:
        return str(self.parts[0]).removesuffix(":")

    @property
    def bucket(self) -> str:
        return str(self.parts[1])

    @cached_property
    def key(self) -> str:
        """Return the object's name in its bucket; raises `BertprepError` for an impossible one."""
        if len(self.parts) < 2 or self.scheme not in SCHEMES:
            raise BertprepError(f"{self}: is not the URL of a store")
        key = "/".join(self.parts[2:])
        if why := why_refused(key.replace("?", "_").replace("#", "_")):  # a listing may hold such names
            raise BertprepError(f"{shown(str(self))}: {why}")
        return key

    @property
    def parent(self: Url) -> Url:
        return type(self)(*self.parts[:-1]) if len(self.parts) > 2 else self

    @property
    def parents(self: Url) -> tuple[Url, ...]:
        return tuple(type(self)(*self.parts[:end]) for end in range(len(self.parts) - 1, 1, -1))

    def relative_to(self, other: Any, *more: Any, **options: Any) -> Path:  # type: ignore[override]
        return Path(PurePosixPath(*self.parts).relative_to(PurePosixPath(*ObjectUrl(other, *more).parts)))

    def is_absolute(self) -> bool:
        return True


def why_refused(key: str) -> str | None:
    """Return why no object can have this name, as the end of an error; None if one can."""
    if not key.isprintable():
        return "has control characters, which no name here has"
    if "?" in key or "#" in key:
        return "has a query or a fragment; give the bucket and the name alone"
    if ".." in key.split("/"):
        return 'has "..", which is no folder of a store'
    if len(key.encode()) > _MAX_KEY_BYTES:
        return f"is longer than the {_MAX_KEY_BYTES} bytes that a name in a store may have"
    return None


def shown(text: str) -> str:
    """Return a URL as an error shows it: printable, and not too long."""
    printable = text if text.isprintable() else ascii(text)[1:-1]
    return printable if len(printable) <= _MAX_SHOWN else f"{printable[:_MAX_SHOWN]}..."
