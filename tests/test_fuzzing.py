"""Damaged files of every untrusted kind are read, or refused in one line: --cases N of each, 40 by default.

tests/test_stress.py has 250 of each.
"""

from pathlib import Path

import pytest

from tests.check.damage import make_targets
from tests.fuzzing import NAMES, REFUSED, Kind, make_kinds


@pytest.fixture(scope="module")
def kinds(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    folder = tmp_path_factory.mktemp("fuzzing")
    return make_kinds(make_targets(golden_corpus, folder / "targets"), folder)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_are_read_or_refused(
    name: str, kinds: dict[str, Kind], tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    cases = pytestconfig.option.cases
    outcomes = [kinds[name].try_case(f"test:{number}", tmp_path) for number in range(cases)]
    assert 0 < outcomes.count(REFUSED) < cases
