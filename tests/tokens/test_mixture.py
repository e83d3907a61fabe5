"""Mixtures: exact counts of each set for any number of rows, each set in its own order, and the same batches from anywhere."""

import math
import pickle
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from bertprep import Mixture, TokenDataset
from bertprep.errors import UsageError
from bertprep.tokens.documents import TokenizerInfo
from bertprep.tokens.mixture import PERIOD
from tests.tokens.test_dataset import INFO, SEQ, write_set

WEIGHTS = 0.7, 0.3


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> list[TokenDataset]:
    folder = tmp_path_factory.mktemp("sets")
    return [TokenDataset(write_set(folder / name, shards=shards), seq=SEQ) for name, shards in (("a", 3), ("b", 1))]


@pytest.fixture(scope="module")
def mixture(sets: list[TokenDataset]) -> Mixture:
    return Mixture(list(zip(sets, WEIGHTS, strict=True)))


def test_each_row_is_the_next_of_its_set(mixture: Mixture, sets: list[TokenDataset]) -> None:
    """Over many epochs of the smaller one."""
    rows = 600
    of_set, positions = mixture.locate(np.arange(rows))
    found = mixture.rows(np.arange(rows))
    for index, dataset in enumerate(sets):
        assert positions[of_set == index].tolist() == list(range(mixture.counts(rows)[index]))
        expected = dataset.rows(np.arange(mixture.counts(rows)[index]))
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name][of_set == index], values)
    assert mixture.counts(rows)[1] > 2 * len(sets[1])


def test_no_rows_have_all_columns(mixture: Mixture) -> None:
    some, none = mixture.rows(np.arange(3)), mixture.rows(np.arange(0))
    assert {name: values.shape[1:] for name, values in none.items()} == {
        name: values.shape[1:] for name, values in some.items()
    }
    assert not any(map(len, none.values()))


def test_counts_are_exact_and_near_the_weights(mixture: Mixture) -> None:
    assert mixture.counts(10 * PERIOD) == [458_750, 196_610]
    for rows in (1, 999, PERIOD - 1, PERIOD, 3 * PERIOD + 12_345):
        of_set, _ = mixture.locate(np.arange(rows))
        assert mixture.counts(rows) == np.bincount(of_set, minlength=2).tolist()
        assert abs(mixture.counts(rows)[0] - 0.7 * rows) < 4 * np.sqrt(rows) * 0.46


def test_batches_are_the_same_from_anywhere(mixture: Mixture) -> None:
    expected = list(mixture.batches(8, stop=12))
    for index, batch in enumerate(pickle.loads(pickle.dumps(mixture)).batches(8, first=5, stop=12)):
        for name, values in batch.items():
            np.testing.assert_array_equal(values, expected[5 + index][name])
    assert expected[0]["cu_seqlens"][-1] == 8 * SEQ
    mixture.set_epoch(1)
    position = [*mixture.sampler()][3]
    np.testing.assert_array_equal(mixture[position]["input_ids"], mixture.rows([len(mixture) + 3])["input_ids"][0])
    mixture.set_epoch(0)


def test_epochs_far_on_are_had_at_once_or_refused(mixture: Mixture) -> None:
    again: Mixture = pickle.loads(pickle.dumps(mixture))
    again.set_epoch(10**6)
    expected = mixture.rows(np.array([10**6 * len(mixture) + 3]))["input_ids"][0]
    np.testing.assert_array_equal(again[[*again.sampler()][3]]["input_ids"], expected)
    for epoch in (-1, 1.5, 2**63, 2**70):
        with pytest.raises(ValueError, match=r"\): epoch .*; expected a whole number from 0 to "):
            again.set_epoch(epoch)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"^weights of a Mixture cannot be changed; make another with it"):
        again.weights = [0.5, 0.5]


def test_what_was_read_is_described(mixture: Mixture, sets: list[TokenDataset]) -> None:
    first, second = mixture.describe(PERIOD)
    assert (first["rows"], second["rows"], first["documents"], second["documents"]) == (45_875, 19_661, 180, 60)
    assert second["sha256"] == sets[1].sha256
    assert second["epochs"] == pytest.approx(19_661 / len(sets[1]), abs=1e-6)


def test_sets_that_do_not_go_together_are_refused(sets: list[TokenDataset], tmp_path: Path) -> None:
    other = TokenDataset(write_set(tmp_path / "other", info=TokenizerInfo(**{**vars(INFO), "sha256": "1" * 64})), seq=SEQ)
    for given, message in (
        ([], "expected a list of"),
        ([(sets[0], 0)], "weights above 0"),
        (["a"], r"expected a list of \(data set, weight\)"),
        ([(sets[0], "1")], "weights above 0"),
        ([(sets[0], 10**400)], "finite weights"),
        ([(sets[0], math.inf)], "finite weights"),
        ([(sets[0], math.nan)], "finite weights"),
        ([(sets[0],)], r"expected a list of \(data set, weight\)"),
        (None, "expected a list of"),
        ({sets[0]: 1}, "expected a list of"),
        ([(sets[0], 1), (sets[1], 0)], "weights above 0"),
        ([(sets[0], 1), (sets[1],)], r"expected a list of \(data set, weight\)"),
        ([(sets[0], 1), sets[1]], r"expected a list of \(data set, weight\)"),
        ([(sets[0], 1), (sets[1], 1e-7)], "at least 1 / 65,536"),
        ([(sets[0], 1), (TokenDataset(sets[1].folder, seq=SEQ + 1), 1)], "has seq 65, TokenDataset"),
        ([(sets[0], 1), (other, 1)], "has another tokenizer than"),
    ):
        with pytest.raises(UsageError, match=message):
            Mixture(given)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error")
def test_only_the_ratio_of_weights_counts(sets: list[TokenDataset]) -> None:
    expected = Mixture([(sets[0], 1), (sets[1], 1)])
    for weights in ((1e308, 1e308), (5e-324, 5e-324), (Fraction(10**300), 10**300)):
        assert Mixture(zip(sets, weights, strict=True)).sha256 == expected.sha256


def test_a_temperature_makes_weights_of_tokens(sets: list[TokenDataset]) -> None:
    tokens = np.array([each.documents.tokens for each in sets])
    for temperature in (1.0, 0.7, 0.3, 0):
        expected = tokens**temperature / (tokens**temperature).sum()
        assert Mixture(sets, temperature=temperature).weights == pytest.approx(expected.tolist())
    assert Mixture(sets).sha256 == Mixture(zip(sets, tokens.tolist(), strict=True)).sha256
    for given, temperature, message in (
        (sets, -0.1, r"temperature -0.1: expected a number from 0 \(equal weights\) to 1 \(weights by size\)"),
        (sets, "0.7", r"temperature '0.7': expected a number"),
        ([(sets[0], 1)], 0.7, r"temperature 0.7: computes weights from sizes; give a temperature or weights, not both"),
    ):
        with pytest.raises(UsageError, match=message):
            Mixture(given, temperature=temperature)  # type: ignore[arg-type]


def test_no_set_is_read_more_often_than_the_cap_of_a_run(sets: list[TokenDataset]) -> None:
    """Of three sets one is full at once, and another by what the first leaves to it."""
    small = TokenDataset(sets[1].folder, seq=SEQ, seed=7)
    rows = int(1.5 * sum(map(len, [*sets, small])))
    mixture = Mixture([(sets[0], 0.2), (sets[1], 0.5), (small, 0.3)], max_epochs=2, rows=rows)
    epochs = [weight * rows / len(each) for weight, each in zip(mixture.weights, mixture.sets, strict=True)]
    assert epochs[1:] == pytest.approx([2, 2])
    assert epochs[0] < 2
    assert sum(mixture.weights) == pytest.approx(1)
    uncapped = Mixture([(sets[0], 0.2), (sets[1], 0.5), (small, 0.3)], max_epochs=100, rows=rows)
    assert uncapped.weights == pytest.approx([0.2, 0.5, 0.3])
    for max_epochs, of_rows, message in (
        (
            1,
            rows,
            rf"max_epochs 1: in that many epochs all sets together have {rows * 2 // 3:,} rows, fewer than rows {rows:,}",
        ),
        (2, None, "max_epochs 2, rows None: expected both"),
        (None, 5, "max_epochs None, rows 5: expected both"),
        (0, 5, "expected both, above 0; rows is the total of the whole run"),
    ):
        with pytest.raises(UsageError, match=message):
            Mixture([*sets, small], max_epochs=max_epochs, rows=of_rows)


def test_what_a_full_set_leaves_may_fill_another(sets: list[TokenDataset]) -> None:
    """The second is full by the share of the first alone; both stay full."""
    small = TokenDataset(sets[1].folder, seq=SEQ, seed=7)
    rows = 4 * len(sets[0])
    capped = Mixture([(sets[0], 0.6), (sets[1], 0.36), (small, 0.04)], max_epochs=2.5, rows=rows)
    epochs = [weight * rows / len(each) for weight, each in zip(capped.weights, capped.sets, strict=True)]
    assert sum(capped.weights) == pytest.approx(1)
    assert max(epochs) <= 2.5 + 1e-9
    assert epochs[:2] == pytest.approx([2.5, 2.5])
