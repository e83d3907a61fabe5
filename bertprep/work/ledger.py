"""The ledger of a folder: who has finished what, for any number of runs on any number of machines, without a lock or a leader.

    FOLDER/.ledger/settings.json     binds the folder to its settings; whoever is first creates it
    FOLDER/.ledger/NAME.json         the completion marker of FOLDER/NAME: its manifest entry, and the digest of the settings
    FOLDER/manifest.json             the ledger, closed; .ledger is then redundant and removed

A file is finished if it has a marker, which never changes, or an entry in the manifest, and its size. Reading the markers first
and then the manifest is right at any moment. Markers are not synced, so they are checked when read. Each run holds a shared
lock on settings.json, but only to show that it is alive.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from bertprep.errors import BertprepError
from bertprep.files.atomic import create_file, remove_leftovers, sync_folder, write_if_different
from bertprep.files.checksums import BLAKE3, digest, show_checksum
from bertprep.files.lock import hold
from bertprep.files.paths import checksum_of, is_object, remove_all, sizes_of
from bertprep.untrusted import OBJECT, SHA256_DIGITS, TEXT, check_values, parse_json, read_bounded
from bertprep.work.format import FORMAT, check_format
from bertprep.work.layout import LEDGER, LISTING, MANIFEST, MAPPED
from bertprep.work.manifest import (
    DECIDING,
    KINDS,
    Manifest,
    check_entry,
    check_header,
    is_in_place,
    read_manifest,
    write_manifest,
)
from bertprep.work.settings import (
    SETTINGS_FILE,
    check_same,
    command_for,
    corrupt,
    make_header,
    read_settings,
)

Entry = dict[str, Any]
"""The manifest entry of a file: `bytes`, `blake3`, and the counts of its kind."""
_SUFFIX = ".json"
_AT_ONCE = 32  # markers that are read from a store at a time
_MAX_BYTES = 1 << 20  # the limit on a marker
_RULES = {"settings": SHA256_DIGITS, "name": TEXT, "entry": OBJECT}


_MAX_COPY_BYTES = 1 << 30


class Index(Protocol):
    """Files that list the finished ones for another library, such as `datasets`; the manifest does not list them."""

    @property
    def paths(self) -> Collection[Path]: ...

    def write(self, files: Mapping[str, Entry]) -> None:
        """Write the index files that are missing or differ."""


@dataclass(eq=False, kw_only=True)
class Ledger:
    """The record of which files of a folder are finished.

    The folder is bound to `made_with`, and to `versions` until it is finished. `counts` are further numbers for the manifest,
    `copies` are files for next to it, each the path of a file to copy or the content, and `advice` ends the error about other
    settings. A pickled ledger has neither entries nor copies.
    """

    folder: Path
    kind: str
    made_with: dict[str, Any]
    versions: dict[str, str]
    counts: dict[str, int] = field(default_factory=dict)
    copies: Mapping[str, Path | bytes] = field(default_factory=dict)
    index: Index | None = None
    advice: str = "choose another --workdir or --corpus"

    is_part: bool = False  # of a folder that other parts (--part) are making too, so that no error advises to remove it
    command: str = ""  # that finishes an unfinished folder, where it is not the one that usually makes such files

    _read: dict[str, Entry] = field(default_factory=dict, init=False, repr=False)
    """File name -> entry of the markers that were read; a marker never changes."""
    _is_first: bool = field(default=False, init=False, repr=False)
    """Whether this run has bound the folder to its settings."""
    _held: int | None = field(default=None, init=False, repr=False)
    """The descriptor whose lock shows that this run is alive."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_read": {}, "copies": {}, "index": None, "_held": None}

    @cached_property
    def header(self) -> dict[str, Any]:
        return make_header(self.kind, self.made_with)

    @cached_property
    def digest(self) -> str:
        """One checksum of everything that identifies the files."""
        return hashlib.sha256(json.dumps(self.header, sort_keys=True).encode()).hexdigest()

    def open(self, names: Collection[str], *, binds: bool = True) -> dict[str, Entry]:
        """Bind the folder to the settings; return the entries of those of the files that are finished.

        Raises `BertprepError` if the folder has other settings, or a file of one of these names that no run made.
        """
        if link := self._find_link(names):
            raise BertprepError(f"{link}: is a link, through which nothing is written; link the whole folder instead")
        try:
            check_header(self.header)
        except ValueError as error:  # such as a tag with a lone surrogate, which no file can hold
            raise BertprepError(f"{self.folder}: its {MANIFEST} cannot have this setting: {error}") from error
        self._read_settings()  # refuses other settings before a marker made with them is read
        sizes, entries, manifest = self._look(names)
        if manifest is None:
            self._bind(names, entries, sizes, binds=binds)
            if self._read_manifest():  # another run has closed the folder in the meantime
                return self.open(names, binds=binds)
        elif others := sorted(set(names) - manifest.files.keys()):
            raise BertprepError(f"{self.folder}: its {MANIFEST} does not list {others[0]}; {self.advice}")
        self._remove_leftovers(names)
        finished = {name: entry for name, entry in entries.items() if sizes.get(name) == entry["bytes"]}
        if manifest:
            for name in entries.keys() - finished:  # it must be made again with the bytes that the manifest lists
                create_file(self._path(name + _SUFFIX), self._marker(name, entries[name]), syncs=False)
        return finished

    def _bind(self, names: Collection[str], entries: Mapping[str, Entry], sizes: Mapping[str, int], *, binds: bool) -> None:
        """Create the settings file, unless another run has. Raises `BertprepError` for a stranger's file or other versions."""
        settings = self._read_settings()
        if settings is None and not entries and not self._read_manifest():
            self._check_free(names, sizes)
        if settings is None and binds:
            content = {**self.header, "versions": self.versions, "command": self.command or command_for(self.header)}
            self._is_first = create_file(self._path(SETTINGS_FILE), (json.dumps(content, indent=1) + "\n").encode())
            settings = self._read_settings()
        self._take_versions(settings)
        self._release()
        self._held = hold(self._path(SETTINGS_FILE))

    def is_finished(self, name: str) -> bool:
        entry = self._read_marker(name)
        return entry is not None and sizes_of(self.folder, [name]).get(name) == entry["bytes"]

    def finish(self, name: str, entry: Entry) -> None:
        """Create the marker of a finished file. Raises `BertprepError` if another run made the file with other bytes."""
        if not create_file(self._path(name + _SUFFIX), self._marker(name, entry), syncs=False):
            found, expected = entry[BLAKE3], (self._read_marker(name) or entry)[BLAKE3]
            if found != expected:
                or_remove = "" if self.is_part else f", or remove {self.folder}"
                (self.folder / name).unlink(missing_ok=True)
                raise BertprepError(
                    f"{self.folder / name}: has {show_checksum(found)}, but another run made it with "
                    f"{show_checksum(expected)}, so the text or a library differs; make all files with the same text and "
                    f"versions{or_remove}"
                )

    def add(self, name: str, entry: Entry) -> None:
        self._read[name] = entry

    def close(self, names: Collection[str]) -> tuple[Manifest, list[str]]:
        """Write the manifest if all of the files are finished. Return it, and the files that are missing."""
        self._release()
        sizes, entries, manifest = self._look(names)
        files = {name: entries[name] for name in names if name in entries and sizes.get(name) == entries[name]["bytes"]}
        if len(files) < len(names):
            return self._manifest_of(files), [name for name in names if name not in files]
        for name, source in self.copies.items():
            write_if_different(self.folder / name, source if isinstance(source, bytes) else _read_copy(source))
        if self.index:
            self.index.write(files)
        if manifest is None:
            manifest = self._manifest_of(files)
            for folder in {(self.folder / name).parent for name in names} if not is_object(self.folder) else ():
                sync_folder(folder)  # a power failure must not lose a file that the manifest lists
            write_manifest(self.folder, manifest)
        self._remove_leftovers(names)  # from a worker that outlived its killed run
        self._sweep()
        return manifest, []

    def abandon(self, names: Collection[str]) -> None:
        """Remove what a failed run left. If it finished nothing, remove its settings too, so that other ones are accepted."""
        self._release()
        if not self._find_link(names):
            self._remove_leftovers(names)
        if self._is_first and not self._list_markers() and not sizes_of(self.folder, names):
            self._sweep()

    def _manifest_of(self, files: dict[str, Entry]) -> Manifest:
        return Manifest(self.kind, self.header["made_with"], files, self.versions, self.counts)

    def _look(self, names: Collection[str]) -> tuple[dict[str, int], dict[str, Entry], Manifest | None]:
        marked = self._list_markers()
        entries = self._read_markers([name for name in names if name in marked])
        if manifest := self._read_manifest():
            for name, entry in entries.items():
                if name in manifest.files and entry[BLAKE3] != manifest.files[name][BLAKE3]:
                    remove_all(self.folder, [name, f"{LEDGER}/{name}{_SUFFIX}"])
                    raise BertprepError(
                        f"{self.folder / name}: differs from {MANIFEST}, and was removed; run the command again to remake it"
                    )
            entries = {name: manifest.files[name] for name in names if name in manifest.files}
        return sizes_of(self.folder, [*names, *self._next_to_manifest]), entries, manifest

    @property
    def _next_to_manifest(self) -> list[str]:
        paths = self.index.paths if self.index else ()
        return [*self.copies, *(path.relative_to(self.folder).as_posix() for path in paths)]

    def _check_free(self, names: Collection[str], sizes: Mapping[str, int]) -> None:
        for name in (name for name in (*names, *self._next_to_manifest) if name in sizes):
            path, source = self.folder / name, self.copies.get(name)
            if source is None:
                raise BertprepError(f"{path}: exists and is in no manifest; choose another folder, or remove this file")
            if checksum_of(path) != (digest(source) if isinstance(source, bytes) else checksum_of(source)):
                what = "differs from the one for this folder" if isinstance(source, bytes) else f"is not a copy of {source}"
                raise BertprepError(f"{path}: exists and {what}; choose another folder, or move it away")

    def _find_link(self, names: Collection[str]) -> Path | None:
        """Return a folder inside the data set that is a link and would be written to, if there is one."""
        splits = {name.rpartition("/")[0] for name in names} if not is_object(self.folder) else set()
        for below in [part for split in splits for part in (split, f"{LEDGER}/{split}")]:
            if (self.folder / below).resolve() != self.folder.resolve() / below:
                return self.folder / below
        return None

    def _read_manifest(self) -> Manifest | None:
        if manifest := read_manifest(self.folder):
            check_same(self.folder, make_header(manifest.kind, manifest.made_with), self.header, self.advice)
        return manifest

    def _read_settings(self) -> dict[str, Any] | None:
        if settings := read_settings(self.folder):
            header = {name: settings[name] for name in self.header}
            check_same(self.folder, header, self.header, self.advice, is_part=self.is_part)
        return settings

    def _take_versions(self, settings: dict[str, Any] | None) -> None:
        versions = settings["versions"] if settings else self.versions
        for package in DECIDING:
            if versions.get(package) != self.versions.get(package):
                raise BertprepError(
                    f"{self.folder}: was started with {package} {str(versions.get(package))[:100]}, but this run has {package} "
                    f"{self.versions.get(package)}, which may write other bytes; install the first version to finish the "
                    f"folder{'' if self.is_part else ', or remove it'}"
                )
        self.versions = versions

    def _path(self, name: str) -> Path:
        return self.folder / LEDGER / name

    def _marker(self, name: str, entry: Entry) -> bytes:
        return json.dumps({"format": FORMAT, "settings": self.digest, "name": name, "entry": entry}).encode()

    def _list_markers(self) -> set[str]:
        if is_object(self.folder):
            found = [path.relative_to(self._path("")).as_posix() for path in self._path("").rglob("*" + _SUFFIX)]
        else:
            start = len(str(self._path(""))) + 1
            found = [f"{folder}/{name}"[start:] for folder, _, inside in os.walk(self._path("")) for name in inside]
        return {name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX) and name != SETTINGS_FILE}

    def _read_markers(self, names: Iterable[str]) -> dict[str, Entry]:
        new = [name for name in names if name not in self._read]
        if is_object(self.folder) and new:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(_AT_ONCE) as readers:
                read = list(readers.map(self._read_marker, new))
        else:
            read = [self._read_marker(name) for name in new]
        self._read.update((name, entry) for name, entry in zip(new, read, strict=True) if entry)
        return {name: self._read[name] for name in names if name in self._read}

    def _read_marker(self, name: str) -> Entry | None:
        """Return the checked entry in the marker of a file, or None. An empty marker, left by a power failure, is removed."""
        path = self._path(name + _SUFFIX)
        try:
            if not (data := read_bounded(path, _MAX_BYTES)).strip(b"\0"):
                path.unlink(missing_ok=True)
                return None
            content = parse_json(data)
            check_format(path, content, f"remove {self.folder}, and run the command again")
            marker = check_values(content, _RULES, needed=tuple(_RULES))
            if marker["name"] != name:
                raise ValueError(f"it belongs to the file {json.dumps(marker['name'])[:200]}")
            check_entry(name, marker["entry"], KINDS[self.kind])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise corrupt(path, error) from error
        if marker["settings"] != self.digest:
            raise BertprepError(f"{path}: its file was made with other settings; {self.advice}, or remove this folder")
        entry: Entry = marker["entry"]
        return entry

    def _release(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _remove_leftovers(self, names: Collection[str]) -> None:
        for split in {LEDGER, *(name.rpartition("/")[0] for name in names)}:
            remove_leftovers(self.folder / split)

    def _sweep(self) -> None:
        if is_object(self.folder):
            remove_all(self.folder, [path.relative_to(self.folder).as_posix() for path in self._path("").rglob("*.json")])
        else:
            shutil.rmtree(self._path(""), ignore_errors=True)
        self._is_first = False


def _read_copy(path: Path) -> bytes:
    """Return the bytes of a file that is copied next to a data set, such as a vocabulary."""
    try:
        return read_bounded(path, _MAX_COPY_BYTES)
    except ValueError as error:
        raise BertprepError(
            f"{path}: cannot be copied next to the files that were made: {error}; copy the right file over it"
        ) from error


def is_started(*folders: Path) -> bool:
    """Return whether an earlier run has started or finished files in one of these folders."""
    return any((folder / name).exists() for folder in folders for name in (MANIFEST, LEDGER, MAPPED))


def is_unfinished(folder: Path) -> bool:
    """Return whether the run or download that makes a folder was stopped or is at work."""
    if (folder / LEDGER).is_dir():
        manifest = read_manifest(folder)
        return not (manifest and is_in_place(folder, manifest.files))
    return (folder / LISTING).exists() and not (folder / MANIFEST).exists() and not _is_downloaded(folder)


def _is_downloaded(folder: Path) -> bool:
    """Return whether a folder has all files that the listing of its download names."""
    try:
        listed = parse_json(read_bounded(folder / LISTING))["files"]
        expected = {file["name"]: file.get("size_bytes") for file in listed}
        found = sizes_of(folder, expected)
    except (OSError, ValueError, TypeError, LookupError, AttributeError):  # the download itself reports a corrupt listing
        return False
    return all(name in found and size_bytes in (None, found[name]) for name, size_bytes in expected.items())
