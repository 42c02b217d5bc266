"""Which tasks of a replay have just the rows that were lost, by counts and digests.

A replay may deal rows to tasks in another way, and what is visible must not be written again. Nobody can take lost rows
out of a task that has others, too. But whole tasks whose rows together are the lost ones repair the micro-batch,
however many there are, and whichever numbers they have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from spark_eos.protocol.head import DIGEST_BITS, Decision, Verdict, Written
from spark_eos.protocol.task import TaskReport

#: Tasks of which every choice is tried: 65,536 sums of 64 bits, none of which may be right by chance.
_MOST_TRIED = 16
_MOST_TOLD = 8

#: Rows, and the sum of their digests.
_Sum = tuple[int, int]


def repairs(last: Decision, written: Iterable[Written]) -> bool:
    """Whether these are the rows that the decision has lost: no more, no less."""
    return _total(map(_of, written)) == _total(map(_of, last.lost))


def tasks_with_lost_rows(last: Decision, reports: Collection[TaskReport]) -> tuple[int, ...] | None:
    """The tasks of a replay whose rows together are the lost ones; None when there are no such tasks.

    The replay as a whole must be what was decided.
    """
    committed = Counter(_of(w) for w in last.written if w.verdict is not Verdict.LOST)
    lost = Counter(_of(w) for w in last.lost)
    chosen, others = [], []
    for report in reports:
        one = report.rows, report.digest
        if lost[one]:
            lost[one] -= 1
            chosen.append(report.partition)
        elif committed[one]:
            committed[one] -= 1
        elif report.rows:
            others.append(report)
    missing = _total(lost.elements())
    more = _choice(others, missing)
    return None if more is None else tuple(sorted((*chosen, *more)))


def _choice(reports: Collection[TaskReport], missing: _Sum) -> tuple[int, ...] | None:
    """Those of the tasks that have the missing rows."""
    if missing == (0, 0):
        return ()
    if len(reports) > _MOST_TRIED:
        return None
    sums: dict[_Sum, tuple[int, ...]] = {(0, 0): ()}
    for report in reports:
        sums |= {_add(one, (report.rows, report.digest)): (*tasks, report.partition) for one, tasks in sums.items()}
    return sums.get(missing)


def differences(last: Decision, reports: Collection[TaskReport]) -> str:
    """How the tasks that lost rows differ from those of the replay, by their numbers."""
    now = {report.partition: (report.rows, report.digest) for report in reports}
    told = []
    for w in last.lost:
        rows, digest = now.get(w.partition, (0, 0))
        if rows != w.rows:
            told.append(f"task {w.partition} had {w.rows} rows and has {rows} now")
        elif digest != w.digest:
            told.append(f"task {w.partition} has as many rows as before ({rows}), but different ones")
    more = f" (and {len(told) - _MOST_TOLD} more)" if len(told) > _MOST_TOLD else ""
    return f"{last.tasks} tasks then, {len(reports)} now; {'; '.join(told[:_MOST_TOLD])}{more}"


def _of(w: Written) -> _Sum:
    return w.rows, w.digest


def _total(sums: Iterable[_Sum]) -> _Sum:
    total = 0, 0
    for one in sums:
        total = _add(total, one)
    return total


def _add(one: _Sum, other: _Sum) -> _Sum:
    return one[0] + other[0], (one[1] + other[1]) % (1 << DIGEST_BITS)
