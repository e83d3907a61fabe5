"""Tokens that a generator has drawn, and the labels of the discriminator that is to find them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bertprep import replace_tokens
from bertprep.errors import UsageError

IDS = np.array([[2, 4, 6, 4, 3, 0], [2, 7, 4, 8, 9, 3]])  # 4 is [MASK]
LABELS = np.array([[-100, 5, -100, 6, -100, -100], [-100, -100, 9, 8, -100, -100]])
TEXT = np.array([[2, 5, 6, 6, 3, 0], [2, 7, 9, 8, 9, 3]])


def certain(ids: Any) -> Any:
    """Logits of a generator that is certain of these ids, of 10."""
    return np.where(np.arange(10) == ids[..., None], 50.0, -50.0)


def test_predicted_tokens_are_drawn_and_labelled_where_they_are_not_the_texts() -> None:
    answered = np.array([[1, 5, 1, 7, 1, 1], [1, 1, 9, 5, 1, 1]])
    ids, labels = replace_tokens(IDS, LABELS, certain(answered), seed=1)
    assert ids.tolist() == [[2, 5, 6, 7, 3, 0], [2, 7, 9, 5, 9, 3]]
    assert labels.tolist() == [[0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0]]
    right, none = replace_tokens(IDS, LABELS, certain(TEXT), seed=1)
    assert right.tolist() == TEXT.tolist()
    assert not none.any()


def test_what_is_drawn_follows_the_softmax_and_the_seed() -> None:
    probabilities = np.array([0.5, 0.3, 0.2])
    ids, labels = np.zeros((200, 50), int), np.ones((200, 50), int)
    logits = np.broadcast_to(np.log(probabilities), (200, 50, 3))
    drawn, replaced = replace_tokens(ids, labels, logits, seed=3)
    counts = np.bincount(drawn.ravel())
    assert (((counts - 10_000 * probabilities) ** 2) / (10_000 * probabilities)).sum() < 13.8
    assert replaced.mean() == (drawn != 1).mean()
    assert (drawn == replace_tokens(ids, labels, logits, seed=3)[0]).all()
    assert (drawn != replace_tokens(ids, labels, logits, seed=4)[0]).any()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"logits": certain(TEXT)[:, :5]}, r"shapes \(2, 6\), \(2, 6\), \(2, 5, 10\); expected \(rows, seq\) twice, and"),
        ({"logits": certain(TEXT)[..., :0]}, r"shapes .*, \(2, 6, 0\); expected"),
        ({"logits": {"logits": 1}}, "types ndarray, ndarray, dict; expected three NumPy arrays or three PyTorch tensors"),
        ({"labels": LABELS.tolist()}, "types ndarray, list, ndarray; expected"),
        ({"logits": certain(TEXT) * np.nan}, "logits are NaN or infinite; the generator has diverged"),
        ({"seed": None}, "seed None: expected a whole number from 0 on, such as the step"),
        ({"seed": -1}, "seed -1: expected a whole number"),
        ({"seed": 1 << 64}, "seed 18446744073709551616: expected a whole number"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], expected: str) -> None:
    arguments: dict[str, Any] = {"input_ids": IDS, "labels": LABELS, "logits": certain(TEXT), "seed": 1}
    with pytest.raises(UsageError, match=f"^replace_tokens: {expected}"):
        replace_tokens(**{**arguments, **given})
