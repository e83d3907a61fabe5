"""Several first runs at once leave the bytes of one; test_stress.py runs more."""

import sys
from pathlib import Path

import pytest

from tests.races import RACES, Course

ROUNDS = [("sample", 3), ("shard", 5), ("shard-json-lines", 3), ("create", 5), ("create-of-files", 3), ("vocabulary", 3),
          ("vocabulary-to-a-file", 3), ("validate", 3), ("page", 3), ("convert-a-file", 3),
          ("convert-a-folder", 3), ("trainer-index", 5)]  # fmt: skip


@pytest.fixture(scope="module")
def course(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Course:
    return Course(tmp_path_factory.mktemp("races"), golden_corpus)


@pytest.mark.skipif(sys.platform != "linux", reason="forks the process of the tests")
@pytest.mark.parametrize(("name", "runs"), ROUNDS, ids=[name for name, _ in ROUNDS])
def test_concurrent_runs_leave_the_bytes_of_one(name: str, runs: int, course: Course) -> None:
    assert course.run(RACES[name], runs) == []
