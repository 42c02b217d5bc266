"""What ``spark-eos replay`` would do, after all checks. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from spark_eos.base.topic_partition import TopicPartition, flat, is_topic_name, name_of_place
from spark_eos.base.whole_numbers import whole_number
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import SourceLine, source_line, topic_twice
from spark_eos.errors import stop
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.checkpoint_logs import Logs, check_known
from spark_eos.ops.heads import SinkHead, check_agree, check_named, heads_of, with_the_whole
from spark_eos.ops.replay_offsets import (
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

#: Smaller numbers, of fewer than 11 digits, are meant as seconds, or as a date without its dashes.
_FIRST_MS = 10**10


@dataclass(frozen=True)
class ReplayRequest:
    """Where a query is to begin again, and where it is to write.

    One of ``batch`` (as it was after this micro-batch), ``timestamp`` (rows of this time or later: milliseconds since
    1970, or ISO 8601) and ``offsets`` (JSON). ``again``: to the same topics; ``topic``: to another one. ``to``: the
    location of the new checkpoint; None goes back in place.
    """

    batch: int | None = None
    timestamp: str | None = None
    offsets: str | None = None
    again: bool = False
    topic: str | None = None
    to: str | None = None


@dataclass(frozen=True)
class ReplayPlan:
    """``query``: the id of the new query, or that of the old one if it goes back in place. ``unfinished``: the mark for
    the ledger, which has all that is needed to finish the replay. ``passed``: the last micro-batch in Spark's commit
    log. ``heads``: those of the old query's sinks. ``ranges``: what is read again."""

    query: str
    unfinished: Unfinished
    passed: int
    heads: Sequence[SinkHead]
    ranges: Sequence[ReplayRange] = ()


def plan(checkpoint: Checkpoint, cluster: Cluster, request: ReplayRequest) -> ReplayPlan:
    """The plan of a new replay. Raises EosError if the query cannot be replayed, or not in this way."""
    _check_request(request)
    logs, old, heads = opened(checkpoint, cluster)
    position = last_done(logs, heads)
    now = check_sources(logs, position)
    check_cluster(cluster.client, now, checkpoint.location)
    if request.batch is not None:
        lines = lines_of(logs, request.batch, position)
        _check_back(request.batch, check_sources(logs, request.batch), now)
    elif request.timestamp is not None:
        lines = moved(now, by_timestamp(cluster.client, now, milliseconds(request.timestamp)))
    else:
        lines = moved(now, by_offsets(cluster.client, now, request.offsets or ""))
    group = _group(heads) if request.topic is None else None
    twice = topic_twice([source_line(line) for line in lines])
    if twice is not None and group is not None:
        raise stop("EOS_CHECKPOINT_WITHOUT_OFFSETS.topic_twice_replay", twice=twice)
    check_heads(heads, request)
    found = ranges(cluster.client, lines, now)
    passed = logs.done[-1]
    if request.to is None:
        _check_in_place(logs, heads, request)
        mark = Unfinished(old, checkpoint.location, checkpoint.location, request.batch or 0, lines, group=group)
        return ReplayPlan(old, mark, passed, heads, found)
    entry, done = logs.entry(position), tuple(logs.commit_entry(passed))
    files = (entry.version, entry.metadata), done
    mark = Unfinished(old, checkpoint.location, request.to, 0, lines, *files, request.topic, group)
    return ReplayPlan(query_of_replay(old, request.to), mark, passed, heads, found)


def begun(checkpoint: Checkpoint, cluster: Cluster, to: str | None) -> ReplayPlan:
    """The plan of an interrupted replay, by its mark in the ledger. Raises EosError."""
    logs, old, heads = opened(checkpoint, cluster)
    query = old if to is None else query_of_replay(old, to)
    new = heads if to is None else heads_of(cluster, query)
    unfinished = next((sink.known.marks.unfinished for sink in new if sink.known.marks.unfinished is not None), None)
    if unfinished is None:
        raise stop("EOS_REPLAY_REFUSED.not_begun", location=checkpoint.location, to=to or "itself")
    if unfinished.drops:
        check_not_halted(next(sink.known for sink in new if sink.known.marks.unfinished is unfinished))
    _check_begun(unfinished, logs, old, heads, to)
    return ReplayPlan(query, unfinished, logs.done[-1], heads)


def _check_begun(unfinished: Unfinished, logs: Logs, query: str, heads: Sequence[SinkHead], to: str | None) -> None:
    """Raise EosError unless the mark is what a replay of this checkpoint to this place writes to the ledger: whoever
    may write there must not choose the places, the offsets or the group of a command."""
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
    """Raise EosError unless each source is of the same kind as now, and moves back."""
    for line, current in zip(map(source_line, unfinished.lines), map(source_line, now), strict=True):
        further = [name_of_place(place) for place in _further(line, current)]
        check_agree(
            {"kind of source": line.kind, "source that goes forward": further},
            {"kind of source": current.kind, "source that goes forward": []},
        )


def _check_back(batch: int, then: Sequence[SourceLine], now: Sequence[SourceLine]) -> None:
    """Raise ReplayError where the query was further after this micro-batch than it is now, as one whose log was cut."""
    for was, current in zip(then, now, strict=False):
        for topic, partition in _further(was, current):
            at, offset = (line.position.offsets[topic][partition] for line in (current, was))
            raise stop(
                "EOS_REPLAY_REFUSED.forward", batch=batch, topic=topic, partition=partition, offset=offset, now=at
            )


def _further(line: SourceLine, current: SourceLine) -> list[TopicPartition]:
    """The partitions whose offset is later in ``line`` than in ``current``, which has them, too."""
    there = flat(current.position.offsets)
    return [place for place, at in flat(line.position.offsets).items() if at > there.get(place, at)]


def milliseconds(text: str) -> int:
    """Milliseconds since 1970, from such a number or a time in ISO 8601. Raises ReplayError."""
    number = whole_number(text)
    if number is not None and number < _FIRST_MS:
        raise stop("EOS_REPLAY_REFUSED.early_timestamp", text=text)
    if number is not None:
        return number
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise stop("EOS_REPLAY_REFUSED.timestamp", text=text)
    return int(at.timestamp() * 1000)


def _check_request(request: ReplayRequest) -> None:
    if sum(value is not None for value in (request.batch, request.timestamp, request.offsets)) != 1:
        raise stop("EOS_REPLAY_REFUSED.where_to_begin")
    if request.to is not None and request.again == (request.topic is not None):
        raise stop("EOS_REPLAY_REFUSED.where_to_write")
    if request.topic is not None and not is_topic_name(request.topic):
        raise stop("EOS_REPLAY_REFUSED.topic_name", topic=request.topic)


def opened(checkpoint: Checkpoint, cluster: Cluster) -> tuple[Logs, str, list[SinkHead]]:
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


def last_done(logs: Logs, heads: Sequence[SinkHead]) -> int:
    """The last micro-batch whose rows are all visible, or will be without being read again."""
    decided = [sink.known.decision.batch for sink in heads if sink.name is None and sink.known.decision is not None]
    return min(max([logs.done[-1], *decided]), logs.planned[-1])


def _group(heads: Sequence[SinkHead]) -> str | None:
    """The group that the query commits its offsets to; they move back, too."""
    return next((sink.known.decision.group for sink in heads if sink.known.decision is not None), None)


def _check_in_place(logs: Logs, heads: Sequence[SinkHead], request: ReplayRequest) -> None:
    """Raise ReplayError if another sink may have written a part of the query: it would skip the micro-batches, by their
    numbers, that are run again."""
    if request.batch is None:
        raise stop("EOS_REPLAY_REFUSED.in_place_batch")
    last = heads[0].known.decision
    other = any(sink.name is not None for sink in heads) or last is None or last.batch < logs.done[-1]
    if other:
        raise stop("EOS_REPLAY_REFUSED.other_sink", location=logs.checkpoint.location)


def check_heads(heads: Sequence[SinkHead], request: ReplayRequest) -> None:
    """Raise EosError if the heads show that the query cannot be replayed in this way."""
    for sink in heads:
        last, marks = sink.known.decision, sink.known.marks
        if marks.successor is not None or marks.unfinished is not None:
            check_not_halted(sink.known)
        if last is not None and last.lost:
            raise rows_lost(last)
        if request.topic is not None and sink.name is not None:
            raise stop("EOS_REPLAY_REFUSED.foreach_batch_topic")
        if request.topic is not None and sink.known.may_write_to(request.topic):
            if sink.known.more_topics:
                raise stop("EOS_REPLAY_REFUSED.maybe_same_topic", topic=request.topic)
            raise stop("EOS_REPLAY_REFUSED.same_topic", topic=request.topic)
