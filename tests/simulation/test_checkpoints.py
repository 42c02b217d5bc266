"""Checkpoints whose newest files are lost: every row once, or a stop that says why, as in
``tests/integration/sink/test_damaged_checkpoints.py`` and ``tests/chaos/test_unsynced.py``.
"""

from __future__ import annotations

import pytest

from .checkpoint import LOSSES
from .plan import Plan
from .play import play
from .schedule import Schedule
from .world import Fault, Strike

AS_IT_WAS, WITH_MORE_ROWS, TORN = 0, len(LOSSES), 3 * len(LOSSES)
BEHIND = "EOS_CHECKPOINT_BEHIND"


@pytest.mark.parametrize(
    ("batch", "lost", "how", "at", "stops"),
    [
        # A commit that is lost is made again: the micro-batch was decided
        (1, "commits", AS_IT_WAS, "offset log", ["done"]),
        (1, "commits", TORN, "offset log", ["EOS_CHECKPOINT_DAMAGED", "done"]),
        # Whatever a micro-batch reads that is planned anew, it is decided for the first time, or as it was
        (2, "offsets", AS_IT_WAS, "commit.verified", ["done"]),
        (2, "offsets", WITH_MORE_ROWS, "commit.verified", ["done"]),
        (2, "offsets", AS_IT_WAS, "commit.decided", ["done"]),
        (2, "offsets", WITH_MORE_ROWS, "commit.decided", ["EOS_REPLAY_DIVERGED"]),
        # The output is ahead of a checkpoint of yesterday by two micro-batches or more; by one, that is planned anew
        (2, "both of two", AS_IT_WAS, "commit.decided", [BEHIND]),
        (2, "both of all", AS_IT_WAS, "commit.decided", [BEHIND]),
        (2, "both of two", AS_IT_WAS, "commit.verified", ["done"]),
        # Nobody knows any more where the query began; else, Spark runs what it has the offsets of, and has passed
        (1, "offsets", AS_IT_WAS, "offset log", ["EOS_CHECKPOINT_DAMAGED"]),
        (2, "offsets", AS_IT_WAS, "offset log", [BEHIND]),
    ],
)
def test_a_query_whose_machine_dies(batch: int, lost: str, how: int, at: str, stops: list[str]) -> None:
    """How a query of four micro-batches ends, each time after that, that loses files at a point of one of them."""
    fault = Fault(0, Strike.CHECKPOINT_LOST, LOSSES.index(lost) + how, at)
    for _ in range(batch):
        fault = Fault(0, Strike.STALL, 1, "commit log", fault)
    run = play(Schedule(Plan(rows=(3, 4, 3, 6), tasks=(2,)), (fault,)))
    assert run.query.stops == ["died", *stops]


def test_the_first_offsets_and_the_ledger_are_lost() -> None:
    """What was decided is known by the transactional id of its task alone, whose transaction a late request has begun
    once more, and a later run has fenced: nothing is written again."""
    lost = Fault(0, Strike.PAUSE, 70_000, "offset log", Fault(0, Strike.LEDGER_LOST, 70_000, "offset log"))
    faults = (
        Fault(
            0, Strike.REQUEST_DOUBLED, 2_000, "add eos-q-1-", Fault(0, Strike.DRIVER_DIES, 15_001, "commit log", lost)
        ),
        Fault(110, Strike.DRIVER_DIES, 400_001),
        Fault(116, Strike.CHECKPOINT_LOST, 23, "offset log"),
    )
    run = play(Schedule(Plan(rows=(1, 3), tasks=(2, 2, 2), transaction_version=0), faults))
    assert run.query.stops == ["died", "died", "died", "EOS_CHECKPOINT_DAMAGED", "EOS_LEDGER_HEAD_LOST"]
