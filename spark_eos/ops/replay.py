"""What a replay would do, after all checks; nothing is changed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import stop
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.checkpoint.logs import Logs, check_known, source_of, topic_twice
from spark_eos.ops.heads import OwnHead, check_agree, check_named, heads_of, with_the_whole
from spark_eos.ops.replay.ranges import (
    ReplayRange,
    by_offsets,
    by_timestamp,
    check_cluster,
    check_sources,
    lines_of,
    moved,
    ranges,
)
from spark_eos.protocol.commands import check_not_halted, known_head, rows_lost
from spark_eos.protocol.head import Unfinished
from spark_eos.protocol.names import query_of_replay


@dataclass(frozen=True)
class Wish:
    """What the user asks for: one of ``batch``, ``timestamp_ms`` and ``offsets``. ``again``: into the same topic;
    ``topic``: into another one. ``to`` is where the new checkpoint is to be; None goes back in place."""

    batch: int | None = None
    timestamp_ms: int | None = None
    offsets: str | None = None
    again: bool = False
    topic: str | None = None
    to: str | None = None


@dataclass(frozen=True)
class ReplayPlan:
    """``query`` is the new one's id, or the same where it goes back in place. ``passed`` is the last micro-batch that
    Spark has noted as committed. ``heads`` are the old query's; ``unfinished`` says it all for the ledger."""

    query: str
    unfinished: Unfinished
    passed: int
    heads: Sequence[OwnHead]
    ranges: Sequence[ReplayRange] = ()


def plan(checkpoint: Checkpoint, cluster: Cluster, wish: Wish) -> ReplayPlan:
    """Raises EosError where the query cannot be replayed, or not in this way."""
    _check_wish(wish)
    logs, old, heads = opened(checkpoint, cluster)
    position = last_done(logs, heads)
    now = check_sources(logs, position)
    check_cluster(cluster.kafka, now, checkpoint.location)
    if wish.batch is not None:
        lines = lines_of(logs, wish.batch, position)
        check_sources(logs, wish.batch)
    elif wish.timestamp_ms is not None:
        lines = moved(now, by_timestamp(cluster.kafka, now, wish.timestamp_ms))
    else:
        lines = moved(now, by_offsets(cluster.kafka, now, wish.offsets or ""))
    group = _group(heads) if wish.topic is None else None
    _check_twice(lines, group)
    check_heads(heads, wish)
    found = ranges(cluster.kafka, lines, now)
    if wish.to is None:
        _check_in_place(logs, heads, wish)
        unfinished = Unfinished(
            old, checkpoint.location, checkpoint.location, wish.batch or 0, tuple(lines), group=group
        )
        return ReplayPlan(old, unfinished, logs.done[-1], heads, found)
    entry, done = logs.entry(position), logs.commit_entry(logs.done[-1])
    unfinished = Unfinished(
        old,
        checkpoint.location,
        wish.to,
        0,
        tuple(lines),
        (entry.version, entry.metadata),
        tuple(done),
        wish.topic,
        group,
    )
    return ReplayPlan(query_of_replay(old, wish.to), unfinished, logs.done[-1], heads, found)


def begun(checkpoint: Checkpoint, cluster: Cluster, to: str | None) -> ReplayPlan:
    """The plan of a replay that was interrupted, by the ledger. Raises EosError."""
    logs, old, heads = opened(checkpoint, cluster)
    query = old if to is None else query_of_replay(old, to)
    new = heads if to is None else heads_of(cluster, query)
    unfinished = next((own.head.marks.unfinished for own in new if own.head.marks.unfinished is not None), None)
    if unfinished is None:
        raise stop("EOS_REPLAY_REFUSED.not_begun", location=checkpoint.location, to=to or "itself")
    if unfinished.drops:
        check_not_halted(next(own.head for own in new if own.head.marks.unfinished is unfinished))
    _check_begun(unfinished, logs, old, heads, to)
    return ReplayPlan(query, unfinished, logs.done[-1], heads)


def _check_begun(unfinished: Unfinished, logs: Logs, query: str, heads: Sequence[OwnHead], to: str | None) -> None:
    """Raise EosError where what the ledger says of a replay that has begun is not what a replay of this checkpoint to
    this place writes there: it must not choose the places, the offsets or the group of a command."""
    check_named(unfinished, query, logs.checkpoint.location, to)
    if unfinished.group is not None:
        check_agree({"group": unfinished.group}, {"group": _group(heads)})
    if to is None:
        there = unfinished.batch in logs.planned
        lines = logs.entry(unfinished.batch).lines if there else None
        named = {"micro-batch": unfinished.batch if there else None, "entry of the offset log": unfinished.lines}
        check_agree(named, {"micro-batch": unfinished.batch, "entry of the offset log": lines})
        return
    entry, done = logs.entry(last_done(logs, heads)), logs.commit_entry(logs.done[-1])
    check_agree(
        {
            "micro-batch": unfinished.batch,
            "version of the offset log": unfinished.metadata[:1],
            "version of the commit log": unfinished.done[:1],
            "number of lines in the commit log": len(unfinished.done),
            "number of lines before the sources": len(unfinished.metadata),
            "number of sources": len(unfinished.lines),
        },
        {
            "micro-batch": 0,
            "version of the offset log": (entry.version,),
            "version of the commit log": tuple(done[:1]),
            "number of lines in the commit log": len(done),
            "number of lines before the sources": 2,
            "number of sources": len(entry.lines),
        },
    )
    _check_lines(unfinished, entry.lines)


def _check_lines(unfinished: Unfinished, now: Sequence[str]) -> None:
    """Each source is of the kind that it is now, and goes back."""
    for line, own in zip(map(source_of, unfinished.lines), map(source_of, now), strict=True):
        there = {(topic, p): at for topic, parts in own.offsets.items() for p, at in parts.items()}
        further = [
            f"{topic}-{p}"
            for topic, parts in line.offsets.items()
            for p, at in parts.items()
            if at > there.get((topic, p), at)
        ]
        check_agree(
            {"kind of source": line.kind, "source that goes forward": further},
            {"kind of source": own.kind, "source that goes forward": []},
        )


def _check_wish(wish: Wish) -> None:
    if sum(value is not None for value in (wish.batch, wish.timestamp_ms, wish.offsets)) != 1:
        raise stop("EOS_REPLAY_REFUSED.where_to_begin")
    if wish.to is not None and wish.again == (wish.topic is not None):
        raise stop("EOS_REPLAY_REFUSED.where_to_write")


def opened(checkpoint: Checkpoint, cluster: Cluster) -> tuple[Logs, str, list[OwnHead]]:
    """The logs, the query's id and its heads. Raises ReplayError where it cannot be replayed, and LedgerError."""
    logs, query = Logs(checkpoint), checkpoint.query_id()
    if query is None or not logs.done or not logs.planned:
        raise stop("EOS_REPLAY_REFUSED.no_batch", location=checkpoint.location)
    check_known(logs)
    if logs.stateful:
        raise stop("EOS_REPLAY_REFUSED.stateful", location=checkpoint.location)
    heads = with_the_whole(heads_of(cluster, query), query)
    if not heads:
        known_head(None, query)
    return logs, query, heads


def last_done(logs: Logs, heads: Sequence[OwnHead]) -> int:
    """The last micro-batch all of whose rows are, or will be, visible without being read again."""
    decided = [own.head.decision.batch for own in heads if own.sink is None and own.head.decision is not None]
    return min(max([logs.done[-1], *decided]), logs.planned[-1])


def _group(heads: Sequence[OwnHead]) -> str | None:
    """The group that gets the query's offsets, which go back with it."""
    return next((own.head.decision.group for own in heads if own.head.decision is not None), None)


def _check_twice(lines: Sequence[str], group: str | None) -> None:
    twice = topic_twice([source_of(line) for line in lines])
    if twice is not None and group is not None:
        raise stop("EOS_CHECKPOINT_WITHOUT_OFFSETS.topic_twice_replay", twice=twice)


def _check_in_place(logs: Logs, heads: Sequence[OwnHead], wish: Wish) -> None:
    """Going back in place is for queries that write nowhere else: other sinks skip micro-batches by their numbers."""
    if wish.batch is None:
        raise stop("EOS_REPLAY_REFUSED.in_place_batch")
    last = heads[0].head.decision
    other = any(own.sink is not None for own in heads) or last is None or last.batch < logs.done[-1]
    if other:
        raise stop("EOS_REPLAY_REFUSED.other_sink", location=logs.checkpoint.location)


def check_heads(heads: Sequence[OwnHead], wish: Wish) -> None:
    """Raise where the heads say that the query cannot be replayed in this way."""
    for own in heads:
        last, marks = own.head.decision, own.head.marks
        if marks.successor is not None or marks.unfinished is not None:
            check_not_halted(own.head)
        if last is not None and last.lost:
            raise rows_lost(last)
        if wish.topic is not None and own.sink is not None:
            raise stop("EOS_REPLAY_REFUSED.foreach_batch_topic")
        if wish.topic is not None and own.head.may_write_to(wish.topic):
            if own.head.more_topics:
                raise stop("EOS_REPLAY_REFUSED.maybe_same_topic", topic=wish.topic)
            raise stop("EOS_REPLAY_REFUSED.same_topic", topic=wish.topic)
