"""Time that has passed, by the clock that says the most."""

from __future__ import annotations

from spark_eos.elapsed import Elapsed


def test_whatever_one_clock_misses_another_one_tells():
    """A clock that stops while the machine is paused, and one that is set back: each look takes the longer step."""
    steady, time_of_day = [100.0], [5_000.0]
    elapsed = Elapsed(lambda: steady[0], lambda: time_of_day[0])
    assert elapsed() == 0
    steady[0] += 1
    time_of_day[0] += 1
    assert elapsed() == 1_000
    time_of_day[0] += 65
    assert elapsed() == 66_000
    steady[0] += 2
    time_of_day[0] -= 3_600
    assert elapsed() == 68_000


def test_it_never_goes_back():
    """However clocks are set."""
    now = [10.0]
    elapsed = Elapsed(lambda: now[0])
    for step, passed in ((1, 1_000), (-5, 1_000), (2, 3_000)):
        now[0] += step
        assert elapsed() == passed
