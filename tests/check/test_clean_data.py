"""Sound data has no error: what bertprep makes of the golden corpus and of the sample corpus, in every setting tested there."""

from pathlib import Path

import pytest

import bertprep
from bertprep.commands.validate import validate
from bertprep.config import InstanceSettings
from tests.golden import GOLDEN
from tests.instances.test_golden import RUNS


@pytest.mark.parametrize("name", RUNS)
def test_golden_settings(name: str, golden_corpus: Path, tmp_path: Path) -> None:
    settings, _, _ = RUNS[name]
    text = golden_corpus
    if name == "onedoc":
        text = tmp_path / "onedoc.txt"
        text.write_bytes(golden_corpus.read_bytes().partition(b"\n\n")[0] + b"\n\n")
    bertprep.create(settings=settings, inputs=[text], output=tmp_path / "out", vocab=GOLDEN / "vocab.txt", workers=1)
    outcomes = validate([tmp_path / "out"], workers=1)
    assert sorted(outcome.kind for outcome in outcomes) == ["ofrecord", "tfrecord"]
    assert [finding for outcome in outcomes for finding in outcome.findings] == []


def test_sample_corpus(tmp_path: Path) -> None:
    """A whole workspace: text shards, and records of both formats and splits."""
    settings = InstanceSettings(dupe=1)
    bertprep.create(settings=settings, workdir=tmp_path, vocab=GOLDEN / "vocab.txt", workers=2)
    outcomes = validate([tmp_path], workers=2)
    assert sorted(outcome.kind for outcome in outcomes) == ["ofrecord", "text shards", "tfrecord"]
    assert [finding for outcome in outcomes for finding in outcome.findings] == []
