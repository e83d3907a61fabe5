"""A longer run resumes from a shorter one's checkpoint: as if it had always been that long, or with a record of the change."""

from dataclasses import asdict
from typing import Any

import pytest

from trainer.schedule import Schedule, find_lengthening


def made_with(*steps: int, warmup_steps: int = 4, peak: float = 0.01) -> dict[str, Any]:
    schedules = [Schedule(peak=peak, steps=each, warmup_steps=warmup_steps) for each in steps]
    return {"phases": [{"schedule": asdict(each)} for each in schedules]}


@pytest.mark.parametrize(
    ("step", "then", "now", "is_seamless"),
    [
        (3, made_with(12), made_with(24), True),  # the last update of the warmup that no decay follows
        (4, made_with(12), made_with(24), False),
        (12, made_with(12), made_with(24), False),
        (3, made_with(12), made_with(24, warmup_steps=8), False),
        (0, made_with(12), made_with(24, warmup_steps=8), True),
        (12, made_with(12, 6), made_with(12, 24), True),  # the second phase is not begun
        (8, made_with(12, 6), made_with(12, 24), True),
        (14, made_with(12, 6), made_with(12, 24), True),  # in the second one's warmup
        (17, made_with(12, 6), made_with(12, 24), False),
        (12, made_with(12, 6), made_with(24, 6), False),
    ],
)
def test_learning_rates_so_far_decide_whether_lengthening_is_seamless(
    step: int, then: dict[str, Any], now: dict[str, Any], is_seamless: bool
) -> None:
    found = find_lengthening(step, then, now)
    assert found is not None
    assert found.is_seamless == is_seamless
    so_far = range(1, found.update + 1)
    same = [found.then.learning_rate(update) == found.now.learning_rate(update) for update in so_far]
    assert all(same) == is_seamless


@pytest.mark.parametrize(
    ("step", "then", "now"),
    [
        (5, made_with(12), made_with(12)),
        (5, made_with(24), made_with(12)),
        (5, made_with(12), made_with(24, peak=0.02)),
        (5, made_with(12), made_with(12, warmup_steps=2)),
        (5, made_with(12), made_with(12, 12)),
        (13, made_with(12, 6), made_with(24, 6)),  # the first phase is over
        (5, made_with(12), {"phases": [{}]}),
    ],
)
def test_changes_that_are_not_a_lengthening(step: int, then: dict[str, Any], now: dict[str, Any]) -> None:
    assert find_lengthening(step, then, now) is None


def test_a_lengthening_is_printed_and_recorded() -> None:
    then, now = made_with(12), made_with(24)
    found = find_lengthening(11, then, now)
    assert found is not None
    assert found.describe() == (
        "lengthened from 12 to 24 steps after step 11: from here on the schedule is that of 24 steps, with a learning rate of "
        "0.005 at the next step; at step 11 it was 0.000833, a run of 24 steps from the start has 0.00542 there"
    )
    once = found.enter(now, [each["schedule"] for each in then["phases"]])
    assert once["lengthened"] == [{"step": 11, "schedules": [then["phases"][0]["schedule"]]}]
    again = find_lengthening(20, once, made_with(48))
    assert again is not None
    assert [each["step"] for each in again.enter(once, [])["lengthened"]] == [11, 20]


def test_a_seamless_one_leaves_no_trace() -> None:
    found = find_lengthening(3, made_with(12), made_with(24))
    assert found is not None
    assert found.describe() == "lengthened from 12 to 24 steps after step 3: its learning rates so far are those of 24 steps"
    assert found.enter(made_with(24), []) == made_with(24)
