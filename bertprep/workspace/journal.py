"""The journal of a run: its finished files, and an exclusive lock on its folder.

While a run works, each finished file is one line in `manifest.json.journal`, synced to the disk; when all are there, the
journal becomes `manifest.json`. The next run finds the finished files of a killed one in the journal. Its first line has the
settings, as in the manifest, so files of two settings never mix; nor do those of two versions, which are noted with each file.
"""

import json
import os
import signal
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from bertprep.config import Dialect, GlueSettings, InstanceSettings, ShardSettings, SquadSettings
from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file, explain_write_error, is_still, remove_leftovers
from bertprep.files.lock import open_locked
from bertprep.untrusted import MOST_BYTES, OBJECT, TEXT, check_values, parse_json
from bertprep.workspace.layout import MANIFEST, check_splits_inside
from bertprep.workspace.manifest import (
    JOURNAL_SUFFIX,
    KINDS,
    RECORDS,
    SCHEMA,
    TASK_RECORDS,
    TEXT_SHARDS,
    TOKEN_SHARDS,
    Manifest,
    check_entry,
    check_header,
    check_versions,
    read_manifest,
    versions_for,
)

FAIL_AFTER = "BERTPREP_FAIL_AFTER"
"""Environment variable for tests: "3 SIGKILL" kills the process right after it has entered its third file in a journal."""


def _options_of(*settings: type) -> dict[str, str]:
    return {field.name: "--" + field.name.replace("_", "-") for each in settings for field in fields(each)}


_CONVERT_OPTIONS = {
    **_options_of(Dialect),
    **{f"converted_to.{name}": option for name, option in (("format", "--to"), ("shards", "--shards"), ("pick", "--pick"))},
}
_OPTIONS = {
    TEXT_SHARDS: {**_options_of(ShardSettings), "inputs": "--input"},
    TOKEN_SHARDS: {"cased": "--cased", "corpus": "--corpus", "vocabulary": "--vocab"},
    RECORDS: {**_options_of(InstanceSettings, Dialect), "corpus": "--corpus", "vocabulary": "--vocab"},
    TASK_RECORDS: {
        **_options_of(SquadSettings, GlueSettings, Dialect),
        "task": "task",
        "version": "--version",
        "name": "name",
        "labels": "--labels",
        "inputs": "--input",
        "vocabulary": "--vocab",
    },
}
"""The option for each field of `made_with`, by kind; `convert` has some of its own."""


def describe_difference(found: dict[str, Any], asked: dict[str, Any]) -> str:
    """The first difference of two headers, as command line options if possible.

    >>> found, asked = ({"kind": RECORDS, "made_with": {"seq": seq}} for seq in (128, 512))
    >>> describe_difference(found, asked)
    'was made with --seq 128, asked for is --seq 512'
    """
    name, before, now = _first_difference("", found, asked)
    if name == "converted_to":
        return f"was {'not ' if before is None else ''}made by bertprep convert"
    options = _CONVERT_OPTIONS if "converted_to" in asked["made_with"] else _OPTIONS.get(asked["kind"], {})
    option = options.get(name)
    if option is None:
        setting = name.removeprefix("number of ").partition(".")[0].partition("[")[0]
        values = f"{name} {_shown(before)}, asked for is {_shown(now)}"
        return f"was made with another {options[setting]}: {values}" if setting in options else f"was made with {values}"
    made, wanted = (_with_option(option, value) for value in (before, now))
    return f"was made {made or f'without {option}'}, asked for is {wanted.removeprefix('with ') or 'without it'}"


def _with_option(option: str, value: Any) -> str:
    """An option and its value; "" if it was not given."""
    if value is None or value is False:
        return ""
    return f"with {option}" if value is True else f"with {option} {value}"


def _first_difference(name: str, found: Any, wanted: Any) -> tuple[str, Any, Any]:
    """The innermost name under which two values differ, and both values.

    >>> _first_difference("", {"made_with": {"inputs": [{"bytes": 5}]}}, {"made_with": {"inputs": [{"bytes": 6}]}})
    ('inputs[0].bytes', 5, 6)
    """
    if isinstance(found, dict) and isinstance(wanted, dict):
        differing = [key for key in {**wanted, **found} if found.get(key) != wanted.get(key)]
        key = "pairs" if "pairs" in differing else differing[0]  # without them there is no --short-seq-prob either
        prefix = "" if name in ("", "made_with") else f"{name}."
        return _first_difference(prefix + key, found.get(key), wanted.get(key))
    if isinstance(found, list) and isinstance(wanted, list):
        if len(found) != len(wanted):
            return f"number of {name}", len(found), len(wanted)
        index = next(index for index, item in enumerate(found) if item != wanted[index])
        return _first_difference(f"{name}[{index}]", found[index], wanted[index])
    return name, found, wanted


def _shown(value: Any) -> str:
    """A setting in an error: as JSON, a long one cut."""
    text = "none" if value is None else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def make_header(kind: str, made_with: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run, as a journal's first line has them."""
    return {"schema": SCHEMA, "kind": kind, "made_with": json.loads(json.dumps(made_with))}


def check_same(folder: Path, found: dict[str, Any], asked: dict[str, Any], advice: str) -> None:
    """Raise `BertprepError` if the header found in a folder is not the run's, naming the first difference."""
    if found != asked:
        raise BertprepError(f"{folder}: {describe_difference(found, asked)}; {advice}, or remove this folder")


def fail_after(added: int) -> None:
    """Send this process the signal that a test asks for after so many files."""
    count, _, name = os.environ.get(FAIL_AFTER, "").partition(" ")
    if count == str(added):
        os.kill(os.getpid(), signal.Signals[name])


class Journal:
    """An unfinished manifest, as a context manager; holds the lock of its folder while it is open.

    `done` holds the files that earlier runs finished and that still have their size, `listed` those of the previous manifest;
    `add` enters one more; `finish` turns the journal into the manifest. On an exception it keeps finished files for the next
    run and removes unfinished ones in `owned`, the folders in `folder` that only such runs write to, by default all of it. If
    another run holds the folder, entering raises `BertprepError`, or with `wait` waits. If another run has already made
    everything, `found` is its manifest and nothing remains to do. `advice` is for the error about a folder made with other
    settings.
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        made_with: dict[str, Any],
        *,
        owned: Collection[str] = (".",),
        wait: bool = False,
        advice: str = "choose another --workdir or --corpus",
    ) -> None:
        self.folder = folder
        self.done: dict[str, dict[str, Any]] = {}
        self.listed: dict[str, dict[str, Any]] = {}
        self.found: Manifest | None = None
        self._added = 0
        self._owned = [folder / name for name in owned]
        self._wait, self._advice = wait, advice
        self._path = folder / (MANIFEST + JOURNAL_SUFFIX)
        self.header = make_header(kind, made_with)

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
            if not self._path.stat().st_size:  # there was no journal, and a failed run leaves none
                self._path.unlink()
            self._file.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._remove_leftovers()
        if self.found and is_still(self._path, self._file.fileno()):  # nothing was done, so there is nothing to resume
            self._path.unlink()
        self._file.close()

    def _remove_leftovers(self) -> None:
        for folder in self._owned:
            remove_leftovers(folder)

    def _load(self) -> None:
        self._remove_leftovers()
        recorded: dict[str, dict[str, Any]] = {}
        if finished := read_manifest(self.folder):
            self._check_same(make_header(finished.kind, finished.made_with))
            self.listed = finished.files
            recorded.update(finished.files)
        content = self._read()
        whole = content.rfind(b"\n") + 1  # the rest after the last newline is an incomplete write of a killed run
        lines = content[:whole].splitlines()
        if len(lines) == 1 and not recorded:  # a run that made no file does not bind later ones to its settings
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
        self._append(self.header, *({"name": name, "facts": facts} for name, facts in self.done.items()))

    def _read(self) -> bytes:
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            raise self._damaged(f"it is not a file, or has more than {MOST_BYTES:,} bytes")
        self._file.seek(0)
        content: bytes = self._file.read()
        return content

    def _read_entries(self, lines: list[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The files listed in a journal, with their facts; raises if its settings differ or it is damaged."""
        kind = KINDS[self.header["kind"]]
        for number, line in enumerate(lines, 1):
            try:
                content = parse_json(line)
                if number == 1:
                    check_header(content)
                    self._check_same(content)
                    continue
                entry = check_values(content, {"name": TEXT, "facts": OBJECT, "versions": OBJECT}, needed=("name", "facts"))
                check_entry(entry["name"], entry["facts"], kind)
            except ValueError as error:
                raise self._damaged(f"line {number}: {error}") from error
            check_versions(self.folder, self.header["kind"], entry["name"], entry.get("versions", {}))
            yield entry["name"], entry["facts"]

    def _damaged(self, why: str) -> BertprepError:
        return BertprepError(f"{self._path}: is damaged ({why}); remove it, and the files that it lists are made again")

    def _check_same(self, header: dict[str, Any]) -> None:
        """Raise if the folder was made with other settings, naming the first that differs."""
        check_same(self.folder, header, self.header, self._advice)

    def _append(self, *entries: dict[str, Any]) -> None:
        data = memoryview(b"".join(json.dumps(entry).encode() + b"\n" for entry in entries))
        try:
            while data:  # a write may be partial, on a full disk for instance
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise explain_write_error(self._path, error) from error

    def add(self, name: str, facts: dict[str, Any]) -> None:
        """Enter a finished file; `facts` holds at least `bytes` and `sha256`."""
        self.add_all([(name, facts)])

    def add_all(self, entries: Collection[tuple[str, dict[str, Any]]]) -> None:
        """Enter some finished files at once, which takes no longer than one."""
        if not entries:
            return
        if self.found:  # everything existed, and more is added
            self.found = None
            self._begin()
        self.done.update(entries)
        kind = self.header["kind"]
        self._append(*({"name": name, "facts": facts, "versions": versions_for(kind, name)} for name, facts in entries))
        for _ in entries:
            self._added += 1
            fail_after(self._added)

    def add_soon(self, name: str, facts: dict[str, Any]) -> None:
        """The same as `add`, which takes no time."""
        self.add(name, facts)

    def look(self, names: Collection[str] | None = None) -> None:
        """Find out which of these files, by default all, are finished: `done` has all of them from the beginning."""

    def noted(self) -> set[str]:
        """The names of all finished files, as far as a quick look tells."""
        return set(self.done)

    def is_noted(self, name: str) -> bool:
        """Whether a file is finished, as far as a quick look tells."""
        return name in self.done

    def missing(self, names: Iterable[str]) -> list[str]:
        """Those of these files that are not finished."""
        return [name for name in names if name not in self.done]

    def finish(
        self,
        names: Iterable[str],
        versions: dict[str, str],
        counts: dict[str, int] | None = None,
        *,
        keep: Iterable[str] = (),
        resumable: Collection[str] = (),
    ) -> Manifest:
        """Write the manifest of the finished files `names`, and of those to `keep` from the previous manifest.

        The journal is removed unless there are `resumable` files: finished ones of a set that another run has begun.
        """
        files = {**{name: self.done[name] for name in names}, **{name: self.listed[name] for name in keep}}
        manifest = Manifest(self.header["kind"], self.header["made_with"], files, versions, counts or {})
        with atomic_file(self.folder / MANIFEST) as file:
            file.write(manifest.as_bytes())
        if not resumable:
            self._path.unlink()
        return manifest
