"""The loss of predicting tokens by their frequency, against arithmetic that can be done by hand and a plain count."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from bertprep.records.record_set import RecordSet
from tests.records.handmade import FIRST, Record, file_of
from tests.records.test_record_set import write_folder
from trainer.tasks import unigram
from trainer.tasks.unigram import unigram_loss


def labelled(path: Path, *labels: tuple[int, int], weights: tuple[float, float] = (1.0, 1.0)) -> RecordSet:
    """A file of records with two predictions each, which have these labels."""
    path.write_bytes(file_of(*({**FIRST, "masked_lm_ids": pair, "masked_lm_weights": weights} for pair in labels)))
    return RecordSet([path])


def plain_loss(training: Sequence[Record], test: Sequence[Record], vocab_size: int) -> float:
    """The same, label by label."""

    def labels(records: Sequence[Record]) -> list[int]:
        pairs = (zip(record["masked_lm_ids"], record["masked_lm_weights"], strict=True) for record in records)
        return [int(label) for pair in pairs for label, weight in pair if weight]

    counts = Counter(labels(training))
    losses = [-math.log((counts[label] + 1) / (counts.total() + vocab_size)) for label in labels(test)]
    return sum(losses) / len(losses)


def test_a_vocabulary_of_four(tmp_path: Path) -> None:
    training = labelled(tmp_path / "training", (1, 1), (1, 2))  # so 0 to 3 have 1, 4, 2 and 1 of 8
    test = labelled(tmp_path / "test", (1, 3))
    assert unigram_loss(training, test, vocab_size=4) == pytest.approx((math.log(8 / 4) + math.log(8 / 1)) / 2)


def test_what_has_no_weight_is_neither_counted_nor_predicted(tmp_path: Path) -> None:
    training = labelled(tmp_path / "training", (1, 0), (1, 99), weights=(1.0, 0.0))  # so 1 has 3 of 6
    test = labelled(tmp_path / "test", (1, 99), weights=(1.0, 0.0))
    assert unigram_loss(training, test, vocab_size=4) == pytest.approx(math.log(6 / 3))
    unmasked = labelled(tmp_path / "unmasked", (1, 1), weights=(0.0, 0.0))
    assert unigram_loss(training, unmasked, vocab_size=4) == 0


@pytest.mark.parametrize("portion", [4096, 7])
def test_it_equals_a_plain_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, portion: int) -> None:
    monkeypatch.setattr(unigram, "_PORTION", portion)
    training = write_folder(tmp_path / "training", (30, 11))
    test = write_folder(tmp_path / "test", (20,), "ofrecord", seed=1)
    test += training[:5]  # whose labels are known
    (tmp_path / "test" / "training" / "part-1").write_bytes(file_of(*training[:5]))
    loss = unigram_loss(RecordSet([tmp_path / "training"]), RecordSet([tmp_path / "test"]), vocab_size=30522)
    assert loss == pytest.approx(plain_loss(training, test, 30522), rel=1e-12)


def test_the_first_records_of_the_test_split_are_those_of_an_evaluation(tmp_path: Path) -> None:
    training = labelled(tmp_path / "training", (1, 1), (1, 2))
    test = labelled(tmp_path / "test", (1, 1), (1, 1), (3, 3))
    assert unigram_loss(training, test, vocab_size=4, test_sequences=2) == pytest.approx(math.log(2))
    assert unigram_loss(training, test, vocab_size=4, test_sequences=50) == unigram_loss(training, test, vocab_size=4)


def test_records_beyond_the_limit_are_left_out_evenly(tmp_path: Path) -> None:
    training = labelled(tmp_path / "training", (1, 1), (2, 2), (1, 1), (2, 2), (1, 1), (2, 2))  # of three, 1 has 7 of 10
    test = labelled(tmp_path / "test", (1, 1), (3, 3), (1, 1), (3, 3), (1, 1), (3, 3))
    assert unigram_loss(training, test, vocab_size=4, most_records=3) == pytest.approx(math.log(10 / 7))
