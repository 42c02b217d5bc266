"""Time that has passed, by the clock that says the most."""

from __future__ import annotations

import pickle
import subprocess
import sys

from spark_eos.base import system
from spark_eos.base.clocks import Elapsed, Moment


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


def test_a_moment_is_as_long_ago_as_the_clock_says_that_went_on_most():
    """Also where another process looks; a clock that was set back says nothing."""
    steady, time_of_day = [100.0], [5_000.0]
    clocks = (lambda: steady[0], lambda: time_of_day[0])
    moment = pickle.loads(pickle.dumps(Moment.now(*clocks)))
    assert moment.ago_ms(*clocks) == 0
    steady[0] += 2
    time_of_day[0] += 65
    assert moment.ago_ms(*clocks) == 65_000
    time_of_day[0] -= 3_600
    assert moment.ago_ms(*clocks) == 2_000
    steady[0] -= 5
    assert moment.ago_ms(*clocks) == 0


def test_another_process_has_the_same_steady_clock():
    """So that one may tell what has passed since another one has noted a moment."""
    before = system.steady()
    code = "from spark_eos.base import system; print(system.steady())"
    there = float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
    assert before <= there <= system.steady()
