"""What was made from what with which settings: `manifest.json` beside the files, and the journal that a run can resume from.

While a run works, each finished file is one line in `manifest.json.journal`, synced to the disk; when all are there, the
journal becomes `manifest.json`. A killed run finds its finished files in the journal. The first line of the journal, like
the manifest, carries the settings, so that files of two settings never mix. Neither holds a time or a machine's name: made
again with the same versions, a manifest is the same.
"""

import fcntl
import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bertprep
from bertprep.atomic import atomic_file, explain_write_error, remove_leftovers
from bertprep.errors import BertprepError
from bertprep.layout import MANIFEST

SCHEMA = 1
JOURNAL_SUFFIX = ".journal"


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest: `made_with` decides every byte of the files; `files` maps relative names to facts.

    `counts` holds what was found on the way and belongs to no file, such as the documents that were dropped.
    """

    kind: str
    made_with: dict[str, Any]
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "made_with": self.made_with,
            "versions": self.versions,
            **({"counts": self.counts} if self.counts else {}),
            "files": dict(sorted(self.files.items())),
        }


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of `folder`, or None where there is none (or no finished one)."""
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_bytes())
        parts = {"made_with": dict, "files": dict, "versions": dict, "kind": str}
        if wrong := [name for name, kind in parts.items() if not isinstance(content[name], kind)]:
            raise ValueError(f"{wrong[0]} is of another type")
        return Manifest(content["kind"], content["made_with"], content["files"], content["versions"], content.get("counts", {}))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise BertprepError(
            f"{path}: is not a manifest of bertprep ({error}); put the right one there, or remove the folder and make it again"
        ) from error


def read_finished(folder: Path, kind: str, made_with: dict[str, Any]) -> Manifest | None:
    """The manifest of `folder` if all is there: made of the same with the same, every file in place and of its size."""
    manifest = read_manifest(folder)
    if (
        (folder / (MANIFEST + JOURNAL_SUFFIX)).exists()
        or not manifest
        or (manifest.kind, manifest.made_with) != (kind, json.loads(json.dumps(made_with)))
    ):
        return None
    paths = ((folder / name, facts["bytes"]) for name, facts in manifest.files.items())
    return manifest if all(path.is_file() and path.stat().st_size == size for path, size in paths) else None


def sha256_of_vocabulary(manifest: Manifest) -> str | None:
    """The sum of the vocabulary that records were made with, where the manifest tells."""
    vocabulary = manifest.made_with.get("vocabulary")
    sha256 = vocabulary.get("sha256") if isinstance(vocabulary, dict) else None
    return sha256 if isinstance(sha256, str) else None


def versions_of(*packages: str) -> dict[str, str]:
    """Versions of bertprep, Python and the packages whose version could change a file."""
    versions = {"bertprep": bertprep.__version__, "python": platform.python_version()}
    for package in packages:
        version = getattr(sys.modules.get(package), "__version__", None)
        if version is None:
            import importlib.metadata  # 20 ms, which those that know their version spare us

            version = importlib.metadata.version(package)
        versions[package] = version
    return versions


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _digest(file)


def _digest(file: Any) -> str:  # Python 3.10 lacks hashlib.file_digest
    digest = hashlib.sha256()
    while block := file.read(1 << 20):
        digest.update(block)
    return digest.hexdigest()


def _first_difference(name: str, found: Any, wanted: Any) -> tuple[str, Any, Any]:
    """The innermost name under which two values differ, and what stands there.

    >>> _first_difference("", {"made_with": {"inputs": [{"bytes": 5}]}}, {"made_with": {"inputs": [{"bytes": 6}]}})
    ('inputs[0].bytes', 5, 6)
    """
    if isinstance(found, dict) and isinstance(wanted, dict):
        key = next(key for key in {**wanted, **found} if found.get(key) != wanted.get(key))
        prefix = "" if name in ("", "made_with") else f"{name}."
        return _first_difference(prefix + key, found.get(key), wanted.get(key))
    if isinstance(found, list) and isinstance(wanted, list):
        if len(found) != len(wanted):
            return f"number of {name}", len(found), len(wanted)
        index = next(index for index, item in enumerate(found) if item != wanted[index])
        return _first_difference(f"{name}[{index}]", found[index], wanted[index])
    return name, found, wanted


class Journal:
    """A manifest in the making; holds the lock of its folder for as long as it is open.

    Use as a context manager. `done` holds the files that earlier runs finished and that still have their size; `add`
    enters one more; `finish` turns the journal into the manifest. Left by an exception, it keeps what is done, for the
    next run, and removes unfinished files.
    """

    def __init__(self, folder: Path, kind: str, made_with: dict[str, Any]) -> None:
        self.folder = folder
        self.done: dict[str, dict[str, Any]] = {}
        self._path = folder / (MANIFEST + JOURNAL_SUFFIX)
        self._header = {"schema": SCHEMA, "kind": kind, "made_with": json.loads(json.dumps(made_with))}

    def __enter__(self) -> "Journal":
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("a+b", buffering=0)  # so that closing it has nothing to write
        except OSError as error:
            raise explain_write_error(self._path, error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise BertprepError(f"{self.folder}: another run is writing here; wait for it, or stop it first") from None
        try:
            self._load()
        except BaseException:
            if not self._path.stat().st_size:  # there was none; a refused run leaves none
                self._path.unlink()
            self._file.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        remove_leftovers(self.folder)
        self._file.close()

    def _load(self) -> None:
        remove_leftovers(self.folder)
        recorded: dict[str, dict[str, Any]] = {}
        if finished := read_manifest(self.folder):
            self._check_same({"schema": SCHEMA, "kind": finished.kind, "made_with": finished.made_with})
            recorded.update(finished.files)
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1  # what follows the last newline was torn off by a kill
        lines = content[:whole].splitlines()
        if len(lines) == 1 and not recorded:  # a run that made nothing binds nobody to its settings
            whole, lines = 0, []
        if lines:
            self._check_same(json.loads(lines[0]))
            for line in lines[1:]:
                entry = json.loads(line)
                recorded[entry["name"]] = entry["facts"]
        for name, facts in recorded.items():
            path = self.folder / name
            if path.is_file() and path.stat().st_size == facts["bytes"]:
                self.done[name] = facts
        self._file.truncate(whole)
        if not lines:
            self._append(self._header, *({"name": name, "facts": facts} for name, facts in self.done.items()))

    def _check_same(self, header: dict[str, Any]) -> None:
        """Raise where the folder was made with other settings, naming the first that differs."""
        if header == self._header:
            return
        name, found, wanted = _first_difference("", header, self._header)
        raise BertprepError(
            f"{self.folder}: was made with {name} {json.dumps(found)}, asked for is {json.dumps(wanted)}; "
            "choose another folder or name, or remove this one"
        )

    def _append(self, *entries: dict[str, Any]) -> None:
        data = memoryview(b"".join(json.dumps(entry).encode() + b"\n" for entry in entries))
        try:
            while data:  # a write may take a part only, as the last bytes of a full disk
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise explain_write_error(self._path, error) from error

    def add(self, name: str, facts: dict[str, Any]) -> None:
        """Enter a finished file; `facts` holds at least `bytes` and `sha256`."""
        self.done[name] = facts
        self._append({"name": name, "facts": facts})

    def finish(self, names: Iterable[str], versions: dict[str, str], counts: dict[str, int] | None = None) -> Manifest:
        """Write the manifest of the files `names`, all of them done, and drop the journal."""
        manifest = Manifest(
            self._header["kind"], self._header["made_with"], {name: self.done[name] for name in names}, versions, counts or {}
        )
        with atomic_file(self.folder / MANIFEST) as file:
            file.write((json.dumps(manifest.as_json(), indent=1) + "\n").encode())
        self._path.unlink()
        return manifest
