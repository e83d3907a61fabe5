"""Rows of windows are counted once for all runs of a user, and counts that are not those of the files are found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bertprep
from bertprep import TokenDataset
from bertprep.config import InstanceSettings
from bertprep.errors import BertprepError
from bertprep.tokens import packing, shard_instances, window_counts
from bertprep.tokens.documents import open_token_documents
from bertprep.tokens.live import LiveExamples
from bertprep.tokens.pairs import PairWindows
from tests.corpora import deal
from tests.golden import GOLDEN
from tests.tokens.test_dataset import write_set

SEQ = 64


@pytest.fixture
def kept_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of kept counts, in which those of a few small windows are too."""
    monkeypatch.setenv("BERTPREP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packing, "WINDOW_TOKENS", 700)
    monkeypatch.setattr(window_counts, "MIN_WINDOWS", 2)
    return tmp_path / "cache" / "counts"


def forbid_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (packing, shard_instances):
        monkeypatch.setattr(module, "map_in_threads", lambda *_, **__: pytest.fail("rows were counted again"))


def test_rows_are_counted_once_for_all_runs(kept_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = write_set(tmp_path / "set")
    first = TokenDataset(tokens, seq=SEQ)
    rows = first[:]
    assert len([*kept_folder.iterdir()]) == 1
    forbid_counting(monkeypatch)
    again = TokenDataset(tokens, seq=SEQ)
    assert len(again) == len(first)
    for name, column in again[:].items():
        np.testing.assert_array_equal(column, rows[name])


@pytest.mark.parametrize("other", [{"seq": SEQ + 1}, {"packed": False}, {"split": "other"}])
def test_other_rows_are_counted_anew(kept_folder: Path, other: dict[str, int | str], tmp_path: Path) -> None:
    tokens = write_set(tmp_path / "set")
    len(TokenDataset(tokens, seq=SEQ))
    if "split" in other:
        other, tokens = {}, write_set(tmp_path / "more", shards=4)
    len(TokenDataset(tokens, **{"seq": SEQ, **other}))  # type: ignore[arg-type]
    assert len([*kept_folder.iterdir()]) == 2


@pytest.mark.parametrize("damage", ["fewer", "negative"])
def test_counts_that_cannot_be_are_found_again(kept_folder: Path, damage: str, tmp_path: Path) -> None:
    tokens = write_set(tmp_path / "set")
    expected = len(TokenDataset(tokens, seq=SEQ))
    [kept] = kept_folder.iterdir()
    counts = np.load(kept)
    np.save(kept, counts[:-1] if damage == "fewer" else -counts)
    assert len(TokenDataset(tokens, seq=SEQ)) == expected
    np.testing.assert_array_equal(np.load(kept), counts)


def test_counts_of_other_files_are_an_error_before_a_row_is_read(kept_folder: Path, tmp_path: Path) -> None:
    tokens = write_set(tmp_path / "set")
    len(TokenDataset(tokens, seq=SEQ))
    [kept] = kept_folder.iterdir()
    np.save(kept, np.load(kept) + 1)
    dataset = TokenDataset(tokens, seq=SEQ)
    line = r"/set: window \d+ has (\d+) rows, \d+ were counted before: .* remove the folder counts of bertprep's cache"
    with pytest.raises(BertprepError, match=line):
        dataset[:]


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
    np.save(kept, np.load(kept) + 1)
    with LiveExamples(folder, settings=settings) as live, pytest.raises(BertprepError, match="were counted before"):
        next(live.batches(4))


def test_counts_of_other_documents_and_pairs_are_not_taken(kept_folder: Path, tmp_path: Path) -> None:
    tokens = write_set(tmp_path / "set")
    every = len(TokenDataset(tokens, seq=SEQ))
    assert len(TokenDataset(tokens, seq=SEQ, min_document_tokens=30)) < every
    assert len([*kept_folder.iterdir()]) == 2
    documents = open_token_documents(tokens)
    of_pairs = [
        PairWindows(documents, seq=SEQ, pairs="order", short_seq_prob=short, seed=seed)._depends_on
        for short, seed in ((0.1, 1), (0.2, 1), (0.1, 2))
    ]
    assert of_pairs[0] not in of_pairs[1:]
