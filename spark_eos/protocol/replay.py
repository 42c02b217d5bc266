"""Compares a replay with the decision: errors where they differ, and the tasks whose rows repair lost transactions.

A replay may deal rows to tasks in another way, and visible rows must not be written again. Nobody can take lost rows
out of a task that has others, too. But whole tasks whose rows together are the lost ones, by counts and digests, repair
the micro-batch, however many there are, and whichever numbers they have.

Where a feature reads the rows, a replay is compared by the decision's extra (`spark_eos.protocol.extra`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from spark_eos.errors import EosError, stop
from spark_eos.protocol.checks import is_unknown_here, is_visible, new_checkpoint_hint, offsets_text
from spark_eos.protocol.extra import Kind, kinds_differ
from spark_eos.protocol.head import DIGEST_BITS, Decision, Digest, Verdict, Written
from spark_eos.protocol.task import MicroBatch, TaskReport

_MOST_LISTED = 20


def check_versions(batch: MicroBatch, digests: Collection[Digest]) -> None:
    """Raise ProtocolStop where tasks have digested in different ways: their sums cannot be compared."""
    if batch.reports and len(digests) > 1:
        raise stop(
            "EOS_MIXED_VERSIONS",
            batch=batch.id,
            sign=f"their digests were made in different ways ({', '.join(sorted(each.value for each in digests))})",
        )


def compare(batch: MicroBatch, last: Decision) -> None:
    """Raise Diverged unless a replay equals the decision, which visible rows came from. Where a feature reads the rows,
    a replay does not read visible ones again, so that only its extra is compared."""
    kind = batch.kind
    other_kind = kinds_differ(last, None if kind is None else kind.name)
    if other_kind:
        raise Kind.diverged(last, other_kind)
    if kind is not None:
        kind.compare(last, batch.reports)
    compared = [("rows", last.rows, batch.rows), ("digest of the rows", last.digest, batch.digest)]
    if kind is not None and kind.is_read:
        compared = []
    unlike = [f"{name}: decided {was}, now {now}" for name, was, now in compared if was != now]
    if last.offsets is not None and batch.offsets is not None and last.offsets != batch.offsets:
        unlike.append(f"offsets: decided {offsets_text(last.offsets)}, now {offsets_text(batch.offsets)}")
    if unlike:
        raise _rows_diverged(batch, last, "; ".join(unlike))


def _rows_diverged(batch: MicroBatch, last: Decision, differences: str) -> EosError:
    seen = " and made visible" if is_visible(last) and not is_unknown_here(last) else ""
    return stop(
        "EOS_REPLAY_DIVERGED.rows",
        batch=batch.id,
        repeated=seen,
        differences=differences,
        instead_of_replay=new_checkpoint_hint(last),
    )


def listed(tasks: Sequence[int]) -> str:
    more = len(tasks) - _MOST_LISTED
    return ", ".join(map(str, tasks[:_MOST_LISTED])) + (f" and {more} more" if more > 0 else "")


def needs_same_tasks(batch: MicroBatch, last: Decision) -> EosError:
    return stop(
        "EOS_REPAIR_NEEDS_SAME_TASKS",
        tasks=last.tasks,
        batch=batch.id,
        lost=len(last.lost),
        transactions=len(last.written),
        differences=differences_of_tasks(last, batch.reports),
    )


# Tasks that repair lost transactions


#: Tasks of which every choice is tried: 65,536 sums of 64 bits, none of which may be right by chance.
_MOST_TRIED = 16


_MOST_TASKS = 8


#: Rows, and the sum of their digests.
_Sum = tuple[int, int]


def repairs(last: Decision, written: Iterable[Written]) -> bool:
    """Return whether these are exactly the rows that the decision has lost."""
    return _total(map(_sum_of, written)) == _total(map(_sum_of, last.lost))


def tasks_with_lost_rows(last: Decision, reports: Collection[TaskReport]) -> tuple[int, ...] | None:
    """Return the tasks of a replay whose rows together are the lost ones; None when there are no such tasks.

    The replay as a whole must equal the decision.
    """
    committed = Counter(_sum_of(w) for w in last.written if w.verdict is not Verdict.LOST)
    lost = Counter(_sum_of(w) for w in last.lost)
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
    """Return the tasks whose rows together are the missing ones, if there are such tasks."""
    if missing == (0, 0):
        return ()
    if len(reports) > _MOST_TRIED:
        return None
    sums: dict[_Sum, tuple[int, ...]] = {(0, 0): ()}
    for report in reports:
        sums |= {_add(one, (report.rows, report.digest)): (*tasks, report.partition) for one, tasks in sums.items()}
    return sums.get(missing)


def differences_of_tasks(last: Decision, reports: Collection[TaskReport]) -> str:
    """Describe how the tasks that lost rows differ from the replay's tasks with the same numbers."""
    now = {report.partition: (report.rows, report.digest) for report in reports}
    unlike = []
    for w in last.lost:
        rows, digest = now.get(w.partition, (0, 0))
        if rows != w.rows:
            unlike.append(f"task {w.partition} had {w.rows} rows and has {rows} now")
        elif digest != w.digest:
            unlike.append(f"task {w.partition} has as many rows as before ({rows}), but different ones")
    more = f" (and {len(unlike) - _MOST_TASKS} more)" if len(unlike) > _MOST_TASKS else ""
    return f"{last.tasks} tasks then, {len(reports)} now; {'; '.join(unlike[:_MOST_TASKS])}{more}"


def _sum_of(w: Written) -> _Sum:
    return w.rows, w.digest


def _total(sums: Iterable[_Sum]) -> _Sum:
    total = 0, 0
    for one in sums:
        total = _add(total, one)
    return total


def _add(one: _Sum, other: _Sum) -> _Sum:
    return one[0] + other[0], (one[1] + other[1]) % (1 << DIGEST_BITS)
