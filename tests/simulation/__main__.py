"""Schedules of the protocol by the thousand: ``python -m tests.simulation``. It goes on where it was stopped."""

from __future__ import annotations

import random
import sys

from .breaking import checked
from .campaign import Campaign, Played
from .coordinator import WEEK_MS
from .faults import Strike
from .play import play, smaller, told
from .schedule import draw


def played(seed: int) -> Played:
    """The schedule of a seed. Raises Failed."""
    world = checked(draw(random.Random(seed)), play, smaller, told).world
    struck = {strike.value: count for strike, count in world.struck.items()}
    return Played(world.step, world.now - WEEK_MS * world.struck[Strike.WEEK_PASSES], struck)


PROTOCOL = Campaign("the protocol", played)

if __name__ == "__main__":
    sys.exit(PROTOCOL.main("python -m tests.simulation", __doc__.partition("\n")[0], sys.argv[1:]))
