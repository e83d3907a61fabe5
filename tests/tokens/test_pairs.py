"""Rows of two segments: those of plain Python, labelled as they lie in the text, and the same from anywhere."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertprep
from bertprep import PairDataset
from bertprep.errors import UsageError
from bertprep.tokens import packing, reference
from bertprep.tokens.documents import open_token_documents
from bertprep.tokens.pairs import SHORT, PairWindows
from tests.tokens.test_dataset import write_set

SEQ = 48
PAD, UNK, CLS, SEP, MASK = range(5)


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of 1 to 30 sentences of 1 to 20 words, each of which is there once."""
    folder = tmp_path_factory.mktemp("pairs")
    random = np.random.default_rng(3)
    documents, words = [], 0
    for _ in range(120):
        lines = []
        for _ in range(random.integers(1, 31)):
            count = int(random.integers(1, 21))
            lines.append(" ".join(f"w{word}" for word in range(words, words + count)))
            words += count
        documents.append("\n".join(lines))
    (folder / "a.txt").write_text("\n\n".join(documents) + "\n")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{word}" for word in range(words))]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    bertprep.tokenize(
        inputs=[folder / "a.txt"], vocab=folder / "vocab.txt", output=folder / "data", lines_are_sentences=True, workers=1
    )
    return folder / "data" / "tokens"


def segments_of(row: dict[str, Any]) -> list[list[int]]:
    """The tokens of the segments of a row as they were before masking, checked to be laid out right."""
    ids = np.where(row["labels"] != -100, row["labels"], row["input_ids"])
    size = int(row["attention_mask"].sum())
    assert (row["attention_mask"] == (np.arange(len(ids)) < size)).all()
    assert not ids[size:].any()
    ends = np.flatnonzero(ids[:size] == SEP).tolist()
    assert ids[0] == CLS
    assert ends[-1] == size - 1
    assert row["token_type_ids"].tolist() == [int(ends[0] < i < size) for i in range(len(ids))]
    return [ids[begin + 1 : end].tolist() for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


@pytest.mark.parametrize("short", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("pairs", SHORT)
@pytest.mark.parametrize("seq", [8, 20, 48, 200])
def test_pairs_equal_those_of_plain_python(
    seq: int, pairs: str, short: float, sentences: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "WINDOW_TOKENS", 4096)
    documents = open_token_documents(sentences)
    windows = PairWindows(documents, seq=seq, pairs=pairs, short_seq_prob=short, seed=5)
    [shard] = documents.shards
    assert len(windows.counts) > 3
    for window in range(len(windows.counts)):
        first, end = np.searchsorted(shard.starts[:-1], [window * 4096, (window + 1) * 4096])
        given = [
            shard.sequence_starts[shard.document_starts[number] : shard.document_starts[number + 1] + 1].tolist()
            for number in range(first, end)
        ]
        draws = reference.Draws.__new__(reference.Draws)
        draws.state = int.from_bytes(hashlib.sha256(f"5 {window}".encode()).digest()[:8], "little")
        below = round(short * 2**32)
        expected: list[Any] = (
            reference.order_pairs(given, seq - 3, below, draws)
            if pairs == "order"
            else [(*pair, False) for pair in reference.segment_pairs(given, seq - 3, below, round(0.1 * 2**32), draws)]
        )
        found = windows.get(window)
        of_rows = list(zip((found.first + found.begins.astype(int)).tolist(), found.sizes.tolist(), strict=True))
        rows = [of_rows[start:stop] for start, stop in zip(found.row_starts, found.row_starts[1:], strict=False)]
        assert rows == [[segment for segment in (a, b) if segment[1]] for a, b, _ in expected]
        assert found.is_swapped.astype(bool).tolist() == [is_swapped for *_, is_swapped in expected]
        lengths = [1 + sum(size + 1 for _, size in row) for row in rows]
        assert windows.lengths(window).tolist() == lengths
        assert max(lengths) <= seq


def test_rows_are_labelled_by_the_order_of_their_segments_in_the_text(sentences: Path) -> None:
    dataset = PairDataset(sentences, seq=SEQ, masked_lm_prob=0.15)
    rows = dataset[:]
    swapped = []
    for index in range(len(dataset)):
        row = {name: values[index] for name, values in rows.items()}
        a, b = segments_of(row)
        if row["sentence_order_label"]:
            swapped.append(b[-1] < a[0])  # else of another document
        else:
            assert a[-1] < b[0]
    assert 0.4 < rows["sentence_order_label"].mean() < 0.6
    assert np.mean(swapped) > 0.6
    masked = (rows["labels"] != -100).sum(1)
    of = rows["attention_mask"].sum(1) - 3
    assert masked.tolist() == np.maximum(np.rint(0.15 * of), 1).tolist()
    assert masked.max() <= dataset.most_predictions


def test_segments_go_on_after_each_other_and_the_second_may_be_missing(sentences: Path) -> None:
    dataset = PairDataset(sentences, seq=SEQ, pairs="segments")
    assert set(dataset[0]) == {"input_ids", "token_type_ids", "attention_mask", "labels"}
    texts = [segments_of(dataset[index]) for index in range(len(dataset))]
    assert {len(segments) for segments in texts} == {1, 2}
    for segments in texts:
        assert np.diff(np.concatenate(segments)).tolist() == [1] * (sum(map(len, segments)) - 1)
    alone = np.mean([len(segments) == 1 for segments in texts])
    assert 0.1 < alone < 0.4  # and where a document ends


def test_each_epoch_has_the_same_pairs_in_another_order_with_other_masks(sentences: Path) -> None:
    dataset = PairDataset(sentences, seq=SEQ, epochs=2)
    half = len(dataset) // 2
    rows = dataset.rows(np.arange(2 * half))
    text = np.where(rows["labels"] != -100, rows["labels"], rows["input_ids"]).tolist()
    assert text[:half] != text[half:]
    assert sorted(text[:half]) == sorted(text[half:])
    batches = list(dataset.batches(8, stop=6))
    again = list(pickle.loads(pickle.dumps(dataset)).batches(8, first=4, stop=6))
    for one, other in zip(batches[4:], again, strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])
    assert batches[0]["input_ids"].shape[1] == batches[0]["attention_mask"].sum(1).max()
    assert batches[0]["sentence_order_label"].shape == (8,)


def test_pairs_by_length_come_in_batches_of_tokens(sentences: Path) -> None:
    dataset = PairDataset(sentences, seq=SEQ, by_length=True)
    batches = dataset.batches_of_tokens(500)
    for batch, _ in zip(batches, range(20), strict=False):
        assert batch["input_ids"].size <= 500


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pairs": "nsp"}, "pairs 'nsp': expected 'order' as in ALBERT, or 'segments' as in ELECTRA"),
        ({"packed": True}, "packed: is a setting of TokenDataset that PairDataset does not have; leave it out"),
        ({"short_seq_prob": 2}, "short_seq_prob 2: expected a fraction from 0 to 1"),
        ({"short_seq_prob": "x"}, "short_seq_prob 'x': expected a fraction from 0 to 1"),
        ({"seq": 7}, "seq 7: must be at least 8 for pairs"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any], message: str, sentences: Path) -> None:
    with pytest.raises(UsageError, match=message):
        PairDataset(sentences, **given)


def test_whole_documents_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has whole documents, made with --tokenizer, and pairs need sentences; make"):
        PairDataset(write_set(tmp_path / "set"))
