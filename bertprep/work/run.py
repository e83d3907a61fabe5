"""The loop that all commands share: open the ledgers, make the missing files of a part's tasks, close complete ledgers.

A task is a name, its files and a picklable argument. A maker's `make` writes files atomically and returns their manifest
entries. Workers create the completion markers, so a run that is killed anywhere resumes. Two runs of one request that overlap
both make the missing files, with the same bytes.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bertprep import pool
from bertprep.errors import BertprepError
from bertprep.files.atomic import without_empty_folders
from bertprep.files.free_space import check_forecast
from bertprep.progress import SILENT, Reporter
from bertprep.terminal import listed, warn
from bertprep.work.layout import MDS_FORMAT, TEXT, TOKENS
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.made import Made
from bertprep.work.manifest import MDS, TEXT_SHARDS, TOKEN_SHARDS, Manifest
from bertprep.work.parts import FINISH, Finish, Part, name_parts

FAIL_AFTER = "BERTPREP_FAIL_AFTER"
"""An environment variable for tests: "3 SIGKILL" kills the process right after its third file is finished."""
_FORMAT_OF_KIND = {TEXT_SHARDS: TEXT, TOKEN_SHARDS: TOKENS, MDS: MDS_FORMAT}


@dataclass(frozen=True)
class Task:
    """One unit of work; `files` maps the key of a ledger to the name of the file that the task makes for it."""

    name: str
    files: Mapping[str, str]
    argument: Any = None


class Maker:
    """Makes the files of a task. Each command has its own subclass, which is pickled for workers that are not forked."""

    label = "make"
    things = "shards"

    def prepare(self) -> None:
        """Load what all workers share, so that forked workers need not load it again."""

    def warnings(self, todo: Sequence[Task]) -> Iterator[str]:  # noqa: ARG002 - of subclasses
        """Yield warnings about the tasks in `todo`; called only if there are any."""
        yield from ()

    def needed_bytes(self, todo: Sequence[Task], folders: Mapping[str, Path]) -> Mapping[Path, int]:  # noqa: ARG002
        """Return about how many bytes the tasks will write to each folder, where that is cheap to forecast."""
        return {}

    def check(self, task: Task, folder: Path, entry: Entry) -> None:
        """Raise `BertprepError` if a finished file was made from other input than there is now."""

    def make(self, argument: Any, paths: Mapping[str, Path]) -> Mapping[str, Entry]:
        """Write the missing files of a task; return their manifest entries by the key of their ledger."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what stays open between tasks."""

    def amounts(self, entries: Sequence[Entry]) -> dict[str, float]:
        """Return the amounts that progress shows for a task's files: unit -> number."""
        return {"MB": sum(entry["bytes"] for entry in entries) / 1e6}


@dataclass(frozen=True)
class Job:
    """The tasks of a command, their maker, and the ledgers of the output folders; `warnings` are printed first.

    `ledgers` has the keys of `Task.files`. For records a key is a format; all files of a token shard share one ledger. An
    intermediate job (`is_step`) does not report files that other parts have not made.
    """

    maker: Maker
    ledgers: Mapping[str, Ledger]
    tasks: Sequence[Task]
    warnings: Sequence[str] = ()
    is_step: bool = False

    def run(self, part: Part | Finish | None = None, workers: int = 1, reporter: Reporter = SILENT) -> Made:
        """Make the missing files of a part's tasks, and close the ledgers that are complete.

        Raises `BertprepError` for the first task that fails, for a folder of other settings, and for files that are still
        missing although no other part will make them.
        """
        started = time.monotonic()
        for line in self.warnings:
            warn(line)
        names: dict[Ledger, list[str]] = {}
        for key, ledger in self.ledgers.items():
            names.setdefault(ledger, []).extend(task.files[key] for task in self.tasks)
        for ledger in names if part is not None else ():
            ledger.is_part = True
        own = self.tasks if part is None else part.assign(self.tasks)
        with ExitStack() as folders:
            for ledger in names:
                folders.enter_context(without_empty_folders(ledger.folder))
            try:
                with closing(self.maker):
                    finished = {ledger: ledger.open(of, binds=part != FINISH) for ledger, of in names.items()}
                    self._check(self.tasks if part == FINISH else own, finished)
                    unfinished = [self._unfinished(task, finished) for task in own]
                    todo = [task for task in unfinished if task.files]
                    if part != FINISH:
                        self._make(todo, len(own), part, workers, reporter)
                    closed = {ledger: self._close(ledger, of, part, reporter) for ledger, of in names.items()}
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
        """Raise `BertprepError` if a finished file of these tasks was made from other input than there is now."""
        for task in tasks:
            for key, name in task.files.items():
                ledger = self.ledgers[key]
                if name in finished[ledger]:
                    self.maker.check(task, ledger.folder, finished[ledger][name])

    def _unfinished(self, task: Task, finished: Mapping[Ledger, Mapping[str, Entry]]) -> Task:
        """Return the task with only those of its files that are missing."""
        missing = {key: name for key, name in task.files.items() if name not in finished[self.ledgers[key]]}
        return replace(task, files=missing)

    def _make(
        self, todo: Sequence[Task], all_of_part: int, part: Part | Finish | None, workers: int, reporter: Reporter
    ) -> None:
        maker = self.maker
        if todo:
            maker.prepare()
            check_forecast(maker.needed_bytes(todo, {key: ledger.folder for key, ledger in self.ledgers.items()}))
            for line in maker.warnings(todo):
                warn(line)
        elif part and not all_of_part:
            reporter.message(f"{maker.label}: nothing to do for part {part}, since there are fewer files than parts")
        else:
            of_part = f" of part {part}" if part else ""
            thing = maker.things.removesuffix("s")
            all_exist = (
                f"the only {thing}{of_part} exists" if all_of_part == 1 else f"all {all_of_part:,} {thing}s{of_part} exist"
            )
            how = "only sizes were compared; bertprep validate compares checksums"
            if self.is_step:  # each part makes the files of a step that other parts have not made
                how = "made by another part, or by an earlier run"
            reporter.message(f"{maker.label}: {all_exist} already ({how})")
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

    def _close(
        self, ledger: Ledger, names: Collection[str], part: Part | Finish | None, reporter: Reporter
    ) -> tuple[Manifest, list[str]]:
        manifest, missing = ledger.close(names)
        is_or_are = "is" if len(missing) == 1 else "are"
        count = f"{len(missing):,} of {len(names):,} files {is_or_are}"
        if missing and (part is None or part is FINISH):
            raise BertprepError(
                f"{ledger.folder}: {count} missing: {listed(missing)}; run the parts that have not finished, then --part "
                "finish again, or run the command without --part, which makes all that is missing"
            )
        if missing and isinstance(part, Part) and not self.is_step:
            of_ledger = [key for key, each in self.ledgers.items() if each is ledger]
            indexes = {
                number % part.count
                for number, task in enumerate(self.tasks)
                if not {task.files[key] for key in of_ledger}.isdisjoint(missing)
            }
            others = name_parts(sorted(indexes), part.count)
            reporter.message(f"{ledger.folder}: part {part} is done; {count} still missing: run {others}")
        return manifest, missing


def _format_of(key: str, ledger: Ledger) -> str:
    """Return the format of a folder: for records the key of its ledger, for other files the name for their kind."""
    return _FORMAT_OF_KIND.get(ledger.kind, str(key))


def _work(maker: Maker, ledgers: Mapping[str, Ledger], task: Task) -> tuple[Mapping[str, str], dict[str, Entry]]:
    paths = {key: ledgers[key].folder / name for key, name in task.files.items() if not ledgers[key].is_finished(name)}
    entries = dict(maker.make(task.argument, paths)) if paths else {}
    for key, entry in entries.items():
        ledgers[key].finish(task.files[key], entry)
    return task.files, entries


def _fail_after(done: int) -> None:
    """Send this process the signal that a test wants after its `done`-th file."""
    count, _, name = os.environ.get(FAIL_AFTER, "").partition(" ")
    if count == str(done):
        os.kill(os.getpid(), signal.Signals[name])
