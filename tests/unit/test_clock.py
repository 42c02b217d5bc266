"""The clock that tests set for other programs: it shifts what tells the time of day, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.support.servers.clock import Clock

ASK = """
import sys, time
while sys.stdin.readline():
    print(time.time(), time.monotonic(), flush=True)
"""
AN_HOUR = 3600


def test_a_clock_that_is_set_while_a_program_runs(tmp_path):
    """Ahead, and then back behind: the program sees both at once, and its monotonic clock goes on as before."""
    clock = Clock(tmp_path / "clock")
    with clock.for_programs():
        program = subprocess.Popen(
            [sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    with program:

        def asked() -> tuple[float, float]:
            program.stdin.write("\n")
            program.stdin.flush()
            now, monotonic = map(float, program.stdout.readline().split())
            return now - time.time(), monotonic - time.monotonic()

        off = []
        for seconds in (0, AN_HOUR, -AN_HOUR):
            clock.set(seconds)
            wall, monotonic = asked()
            off.append(round(wall / 60))
            assert abs(monotonic) < 60
        program.stdin.close()
    assert off == [0, 60, -60]
