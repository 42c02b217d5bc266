"""How old a transaction is when it is to be decided on, and for how long it counts as whole.

The age of a transaction is measured by clocks that may be off. Nobody has one clock for both its begin and now. The
task knows when it began, and the coordinator when it was started; the driver knows what time it is. So where a clock is
off by more than transactions live, each of them would seem to be too old, at every start. But the driver also knows, by
its own clocks alone, the time since it planned the micro-batch, and no transaction of it is older. None of this
is a safeguard: a transaction that is taken for too young, and expires, is lost, which its verdict shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from spark_eos.errors import EosError, stop
from spark_eos.protocol.end import VALID_MS, Broken, find_held
from spark_eos.protocol.head import Pair
from spark_eos.protocol.ports import Description, Ports
from spark_eos.protocol.task import MicroBatch, TaskReport

#: Rows whose timestamps are older than this are looked for however young their transaction is: retention goes by
#: timestamps, and may take them at once.
AGED_MS = 3_600_000

#: Up to so much before the task began a transaction, its coordinator may have started it: clocks differ that much.
SAME_CLOCK_MS = 1_000


#: When each transaction began, by the driver's clock, at the earliest.
BeginTimes = Mapping[Pair, int]


def earliest_begin_ms(now: int, began: int, started: int) -> int:
    """Return when a transaction began, by the driver's clock, at the earliest: by the task's clock or the
    coordinator's, whichever makes it older. A minute ago where both are ahead of the driver's clock."""
    return now - max((age for age in (now - began, now - started) if age >= -SAME_CLOCK_MS), default=VALID_MS)


def find_broken(ports: Ports, batch: MicroBatch, starts: BeginTimes) -> EosError | None:
    """Return the error where a transaction has lost rows, which its coordinator does not know: with a topic, or, by the
    partitions' leaders, which are asked about old transactions, in a partition."""
    recreated = _in_another_topic(ports, batch)
    if recreated is not None:
        return undecided_broken(recreated)
    now = ports.now_ms()
    doubtful = [r.written for r in batch.reports if r.written is not None and _is_doubtful(r, starts, now)]
    _, broken = find_held(ports, doubtful) if doubtful else ({}, [])
    return undecided_broken(broken[0]) if broken else None


def undecided_broken(broken: Broken) -> EosError:
    return stop("EOS_TRANSACTION_BROKEN", transactional_id=broken.pair.id, broken=broken)


def _in_another_topic(ports: Ports, batch: MicroBatch) -> Broken | None:
    """Return a transaction with rows in a topic that was deleted, if there is another one of that name by now."""
    now = ports.data.topic_ids({topic for w in batch.written for topic in w.topic_ids})
    for w in batch.written:
        for probe in (*w.begins, w.probe):
            if probe.topic_id and now.get(probe.topic, probe.topic_id) != probe.topic_id:
                what = "the topic was deleted and recreated while they were written, or since"
                return Broken(w.pair, probe.topic, probe.partition, what)
    return None


def _is_doubtful(report: TaskReport, starts: BeginTimes, now_ms: int) -> bool:
    """Return whether the task's transaction may have lost rows: it is a minute old, or they are due for retention."""
    assert report.written is not None
    aged = report.oldest_ms is not None and report.oldest_ms <= now_ms - AGED_MS
    return aged or starts[report.written.pair] <= now_ms - VALID_MS


def valid_for_ms(batch: MicroBatch, starts: BeginTimes, checked_ms: int) -> float:
    """Return for how long after ``checked_ms`` all transactions of a micro-batch count as whole: a minute from their
    begin, or from the check with their partitions' leaders, and only until their rows are due for retention."""
    until = math.inf
    for report in batch.reports:
        if report.written is None:
            continue
        if _is_doubtful(report, starts, checked_ms):  # so its leaders have checked it
            until = min(until, checked_ms + VALID_MS)
            continue
        until = min(until, starts[report.written.pair] + VALID_MS)
        if report.oldest_ms is not None:
            until = min(until, report.oldest_ms + AGED_MS)
    return until - checked_ms


#: A transaction with less than this left to live is not decided on; half the timeout where that is shorter.
MARGIN_MS = 30_000


#: By no more than this, the start of a transaction by its coordinator comes after its begin in the task.
_START_MS = 60_000


def check_expiry(
    now: int, passed_ms: int | None, report: TaskReport, pair: Pair, described: Description
) -> EosError | None:
    """Return the error for a transaction that may expire before it is ended. ``now``: the driver's time of day;
    ``passed_ms``: for how long the micro-batch has been planned, by the driver; None if that is not known."""
    by_task, by_coordinator = now - report.began_ms, now - described.started_ms
    left = described.timeout_ms - age_ms(by_task, by_coordinator, passed_ms)
    if left >= min(MARGIN_MS, described.timeout_ms // 2):
        return None
    since = (
        "" if passed_ms is None else f" The micro-batch was planned {passed_ms} ms ago, by the driver's clocks alone."
    )
    parameters = {
        "transactional_id": pair.id,
        "timeout_ms": described.timeout_ms,
        "partition": report.partition,
        "left": left,
        "by_task": by_task,
        "by_coordinator": by_coordinator,
        "since": since,
    }
    cut = passed_ms is not None and max(by_task, by_coordinator) > passed_ms + SAME_CLOCK_MS
    if cut or abs(by_task - by_coordinator) > _START_MS:
        return stop("EOS_TRANSACTION_TOO_OLD.clocks", **parameters)
    return stop("EOS_TRANSACTION_TOO_OLD.expires", **parameters)


def age_ms(by_task: int, by_coordinator: int, passed_ms: int | None) -> int:
    """Return for how long a transaction has been open, at most.

    It began ``by_task`` ago, if the clocks of task and driver agree, and was started ``by_coordinator`` ago, if the
    clocks of coordinator and driver agree; ``passed_ms``: see `check_expiry`. A time that is impossible shows that a
    clock is off, and does not count: a start before the begin, a start in the future, or one before the micro-batch was
    planned.
    """
    ages = [by_task] if 0 <= by_task < by_coordinator - SAME_CLOCK_MS else [by_task, by_coordinator]
    longest = max([age for age in ages if age >= 0], default=0)
    return longest if passed_ms is None else min(longest, passed_ms)
