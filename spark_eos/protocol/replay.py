"""A replay beside the decision: errors where it is not what was decided, and which of its tasks repair what was lost.

A replay may deal rows to tasks in another way, and what is visible must not be written again. Nobody can take lost rows
out of a task that has others, too. But whole tasks whose rows together are the lost ones, by counts and digests, repair
the micro-batch, however many there are, and whichever numbers they have.

Copies: with nothing lost, a replay is equal by its cluster, topics, transform and ranges alone, and nothing is
fetched. What was lost is read again by the decision's ranges, not by Spark's, and is the same by its number of rows and
their digest, in which rows count with their places in the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import EosError, stop
from spark_eos.protocol.checks import as_json, instead_of_replay, is_unknown_here, is_visible
from spark_eos.protocol.extra import kinds_differ
from spark_eos.protocol.head import DIGEST_BITS, CopiedFrom, Decision, Digest, Head, Verdict, Written, merged
from spark_eos.protocol.names import SLOTS, TaskId
from spark_eos.protocol.task import Assignment, MicroBatch, TaskReport, Work, assign

_MOST_LISTED = 20


def check_versions(batch: MicroBatch, digests: Collection[Digest]) -> None:
    """Raise ProtocolStop where tasks have digested in different ways: their sums cannot be compared."""
    if batch.reports and len(digests) > 1:
        raise stop(
            "EOS_MIXED_VERSIONS.digests", batch=batch.id, digests=", ".join(sorted(digest.value for digest in digests))
        )


def compare(batch: MicroBatch, last: Decision) -> None:
    """A replay must be what was decided: what is visible already came from it. The replay of a copy reads nothing that
    is visible already, so that its ranges are compared."""
    other_kind = kinds_differ(last, None if batch.kind is None else batch.kind.name)
    if other_kind:
        raise ranges_diverged(last, other_kind)
    if batch.kind is not None:
        batch.kind.compare(last, batch.reports)
    other_ranges = differences_of_ranges(last, batch.copied_from)
    if other_ranges:
        raise ranges_diverged(last, other_ranges)
    compared = [("rows", last.rows, batch.rows), ("digest of the rows", last.digest, batch.digest)]
    if last.copied_from is not None:
        compared = []
    unlike = [f"{what}: decided {was}, now {now}" for what, was, now in compared if was != now]
    if last.offsets is not None and batch.offsets is not None and last.offsets != batch.offsets:
        unlike.append(f"offsets: decided {as_json(last.offsets)}, now {as_json(batch.offsets)}")
    if unlike:
        raise _rows_diverged(batch, last, "; ".join(unlike))


def _rows_diverged(batch: MicroBatch, last: Decision, differences: str) -> EosError:
    seen = " and made visible" if is_visible(last) and not is_unknown_here(last) else ""
    return stop(
        "EOS_REPLAY_DIVERGED.rows",
        batch=batch.id,
        repeated=seen,
        differences=differences,
        instead_of_replay=instead_of_replay(last),
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


# Which tasks repair what was lost


#: Tasks of which every choice is tried: 65,536 sums of 64 bits, none of which may be right by chance.
_MOST_TRIED = 16


_MOST_TASKS = 8


#: Rows, and the sum of their digests.
_Sum = tuple[int, int]


def repairs(last: Decision, written: Iterable[Written]) -> bool:
    """Whether these are the rows that the decision has lost: no more, no less."""
    return _total(map(_sum_of, written)) == _total(map(_sum_of, last.lost))


def tasks_with_lost_rows(last: Decision, reports: Collection[TaskReport]) -> tuple[int, ...] | None:
    """The tasks of a replay whose rows together are the lost ones; None when there are no such tasks.

    The replay as a whole must be what was decided.
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
    """The tasks whose rows together are the missing ones, if there are such tasks."""
    if missing == (0, 0):
        return ()
    if len(reports) > _MOST_TRIED:
        return None
    sums: dict[_Sum, tuple[int, ...]] = {(0, 0): ()}
    for report in reports:
        sums |= {_add(one, (report.rows, report.digest)): (*tasks, report.partition) for one, tasks in sums.items()}
    return sums.get(missing)


def differences_of_tasks(last: Decision, reports: Collection[TaskReport]) -> str:
    """How the tasks that lost rows differ from those of the replay, by their numbers."""
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


# Copies


_MOST_RANGES = 3


def assign_ranges(
    head: Head,
    batch: int,
    partition: int,
    tasks: int,
    attempt: int,
    given: CopiedFrom,
    *,
    partitioner: str | None = None,
) -> tuple[Assignment, tuple[OffsetRange, ...]]:
    """What one of so many tasks of a micro-batch has to do, and from which ranges. ``given`` is what Spark says.

    Each of the decision's lost transactions has its ranges, so any number of tasks can share them. Raises ProtocolStop
    when behind, Diverged (EOS_REPLAY_DIVERGED) before anything is written that was not decided.
    """
    decision = head.decision
    if decision is None or decision.batch != batch:
        digest_by = Digest.BATCHES if given.transform is None else Digest.CHUNKS
        new = assign(head, batch, partition, attempt, digest_by=digest_by, partitioner=partitioner)
        return new, given.ranges
    unlike = list(_kinds(decision.copied_from, given))
    if unlike:
        raise ranges_diverged(decision, unlike)
    mine = sorted(r for w in decision.lost[partition::tasks] for r in w.ranges)  # a partition's rows, in order
    name = TaskId(head.generation, partition, batch % SLOTS, attempt, decision.rev + 1) if mine else None
    work = Work.REPAIR if mine else Work.COUNT
    return Assignment(work, name, decision.digest_by, decision.partitioner), tuple(mine)


def differences_of_ranges(last: Decision, now: CopiedFrom | None) -> list[str]:
    """How a replay differs from what was decided; nothing where it is equal. None: rows are Spark's."""
    unlike = list(_kinds(last.copied_from, now))
    if unlike or last.copied_from is None or now is None:
        return unlike
    if last.copied_from.topics != now.topics:
        unlike.append(f"topics and their ids: decided {_named_topics(last.copied_from)}, now {_named_topics(now)}")
    decided = merged([*last.copied_from.ranges, *(r for w in last.written for r in w.ranges)])
    current = merged(now.ranges)
    unlike += _other_logs(decided, current)
    if decided != current:
        unlike.append(f"ranges: decided {_listed_ranges(decided, current)}, now {_listed_ranges(current, decided)}")
    return unlike


def _other_logs(decided: Iterable[OffsetRange], now: Iterable[OffsetRange]) -> Iterator[str]:
    """Offsets are those of other rows where a partition's log was cut and has grown again. Its epochs show that, where
    both are known."""
    known = {(r.topic, r.partition, r.end): r.last_epoch for r in decided}
    for r in now:
        before = known.get((r.topic, r.partition, r.end), -1)
        if min(before, r.last_epoch) >= 0 and before != r.last_epoch:
            yield (
                f"the log of {r.topic}-{r.partition} up to offset {r.end}: decided with leader epoch {before}, now "
                f"{r.last_epoch}, as it was cut and has grown again"
            )


def _kinds(decided: CopiedFrom | None, now: CopiedFrom | None) -> Iterator[str]:
    """What is not of the same kind, whatever the ranges."""
    if decided is None or now is None:
        if decided is not now:
            ways = {True: "rows through Spark", False: "ranges of offsets"}
            yield f"the way of the rows: decided {ways[decided is None]}, now {ways[now is None]}"
        return
    if decided.cluster != now.cluster:
        yield f"the source's cluster: decided {decided.cluster}, now {now.cluster}"
    if decided.transform != now.transform:
        yield f"the transform: decided {decided.transform or 'none'}, now {now.transform or 'none'}"


def _named_topics(copied_from: CopiedFrom) -> str:
    return ", ".join(f"{name} ({id_})" for name, id_ in copied_from.topics)


def _listed_ranges(ranges: Sequence[OffsetRange], others: Sequence[OffsetRange]) -> str:
    """Ranges that are not among the others, as text."""
    own = [r for r in ranges if r not in others]
    listed = ", ".join(f"{r.topic}-{r.partition} {r.start} to {r.end}" for r in own[:_MOST_RANGES]) or "fewer"
    return listed + (f" and {len(own) - _MOST_RANGES} more" if len(own) > _MOST_RANGES else "")


def ranges_diverged(decision: Decision, unlike: Sequence[str]) -> EosError:
    """A replay reads something else than was decided, or does something else with it."""
    return stop(
        "EOS_REPLAY_DIVERGED.ranges",
        batch=decision.batch,
        differences="; ".join(unlike),
        instead_of_replay=instead_of_replay(decision),
    )


def source_changed(decision: Decision, rows: int) -> EosError:
    """What was lost cannot be written again: the source does not have it any more as it was."""
    lost = decision.lost
    ranges = merged(r for w in lost for r in w.ranges)
    return stop(
        "EOS_REPAIR_SOURCE_CHANGED",
        batch=decision.batch,
        lost=len(lost),
        transactions=len(decision.written),
        lost_rows=sum(w.rows for w in lost),
        ranges=_listed_ranges(ranges, ()),
        rows=rows,
    )
