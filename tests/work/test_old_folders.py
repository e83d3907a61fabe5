"""Folders made by bertprep 0.1.0 are read: tests/golden/README.md describes them.

It wrote part-00000, laid manifest and vocabulary of --output among the records, and ended the name of a folder in _one_seed.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

import bertprep
from bertprep.cli import main
from tests.corpora import sums
from tests.golden import GOLDEN
from tests.trainer.test_data import opened

TEXTS = [f"text/text_{number}.txt" for number in range(3)]
SETTINGS = bertprep.InstanceSettings(seq=32, pred=4, dupe=1)
NAME = "lower_case_1_seq_len_32_max_pred_4_masked_lm_prob_0.15_random_seed_12345_dupe_factor_1_shard_2_test_split_10"


@pytest.fixture(autouse=True)
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folders, which is the working directory."""
    shutil.copytree(GOLDEN / "made_by_0.1.0", tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    return tmp_path / "old"


def small_vocabulary() -> Path:
    return next(Path("workspace/vocab").iterdir())


def make(output: str, formats: Any = ("tfrecord", "ofrecord")) -> None:
    bertprep.create(inputs=TEXTS, output=output, vocab=small_vocabulary(), **vars(SETTINGS), formats=formats, workers=1)


def without_manifests(found: dict[str, str]) -> dict[str, str]:
    """Manifests hold the versions of the run that finished them."""
    return {name: digest for name, digest in found.items() if not name.endswith("manifest.json")}


@pytest.mark.parametrize("path", ["workspace", "finished", "finished/ofrecord", "finished/ofrecord/part-00001", "converted"])
def test_they_validate(path: str) -> None:
    outcomes = bertprep.validate([path], workers=1)
    assert outcomes
    found = {finding.code for outcome in outcomes for finding in outcome.findings}
    assert found <= {"few-predictions"}  # of which 32 tokens have five, and the folders' --pred is 4
    assert all(outcome.manifest and (outcome.vocabulary or outcome.kind == "text shards") for outcome in outcomes)


@pytest.mark.parametrize("path", ["finished/ofrecord/part-00001", f"workspace/ofrecord/{NAME}/mine/training/part-00001"])
def test_their_examples_are_shown(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", path, "--records", "1"]) == 0
    assert "[CLS] " in capsys.readouterr().out


def test_they_convert(old: Path) -> None:
    bertprep.convert("finished/ofrecord", old / "back", workers=1)
    assert sums(old / "back/training") == {
        name: digest for name, digest in sums(old / "finished/tfrecord").items() if name.endswith("tfrecord")
    }
    bertprep.convert(f"workspace/ofrecord/{NAME}/mine", old / "split", workers=1)
    assert without_manifests(sums(old / "split")) == without_manifests(sums(old / f"workspace/tfrecord/{NAME}/mine"))


def test_they_are_trained_on() -> None:
    assert opened(workdir=Path("workspace"), seq=32, format="ofrecord").test is not None
    for record_format in ("tfrecord", "ofrecord"):
        data = opened(Path("finished"), format=record_format)
        assert (data.folders, data.records.formats) == ((Path("finished") / record_format,), [record_format])
        assert data.vocabulary == Path("finished") / record_format / "vocab.txt"


def test_a_new_run_says_so_and_changes_nothing(old: Path) -> None:
    """They are read as they are; what is made now has another layout."""
    before = sums(old)
    with pytest.raises(bertprep.BertprepError, match=r"its manifest.json does not list training/.*; choose another --output"):
        make("finished")
    with pytest.raises(bertprep.BertprepError, match=r"its manifest.json does not list training/"):
        bertprep.convert("finished/tfrecord", "converted", workers=1)
    assert sums(old) == before
