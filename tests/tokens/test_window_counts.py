"""Examples are counted once for all runs of a user, and counts that are not those of the files are found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError
from bertprep.files import kept_arrays
from bertprep.tokens import shard_instances, window_counts
from bertprep.tokens.live import LiveExamples
from tests.corpora import deal
from tests.golden import GOLDEN


@pytest.fixture
def kept_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kept counts, in which those of a few small windows are too."""
    monkeypatch.setenv("BERTPREP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(window_counts, "MIN_WINDOWS", 2)
    return tmp_path / "cache" / "counts"


def forbid_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_instances, "map_in_threads", lambda *_, **__: pytest.fail("rows were counted again"))


def test_examples_made_on_the_fly_are_counted_once(
    kept_folder: Path, golden_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts").mkdir()
    texts = deal(golden_corpus, tmp_path / "texts", 3)
    folder = bertprep.tokenize(inputs=texts, output=tmp_path / "out", vocab=GOLDEN / "vocab.txt", workers=1).folder
    settings = InstanceSettings(seq=32, pred=5, dupe=1)
    with LiveExamples(folder, settings=settings) as live:
        expected = live.counts.tolist()
    [kept] = kept_folder.iterdir()
    with monkeypatch.context() as patched:
        forbid_counting(patched)
        with LiveExamples(folder, settings=settings) as live:
            assert live.counts.tolist() == expected
    counts, written = np.fromfile(kept, np.int64)[:-1], kept.read_bytes()
    for corrupt in (bytes(len(written)), b"\1" + written[1:], b"", written[:-1]):
        kept.write_bytes(corrupt)
        with LiveExamples(folder, settings=settings) as live:
            assert live.counts.tolist() == expected
        assert kept.read_bytes() == written
    kept.write_bytes((counts + 1).tobytes() + np.int64(kept_arrays._checksum(counts + 1)).tobytes())
    with LiveExamples(folder, settings=settings) as live, pytest.raises(BertprepError, match="when they were counted"):
        next(live.batches(4))
