"""The number of shards of a text, and the assignment of documents to them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertprep.config import ShardSettings
from bertprep.errors import UsageError
from bertprep.text.assignment import assign_documents, count_shards


def counts(documents: int, megabytes: float, **settings: float) -> tuple[int, int]:
    size = np.full(documents, int(megabytes * 1_000_000 / documents))
    found = count_shards(size, ShardSettings(**settings))  # type: ignore[arg-type]
    return found.training, found.test


def test_a_shard_holds_4_mb_of_text() -> None:
    assert counts(1_000, 200) == (50, 6)  # 6 shards of 3.3 MB hold the 20 MB for testing
    assert counts(10_000, 200.1) == (51, 6)


def test_there_are_at_least_4_and_at_most_1024_training_shards() -> None:
    assert counts(249, 12.2) == (4, 1)
    assert counts(100_000, 20_000) == (1_024, 114)
    assert counts(100_000, 20_000, shards=2_000) == (2_000, 222)  # unless asked for


def test_there_are_no_more_shards_than_documents() -> None:
    assert counts(2, 12) == (1, 1)
    assert counts(3, 12) == (2, 1)
    assert counts(4, 12) == (3, 1)
    assert counts(5, 12) == (4, 1)
    assert counts(9, 120) == (8, 1)
    assert counts(4, 12, test_fraction=0) == (4, 0)
    assert counts(4, 12, test_fraction=0.5) == (2, 2)


def test_test_shards_are_as_large_as_training_shards() -> None:
    assert counts(1_000, 1, shards=90) == (90, 10)
    assert counts(1_000, 1, shards=10, test_fraction=0.5) == (10, 10)
    assert counts(1_000, 1, shards=256, test_fraction=0.001) == (256, 1)
    assert counts(12, 1, shards=10, test_fraction=0.5) == (10, 2)  # as far as documents go


def test_more_shards_than_documents_is_an_error() -> None:
    assert counts(10, 1, shards=9) == (9, 1)
    with pytest.raises(UsageError) as error:
        counts(10, 1, shards=10)
    assert str(error.value) == "--shards 10: the text has 10 documents, one of them for testing; ask for at most 9"
    with pytest.raises(UsageError, match="--shards 11: the text has 10 documents; ask for at most 10"):
        counts(10, 1, shards=11, test_fraction=0)


def test_a_single_document_cannot_be_split_in_two() -> None:
    assert counts(1, 1, test_fraction=0) == (1, 0)
    with pytest.raises(UsageError, match=r"--test-fraction 0\.1: the text is a single document.* or --test-fraction 0"):
        counts(1, 1)


def test_documents_go_to_the_shard_that_is_least_full_for_its_fraction() -> None:
    fractions = [0.4, 0.4, 0.2]
    sizes = [40, 40, 20, 10, 5, 30, 20]
    # filled / fraction before each document: 0 0 0, 100 0 0, 100 100 0, 100 100 100, 125 100 100, 125 112 100, 125 112 250
    assert assign_documents(np.array(sizes), fractions).tolist() == [0, 1, 2, 0, 1, 2, 1]


@given(
    sizes=st.lists(st.integers(1, 1_000), min_size=1, max_size=200),
    training=st.integers(1, 8),
    test_fraction=st.sampled_from([0, 0.01, 0.1, 0.5, 0.9]),
)
def test_every_shard_gets_its_fraction_within_one_document(sizes: list[int], training: int, test_fraction: float) -> None:
    settings = ShardSettings(shards=min(training, max(1, len(sizes) - 1)), test_fraction=test_fraction if len(sizes) > 1 else 0)
    shards = count_shards(np.array(sizes), settings)
    assigned = assign_documents(np.array(sizes), shards.fractions())

    filled = np.bincount(assigned, weights=sizes, minlength=shards.training + shards.test)
    assert filled.shape == (shards.training + shards.test,)
    assert (filled > 0).all()
    assert sum(shards.fractions()) == pytest.approx(1)
    assert (filled <= np.array(shards.fractions()) * sum(sizes) + max(sizes)).all()
