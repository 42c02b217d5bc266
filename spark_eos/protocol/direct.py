"""The direct way: which ranges a task of a replay writes again, and what makes a replay equal to its decision.

With nothing lost, a replay is equal by its cluster, topics, transform and ranges alone: nothing is fetched. What was
lost is read again by the decision's ranges, not by Spark's, and is the same by its number of rows and their digest, in
which rows count with their places in the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spark_eos.errors import Diverged
from spark_eos.protocol.head import Decision, Digest, Head
from spark_eos.protocol.names import SLOTS, TaskId
from spark_eos.protocol.new_checkpoint import instead_of_replay
from spark_eos.protocol.ranges import Direct, Range, merged
from spark_eos.protocol.task import Assignment, Work, assign

_MOST_TOLD = 3


def assign_ranges(
    head: Head, batch: int, partition: int, tasks: int, attempt: int, given: Direct, *, partitioner: str | None = None
) -> tuple[Assignment, tuple[Range, ...]]:
    """What one of so many tasks of a micro-batch has to do, and from which ranges. ``given`` is what Spark says.

    Each of the decision's lost transactions has its ranges, so any number of tasks can share them. Raises ProtocolStop
    when behind, Diverged (EOS_REPLAY_DIVERGED) before anything is written that was not decided.
    """
    decision = head.decision
    if decision is None or decision.batch != batch:
        digest_by = Digest.BATCHES if given.transform is None else Digest.CHUNKS
        new = assign(head, batch, partition, attempt, digest_by=digest_by, partitioner=partitioner)
        return new, given.ranges
    unlike = list(_kinds(decision.direct, given))
    if unlike:
        raise diverged(decision, unlike)
    mine = sorted(r for w in decision.lost[partition::tasks] for r in w.ranges)  # a partition's rows, in order
    name = TaskId(head.generation, partition, batch % SLOTS, attempt, decision.rev + 1) if mine else None
    work = Work.REPAIR if mine else Work.COUNT
    return Assignment(work, name, decision.digest_by, decision.partitioner), tuple(mine)


def differences(last: Decision, now: Direct | None) -> list[str]:
    """How a replay differs from what was decided; nothing where it is equal. None: rows are Spark's."""
    unlike = list(_kinds(last.direct, now))
    if unlike or last.direct is None or now is None:
        return unlike
    if last.direct.topics != now.topics:
        unlike.append(f"topics and their ids: decided {_named(last.direct)}, now {_named(now)}")
    decided = merged([*last.direct.ranges, *(r for w in last.written for r in w.ranges)])
    current = merged(now.ranges)
    unlike += _other_logs(decided, current)
    if decided != current:
        unlike.append(f"ranges: decided {_told(decided, current)}, now {_told(current, decided)}")
    return unlike


def _other_logs(decided: Iterable[Range], now: Iterable[Range]) -> Iterator[str]:
    """The same offsets are other rows where a partition's log was cut and has grown again: as its epochs tell, where
    both are known."""
    known = {(r.topic, r.partition, r.end): r.last_epoch for r in decided}
    for r in now:
        before = known.get((r.topic, r.partition, r.end), -1)
        if min(before, r.last_epoch) >= 0 and before != r.last_epoch:
            yield (
                f"the log of {r.topic}-{r.partition} up to offset {r.end}: decided with leader epoch {before}, now "
                f"{r.last_epoch}, as it was cut and has grown again"
            )


def _kinds(decided: Direct | None, now: Direct | None) -> Iterator[str]:
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


def _named(direct: Direct) -> str:
    return ", ".join(f"{name} ({id_})" for name, id_ in direct.topics)


def _told(ranges: Sequence[Range], others: Sequence[Range]) -> str:
    """Those that the others are not."""
    own = [r for r in ranges if r not in others]
    told = ", ".join(f"{r.topic}-{r.partition} {r.start} to {r.end}" for r in own[:_MOST_TOLD]) or "fewer"
    return told + (f" and {len(own) - _MOST_TOLD} more" if len(own) > _MOST_TOLD else "")


def diverged(decision: Decision, unlike: Sequence[str]) -> Diverged:
    """A replay reads something else than was decided, or does something else with it."""
    return Diverged(
        "EOS_REPLAY_DIVERGED",
        f"The replay of micro-batch {decision.batch} is not what was decided: {'; '.join(unlike)}.",
        hint="Put the query back as it was, until this micro-batch is done: spark_eos.direct or rows through Spark, "
        "the name of the transform, the topics and their cluster. If its file in 'offsets' was lost, so that Spark has "
        f"planned it anew with other ranges, this checkpoint is of no more use. {instead_of_replay(decision)}",
        batch=decision.batch,
    )


def source_changed(decision: Decision, rows: int) -> Diverged:
    """What was lost cannot be written again: the source does not have it any more as it was."""
    lost = decision.lost
    ranges = merged(r for w in lost for r in w.ranges)
    return Diverged(
        "EOS_REPAIR_SOURCE_CHANGED",
        f"Micro-batch {decision.batch} lost {len(lost)} of its {len(decision.written)} transactions, with "
        f"{sum(w.rows for w in lost)} rows, but {_told(ranges, ())} now give {rows} rows, or different ones: the "
        "source was compacted, truncated or lost data, or the transform or the option 'topic' has changed.",
        hint="If the transform or 'topic' was changed, restore the old one for this micro-batch. If the source was "
        "compacted, the lost rows cannot be written again as they were; those of the same transaction are not visible, "
        "all others are. Nothing of the repair is visible.",
        batch=decision.batch,
    )
