"""The files of a download: `listing.json` in its folder, written before the first byte is fetched.

Once written it is authoritative: a later run needs no request to know what to fetch, and stays on one revision even if the
remote moves on. `source` is the request, and distinguishes the kinds of downloads:

    {"hub": "datasets/REPO" or "models/REPO", "patterns": [...], "revision": "main"}   files of a repository on the Hub
    {"hub": "datasets/REPO", "config": "default", "split": "train", "is_default": true, "revision": "main"}   the same
    {"dump": "https://..." or "/absolute/path"}     one dump file; for a path, a symbolic link to it
    {"files": "/absolute/path"}                     a folder of the user's own; `files` is a symbolic link to it

`revision` is the commit (Hub), the ETag or date of the file (URL) or "" (the user's own files).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError, UsageError
from bertprep.files.atomic import atomic_file
from bertprep.files.places import is_object
from bertprep.untrusted import (
    COUNT,
    FLAG,
    LIST,
    OBJECT,
    PATH,
    SHA1,
    SHA256,
    TEXT,
    TEXTS,
    Rule,
    check_values,
    optional,
    parse_json,
    read_bounded,
)
from bertprep.workspace.layout import LISTING

SCHEMA = 1
OWN_FILES = "files"
"""The name of the link to a folder of the user's own."""

_FILE = {"name": PATH, "url": TEXT, "size_bytes": optional(COUNT), "sha256": optional(SHA256), "git_sha1": optional(SHA1),
         "etag": optional(TEXT)}  # fmt: skip
_WORD = Rule(  # errors show it
    "one line of at most 500 characters", lambda value: TEXT.holds(value) and value.isprintable() and len(value) <= 500
)
_WORDS = Rule(
    "a list of texts, of at most 500 characters in all", lambda value: TEXTS.holds(value) and _WORD.holds("".join(value))
)
_SOURCES = {
    "split": {"hub": _WORD, "revision": _WORD, "config": _WORD, "split": _WORD, "is_default": FLAG},
    "hub": {"hub": _WORD, "patterns": _WORDS, "revision": _WORD},
    "dump": {"dump": TEXT},
    "files": {"files": TEXT},
}


@dataclass(frozen=True)
class RemoteFile:
    r"""One file: its name (or path, with "/") below the download's folder, its origin, and what is known about its bytes.

    A `url` without a scheme is relative to the Hub's endpoint, so a download can be finished from a mirror (HF_ENDPOINT).
    `git_sha1` is git's name for the content, the sha1 of "blob SIZE\0" and the content. `etag` is kept if there is no checksum:
    the ETag (or Last-Modified date) by which the server identifies the version.
    """

    name: str
    url: str
    size_bytes: int | None = None
    sha256: str | None = None
    git_sha1: str | None = None
    etag: str | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` for invalid values: names become paths, sizes and checksums are compared."""
        check_values(vars(self), _FILE, place=f"file {self.name!r}: ")


@dataclass(frozen=True)
class Listing:
    """The files of one download, of one revision of one source."""

    source: dict[str, Any]
    revision: str
    files: tuple[RemoteFile, ...]

    def __post_init__(self) -> None:
        """Raise `ValueError` if the source is invalid, there is no file, or two have the same name."""
        rules = next((rules for kind, rules in _SOURCES.items() if kind in self.source), _SOURCES["hub"])
        check_values(self.source, rules, needed=tuple(rules), place="source.")
        if len({file.name for file in self.files}) < len(self.files):
            raise ValueError("two files have the same name, which one folder cannot hold")
        if not self.files and "files" not in self.source:
            raise ValueError("it names no file")

    def as_json(self) -> dict[str, Any]:
        files = [{key: value for key, value in asdict(file).items() if value is not None} for file in self.files]
        return {"schema": SCHEMA, "source": self.source, "revision": self.revision, "files": files}


def load_listing(folder: Path) -> Listing | None:
    """The listing of the download in `folder`, or None if there is none."""
    path = folder / LISTING
    try:
        return _listing_in(parse_json(read_bounded(path)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BertprepError(f"{path}: is not a listing of bertprep ({why}); remove it and download again") from error


def _listing_in(content: object) -> Listing:
    rules = {"schema": COUNT, "source": OBJECT, "revision": TEXT, "files": LIST}
    listing = check_values(content, rules, needed=tuple(rules))
    if listing["schema"] != SCHEMA:
        raise ValueError(f"it has schema {listing['schema']}, expected {SCHEMA}; a newer bertprep reads newer ones")
    files = [check_values(file, _FILE, needed=("name", "url"), place="files.") for file in listing["files"]]
    known = tuple(RemoteFile(**{key: value for key, value in file.items() if key in _FILE}) for file in files)
    return Listing(listing["source"], listing["revision"], known)


def save_listing(listing: Listing, folder: Path) -> None:
    """Write the listing of the download in `folder`."""
    check_on_disk(folder)
    with atomic_file(folder / LISTING) as file:
        file.write((json.dumps(listing.as_json(), indent=1) + "\n").encode())


def check_on_disk(folder: Path) -> None:
    """Raise `UsageError` where a download is to go to a store, whose objects cannot grow."""
    if is_object(folder):
        raise UsageError(
            f"{folder}: a download is resumed in the middle of its files, which a store cannot do; download with a --workdir "
            "on a disk, and copy its folder download/ to the store"
        )


def check_source(listing: Listing, source: dict[str, Any], folder: Path) -> None:
    """Raise `BertprepError` if the download in `folder` is not the requested one."""
    if listing.source != source:
        raise BertprepError(
            f"{folder}: holds a download of {describe(listing.source)}, asked for is {describe(source)}; "
            "choose another --workdir, or remove this folder"
        )


def describe(source: dict[str, Any]) -> str:
    """A source in words.

    >>> describe({"hub": "datasets/wikimedia/wikipedia", "patterns": ["20231101.en/*.parquet"], "revision": "main"})
    'datasets/wikimedia/wikipedia (20231101.en/*.parquet, revision main)'
    """
    if "split" in source:
        return f"{source['hub']} (split {source['split']} of {source['config']}, revision {source['revision']})"
    if "hub" in source:
        return f"{source['hub']} ({' '.join(source['patterns'])}, revision {source['revision']})"
    return " ".join(str(value) for value in source.values())


def missing(listing: Listing, folder: Path) -> Sequence[RemoteFile]:
    """The files that are missing or have the wrong size; fast, since none is read."""
    return [file for file in listing.files if not has_size(folder / file.name, file.size_bytes)]


def has_size(path: Path, size_bytes: int | None) -> bool:
    """Whether a file exists, with the right size if it is known."""
    return path.is_file() and size_bytes in (None, path.stat().st_size)
