"""Receipts: how many runs finish one folder together, without a lock, a leader or a rename.

Each finished file has a receipt, `FOLDER/.receipts/NAME.json`: its facts, the settings' digest and its writer's versions. It is
created only once: a second writer of a file finds the first one's, and equal sums are success. `settings.json` there, created
by whoever is first, binds the folder to its settings. Whoever finds the receipts of all files writes the manifest from them,
the same bytes as one machine's, and then removes the receipts. So a reader or another run that looks at the receipts first and
at the manifest then is right at any moment, wherever one was killed; and a run is resumed by a listing.

It costs a small file, synced, for each large one, and to finish, the reading of all; many are written at a time. What is local
takes `Journal`, unless it is asked for a part.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertprep.errors import BertprepError
from bertprep.files import object_store
from bertprep.files.atomic import atomic_file, create_file, explain_write_error, remove_leftovers
from bertprep.files.lock import locked
from bertprep.files.object_store import AnotherObjectError
from bertprep.files.places import ObjectPath, is_object, remove_all, sizes_of
from bertprep.progress import Reporter
from bertprep.untrusted import (
    OBJECT,
    POSITIVE,
    SHA256,
    TEXT,
    check_values,
    parse_json,
    read_bounded,
)
from bertprep.workspace.journal import Journal, check_same, fail_after, make_header
from bertprep.workspace.layout import MANIFEST, RECEIPTS, by_number, check_splits_inside
from bertprep.workspace.manifest import (
    JOURNAL_SUFFIX,
    KINDS,
    SCHEMA,
    Manifest,
    check_entry,
    check_header,
    check_versions,
    read_finished,
    read_manifest,
    versions_for,
)
from bertprep.workspace.parts import FINISH, Part

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_SETTINGS, _SUFFIX = "settings.json", ".json"
_AT_ONCE = 32  # receipts
_MOST_BYTES = 1 << 20  # of a receipt
_MOST_MERGES = 100
_MOST_NAMED = 10
_RULES = {"schema": POSITIVE, "settings": SHA256, "name": TEXT, "facts": OBJECT, "versions": OBJECT}


def open_journal(
    folder: Path,
    kind: str,
    made_with: dict[str, Any],
    *,
    part: Part | None = None,
    owned: Collection[str] = (".",),
    wait: bool = False,
    advice: str = "choose another --workdir or --corpus",
) -> Journal | Receipts:
    """What notes the finished files of a folder: a `Journal`, or for stores and parts `Receipts`."""
    if part or is_object(folder) or (folder / RECEIPTS).is_dir():
        return Receipts(folder, kind, made_with, part=part, owned=owned, advice=advice)
    return Journal(folder, kind, made_with, owned=owned, wait=wait, advice=advice)


class Receipts:
    """The same as a `Journal`, for any number of runs at the same time, on this and other machines.

    `done` has only the files that `look` was asked about, or that this run has finished. `missing` looks again, and `finish`
    may follow where it finds nothing missing.
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        made_with: dict[str, Any],
        *,
        part: Part | None = None,
        owned: Collection[str] = (".",),
        advice: str = "choose another --workdir or --corpus",
    ) -> None:
        self.folder = folder
        self.done: dict[str, dict[str, Any]] = {}
        self.listed: dict[str, dict[str, Any]] = {}
        self.found: Manifest | None = None
        self._writers: ThreadPoolExecutor | None = None
        self._under_way: deque[Future[tuple[str, dict[str, Any]]]] = deque()
        self._added, self._only_finishes = 0, part == FINISH
        self._owned, self._advice = [folder / name for name in owned], advice
        self._place = folder / RECEIPTS
        self.header = make_header(kind, made_with)
        self._digest = _digest_of(self.header)

    def __enter__(self) -> Receipts:
        try:
            check_splits_inside(self.folder)
        except ValueError as error:
            raise BertprepError(f"{self.folder}: {error}") from error
        journal = self.folder / (MANIFEST + JOURNAL_SUFFIX)
        if journal.exists():
            raise BertprepError(
                f"{journal}: a run without --part has begun here; let that finish, running the same command without --part, "
                "or remove this file, and what it lists is made again"
            )
        there = _listing(self._place)
        if (settings := self._read_settings()) is not None:
            check_same(self.folder, settings, self.header, self._advice)
        finished = self._read_manifest()
        if finished and there <= finished.files.keys() and self._in_place(finished.files):
            self.found = finished
            sweep(self.folder, finished, self._owned)
        elif not self._only_finishes:
            self._bind()
        return self

    def __exit__(self, _kind: object, error: object, _traceback: object) -> None:
        """What is unfinished has no name yet; the run that finishes removes it."""
        if self._writers:
            self._writers.shutdown()
            if error is None:
                self._wait()
            self._under_way.clear()
            self._writers = None
        if isinstance(error, AnotherObjectError) and error.path.is_relative_to(self.folder):
            name = error.path.relative_to(self.folder).as_posix()
            if (theirs := self._read(name)) and theirs["facts"]["sha256"] == error.there:
                raise self._explain(name, theirs, error.sha256)

    def _bind(self) -> None:
        """Bind the folder to the settings, unless it is."""
        path = self._place / _SETTINGS
        if path.exists() or create_file(path, (json.dumps(self.header, indent=1) + "\n").encode()):
            return
        if (settings := self._read_settings()) is not None:
            check_same(self.folder, settings, self.header, self._advice)

    def _read_settings(self) -> dict[str, Any] | None:
        path = self._place / _SETTINGS
        try:
            settings: dict[str, Any] = parse_json(read_bounded(path))
            check_header(settings)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from error
        return settings

    def _read_manifest(self) -> Manifest | None:
        if finished := read_manifest(self.folder):
            check_same(self.folder, make_header(finished.kind, finished.made_with), self.header, self._advice)
            self.listed = finished.files
        return finished

    def _in_place(self, files: dict[str, dict[str, Any]]) -> bool:
        sizes = sizes_of(self.folder, files)
        return all(sizes.get(name) == facts["bytes"] for name, facts in files.items())

    def look(self, names: Collection[str] | None = None) -> None:
        """Find out which of these files, by default all, are finished; those are in `done`."""
        there = _listing(self._place)
        wanted = {*there, *self.listed} if names is None else set(names)
        found = self._read_all(there & wanted)
        self._read_manifest()  # where the receipts have been removed in the meantime
        found.update({name: facts for name, facts in self.listed.items() if name in wanted and name not in found})
        sizes = sizes_of(self.folder, found)
        self.done.update({name: facts for name, facts in found.items() if sizes.get(name) == facts["bytes"]})

    def noted(self) -> set[str]:
        """The names of all files that have a receipt, unchecked."""
        return _listing(self._place)

    def is_noted(self, name: str) -> bool:
        """Whether a file has a receipt."""
        return self._path(name).exists()

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those of these files that nobody has finished; if there are none, `done` has all."""
        self._wait()
        names = list(names)
        there = _listing(self._place)
        self._read_manifest()
        if absent := [name for name in names if name not in there and name not in self.listed]:
            return absent
        for name in self.done.keys() & set(names):
            del self.done[name]  # whoever came first has noted it
        self.look(names)
        return [name for name in names if name not in self.done]

    def add(self, name: str, facts: dict[str, Any]) -> None:
        """Note a finished file; `facts` holds at least `bytes` and `sha256`.

        Raises `BertprepError` where another run has finished it with other bytes.
        """
        self.add_all([(name, facts)])

    def add_soon(self, name: str, facts: dict[str, Any]) -> None:
        """The same, in a store without waiting for its answer; what fails is raised by a later call.

        `missing` waits for all; so does leaving, where what fails after another error is not told.
        """
        if not is_object(self.folder):
            self.add(name, facts)
            return
        if self._writers is None:
            from concurrent.futures import ThreadPoolExecutor

            self._writers = ThreadPoolExecutor(_AT_ONCE)
        self._under_way.append(self._writers.submit(self._note, (name, facts)))
        while self._under_way and (len(self._under_way) > 2 * _AT_ONCE or self._under_way[0].done()):
            self._count([self._under_way.popleft().result()])

    def _wait(self) -> None:
        while self._under_way:
            self._count([self._under_way.popleft().result()])

    def add_all(self, entries: Collection[tuple[str, dict[str, Any]]]) -> None:
        """The same for some files, many at a time: the disk or the store takes its time for each."""
        if len(entries) == 1:
            self._count(map(self._note, entries))
        elif entries:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(_AT_ONCE) as writers:
                self._count(writers.map(self._note, entries))

    def _count(self, noted: Iterable[tuple[str, dict[str, Any]]]) -> None:
        for name, facts in noted:
            if self.found:  # everything existed, and more is added
                self.found = None
                self._bind()
            self.done[name] = facts
            self._added += 1
            fail_after(self._added)

    def _note(self, entry: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        """Write a receipt; returns the entry."""
        name, facts = entry
        versions = versions_for(self.header["kind"], name)
        receipt = {"schema": SCHEMA, "settings": self._digest, "name": name, "facts": facts, "versions": versions}
        path = self._path(name)
        if not is_object(path) and path.parent.resolve() != self.folder.resolve() / RECEIPTS / Path(name).parent:
            raise BertprepError(f"{path.parent}: is a link, and nothing is written there; remove it")
        if not create_file(path, (json.dumps(receipt, indent=1) + "\n").encode()):
            self._compare(name, facts["sha256"])
        return entry

    def _compare(self, name: str, sha256: str) -> None:
        theirs = self._read(name)
        if theirs is None or theirs["facts"]["sha256"] == sha256:
            return  # there is none where the manifest is there meanwhile
        path = self.folder / name
        if not is_object(path):
            path.unlink(missing_ok=True)  # else it would lie there under the other sum
        raise self._explain(name, theirs, sha256)

    def _explain(self, name: str, theirs: dict[str, Any], sha256: str) -> BertprepError:
        """The error for a file that two runs make differently."""
        first, second = (
            f"sha256 {sum_[:16]}... by {', '.join(f'{package} {version}' for package, version in versions.items())}"
            for sum_, versions in (
                (theirs["facts"]["sha256"], theirs["versions"]),
                (sha256, versions_for(self.header["kind"], name)),
            )
        )
        return BertprepError(
            f"{self.folder / name}: another run has made it with {first}; this one with {second}; make all parts with the same "
            f"text and versions, and where the other was wrong, remove {self._path(name)} and the file first"
        )

    def _path(self, name: str) -> Path:
        return self._place / (name + _SUFFIX)

    def _read_all(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """The facts of the files whose receipts are still there; raises if one was made with another version."""
        if is_object(self._place):
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(_AT_ONCE) as readers:
                found = dict(zip(names, readers.map(self._read, names), strict=True))
        else:
            found = {name: self._read(name) for name in names}
        for name in sorted(found, key=by_number):
            if receipt := found[name]:
                check_versions(self.folder, self.header["kind"], name, receipt["versions"])
        return {name: receipt["facts"] for name, receipt in found.items() if receipt}

    def _read(self, name: str) -> dict[str, Any] | None:
        """A receipt, checked; None where there is none."""
        path = self._path(name)
        try:
            receipt = check_values(parse_json(read_bounded(path, _MOST_BYTES)), _RULES, needed=tuple(_RULES))
            if receipt["schema"] > SCHEMA:
                raise ValueError(f"it has schema {receipt['schema']}, expected {SCHEMA}: a newer bertprep made it")
            check_values(receipt["versions"], dict.fromkeys(receipt["versions"], TEXT), place="versions.")
            if receipt["name"] != name:
                raise ValueError(f"it is of the file {json.dumps(receipt['name'])[:200]}")
            check_entry(name, receipt["facts"], KINDS[self.header["kind"]])
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from error
        if receipt["settings"] != self._digest:
            raise BertprepError(f"{path}: is of a file made with other settings; {self._advice}, or remove this folder")
        return receipt

    def finish(
        self,
        names: Iterable[str],
        versions: dict[str, str],
        counts: dict[str, int] | None = None,
        *,
        keep: Iterable[str] = (),
        resumable: Collection[str] = (),  # noqa: ARG002 - their receipts stay
    ) -> Manifest:
        """Write the manifest of the finished files `names`, and of those to `keep` from the previous one; remove the receipts.

        Another run may do the same at the same time.
        """
        files = {**{name: self.done[name] for name in names}, **{name: self.listed[name] for name in keep}}
        manifest = Manifest(self.header["kind"], self.header["made_with"], files, versions, counts or {})
        path = self.folder / MANIFEST
        if not create_file(path, manifest.as_bytes()):
            with locked(self.folder, wait=True):
                manifest = self._merge(manifest)
        sweep(self.folder, manifest, self._owned)
        return manifest

    def _merge(self, ours: Manifest) -> Manifest:
        """Put our files into the manifest that is there, as another run may do with those of another format."""
        path, before = self.folder / MANIFEST, self.listed
        for _ in range(_MOST_MERGES):
            try:
                version = object_store.version_of(path) if isinstance(path, ObjectPath) else {}
            except FileNotFoundError:  # removed meanwhile
                if create_file(path, ours.as_bytes()):
                    return ours
                continue
            there = self._read_manifest()
            if there and all(there.files.get(name) == facts for name, facts in ours.files.items()):
                return there
            added = {name: facts for name, facts in self.listed.items() if name not in before}
            merged = Manifest(ours.kind, ours.made_with, {**added, **ours.files}, ours.versions, ours.counts)
            if isinstance(path, ObjectPath):
                if object_store.replace(path, merged.as_bytes(), version):
                    return merged
                continue
            with atomic_file(path, replace=True) as file:
                file.write(merged.as_bytes())
            return merged
        raise BertprepError(f"{path}: is replaced by others again and again; see that nothing else writes there")


def find_finished(folder: Path, kind: str, made_with: dict[str, Any], names: Collection[str] = ()) -> Manifest | None:
    """The same as `read_finished`; what a killed run has left of receipts there is removed."""
    if finished := read_finished(folder, kind, made_with, names):
        sweep(folder, finished)
    return finished


def sweep(folder: Path, finished: Manifest, owned: Iterable[Path] = ()) -> None:
    """Remove the receipts of files that the manifest lists, and the settings with the last one; killed, it is done again."""
    place = folder / RECEIPTS
    if not is_object(folder) and not place.is_dir():
        return
    there = _listing(place)
    try:
        remove_all(place, [name + _SUFFIX for name in there & finished.files.keys()])
        if there <= finished.files.keys():
            (place / _SETTINGS).unlink(missing_ok=True)
        if is_object(folder):
            return
        for each in (place, *owned):
            remove_leftovers(each)
        for inside in sorted((path for path in place.rglob("*") if path.is_dir()), reverse=True):
            with suppress(OSError):  # others note there
                inside.rmdir()
        with suppress(OSError):
            place.rmdir()
    except OSError as error:
        raise explain_write_error(place, error) from error


def unfinished(
    journal: Journal | Receipts,
    names: Collection[str],
    missing: list[str],
    part: Part | None,
    reporter: Reporter,
) -> Manifest:
    """What a part has done where others still have to do theirs: a manifest of that alone, which is not written.

    Raises `BertprepError` where nobody else is to be expected.
    """
    count = f"{len(missing):,} of {len(names):,} files"
    if part is None or part == FINISH:
        named = ", ".join(missing[:_MOST_NAMED]) + (f" and {len(missing) - _MOST_NAMED:,} more" * (len(missing) > _MOST_NAMED))
        raise BertprepError(
            f"{journal.folder}: {count} are missing: {named}; run the parts that make them, then --part finish again"
        )
    reporter.say(f"{journal.folder}: part {part} is done; {count} are still missing, which other parts make")
    files = {name: journal.done[name] for name in names if name in journal.done}
    return Manifest(journal.header["kind"], journal.header["made_with"], files)


def _listing(place: Path) -> set[str]:
    """The names of the files whose receipts are there, unchecked."""
    if not is_object(place) and place.is_symlink():
        raise BertprepError(f"{place}: is a link, and nothing is written there; remove it")
    if is_object(place):
        names = [path.relative_to(place).as_posix() for path in place.rglob("*" + _SUFFIX)]
    else:
        start = len(str(place)) + 1
        names = [f"{folder}/{name}"[start:] for folder, _, inside in os.walk(place) for name in inside]
    return {name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX) and name != _SETTINGS}


def _digest_of(header: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, error: Exception) -> BertprepError:
    why = getattr(error, "strerror", None) or error
    return BertprepError(f"{path}: is damaged ({why}); remove it, and what it is about is made again")
