"""What chance finds: corrupt files, races, kills; `pytest -m stress --rounds N --seed N`, and one round in scripts/test --all.

A round is 250 corrupt files of each kind, 8,000 random calls, each race by 3, 5 and 8 processes, and one kill of a workspace in
a store.
"""

import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.check.damage import make_targets
from tests.corpora import deal, sums
from tests.fuzzing import make_kinds, try_apart
from tests.hub_server import HubServer
from tests.object_store import Fault, Store, store
from tests.runs import RUNS, Course
from tests.small_hub import fill
from tests.store_kills import Run, commands, watch
from tests.test_random_calls import make_calls

pytestmark = pytest.mark.stress
__all__ = ["store"]  # a fixture
CASES, CALLS = 250, 8_000
FAULTS = ({"lose": True}, {"cut": True}, {"status": 503, "code": "SlowDown"}, {"status": 500, "code": "InternalError"})


def test_damaged_files_of_all_kinds(seed: int, golden_corpus: Path, tmp_path: Path) -> None:
    kinds = make_kinds(make_targets(golden_corpus, tmp_path / "targets"), tmp_path)
    faults = [try_apart(kind, [f"{seed}:{name}:{n}" for n in range(CASES)], tmp_path) for name, kind in kinds.items()]
    assert "".join(faults) == ""


def test_no_call_ends_the_process(seed: int, golden_corpus: Path, tmp_path: Path) -> None:
    make_calls(golden_corpus, tmp_path / "data", seed, CALLS)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with HubServer() as server:
        fill(server)
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "no"))
        monkeypatch.setenv("BERTPREP_RETRY_SECONDS", "0.01")
        yield server


@pytest.mark.usefixtures("seed", "hub")
@pytest.mark.parametrize("name", RUNS)
def test_races(name: str, golden_corpus: Path, tmp_path: Path) -> None:
    course = Course(tmp_path, golden_corpus)
    assert [fault for runs in (3, 5, 8) for fault in course.race(name, runs)] == []


def test_a_kill_in_a_store_at_any_moment(seed: int, golden_corpus: Path, tmp_path: Path, store: Store) -> None:
    """The store loses answers and gives errors all the time; every object must be that of a run on a disk."""
    chance = random.Random(seed)
    texts = deal(golden_corpus, tmp_path / "text", 3)
    started = time.monotonic()
    finish(commands(texts, str(tmp_path / "data"), 2))
    expected, seconds = sums(tmp_path / "data"), time.monotonic() - started
    for kind in FAULTS:
        for method in ("PUT", "GET", "HEAD", "POST"):
            store.faults.append(Fault(method, times=chance.randint(0, 3), skip=chance.randint(0, 30), **kind))
    with watch(store, expected):
        run = Run(commands(texts, store.url, 2))
        try:
            status, printed = run.wait(chance.uniform(0, 3 * seconds))
            assert status == 0, printed
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
        finish(commands(texts, store.url, 2))
    there = sums(store.path())
    assert there == expected, sorted(set(there.items()) ^ set(expected.items()))


def finish(of: list[list[str]]) -> None:
    status, printed = Run(of).wait()
    assert status == 0, printed
