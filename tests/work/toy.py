"""A toy command for the tests of the work loop: each task writes one number to a file for each of two formats."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertprep.errors import BertprepError
from bertprep.files.atomic import atomic_file
from bertprep.files.checksums import digest
from bertprep.files.paths import as_path
from bertprep.work.ledger import Entry, Ledger
from bertprep.work.made import Made
from bertprep.work.manifest import RECORDS
from bertprep.work.parts import Finish, Part
from bertprep.work.run import Job, Maker, Task

FORMATS = ("plain", "double")
VERSIONS = {"bertprep": "1", "python": "3"}


@dataclass(frozen=True)
class Numbers(Maker):
    """Writes the number of a task; `broken` is the one that it cannot write."""

    broken: int = -1
    label = "toy"

    def make(self, argument: int, paths: Mapping[str, Path]) -> dict[str, Entry]:
        if argument == self.broken:
            raise BertprepError(f"number {argument}: is broken")
        return {key: write(path, str(argument) * (1 + (key == "double"))) for key, path in paths.items()}


def write(path: Path, text: str) -> Entry:
    data = f"{text}\n".encode()
    with atomic_file(path, tidies=False) as file:
        file.write(data)
    return {"bytes": len(data), "blake3": digest(data), "examples": 1}


@dataclass(frozen=True)
class Request:
    """`seq` is a setting that decides bytes."""

    output: Path
    seq: int = 128
    count: int = 7
    part: Part | Finish | None = None
    workers: int = 1
    broken: int = -1
    copies: tuple[Path, ...] = ()

    def __call__(self) -> Made:
        ledgers = {
            key: Ledger(
                folder=self.output / key, kind=RECORDS, made_with={"seq": self.seq}, versions=dict(VERSIONS),
                copies={path.name: path for path in self.copies}, advice="choose another --output",
            )
            for key in FORMATS
        }  # fmt: skip
        tasks = [
            Task(f"number {n}", dict.fromkeys(FORMATS, f"{'test' if n % 5 == 4 else 'training'}/part-{n}"), n)
            for n in range(self.count)
        ]
        return Job(Numbers(self.broken), ledgers, tasks).run(self.part, self.workers)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def visible(files: dict[str, bytes]) -> dict[str, bytes]:
    """What has a final name: neither the ledger nor temporary files."""
    return {name: data for name, data in files.items() if "/.ledger/" not in f"/{name}" and not name.endswith(".tmp")}


def forked(request: Request, before: Callable[[], Any] = bool) -> int:
    """Start a process that makes a request; its status is 0, 1 for an error in one line, 2 for anything else."""
    if process := os.fork():
        return process
    status = 2
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        before()
        request()
        status = 0
    except BertprepError as error:
        status = 1 if "\n" not in str(error) else 2
    finally:
        os._exit(status)


def status_of(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def statuses(requests: Sequence[Request]) -> list[int]:
    """Make requests at the same time."""
    return [status_of(process) for process in [forked(request) for request in requests]]


def stop_at(step: int, stop: Callable[[], Any], functions: Sequence[tuple[Any, str]]) -> None:
    """Patch functions (module, name) so that `stop` is called before (even) or after (odd) call number step // 2 of all."""
    calls = iter(range(10**9))

    def patch(module: Any, name: str) -> None:
        original = getattr(module, name)

        def patched(*arguments: Any, **more: Any) -> Any:
            call = next(calls)
            if 2 * call == step:
                stop()
            try:
                return original(*arguments, **more)
            finally:
                if 2 * call + 1 == step:
                    stop()

        setattr(module, name, patched)

    for module, name in functions:
        patch(module, name)


def in_store(request: Request, url: str) -> Request:
    return replace(request, output=as_path(url))
