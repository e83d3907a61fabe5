"""Damaged files of every untrusted kind are read, or refused in one line; test_stress.py runs longer."""

from pathlib import Path

import pytest

from tests.check.damage import make_targets
from tests.fuzzing import REFUSED, Kind, make_kinds

CASES = 100
PLAIN = ["records", "manifest", "marker", "listing", "tokens", "vocabulary", "parquet", "arrow", "squad", "squad json"]
PACKED = [f"{name}{packing}" for name in ("text", "json lines", "csv", "dump") for packing in ("", ".gz", ".bz2", ".zst")]


@pytest.fixture(scope="module")
def kinds(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kind]:
    folder = tmp_path_factory.mktemp("fuzzing")
    return make_kinds(make_targets(golden_corpus, folder / "targets"), folder)


@pytest.mark.parametrize("name", [*PLAIN, *PACKED])
def test_damaged_files_are_read_or_refused(name: str, kinds: dict[str, Kind], tmp_path: Path) -> None:
    outcomes = [kinds[name].try_case(f"test:{number}", tmp_path) for number in range(CASES)]
    assert 0 < outcomes.count(REFUSED) < CASES
