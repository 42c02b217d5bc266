"""Schedules of the source by the thousand: ``python -m tests.simulation.source --schedules 20000 --first 0``."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

from .judge import Violation
from .play import play, shrink, told
from .schedule import draw


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.source", description=__doc__)
    parser.add_argument("--schedules", type=int, default=20_000, help="how many to run (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (%(default)s)")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    for seed in range(given.first, given.first + given.schedules):
        schedule = draw(random.Random(seed))
        try:
            play(schedule)
        except Violation as violation:
            print(f"seed {seed}: {violation}\n{told(shrink(schedule, violation.invariant))}")
            return 1
    rate = given.schedules / (time.monotonic() - began)
    print(f"{given.schedules} schedules of the source have passed, {rate:.0f} a second")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
