"""The throughput of training, by a clock that is set by hand: what is no training does not count."""

import pytest

from trainer.metrics import Throughput


class Clock:
    """Seconds, which pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_steps(throughput: Throughput, clock: Clock, count: int, *, seconds: float) -> None:
    """Finish `count` steps of `seconds` each."""
    for _ in range(count):
        clock.now += seconds
        throughput.count()


def test_each_measure_is_of_the_steps_since_the_last(clock: Clock) -> None:
    throughput = Throughput([(100, 1.0)], clock=clock)
    make_steps(throughput, clock, 10, seconds=0.5)
    assert throughput.measure() == 2
    make_steps(throughput, clock, 3, seconds=4)
    assert throughput.measure() == 0.25


def test_an_evaluation_is_left_out(clock: Clock) -> None:
    throughput = Throughput([(100, 1.0)], clock=clock)
    make_steps(throughput, clock, 10, seconds=0.5)
    assert throughput.measure() == 2
    clock.now += 60  # evaluates
    throughput.restart()
    make_steps(throughput, clock, 10, seconds=0.5)
    assert throughput.measure() == 2


def test_where_no_step_was_made_the_throughput_is_that_of_before(clock: Clock) -> None:
    throughput = Throughput([(100, 1.0)], clock=clock)
    assert throughput.measure() == 0
    make_steps(throughput, clock, 10, seconds=0.5)
    assert throughput.measure() == 2
    clock.now += 60
    assert throughput.measure() == 2


def test_steps_in_no_time_are_many_and_no_error(clock: Clock) -> None:
    throughput = Throughput([(100, 1.0)], clock=clock)
    throughput.count()
    assert throughput.measure() == pytest.approx(1e9)


def test_steps_of_a_later_phase_take_as_long_as_their_operations() -> None:
    """100 steps of 1 operation, 10 of 8, 5 of 2, at first 4 of the first kind a second: 4 operations a second."""
    throughput = Throughput([(100, 1.0), (10, 8.0), (5, 2.0)])
    assert throughput.seconds_left(0, 60, 4.0) == (40 * 1 + 10 * 8 + 5 * 2) / 4
    assert throughput.seconds_left(1, 0, 0.5) == (10 * 8 + 5 * 2) / 4
    assert throughput.seconds_left(2, 4, 1.0) == 1
    assert throughput.seconds_left(2, 5, 1.0) == 0
