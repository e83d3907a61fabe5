"""However a command is run, it leaves the same bytes: in parts, several times at once, killed, resumed by other workers.

tests/work/test_run.py kills the loop that all commands share at each of its steps. So here every change passes the commands
that make their files in ways of their own; the others are stress tests, as are more races, in tests/test_stress.py.
"""

import random
import signal
import sys
from pathlib import Path

import pytest

from bertprep.text import shards
from bertprep.work.layout import LEDGER
from bertprep.work.run import FAIL_AFTER
from tests.corpora import sums
from tests.runs import RUNS, Course, expect_success, start

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="forks the process of the tests"), pytest.mark.slow]

IN_PARTS = {name for name, run in RUNS.items() if run.has_parts}


def run_each_of(*names: str) -> pytest.MarkDecorator:
    """Run a test on these commands, and as a stress test on all others that take parts."""
    others = sorted(IN_PARTS.difference(names))
    return pytest.mark.parametrize("name", [*names, *(pytest.param(other, marks=pytest.mark.stress) for other in others)])


@pytest.fixture(scope="module")
def course(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Course:
    return Course(tmp_path_factory.mktemp("same bytes"), golden_corpus)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sharding has many pieces to sort, and runs to merge."""
    for name, value in {"PIECE_BYTES": 20_000, "MAX_RUNS": 9, "MERGED_RUNS": 3}.items():
        monkeypatch.setattr(shards, name, value)


def part(name: str, number: int, parts: int) -> list[str]:
    return [*RUNS[name].command, "--workers", "1", "--part", f"{number}/{parts}"]


@run_each_of("shard two kinds of files", "create", "tokenize", "tokenize documents in processes", "convert")
def test_parts_in_any_order_two_of_them_twice(name: str, course: Course) -> None:
    expected, folder = course.alone(name), course.begin(name)
    order = [*range(5), *random.Random(name).sample(range(5), 2)]
    random.Random(name).shuffle(order)
    for some in (order[:4], order[4:]):
        expect_success(start(folder, [part(name, number, 5) for number in some]))
    assert sums(folder) == expected  # whoever was last has finished it
    command = RUNS[name].command
    expect_success(start(folder, [[*command, "--part", "finish"], part(name, 0, 1), command]))
    assert sums(folder) == expected
    assert not [*folder.rglob(LEDGER)]


@run_each_of("shard two kinds of files", "create", "tokenize documents", "task")
def test_killed_again_and_again(name: str, course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one run, of another number of workers each time, and in parts."""
    expected, folder, chosen = course.alone(name), course.begin(name), random.Random(name)
    deaths = rounds = 0
    ended = {1}
    while ended != {0}:
        monkeypatch.setenv(FAIL_AFTER, f"{chosen.randint(1, 3)} SIGKILL")
        as_one = [[*RUNS[name].command, "--workers", str(1 + rounds % 3)]]
        printed = start(folder, as_one if rounds % 2 == 0 else [part(name, number, 3) for number in range(3)])
        ended = {status for status, _ in printed}
        assert ended <= {0, -signal.SIGKILL}, printed
        deaths, rounds = deaths + (ended != {0}), rounds + 1
    assert deaths > 1
    monkeypatch.delenv(FAIL_AFTER)
    expect_success(start(folder, [[*RUNS[name].command, "--part", "finish"]]))
    assert sums(folder) == expected


@pytest.mark.parametrize(
    "name",
    ["shard two kinds of files", "create", "tokenize", "tokenize files", "convert a file", "vocabulary", "trainer's index"],
)
def test_several_at_once(name: str, course: Course) -> None:
    assert course.race(name, 3) == []


def test_parts_need_finished_text_shards(course: Course) -> None:
    folder = course.begin("shard")
    expect_success(start(folder, [part("shard", 0, 5)]))
    [(status, printed)] = start(folder, [part("create", 0, 5)])
    assert status == 2
    assert "data/sharded/golden: is not finished, " in printed
    assert "run the parts of bertprep shard that have not finished, or the command that began them, without --part" in printed
