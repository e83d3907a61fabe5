"""The one loop of all commands: open the ledgers, make what is missing of a part's tasks, close what is complete.

A task is a name, its files and a picklable argument. A maker's `make` writes files atomically and returns their manifest
entries. Workers create the completion markers, so a run that is killed anywhere resumes. Two runs of one request both make what
is unfinished, and write the same bytes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bertprep import pool
from bertprep.errors import BertprepError
from bertprep.progress import SILENT, Reporter
from bertprep.terminal import listed, warn
from bertprep.work.layout import MDS_FORMAT, TEXT, TOKENS
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.made import Made
from bertprep.work.manifest import MDS, TEXT_SHARDS, TOKEN_SHARDS, Manifest
from bertprep.work.parts import FINISH, Finish, Part

FAIL_AFTER = "BERTPREP_FAIL_AFTER"
"""Environment variable for tests: "3 SIGKILL" kills the process right after its third file was finished."""
_FORMAT_OF_KIND = {TEXT_SHARDS: TEXT, TOKEN_SHARDS: TOKENS, MDS: MDS_FORMAT}


@dataclass(frozen=True)
class Task:
    """`files` has the name of each file that the task makes, by the key of its ledger."""

    name: str
    files: Mapping[str, str]
    argument: Any = None


class Maker:
    """What a command does with each of its tasks; pickled for workers that are not forked."""

    label = "make"
    things = "shards"

    def prepare(self) -> None:
        """Load what all workers share, so that a forked worker has it at once."""

    def warnings(self, todo: Sequence[Task]) -> Iterator[str]:  # noqa: ARG002 - of subclasses
        """Yield warnings, where there is something to make."""
        yield from ()

    def check(self, task: Task, folder: Path, entry: Entry) -> None:
        """Raise `BertprepError` if a finished file was made from something else than what is there now."""

    def make(self, argument: Any, paths: Mapping[str, Path]) -> Mapping[str, Entry]:
        """Write the files of a task that are missing, and return their entries by the key of their ledger."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what is open from one task to the next."""

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        """Return what to count of a task's files, by unit."""
        return {"MB": sum(entry["bytes"] for entry in entries) / 1e6}


@dataclass(frozen=True)
class Job:
    """What a command makes: its tasks, their maker, and the ledgers of the output folders; `warnings` are printed first.

    The ledgers are by the keys of `Task.files`: of records these are formats; the files of a token shard have one ledger.
    """

    maker: Maker
    ledgers: Mapping[str, Ledger]
    tasks: Sequence[Task]
    warnings: Sequence[str] = ()

    def run(self, part: Part | Finish | None = None, workers: int = 1, reporter: Reporter = SILENT) -> Made:
        """Make what is missing of a part's tasks, and close the complete ledgers.

        Raises `BertprepError` for the first task that fails, other settings, and files that no other part will make.
        """
        started = time.monotonic()
        for line in self.warnings:
            warn(line)
        names: dict[Ledger, list[str]] = {}
        for key, ledger in self.ledgers.items():
            names.setdefault(ledger, []).extend(task.files[key] for task in self.tasks)
        own = self.tasks if part is None else part.assign(self.tasks)
        try:
            with closing(self.maker):
                finished = {ledger: ledger.open(of, binds=part != FINISH) for ledger, of in names.items()}
                self._check(self.tasks if part == FINISH else own, finished)
                unfinished = [self._unfinished(task, finished) for task in own]
                todo = [task for task in unfinished if task.files]
                if part != FINISH:
                    self._make(todo, len(own), part, workers, reporter)
                closed = {ledger: _close(ledger, of, part, reporter) for ledger, of in names.items()}
        except BaseException:
            for ledger, of in names.items():
                ledger.abandon(of)
            raise
        formats = {_format_of(key, ledger): ledger for key, ledger in self.ledgers.items()}
        return Made(
            folders={name: ledger.folder for name, ledger in formats.items()},
            manifests={name: closed[ledger][0] for name, ledger in formats.items()},
            made=len(todo),
            kept=len(own) - len(todo),
            seconds=time.monotonic() - started,
            is_complete=not any(missing for _, missing in closed.values()),
        )

    def _check(self, tasks: Sequence[Task], finished: Mapping[Ledger, Mapping[str, Entry]]) -> None:
        """Raise `BertprepError` if a finished file was made from something else than what is there now."""
        for task in tasks:
            for key, name in task.files.items():
                ledger = self.ledgers[key]
                if name in finished[ledger]:
                    self.maker.check(task, ledger.folder, finished[ledger][name])

    def _unfinished(self, task: Task, finished: Mapping[Ledger, Mapping[str, Entry]]) -> Task:
        """Return the task with the files that are missing."""
        missing = {key: name for key, name in task.files.items() if name not in finished[self.ledgers[key]]}
        return replace(task, files=missing)

    def _make(
        self, todo: Sequence[Task], all_of_part: int, part: Part | Finish | None, workers: int, reporter: Reporter
    ) -> None:
        maker = self.maker
        if todo:
            maker.prepare()
            for line in maker.warnings(todo):
                warn(line)
        else:
            of_part = f" of part {part}" if part else ""
            how = "only sizes are compared; bertprep validate compares checksums"
            reporter.message(f"{maker.label}: all {all_of_part:,} {maker.things}{of_part} exist already ({how})")
        done = 0
        work = partial(_work, maker, self.ledgers)
        with (
            reporter.progress(maker.label, len(todo), maker.things, enabled=bool(todo)) as shown,
            closing(pool.run(work, [(task.name, task) for task in todo], workers=workers)) as results,
        ):
            for _, (files, entries) in results:
                for key, entry in entries.items():
                    self.ledgers[key].add(files[key], entry)
                    done += 1
                    _fail_after(done)
                shown.advance(1, **(maker.amounts(list(entries.values())) if entries else {}))


def _format_of(key: str, ledger: Ledger) -> str:
    """Return the name of a folder's format: of records the key of its ledger, of anything else that of its kind."""
    return _FORMAT_OF_KIND.get(ledger.kind, str(key))


def _work(maker: Maker, ledgers: Mapping[str, Ledger], task: Task) -> tuple[Mapping[str, str], dict[str, Entry]]:
    paths = {key: ledgers[key].folder / name for key, name in task.files.items() if not ledgers[key].is_finished(name)}
    entries = dict(maker.make(task.argument, paths)) if paths else {}
    for key, entry in entries.items():
        ledgers[key].finish(task.files[key], entry)
    return task.files, entries


def _close(
    ledger: Ledger, names: Collection[str], part: Part | Finish | None, reporter: Reporter
) -> tuple[Manifest, list[str]]:
    manifest, missing = ledger.close(names)
    count = f"{len(missing):,} of {len(names):,} files"
    if missing and part in (None, FINISH):
        raise BertprepError(
            f"{ledger.folder}: {count} are missing: {listed(missing)}; run the parts that make them, then --part finish again"
        )
    if missing:
        reporter.message(f"{ledger.folder}: part {part} is done; {count} are still missing, which other parts make")
    return manifest, missing


def _fail_after(done: int) -> None:
    """Send this process a test's signal after so many files."""
    count, _, name = os.environ.get(FAIL_AFTER, "").partition(" ")
    if count == str(done):
        os.kill(os.getpid(), signal.Signals[name])
