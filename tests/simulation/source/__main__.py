"""Schedules of the source by the thousand: ``python -m tests.simulation.source``. It goes on where it was stopped."""

from __future__ import annotations

import random
import sys

from tests.simulation.breaking import checked
from tests.simulation.campaign import Campaign, Played

from .cluster import Event
from .play import play, smaller, told
from .schedule import draw


def played(seed: int) -> Played:
    """The schedule of a seed. Raises Failed."""
    cluster = checked(draw(random.Random(seed)), play, smaller, told).cluster
    struck = {event.value: count for event, count in cluster.struck.items() if event is not Event.WRITE}
    return Played(cluster.step, cluster.now, struck)


SOURCE = Campaign("the source", played)

if __name__ == "__main__":
    sys.exit(SOURCE.main("python -m tests.simulation.source", __doc__, sys.argv[1:]))
