"""Reading and validating any bytes ends in values or in one clear line; test_stress.py tries more."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertprep.commands.validate import validate
from tests.check.damage import Damaged, Examiner, Target, damage_case, make_targets
from tests.golden import GOLDEN


@pytest.fixture(scope="module")
def targets(golden_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Target]:
    return make_targets(golden_corpus, tmp_path_factory.mktemp("targets"))


@pytest.fixture(scope="module")
def examiner(tmp_path_factory: pytest.TempPathFactory) -> Examiner:
    return Examiner(tmp_path_factory.mktemp("damaged"))


def test_undamaged_files_are_valid(targets: list[Target], examiner: Examiner, tmp_path: Path) -> None:
    for number, target in enumerate(targets):
        assert examiner.examine(Damaged(target, target.content, has_checksums=True)) is None
        path = tmp_path / f"part-{number}"
        path.write_bytes(target.content)
        (outcome,) = validate([path], vocab=GOLDEN / "vocab.txt", workers=1)
        assert outcome.findings == [], target.name


@settings(max_examples=100)
@given(content=st.binary(max_size=300))
def test_any_bytes(targets: list[Target], examiner: Examiner, content: bytes) -> None:
    assert examiner.examine(Damaged(targets[0], content, has_checksums=True)) is None


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_any_damage(targets: list[Target], examiner: Examiner, seed: int) -> None:
    assert examiner.examine(damage_case(targets, seed)) is None
