"""Parts of a run leave the bytes of one run: in any order, twice, at the same time, killed, and in a store."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bertprep import kernels
from bertprep.cli import main
from bertprep.text import shards
from bertprep.work.layout import LEDGER, RECEIPTS
from bertprep.work.roots import find_root
from bertprep.work.run import FAIL_AFTER
from tests.corpora import deal, sums
from tests.golden import GOLDEN
from tests.object_store import Fault, Store, store
from tests.races import start

__all__ = ["store"]  # a fixture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks the process of the tests")

PARTS, TWICE = 7, 2
WORKDIR = ["--workdir", "data", "--corpus", "golden", "--workers", "1"]
SHARD = ["shard", "--input", "../text", "--splitter", "lines", "--shards", "13", "--test-fraction", "0.2", *WORKDIR]
CLEANED = ["shard", "--input", "../lines", "--splitter", "lines", "--shards", "9", *WORKDIR]
BY_HASH = [
    *("shard", "--input", "../text", "../lines", "--splitter", "lines", "--shards", "13", "--test-fraction", "0.2"),
    *WORKDIR,
]
SETTINGS = ["--dupe", "1", "--seq", "32", "--pred", "5"]
CREATE = ["create", *SETTINGS, "--format", "tfrecord,arrow", *WORKDIR]
TEXTS = [f"../text/text_{number}.txt" for number in range(10)]
TOKENIZE = ["tokenize", *WORKDIR]
FILES = ["create", *SETTINGS, "--input", *TEXTS, "--output", "records", "--vocab", str(GOLDEN / "vocab.txt"), "--workers", "1"]
CONVERT = ["convert", "records/tfrecord", "converted", "--to", "arrow", "--shards", "11", "--workers", "1"]
TASK = [
    *(
        "task",
        "glue",
        "mine",
        "--input",
        "../labelled",
        "--output",
        "records",
        "--format",
        "arrow,parquet",
    ),
    *("--vocab", str(GOLDEN / "vocab.txt"), "--workers", "1"),
]
RUNS = {
    "shard": (SHARD, []),
    "shard-json-lines": (CLEANED, []),
    "shard-by-hash": (BY_HASH, []),
    "create": (CREATE, [SHARD]),
    "create-of-files": (FILES, []),
    "tokenize": (TOKENIZE, [SHARD]),
    "convert": (CONVERT, [FILES]),
    "task": (TASK, []),
}


@pytest.fixture(scope="module")
def course(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, and beside it for each run what it begins with, and what one run alone leaves."""
    kernels.load()  # once, not in each of the processes
    course = tmp_path_factory.mktemp("parts")
    texts = deal(golden_corpus, course / "text", len(TEXTS))
    (course / "lines").mkdir()
    for path in texts[:5]:
        documents = path.read_text().split("\n\n")
        lines = "".join(json.dumps({"text": document}) + "\n" for document in documents if document)
        (course / "lines" / f"{path.stem}.jsonl").write_text(lines)
    (course / "labelled").mkdir()
    for split in ("train", "dev", "test"):
        lines = "".join(f"text {number}\t{'good' if number % 2 else 'bad'}\n" for number in range(20))
        (course / "labelled" / f"{split}.tsv").write_text(f"sentence\tlabel\n{lines}")
    for name, (command, before) in RUNS.items():
        (course / f"{name}-beginning").mkdir()
        run_here(course / f"{name}-beginning", before)
        shutil.copytree(course / f"{name}-beginning", course / f"{name}-alone")
        run_here(course / f"{name}-alone", [command])
    return course


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sharding has many pieces to sort, and runs to merge."""
    for name, value in {"PIECE_BYTES": 20_000, "MAX_RUNS": 9, "MERGED_RUNS": 3}.items():
        monkeypatch.setattr(shards, name, value)


def run_here(folder: Path, commands: Sequence[Sequence[str]]) -> None:
    """Run commands in this process, so that those forked of it find everything loaded."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert [main(command) for command in commands] == [0] * len(commands)
    finally:
        os.chdir(before)


def run(folder: Path, commands: Sequence[Sequence[str]], status: int = 0) -> list[str]:
    """Run commands at the same time; returns what each said."""
    ended = start(folder, commands)
    assert all(each == status for each, _ in ended), "\n".join(f"{each}: {said}" for each, said in ended)
    return [said for _, said in ended]


def begin(course: Path, name: str) -> tuple[Path, list[str]]:
    """A new folder that a run begins with, and the run's command."""
    folder = course / f"{name}-round"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(course / f"{name}-beginning", folder)
    return folder, RUNS[name][0]


def part(command: Sequence[str], number: int, parts: int = PARTS) -> list[str]:
    return [*command, "--part", f"{number}/{parts}"]


@pytest.mark.parametrize("name", RUNS)
def test_parts_in_any_order_two_of_them_twice_leave_the_bytes_of_one_run(name: str, course: Path) -> None:
    folder, command = begin(course, name)
    order = [*range(PARTS), *random.Random(name).sample(range(PARTS), TWICE)]
    random.Random(name).shuffle(order)
    together = 4
    for first in range(0, len(order), together):
        run(folder, [part(command, number) for number in order[first : first + together]])
    expected = sums(course / f"{name}-alone")
    assert sums(folder) == expected  # whoever was last has finished it
    run(folder, [[*command, "--part", "finish"], part(command, 0, 1), command])
    assert sums(folder) == expected
    assert not [path for name in (LEDGER, RECEIPTS) for path in folder.rglob(name)]


@pytest.mark.parametrize("name", ["shard", "shard-by-hash", "create", "convert"])
def test_killed_parts_are_resumed(name: str, course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, command = begin(course, name)
    chosen = random.Random(name)
    ended, rounds, deaths = [1], 0, 0
    while any(ended):
        monkeypatch.setenv(FAIL_AFTER, f"{chosen.randint(1, 3)} SIGKILL")
        ended = [status for status, _ in start(folder, [part(command, number, 3) for number in range(3)])]
        assert set(ended) <= {0, -signal.SIGKILL}, ended
        rounds, deaths = rounds + 1, deaths + ended.count(-signal.SIGKILL)
    assert deaths > 2
    monkeypatch.delenv(FAIL_AFTER)
    run(folder, [[*command, "--part", "finish"]])
    assert sums(folder) == sums(course / f"{name}-alone")


def test_create_needs_finished_text_shards(course: Path) -> None:
    folder, command = begin(course, "shard")
    run(folder, [part(command, 0)])
    (said,) = run(folder, [part(CREATE, 0)], status=2)
    assert "has no finished text shards of golden, which parts need; make them first: bertprep shard" in said


def test_parts_in_a_store_leave_the_bytes_of_a_disk(course: Path, store: Store) -> None:
    texts = [str(course / "text" / Path(name).name) for name in TEXTS]
    settings = [*SETTINGS, "--vocab", str(GOLDEN / "vocab.txt"), "--workers", "1", "--format", "tfrecord,ofrecord"]
    command = ["create", "--input", *texts, "--output", store.url, *settings]

    def begin_part(number: int, fail_after: str = "") -> subprocess.Popen[str]:
        arguments = [sys.executable, "-m", "bertprep", *part(command, number, 3)]
        return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env={**os.environ, FAIL_AFTER: fail_after})

    killed = [begin_part(number, "2 SIGKILL") for number in (2, 0)]
    assert [each.wait() for each in killed] == [-signal.SIGKILL] * 2
    assert main([*command, "--part", "finish"]) == 1
    again = [begin_part(number) for number in (0, 2, 2)]
    assert [each.communicate()[1].count("Traceback") + each.returncode for each in again] == [0] * 3
    assert find_root(store.place("tfrecord")).is_unfinished
    assert main(part(command, 1, 3)) == 0
    assert sums(store.place()) == sums(course / "create-of-files-alone" / "records")
    assert not find_root(store.place("tfrecord")).is_unfinished
    assert main([*command, "--part", "finish"]) == 0
    assert sums(store.place()) == sums(course / "create-of-files-alone" / "records")


def test_parts_by_hash_in_a_store_that_fails_leave_the_bytes_of_a_disk(
    course: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "PIECE_BYTES", 24_000_000)  # as the other processes have it
    monkeypatch.setattr(shards, "MAX_RUNS", 128)
    command = [*BY_HASH[:2], str(course / "text"), str(course / "lines"), *BY_HASH[4:], "--workdir", store.url]
    store.faults += [
        Fault("PUT", r".*sorted/[0-9a-f]*\.arrow", lose=True),
        Fault("GET", r".*sorted/[0-9a-f]*\.arrow", times=2, cut_after=100),
        Fault("PUT", r".*training_00003.*", times=3, status=503, code="SlowDown"),
        Fault("PUT", ".*/manifest.json", lose=True),
        Fault("POST", lose=True),
    ]

    def begin_part(number: int, fail_after: str = "") -> subprocess.Popen[str]:
        arguments = [sys.executable, "-m", "bertprep", *part(command, number, 2)]
        return subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env={**os.environ, FAIL_AFTER: fail_after})

    killed = begin_part(0, "4 SIGKILL")  # within the map, or after the fourth shard
    assert killed.wait() == -signal.SIGKILL
    assert main([*command, "--part", "finish"]) == 1
    assert main(part(command, 1, 2)) == 0
    again = [begin_part(0), begin_part(0)]
    assert [each.communicate()[1].count("Traceback") + each.returncode for each in again] == [0, 0]
    assert main([*command, "--part", "finish"]) == 0
    assert sums(store.place("sharded")) == sums(course / "shard-by-hash-alone" / "data" / "sharded")
    assert not any(fault.times for fault in store.faults)
