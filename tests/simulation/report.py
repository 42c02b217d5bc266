"""How a schedule ends, for whoever looks for the cause."""

from __future__ import annotations

from .play import Run
from .schedule import Schedule
from .world import Violation

LAST_STEPS = 60


def told(schedule: Schedule) -> str:
    """The schedule, and its last steps if it breaks an invariant."""
    run = Run(schedule, traced=True)
    try:
        run.play()
    except Violation as violation:
        assert run.world.trace is not None
        return "\n".join((repr(schedule), str(violation), *run.world.trace[-LAST_STEPS:]))
    return repr(schedule)
