"""Commands that make files, and processes that run them: alone, several at once, killed.

Whatever happens to a run and whoever else works in its folder, in the end there must be what one run alone leaves, to the byte.
A run may be refused in one line because another one writes there.
"""

import os
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path

from bertprep import cli, kernels
from bertprep.terminal import run_program
from tests.corpora import deal, sums
from tests.golden import GOLDEN
from tests.instances.small_tokenizers import write_tokenizer

REFUSED = "another run is writing here; wait for it, or stop it first"
VOCABULARY = ["--vocab", str(GOLDEN / "vocab.txt")]
SETTINGS = ["--dupe", "1", "--seq", "32", "--pred", "5"]
TEXTS = [f"../text/text_{number}.txt" for number in range(10)]
WORKDIR = ["--workdir", "data", "--corpus", "golden"]
TO_SHARDS = ["--splitter", "lines", "--shards", "13", "--test-fraction", "0.2", *WORKDIR]
SHARD = ["shard", "--input", "../text", *TO_SHARDS]
RECORDS = ["create", *SETTINGS, "--input", *TEXTS, "--output", "records", *VOCABULARY]


@dataclass(frozen=True)
class Run:
    """A command, those before it, and what is allowed where several processes run it at once."""

    command: Sequence[str]
    before: Sequence[Sequence[str]] = ()
    has_parts: bool = False
    may_be_refused: bool = False
    leaves_the_same: bool = True  # bytes, not only names


RUNS = {
    "shard": Run(SHARD, has_parts=True),
    "shard two kinds of files": Run(["shard", "--input", "../text", "../lines", *TO_SHARDS], has_parts=True),
    "create": Run(["create", *SETTINGS, "--format", "tfrecord,arrow,parquet", *WORKDIR], [SHARD], True, may_be_refused=True),
    "create of files": Run(RECORDS, has_parts=True, may_be_refused=True),
    "tokenize": Run(["tokenize", *WORKDIR], [SHARD], has_parts=True),
    "tokenize files": Run(["tokenize", "--tokenizer", "../byte_bpe", "--input", "../text", "../lines", "--output", "tokens"]),
    "tokenize documents": Run(["tokenize", "--tokenizer", "../byte_bpe", *WORKDIR], [SHARD], has_parts=True),
    "tokenize documents in processes": Run(["tokenize", "--tokenizer", "../wordpiece", *WORKDIR], [SHARD], has_parts=True),
    "convert": Run(
        ["convert", "records/ofrecord", "made", "--to", "tfrecord", "--compress", "gzip", "--shards", "11"], [RECORDS], True,
        may_be_refused=True,
    ),
    "task": Run(["task", "glue", "mine", "--input", "../labelled", "--output", "records", *VOCABULARY], has_parts=True),
    "sample": Run(["shard", "--workdir", "data", "--splitter", "lines"]),
    "convert a file": Run(["convert", "records/ofrecord/training/part-0", "made"], [RECORDS]),
    "vocabulary": Run(["vocab", "--size", "400", *WORKDIR], [SHARD]),
    "forecast": Run(["create", "--dry-run", *SETTINGS, *WORKDIR, "--json", "f.json"], [SHARD], leaves_the_same=False),
    "validate": Run(["validate", "records", "--json", "found.json", "--html", "page.html"], [RECORDS]),
    "download": Run(["download", "vocab", "--model", "somebody/small-bert", "--workdir", "data"], may_be_refused=True),
    "everything": Run(["create", *SETTINGS, "--workdir", "data"], may_be_refused=True),
    "trainer's index": Run(["index", "records/tfrecord"], [RECORDS]),
}  # fmt: skip


class Course:
    """A folder with text, and for each run what it begins with and what it leaves alone."""

    def __init__(self, folder: Path, text: Path) -> None:
        kernels.load()  # once, not in each of the processes
        self._folder = folder
        (folder / "lines").mkdir()
        for path in deal(text, folder / "text", len(TEXTS))[:5]:
            documents = [each.replace("\n", "\\n") for each in path.read_text().replace('"', "'").split("\n\n") if each]
            lines = "".join(f'{{"text": "{document}"}}\n' for document in documents)
            (folder / "lines" / f"{path.stem}.jsonl").write_text(lines)
        for kind in ("byte_bpe", "wordpiece"):
            write_tokenizer(folder, kind)
        (folder / "labelled").mkdir()
        for split in ("train", "dev", "test"):
            lines = "".join(f"text {number}\t{'good' if number % 2 else 'bad'}\n" for number in range(20))
            (folder / "labelled" / f"{split}.tsv").write_text(f"sentence\tlabel\n{lines}")
        self._alone: dict[str, dict[str, str]] = {}

    def begin(self, name: str) -> Path:
        """Return a new folder that a run begins with."""
        beginning = self._folder / f"{name} beginning"
        if not beginning.exists():
            beginning.mkdir()
            for command in RUNS[name].before:
                expect_success(start(beginning, [_by_one(command)]))
        folder = self._folder / f"{name} round"
        shutil.rmtree(folder, ignore_errors=True)
        return Path(shutil.copytree(beginning, folder))

    def alone(self, name: str) -> dict[str, str]:
        """Return the checksums of what one undisturbed run leaves."""
        if name not in self._alone:
            expect_success(start(folder := self.begin(name), [_by_one(RUNS[name].command)]))
            self._alone[name] = sums(folder)
        return self._alone[name]

    def race(self, name: str, processes: int) -> list[str]:
        """Run a command in several processes from the same moment on; returns a line for each fault."""
        run, alone = RUNS[name], self.alone(name)
        ended, left = start(folder := self.begin(name), [_by_one(run.command)] * processes), sums(folder)
        faults = []
        for status, printed in ended:
            is_refused = run.may_be_refused and status == 1 and printed.rstrip().endswith(REFUSED)
            if status and not is_refused:
                faults.append(f"{name}: exit status {status}: {printed}")
        if all(status for status, _ in ended):
            faults.append(f"{name}: nobody did the work")
        if left != alone and (run.leaves_the_same or set(left) != set(alone)):
            faults.append(f"{name}: left other files or bytes: {sorted({each for each, _ in left.items() ^ alone.items()})}")
        return faults


def _by_one(command: Sequence[str]) -> list[str]:
    takes_workers = command[0] not in ("vocab", "download", "index")
    return [*command, *(["--workers", "1"] if takes_workers else [])]


def expect_success(ended: list[tuple[int, str]]) -> None:
    assert all(status == 0 for status, _ in ended), "\n".join(f"{status}: {printed}" for status, printed in ended)


def start(folder: Path, commands: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """Run commands in `folder`, all from the same moment on; returns the exit status of each and what it printed."""
    gate, opening = os.pipe()
    processes = []
    for number, arguments in enumerate(commands):
        printed = folder.with_name(f"{folder.name} {number}")
        process = os.fork()
        if process == 0:
            os.close(opening)
            _be_a_process(folder, arguments, printed, gate)
        processes.append((process, printed))
    os.close(gate)
    os.close(opening)  # which is what all wait for
    ended = []
    for process, printed in processes:
        _, status = os.waitpid(process, 0)
        ended.append((os.waitstatus_to_exitcode(status), printed.read_text(errors="replace")))
        printed.unlink()
    return ended


def _be_a_process(folder: Path, arguments: Sequence[str], printed: Path, gate: int) -> None:
    """Live as a forked process: wait for the gate, run one command, end."""
    status = 70
    try:
        output = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = (os.fdopen(each, "w", buffering=1, closefd=False) for each in (1, 2))
        os.chdir(folder)
        command: Callable[[], int] = _index if arguments[0] == "index" else partial(cli.main, arguments)
        os.read(gate, 1)
        status = run_program(command, "bertprep")
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _index() -> int:
    """Find where each record begins and keep that beside the records, as every run of the trainer does first."""
    from bertprep.records.records import Records

    with Records(["records/tfrecord"]) as records, redirect_stdout(StringIO()):
        return int(len(records) == 0)
