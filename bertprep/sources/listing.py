"""The listing of a download: `listing.json` in its folder, written before the first byte is fetched. Later runs follow it.

Its `source` is the request:

    {"hub": "datasets/REPO" or "models/REPO", "patterns": [...], "revision": "main"}   files of a repository on the Hub
    {"hub": "datasets/REPO", "config": "default", "split": "train", "revision": "main"}   a split
    {"dump": "https://..." or "/absolute/path"}     one file at an address, or a symbolic link to one
    {"files": "/absolute/path"}                     a folder of the user's own; `files` is a symbolic link to it

Its `revision` is the commit of a repository, the ETag or date of a web file, or "" for the user's own files.
"""

import contextlib
import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError, quoted
from bertprep.files.atomic import atomic_file, explain_write_error, temporary_name
from bertprep.files.checksums import SHA256
from bertprep.files.paths import checksum_of, is_object
from bertprep.untrusted import (
    COUNT,
    LIST,
    OBJECT,
    PATH,
    SHA1,
    SHA256_DIGITS,
    TEXT,
    TEXTS,
    check_values,
    optional,
    parse_json,
    read_bounded,
)
from bertprep.work.format import FORMAT, check_format
from bertprep.work.layout import LISTING

OWN_FILES = "files"
"""The name of the link to a folder of the user's own."""
_LISTING = {"source": OBJECT, "revision": TEXT, "files": LIST}
_FILE = {
    "name": PATH, "url": TEXT, "size_bytes": optional(COUNT), "sha256": optional(SHA256_DIGITS), "git_sha1": optional(SHA1),
    "etag": optional(TEXT),
}  # fmt: skip
_SOURCE = {
    "hub": TEXT, "patterns": TEXTS, "revision": TEXT, "config": TEXT, "split": TEXT, "dump": TEXT,
    "files": TEXT,
}  # fmt: skip


@dataclass(frozen=True)
class RemoteFile:
    r"""One file: its path below the download's folder, its origin, and its checksums where they are known.

    On the Hub, `url` is relative to the endpoint, so that mirrors work. `git_sha1` is the sha1 of "blob SIZE\0" and content.
    A web file has no checksum: `etag`, its ETag or the date of its last change, identifies its version.
    """

    name: str
    url: str
    size_bytes: int | None = None
    sha256: str | None = None
    git_sha1: str | None = None
    etag: str | None = None

    def __post_init__(self) -> None:
        check_values(vars(self), _FILE, prefix=f"file {quoted(repr(self.name))}: ")

    def problem_of(self, path: Path) -> str | None:
        size_bytes = path.stat().st_size
        if self.size_bytes not in (None, size_bytes):
            return f"has {size_bytes:,} bytes, expected {self.size_bytes:,}"
        if self.sha256 and (found := checksum_of(path, SHA256)) != self.sha256:
            return f"has sha256 {found}, expected {self.sha256}"
        if self.git_sha1 and (found := git_sha1(path)) != self.git_sha1:
            return f"has git's sha1 {found}, expected {self.git_sha1}"
        return None


def git_sha1(content: Path | bytes) -> str:
    """Return the sha1 that git gives to bytes, or to the content of a file."""
    size_bytes = len(content) if isinstance(content, bytes) else content.stat().st_size
    digest = hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False)
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class Listing:
    """The files of one download, of one revision of one source."""

    source: dict[str, Any]
    revision: str
    files: tuple[RemoteFile, ...]

    def __post_init__(self) -> None:
        check_values(self.source, _SOURCE, prefix="source.")
        if len({file.name for file in self.files}) < len(self.files):
            raise ValueError("two files have the same name, which one folder cannot hold")
        if not self.files and OWN_FILES not in self.source:
            raise ValueError("it names no file")

    def missing(self, folder: Path) -> list[RemoteFile]:
        """Return the files that are missing or have the wrong size; none is read."""
        return [file for file in self.files if not has_size(folder / file.name, file.size_bytes)]

    def links(self) -> Mapping[str, Path]:
        """Return the user's own files, which are linked, not fetched: name in the download's folder -> path."""
        if OWN_FILES in self.source:
            return {OWN_FILES: Path(self.source[OWN_FILES])}
        if "dump" in self.source and "://" not in self.source["dump"]:
            return {self.files[0].name: Path(self.source["dump"])}
        return {}


def has_size(path: Path, size_bytes: int | None) -> bool:
    return path.is_file() and size_bytes in (None, path.stat().st_size)


def load_listing(folder: Path) -> Listing | None:
    """Return the listing of the download in `folder`, or None if there is none."""
    path = folder / LISTING
    try:
        listed = parse_json(read_bounded(path))
        check_format(path, listed, "remove it and download again")
        content = check_values(listed, _LISTING, needed=tuple(_LISTING))
        files = tuple(RemoteFile(**{key: file[key] for key in _FILE if key in file}) for file in content["files"])
        return Listing(content["source"], content["revision"], files)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, TypeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BertprepError(f"{path}: is not a listing of bertprep ({why}); remove it and download again") from error


def save_listing(listing: Listing, folder: Path) -> None:
    """Write the listing of the download in `folder`."""
    files = [{key: value for key, value in asdict(file).items() if value is not None} for file in listing.files]
    content = {"format": FORMAT, "source": listing.source, "revision": listing.revision, "files": files}
    with atomic_file(folder / LISTING) as file:
        file.write((json.dumps(content, indent=1) + "\n").encode())


def check_on_disk(folder: Path) -> None:
    """Raise `UsageError` for a folder in an object store, since an object cannot grow as a download does."""
    if is_object(folder):
        raise UsageError(
            f"{folder}: downloads cannot go to an object store, since other programs read them on a disk; download with a "
            "--workdir on a disk, then copy its folder download/ to the store"
        )


def check_source(listing: Listing, source: dict[str, Any], folder: Path) -> None:
    """Raise `BertprepError` if the download in `folder` is not the requested one."""
    if listing.source != source:
        found = quoted(" ".join(map(str, listing.source.values())))
        expected = quoted(" ".join(map(str, source.values())))
        raise BertprepError(
            f"{folder}: has a download of {found}, expected {expected}; choose another --workdir, or remove this folder"
        )


def make_link(link: Path, target: Path) -> None:
    """Make `link` point to `target`, atomically."""
    if link.is_symlink() and link.readlink() == target:
        return
    temporary = temporary_name(link)
    try:
        temporary.symlink_to(target)
        temporary.replace(link)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise explain_write_error(link, error) from error
