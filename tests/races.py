"""Several first runs at once: each race is one command, started by some processes at the same moment in one empty folder.

Whatever the order in which they run, what they leave is what one run alone leaves, to the byte. A run may be refused in one
line because another one writes there; one at least must do the work, and none may fail otherwise.
"""

import os
import shutil
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path

from bertprep import cli, kernels
from bertprep.terminal import run_program
from tests.corpora import sums
from tests.golden import GOLDEN

Run = Callable[[], int]
REFUSED = "another run is writing here; wait for it, or stop it first"
_TEXT, _VOCABULARY = "../text.txt", str(GOLDEN / "vocab.txt")
_SMALL = ["--workdir", "data", "--corpus", "golden", "--workers", "1"]
_SETTINGS = ["--dupe", "1", "--seq", "32", "--pred", "5"]
_SHARD = ["shard", "--input", _TEXT, "--splitter", "lines", "--shards", "3", *_SMALL]
_CREATE = ["create", *_SETTINGS, *_SMALL]
_RECORDS = ["create", *_SETTINGS, "--input", _TEXT, "--output", "records", "--vocab", _VOCABULARY, "--workers", "1"]


@dataclass(frozen=True)
class Race:
    """A command, what must be there before it, and whether a run may be refused."""

    name: str
    arguments: Sequence[str]
    before: Sequence[Sequence[str]] = ()
    may_be_refused: bool = False
    leaves_the_same: bool = True  # bytes, not only names


RACES = {
    race.name: race
    for race in (
        Race("sample", ["shard", "--workdir", "data", "--splitter", "lines", "--workers", "1"]),
        Race("shard", _SHARD),
        Race("shard-json-lines", [*_SHARD, "--input", "../text.jsonl"]),
        Race("create", _CREATE, before=[_SHARD], may_be_refused=True),
        Race("create-of-files", _RECORDS, may_be_refused=True),
        Race("vocabulary", ["vocab", "--size", "400", "--workdir", "data", "--corpus", "golden"], before=[_SHARD]),
        Race("vocabulary-to-a-file", ["vocab", "--size", "400", "--input", _TEXT, "--output", "vocab.txt"]),
        Race(
            "forecast", ["create", "--dry-run", *_SETTINGS, *_SMALL, "--json", "f.json"], before=[_SHARD], leaves_the_same=False
        ),
        Race("validate", ["validate", "records", "--json", "found.json", "--workers", "1"], before=[_RECORDS]),
        Race("page", ["validate", "records/tfrecord", "--html", "page.html", "--workers", "1"], before=[_RECORDS]),
        Race("convert-a-file", ["convert", "records/ofrecord/training/part-0", "made"], before=[_RECORDS]),
        Race(
            "convert-a-folder", ["convert", "records/ofrecord", "made", "--shards", "3", "--workers", "1"], before=[_RECORDS],
            may_be_refused=True,
        ),
        Race("download", ["download", "vocab", "--model", "somebody/small-bert", "--workdir", "data"], may_be_refused=True),
        Race("everything", ["create", *_SETTINGS, "--workdir", "data", "--workers", "1"], may_be_refused=True),
        Race("trainer-index", ["index", "records/tfrecord"], before=[_RECORDS]),
    )
}  # fmt: skip


class Course:
    """Where races are run: a folder with the text, and for each race what it begins with and what one run alone leaves."""

    def __init__(self, folder: Path, text: Path) -> None:
        kernels.load()  # once, not in each of the processes
        self._folder = folder
        shutil.copyfile(text, folder / "text.txt")
        documents = [document.replace("\n", "\\n") for document in text.read_text().replace('"', "'").split("\n\n") if document]
        (folder / "text.jsonl").write_text("".join(f'{{"text": "{document}"}}\n' for document in documents))
        self._alone: dict[str, dict[str, str]] = {}

    def run(self, race: Race, runs: int) -> list[str]:
        """What went wrong in one round: nothing, or a line for each fault."""
        beginning = self._folder / f"{race.name}-beginning"
        if race.name not in self._alone:
            beginning.mkdir()
            for arguments in race.before:
                _expect_success(start(beginning, [arguments]))
            ended, self._alone[race.name] = self._run(race, 1)
            _expect_success(ended)
        ended, left = self._run(race, runs)
        return _faults(race, ended, left, self._alone[race.name])

    def _run(self, race: Race, runs: int) -> tuple[list[tuple[int, str]], dict[str, str]]:
        """How the runs of one round ended, and what they left."""
        folder = self._folder / f"{race.name}-round"
        shutil.copytree(self._folder / f"{race.name}-beginning", folder)
        try:
            return start(folder, [race.arguments] * runs), sums(folder)
        finally:
            shutil.rmtree(folder)


def _faults(race: Race, ended: list[tuple[int, str]], left: dict[str, str], alone: dict[str, str]) -> list[str]:
    faults = []
    for status, said in ended:
        last = said.rstrip().rpartition("\n")[2]
        if status and not (race.may_be_refused and status == 1 and last.endswith(REFUSED)):
            faults.append(f"{race.name}: exit status {status}: {said}")
    if all(status for status, _ in ended):
        faults.append(f"{race.name}: nobody did the work")
    if set(left) != set(alone):
        faults.append(f"{race.name}: left {sorted(set(left) ^ set(alone))}, which only one of a run alone and this round has")
    elif race.leaves_the_same and left != alone:
        faults.append(f"{race.name}: other bytes in {[name for name in left if left[name] != alone[name]]}")
    return faults


def _expect_success(ended: list[tuple[int, str]]) -> None:
    assert all(status == 0 for status, _ in ended), ended


def start(folder: Path, commands: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """Run commands in `folder`, all from the same moment on; returns the exit status of each and what it said."""
    gate, opening = os.pipe()
    processes = []
    for number, arguments in enumerate(commands):
        said = folder.with_name(f"{folder.name}-said-{number}")
        process = os.fork()
        if process == 0:
            os.close(opening)
            _be_a_process(folder, arguments, said, gate)
        processes.append((process, said))
    os.close(gate)
    os.close(opening)  # which is what all wait for
    ended = []
    for process, said in processes:
        _, status = os.waitpid(process, 0)
        ended.append((os.waitstatus_to_exitcode(status), said.read_text(errors="replace")))
        said.unlink()
    return ended


def _be_a_process(folder: Path, arguments: Sequence[str], said: Path, gate: int) -> None:
    """The life of a forked process: wait for the gate, run one command, end."""
    status = 70
    try:
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        command: Run = _index if arguments[0] == "index" else partial(cli.main, arguments)
        os.read(gate, 1)
        status = run_program(command, "bertprep")
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _index() -> int:
    """What every run of the trainer does first with records: find where each begins, and keep that beside them."""
    from bertprep.records.record_set import RecordSet

    with RecordSet(["records/tfrecord"]) as records, redirect_stdout(StringIO()):
        return int(len(records) == 0)
