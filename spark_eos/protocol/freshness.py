"""For how long the transactions of a micro-batch count as whole, and whether they are, once they do not any more.

By the clocks of tasks and coordinators, which may be off; a doubt costs a request to each leader.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from spark_eos.errors import ProtocolStop
from spark_eos.protocol.head import Pair
from spark_eos.protocol.micro_batch import MicroBatch
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.task import TaskReport
from spark_eos.protocol.whole import AGED_MS, FRESH_MS, look_at, undecided_broken

#: A transaction that has started so much before it began has done so by a clock that is behind.
SAME_CLOCK_MS = 1_000

#: When each transaction began, by the driver's clock, at the latest.
Starts = Mapping[Pair, int]


def began_ms(now: int, began: int, started: int) -> int:
    """By the clock that says the longest; a minute ago where none can be right, as all are ahead of the driver's."""
    return now - max((age for age in (now - began, now - started) if age >= -SAME_CLOCK_MS), default=FRESH_MS)


def not_whole(ports: Ports, batch: MicroBatch, starts: Starts) -> ProtocolStop | None:
    """Some transactions may have lost rows, and the coordinator does not know."""
    now = ports.now_ms()
    doubtful = [r.written for r in batch.reports if r.written is not None and _is_doubtful(r, starts, now)]
    _, broken = look_at(ports, doubtful) if doubtful else ({}, [])
    return undecided_broken(broken[0]) if broken else None


def _is_doubtful(report: TaskReport, starts: Starts, now_ms: int) -> bool:
    """Whether somebody may have taken rows of the task's transaction: it is not fresh, or retention may want them."""
    assert report.written is not None
    aged = report.oldest_ms is not None and report.oldest_ms <= now_ms - AGED_MS
    return aged or starts[report.written.pair] <= now_ms - FRESH_MS


def fresh_for_ms(batch: MicroBatch, starts: Starts, checked_ms: int) -> float:
    """For how long all of its transactions count as whole, after they were looked at ``checked_ms``."""
    written = [report for report in batch.reports if report.written is not None]
    return min((_fresh_until_ms(report, starts, checked_ms) for report in written), default=math.inf) - checked_ms


def _fresh_until_ms(report: TaskReport, starts: Starts, checked_ms: int) -> int:
    """A minute after it began or was looked at; where it was not, only until retention may want its rows."""
    assert report.written is not None
    if _is_doubtful(report, starts, checked_ms):
        return checked_ms + FRESH_MS
    until = starts[report.written.pair] + FRESH_MS
    return until if report.oldest_ms is None else min(until, report.oldest_ms + AGED_MS)
