"""The learning rates of the originals, in every update and at the boundaries."""

import pytest

from bertprep.errors import UsageError
from tests.trainer.golden_updates import AFTER, BEFORE, read_trace
from trainer.schedule import Schedule


@pytest.mark.parametrize("name", AFTER + BEFORE)
def test_every_learning_rate_of_the_originals(name: str) -> None:
    trace = read_trace(name)
    rates = [trace.schedule.learning_rate(number + trace.rate_offset) for number in range(1, 13)]
    assert rates == pytest.approx([step["learning_rate"] for step in trace.steps], rel=1e-6, abs=1e-12)


def test_where_warmup_ends() -> None:
    """Google's learning rate drops there, NVIDIA's for Adam reaches the peak, NVIDIA's for LAMB drops."""
    google = Schedule(peak=0.01, steps=12, warmup_steps=4)
    assert [google.learning_rate(3), google.learning_rate(4)] == pytest.approx([0.0075, 0.01 * 8 / 12])
    adam = Schedule.nvidia("adam", peak=0.01, steps=12, warmup_steps=4)
    assert [adam.learning_rate(3), adam.learning_rate(4), adam.learning_rate(8)] == pytest.approx([0.0075, 0.01, 0.005])
    lamb = Schedule.nvidia("lamb", peak=0.004, steps=12, warmup_steps=4)
    assert [lamb.learning_rate(3), lamb.learning_rate(4)] == pytest.approx([0.003, 0.004 * (8 / 12) ** 0.5])


def test_no_warmup_starts_in_the_decay() -> None:
    schedule = Schedule(peak=0.01, steps=10)
    assert schedule.learning_rate(1) == pytest.approx(0.009)
    assert schedule.learning_rate(10) == 0
    assert schedule.learning_rate(11) == 0


@pytest.mark.parametrize("crossover", [False, True])
def test_a_warmup_longer_than_the_run_never_ends(crossover: bool) -> None:
    schedule = Schedule(peak=1.0, steps=10, warmup_steps=100, crossover=crossover)
    assert [schedule.learning_rate(update) for update in (1, 5, 10)] == [0.01, 0.05, 0.1]
    assert Schedule(peak=1.0, steps=10, warmup_steps=10, crossover=crossover).learning_rate(10) == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"peak": 0.0}, "--lr 0.0: must be above 0"),
        ({"peak": float("nan")}, "--lr nan: must be above 0"),
        ({"steps": 0}, "--steps 0: must be at least 1"),
        ({"warmup_steps": -1}, "--warmup-steps -1: must be at least 0"),
        ({"power": 0.0}, "decay power 0.0: must be above 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Schedule(**{"peak": 0.1, "steps": 10, **settings})  # type: ignore[arg-type]
