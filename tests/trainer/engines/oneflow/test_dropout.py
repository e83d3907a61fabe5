"""Dropout's masks follow from a key alone, drop the fraction that they should, and are independent."""

import numpy as np
import pytest

from trainer.engines import dropout_keys

pytestmark = pytest.mark.oneflow
ROWS, WIDTH = 2000, 768


def dropout_key(seed: int, step: int, part: int = 0) -> "np.ndarray":  # type: ignore[type-arg]
    (key,) = dropout_keys(seed, step, range(part, part + 1))
    return key  # type: ignore[no-any-return]


def dropped(key: tuple[int, ...], width: int = WIDTH, dropout_rate: float = 0.1) -> "np.ndarray":  # type: ignore[type-arg]
    """Ones with dropout, (ROWS, width)."""
    import oneflow as flow

    from trainer.engines.oneflow.dropout import coefficients_of, draw, drop, powers

    drawn = flow.tensor(draw(dropout_key(*key), (ROWS, coefficients_of(width))))
    values: np.ndarray = drop(flow.ones(ROWS, width), drawn, flow.tensor(powers()), dropout_rate).numpy()  # type: ignore[type-arg]
    return values


@pytest.mark.parametrize("dropout_rate", [0.1, 0.5])
def test_the_fraction_is_dropped_and_the_mean_kept(dropout_rate: float) -> None:
    values = dropped((3, 1), dropout_rate=dropout_rate)
    fraction = np.ceil(dropout_rate * 2039) / 2039
    assert fraction == pytest.approx(dropout_rate, abs=5e-4)
    assert (values == 0).mean() == pytest.approx(fraction, abs=0.001)
    np.testing.assert_allclose(values[values != 0], 1 / (1 - fraction), rtol=1e-6)


def test_a_mask_is_that_of_its_polynomial() -> None:
    """By hand, in whole numbers: kept where (a + b j + c j**2 + d j**3) mod 2039 is at least 204, the first above 0.1."""
    from trainer.engines.oneflow.dropout import draw

    a, b, c, d = (column[:, None] for column in draw(dropout_key(1, 7), (ROWS, 4)).astype(np.int64).T)
    j = np.arange(WIDTH)
    np.testing.assert_array_equal(dropped((1, 7)) != 0, (a + b * j + c * j**2 + d * j**3) % 2039 >= 204)


def test_units_and_tokens_are_dropped_independently() -> None:
    masks = (dropped((4, 2)) == 0).astype(np.float64)
    for one, other in (
        (masks[:, 1:], masks[:, :-1]),
        (masks[1:], masks[:-1]),
        (masks[:, ::2][:, :380], masks[:, 1::2][:, 3:383]),
    ):
        assert (one * other).mean() == pytest.approx(0.01, abs=0.0005)
    assert masks.mean(axis=0).std() == pytest.approx(np.sqrt(0.09 / ROWS), rel=0.1)  # no unit is dropped more than others
    assert masks.mean(axis=1).std() == pytest.approx(np.sqrt(0.09 / WIDTH), rel=0.1)  # and no token


def test_a_key_gives_the_same_mask_and_another_key_another() -> None:
    first = dropped((1, 7))
    np.testing.assert_array_equal(dropped((1, 7)), first)
    for other in ((2, 7), (1, 8), (1, 7, 1)):
        assert (dropped(other) != first).mean() == pytest.approx(0.18, abs=0.01)


def test_rows_wider_than_a_polynomial_serves() -> None:
    """Units 2039 apart would be dropped together: such rows are cut, each run with a polynomial of its own."""
    from trainer.engines.oneflow.dropout import coefficients_of

    assert (coefficients_of(2039), coefficients_of(2048), coefficients_of(5000)) == (4, 8, 16)
    masks = dropped((5, 5), width=2048) == 0
    assert masks.mean() == pytest.approx(0.1, abs=0.001)
    assert (masks[:, :9] & masks[:, 2039:]).mean() == pytest.approx(0.01, abs=0.004)
