"""Wall time without the time of people."""

from __future__ import annotations

import pytest

from romanesco.budget import Stopwatch
from romanesco.errors import RomanescoError


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_time_counts_from_the_start(clock: Clock) -> None:
    watch = Stopwatch(clock)
    clock.now += 5
    assert watch.elapsed == 0
    watch.start()
    clock.now += 5
    watch.start()
    assert watch.elapsed == 5


def test_time_between_stop_and_start_does_not_count(clock: Clock) -> None:
    watch = Stopwatch(clock)
    watch.start()
    clock.now += 5
    watch.stop()
    watch.stop()
    clock.now += 100
    watch.start()
    clock.now += 1
    assert watch.elapsed == 6


def test_waiting_for_a_person_does_not_count(clock: Clock) -> None:
    watch = Stopwatch(clock)
    watch.start()
    clock.now += 1
    watch.pause()
    clock.now += 60
    watch.pause()
    assert watch.paused
    clock.now += 60
    watch.resume()
    clock.now += 60
    watch.resume()
    clock.now += 1
    assert watch.elapsed == 2
    assert not watch.paused


def test_work_while_a_question_is_open_counts(clock: Clock) -> None:
    watch = Stopwatch(clock)
    watch.start()
    watch.pause()
    clock.now += 10
    with watch.working():
        assert not watch.paused
        clock.now += 3
    clock.now += 10
    watch.resume()
    assert watch.elapsed == 3


def test_resuming_what_was_not_paused_is_a_fault(clock: Clock) -> None:
    with pytest.raises(RomanescoError, match="without a pause"):
        Stopwatch(clock).resume()


def test_a_clock_that_goes_backwards_gives_no_time_back(clock: Clock) -> None:
    watch = Stopwatch(clock)
    watch.start()
    clock.now += 10
    assert watch.elapsed == 10
    clock.now -= 500
    assert watch.elapsed == 10
    clock.now += 2
    assert watch.elapsed == 12


def test_br_037_time_adds_up_over_resumes(clock: Clock) -> None:
    first = Stopwatch(clock)
    first.start()
    clock.now += 40
    second = Stopwatch(clock, base=first.elapsed)
    clock.now += 1000  # nobody owned the run
    second.start()
    clock.now += 20
    assert second.elapsed == 60
