"""Parses, checks and joins URLs of objects in a store, such as `s3://bucket/data/part-0`; it never contacts the store.

`ObjectUrl` is to `files.paths.ObjectPath`, which reads and lists objects, what pathlib's `PurePath` is to `Path`.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from bertprep.errors import BertprepError

SCHEMES = ("s3", "gs", "az")
"""The supported kinds of stores; `files.object_store` has a client for each."""
_MAX_KEY_BYTES = 1024  # the limit of S3 and of Google Cloud Storage
_MAX_SHOWN = 200  # characters of a URL in an error

Url = TypeVar("Url", bound="ObjectUrl")


class ObjectUrl(PurePosixPath):
    """The URL of an object or of a folder of objects, with the methods of `PurePath`."""

    def __str__(self) -> str:
        if not self.parts or self.parts[0][:-1] not in SCHEMES:  # pathlib makes such objects from patterns
            return str(PurePosixPath(*self.parts))
        return f"{self.parts[0]}//{'/'.join(self.parts[1:])}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __fspath__(self) -> str:
        raise TypeError(f"{self}: is not a file on this machine; read it with open_local(), write it with atomic_file()")

    @property
    def scheme(self) -> str:
        return str(self.parts[0]).removesuffix(":")

    @property
    def bucket(self) -> str:
        return str(self.parts[1])

    @cached_property
    def key(self) -> str:
        """Return the object's name in its bucket; raises `BertprepError` if no object can have this name."""
        if len(self.parts) < 2 or self.scheme not in SCHEMES:
            raise BertprepError(f"{self}: is not the URL of an object; expected SCHEME://BUCKET/NAME")
        key = "/".join(self.parts[2:])
        if why := why_refused(key.replace("?", "_").replace("#", "_")):  # a listing may contain names with ? and #
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
    """Return why no object can have this name, as the end of an error message, or None if the name is possible."""
    if not key.isprintable():
        return "has control characters, which are not allowed in the name of an object"
    if "?" in key or "#" in key:
        return "has a query or a fragment; give only the bucket and the name"
    if ".." in key.split("/"):
        return 'has "..", which the URL of an object cannot have'
    if len(key.encode()) > _MAX_KEY_BYTES:
        return f"is longer than the {_MAX_KEY_BYTES} bytes that a name in a store may have"
    return None


def shown(text: str) -> str:
    """Return a URL for an error message: printable, and shortened if it is too long."""
    printable = text if text.isprintable() else ascii(text)[1:-1]
    return printable if len(printable) <= _MAX_SHOWN else f"{printable[:_MAX_SHOWN]}..."
