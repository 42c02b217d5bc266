"""How old a transaction is, by clocks that may be off, and whether it is too old to be decided on.

Nobody has one clock for both its begin and now. The task knows when it began, and the coordinator when it was started;
the driver knows what time it is. So where a clock is off by more than transactions live, each of them would seem to be
too old, at every start. But the driver also knows, by its own clocks alone, what has passed since it planned the
micro-batch, and no transaction of it is older.

Not a safeguard: a transaction that is taken for too young, and expires, is lost, which the verdicts tell.
"""

from __future__ import annotations

from spark_eos.errors import ProtocolStop
from spark_eos.protocol.freshness import SAME_CLOCK_MS
from spark_eos.protocol.head import Pair
from spark_eos.protocol.ports import Description
from spark_eos.protocol.task import TaskReport

#: A transaction with less than this left to live is not decided on; half the timeout where that is shorter.
MARGIN_MS = 30_000

#: By no more than this, the start of a transaction by its coordinator comes after its begin in the task.
_START_MS = 60_000


def too_old(now: int, passed_ms: int | None, report: TaskReport, pair: Pair, found: Description) -> ProtocolStop | None:
    """The error for a transaction that may expire before it is ended. ``now`` is the driver's time of day;
    ``passed_ms``: what has passed for it since the micro-batch was planned, if it is known."""
    by_task, by_coordinator = now - report.began_ms, now - found.started_ms
    left = found.timeout_ms - age_ms(by_task, by_coordinator, passed_ms)
    if left >= min(MARGIN_MS, found.timeout_ms // 2):
        return None
    since = (
        "" if passed_ms is None else f" The micro-batch was planned {passed_ms} ms ago, by the driver's clocks alone."
    )
    shorter = (
        "Should it happen again, make micro-batches smaller ('maxOffsetsPerTrigger') or 'transaction.timeout.ms' "
        f"({found.timeout_ms}) larger, up to the broker's transaction.max.timeout.ms. A micro-batch that is planned "
        "keeps its size: 'spark-eos checkpoint drop' drops it."
    )
    cut = passed_ms is not None and max(by_task, by_coordinator) > passed_ms + SAME_CLOCK_MS
    if cut or abs(by_task - by_coordinator) > _START_MS:
        hint = (
            "Set the clocks: those of driver, executors and brokers differ by more than seconds, so that nobody can "
            "tell how old it is ('spark-eos doctor' compares the brokers' with that of its machine). Nothing was "
            f"decided; the batch is replayed at the next start. {shorter}"
        )
    else:
        hint = (
            f"Nothing was decided; the batch is replayed at the next start. {shorter} Where these times are longer "
            "than the tasks took, set the clocks."
        )
    return ProtocolStop(
        "EOS_TRANSACTION_TOO_OLD",
        f"Transaction {pair.id} of partition {report.partition} has {left} ms of its {found.timeout_ms} ms left, "
        f"too little to decide on: it began {by_task} ms ago by the clocks of task and driver, {by_coordinator} ms ago "
        f"by those of coordinator and driver.{since}",
        hint=hint,
        transactional_id=pair.id,
    )


def age_ms(by_task: int, by_coordinator: int, passed_ms: int | None) -> int:
    """For how long a transaction has been open, at most.

    It began ``by_task`` ago, if its clock and the driver's agree, and was started ``by_coordinator`` ago, if those do;
    ``passed_ms`` is what has passed for the driver since it planned the micro-batch, if it is known. A time that cannot
    be tells of a clock that is off, and does not count: a start before the begin, or one to come; or one before there
    was a micro-batch.
    """
    ages = [by_task] if 0 <= by_task < by_coordinator - SAME_CLOCK_MS else [by_task, by_coordinator]
    longest = max([age for age in ages if age >= 0], default=0)
    return longest if passed_ms is None else min(longest, passed_ms)
