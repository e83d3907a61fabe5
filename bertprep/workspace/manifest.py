"""What was made from what with which settings: `manifest.json` beside the files, and the journal that a run can resume from.

While a run works, each finished file is one line in `manifest.json.journal`, synced to the disk; when all are there, the
journal becomes `manifest.json`. A killed run finds its finished files in the journal. The first line of the journal, like
the manifest, carries the settings, so that files of two settings never mix. Neither holds a time or a machine's name: made
again with the same versions, a manifest is the same.

Both may come from anywhere, so they are checked when they are read: names are places in the folder, known values are of their
kind, and whoever holds a `Manifest` need not ask again. What is not known is kept.
"""

import hashlib
import json
import os
import platform
import signal
import stat
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bertprep
from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file, explain_write_error, is_still, remove_leftovers
from bertprep.files.lock import open_locked
from bertprep.untrusted import MOST_BYTES, OBJECT, TEXT, check_splits_inside, check_values, parse_json, read_bounded
from bertprep.workspace.layout import MANIFEST, by_number
from bertprep.workspace.manifest_schema import KINDS, SCHEMA, check_entry, check_header, check_manifest

JOURNAL_SUFFIX = ".journal"
FAIL_AFTER = "BERTPREP_FAIL_AFTER"
"""For tests, an environment variable: "3 SIGKILL" ends the process right after it has entered its third file in a journal."""


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
            "files": dict(sorted(self.files.items(), key=lambda item: by_number(item[0]))),
        }


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of `folder`, or None where there is none (or no finished one)."""
    path = folder / MANIFEST
    try:
        content = check_manifest(parse_json(read_bounded(path)))
        return Manifest(content["kind"], content["made_with"], content["files"], content["versions"], content.get("counts", {}))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BertprepError(
            f"{path}: is not a manifest of bertprep ({why}); put the right one there, or remove the folder and make it again"
        ) from error


def read_finished(folder: Path, kind: str, made_with: dict[str, Any], names: Collection[str] = ()) -> Manifest | None:
    """The manifest of `folder` if all is there: made of the same with the same, every file in place and of its size.

    It lists the files `names`, and may list others.
    """
    manifest = read_manifest(folder)
    if (
        (folder / (MANIFEST + JOURNAL_SUFFIX)).exists()
        or not manifest
        or (manifest.kind, manifest.made_with) != (kind, json.loads(json.dumps(made_with)))
        or not manifest.files.keys() >= set(names)
    ):
        return None
    return manifest if is_in_place(folder, manifest.files) else None


def is_in_place(folder: Path, files: dict[str, dict[str, Any]]) -> bool:
    """Whether every file that a manifest lists is there and of its size."""
    paths = ((folder / name, facts["bytes"]) for name, facts in files.items())
    return all(path.is_file() and path.stat().st_size == size for path, size in paths)


def sha256_of_vocabulary(manifest: Manifest) -> str | None:
    """The sum of the vocabulary that records were made with, where the manifest tells."""
    sha256: str | None = manifest.made_with.get("vocabulary", {}).get("sha256")
    return sha256


def tokens_of_vocabulary(manifest: Manifest) -> int | None:
    """How many tokens the vocabulary that records were made with has, where the manifest tells."""
    tokens: int | None = manifest.made_with.get("vocabulary", {}).get("tokens")
    return tokens


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


def _shown(value: Any) -> str:
    """A setting in an error: as JSON, and of a long one the beginning."""
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


class Journal:
    """A manifest in the making; holds the lock of its folder for as long as it is open.

    Use as a context manager. `done` holds the files that earlier runs finished and that still have their size, `listed`
    those that the manifest before listed; `add` enters one more; `finish` turns the journal into the manifest. Left by an
    exception, it keeps what is done, for the next run, and removes unfinished files: in `owned`, the folders in `folder` that
    only such runs write to, by default all of it. Where another run has the folder, entering raises `BertprepError`; with
    `wait` it waits, and `found` is the manifest where that run, or one before, has made all: then nothing need be done.
    """

    def __init__(
        self, folder: Path, kind: str, made_with: dict[str, Any], *, owned: Collection[str] = (".",), wait: bool = False
    ) -> None:
        self.folder = folder
        self.done: dict[str, dict[str, Any]] = {}
        self.listed: dict[str, dict[str, Any]] = {}
        self.found: Manifest | None = None
        self._added = 0
        self._owned = [folder / name for name in owned]
        self._wait = wait
        self._path = folder / (MANIFEST + JOURNAL_SUFFIX)
        self._header = {"schema": SCHEMA, "kind": kind, "made_with": json.loads(json.dumps(made_with))}

    def __enter__(self) -> "Journal":
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            check_splits_inside(self.folder)
            # without a buffer, so that closing it has nothing to write
            self._file = os.fdopen(open_locked(self._path, wait=self._wait), "a+b", buffering=0)
        except ValueError as error:
            raise BertprepError(f"{self.folder}: {error}") from error
        except OSError as error:
            raise explain_write_error(self._path, error) from error
        try:
            self._load()
        except BaseException:
            if not self._path.stat().st_size:  # there was none; a refused run leaves none
                self._path.unlink()
            self._file.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._remove_leftovers()
        if self.found and is_still(self._path, self._file.fileno()):  # nothing was to be done, so there is nothing to resume
            self._path.unlink()
        self._file.close()

    def _remove_leftovers(self) -> None:
        for folder in self._owned:
            remove_leftovers(folder)

    def _load(self) -> None:
        self._remove_leftovers()
        recorded: dict[str, dict[str, Any]] = {}
        if finished := read_manifest(self.folder):
            self._check_same({"schema": SCHEMA, "kind": finished.kind, "made_with": finished.made_with})
            self.listed = finished.files
            recorded.update(finished.files)
        content = self._read()
        whole = content.rfind(b"\n") + 1  # what follows the last newline was torn off by a kill
        lines = content[:whole].splitlines()
        if len(lines) == 1 and not recorded:  # a run that made nothing binds nobody to its settings
            whole, lines = 0, []
        if lines:
            recorded.update(self._read_entries(lines))
        for name, facts in recorded.items():
            path = self.folder / name
            if path.is_file() and path.stat().st_size == facts["bytes"]:
                self.done[name] = facts
        self._file.truncate(whole)
        if finished and not lines and len(self.done) == len(finished.files):
            self.found = finished
        elif not lines:
            self._begin()

    def _begin(self) -> None:
        self._append(self._header, *({"name": name, "facts": facts} for name, facts in self.done.items()))

    def _read(self) -> bytes:
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            raise self._damaged(f"it is no file, or has more than {MOST_BYTES:,} bytes")
        self._file.seek(0)
        content: bytes = self._file.read()
        return content

    def _read_entries(self, lines: list[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The files that the lines of a journal name, and their facts; raises where it is of other settings, or damaged."""
        kind = KINDS[self._header["kind"]]
        for number, line in enumerate(lines, 1):
            try:
                content = parse_json(line)
                if number == 1:
                    check_header(content)
                    self._check_same(content)
                    continue
                entry = check_values(content, {"name": TEXT, "facts": OBJECT}, needed=("name", "facts"))
                check_entry(entry["name"], entry["facts"], kind)
            except ValueError as error:
                raise self._damaged(f"line {number}: {error}") from error
            yield entry["name"], entry["facts"]

    def _damaged(self, why: str) -> BertprepError:
        return BertprepError(f"{self._path}: is damaged ({why}); remove it, and what it names is made again")

    def _check_same(self, header: dict[str, Any]) -> None:
        """Raise where the folder was made with other settings, naming the first that differs."""
        if header == self._header:
            return
        name, found, wanted = _first_difference("", header, self._header)
        made = f"without {name}" if found is None else f"with {name} {_shown(found)}"
        asked = "none" if wanted is None else _shown(wanted)
        raise BertprepError(
            f"{self.folder}: was made {made}, asked for is {asked}; "
            "choose another folder (--workdir, --output) or name (--corpus), or remove this one"
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
        if self.found:  # all there was, and more was asked for
            self.found = None
            self._begin()
        self.done[name] = facts
        self._append({"name": name, "facts": facts})
        self._added += 1
        self._fail()

    def _fail(self) -> None:
        count, _, name = os.environ.get(FAIL_AFTER, "").partition(" ")
        if count == str(self._added):
            os.kill(os.getpid(), signal.Signals[name])

    def finish(
        self,
        names: Iterable[str],
        versions: dict[str, str],
        counts: dict[str, int] | None = None,
        *,
        keep: Iterable[str] = (),
        resumable: Collection[str] = (),
    ) -> Manifest:
        """Write the manifest of the files `names`, all of them done, and of those to `keep` as they were listed before.

        The journal is dropped, unless there are `resumable` files: finished ones of a set that another run has begun.
        """
        files = {**{name: self.done[name] for name in names}, **{name: self.listed[name] for name in keep}}
        manifest = Manifest(self._header["kind"], self._header["made_with"], files, versions, counts or {})
        with atomic_file(self.folder / MANIFEST) as file:
            file.write((json.dumps(manifest.as_json(), indent=1) + "\n").encode())
        if not resumable:
            self._path.unlink()
        return manifest
