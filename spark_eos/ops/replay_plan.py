"""Plans a replay, for ``spark-eos replay``, with all checks. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from spark_eos.base.topic_partition import TopicPartition, flat, is_topic_name, name_of_partition
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
    """The location of the new checkpoint (``to``), and where the new query is to begin and to write.

    One of ``batch`` (as it was after this micro-batch), ``timestamp`` (rows of this time or later: milliseconds since
    1970, or ISO 8601) and ``offsets`` (JSON). ``again``: to the same topics; ``topic``: to another one. With ``to``
    alone, a replay that was interrupted goes on as it began.
    """

    to: str
    batch: int | None = None
    timestamp: str | None = None
    offsets: str | None = None
    again: bool = False
    topic: str | None = None


@dataclass(frozen=True)
class ReplayPlan:
    """The plan of a replay. ``query``: the id of the new query. ``unfinished``: the mark for the ledger, which has all
    that is needed to finish the replay. ``passed``: the last micro-batch in Spark's commit log. ``heads``: of the old
    query's sinks. ``ranges``: the offsets that are read again, where the replay has not begun yet; ``begun``: it
    has."""

    query: str
    unfinished: Unfinished
    passed: int
    heads: Sequence[SinkHead]
    ranges: Sequence[ReplayRange] = ()
    begun: bool = False


def plan(checkpoint: Checkpoint, cluster: Cluster, request: ReplayRequest) -> ReplayPlan:
    """Return the plan of a new replay, or of one that was interrupted. Raises EosError if the query cannot be replayed,
    or not in this way."""
    logs, old, heads = opened(checkpoint, cluster)
    query = query_of_replay(old, request.to)
    begun = cluster.head(query)  # within foreachBatch, the head for all sinks, whose mark is the first and the last one
    unfinished = None if begun is None else begun.marks.unfinished
    if begun is not None and unfinished is not None:
        if request != ReplayRequest(request.to):
            check_not_halted(begun)
        _check_begun(unfinished, logs, old, heads, request.to)
        return ReplayPlan(query, unfinished, logs.done[-1], heads, begun=True)
    check_request(request, checkpoint.location)
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
        raise stop("EOS_CHECKPOINT_WITHOUT_OFFSETS.topic_twice", topic=twice)
    check_heads(heads, request)
    again = ranges(cluster.client, lines, now)
    entry, passed = logs.entry(position), logs.done[-1]
    files = (entry.version, entry.metadata), tuple(logs.commit_entry(passed))
    mark = Unfinished(old, checkpoint.location, request.to, 0, lines, *files, request.topic, group)
    return ReplayPlan(query, mark, passed, heads, again)


def _check_begun(unfinished: Unfinished, logs: Logs, query: str, heads: Sequence[SinkHead], to: str) -> None:
    """Raise EosError unless a replay of this checkpoint to this location writes this mark to the ledger: a user that
    may write there must not choose the locations, the offsets or the group of a command."""
    check_named(unfinished, query, logs.checkpoint.location, to)
    if unfinished.group is not None:
        check_agree({"group": unfinished.group}, {"group": _group(heads)})
    entry, done = logs.entry(last_done(logs, heads)), logs.commit_entry(logs.done[-1])
    check_agree(
        _form(unfinished.batch, unfinished.metadata, unfinished.done, unfinished.lines),
        _form(0, (entry.version, entry.metadata), done, entry.lines),
    )
    for text, now in zip(unfinished.lines, entry.lines, strict=True):
        line, current = source_line(text), source_line(now)
        further = [name_of_partition(partition) for partition in _further(line, current)]
        check_agree(
            {"kind of source": line.kind, "source that goes forward": further},
            {"kind of source": current.kind, "source that goes forward": []},
        )


def _form(batch: int, metadata: Sequence[str], done: Sequence[str], lines: Sequence[str]) -> dict[str, object]:
    """Return the form of the files of a new checkpoint: ``metadata`` and ``lines`` of the offset log, ``done`` of the
    commit log."""
    return {
        "micro-batch": batch,
        "version of the offset log": tuple(metadata[:1]),
        "version of the commit log": tuple(done[:1]),
        "number of lines in the commit log": len(done),
        "number of lines before the sources": len(metadata),
        "number of sources": len(lines),
    }


def _check_back(batch: int, then: Sequence[SourceLine], now: Sequence[SourceLine]) -> None:
    """Raise ReplayError where the query was further after this micro-batch than it is now, as one whose log was cut."""
    for was, current in zip(then, now, strict=False):
        for topic, partition in _further(was, current):
            at, offset = (line.position.offsets[topic][partition] for line in (current, was))
            raise stop(
                "EOS_REPLAY_REFUSED.skips",
                batch=batch,
                topic=topic,
                partition=partition,
                offset=offset,
                limit=f"the query is at {at} by now, as after its log was cut or recreated",
            )


def _further(line: SourceLine, current: SourceLine) -> list[TopicPartition]:
    """Return the partitions whose offset is later in ``line`` than in ``current``, which has them, too."""
    there = flat(current.position.offsets)
    return [partition for partition, at in flat(line.position.offsets).items() if at > there.get(partition, at)]


def milliseconds(text: str) -> int:
    """Return milliseconds since 1970, from such a number or a time in ISO 8601. Raises ReplayError."""
    number = whole_number(text)
    if number is not None and number < _FIRST_MS:
        raise stop(
            "EOS_REPLAY_REFUSED.timestamp", text=text, why=", which as milliseconds would be a time in early 1970"
        )
    if number is not None:
        return number
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise stop("EOS_REPLAY_REFUSED.timestamp", text=text, why="")
    if at.timestamp() < 0:  # Kafka takes -1 for the end of the log, and has other such numbers
        raise stop("EOS_REPLAY_REFUSED.timestamp", text=text, why=", which is before 1970")
    return int(at.timestamp() * 1000)


def check_request(request: ReplayRequest, location: str) -> None:
    """Raise ReplayError unless the request for a new replay of this checkpoint says where to begin and to write."""
    if sum(value is not None for value in (request.batch, request.timestamp, request.offsets)) != 1:
        raise stop("EOS_REPLAY_REFUSED.where_to_begin", location=location, to=request.to)
    if request.again == (request.topic is not None):
        raise stop("EOS_REPLAY_REFUSED.where_to_write")
    if request.topic is not None and not is_topic_name(request.topic):
        raise stop("EOS_REPLAY_REFUSED.topic_name", topic=request.topic)


def opened(checkpoint: Checkpoint, cluster: Cluster) -> tuple[Logs, str, list[SinkHead]]:
    """Return the logs, the query's id and its heads. Raises ReplayError where it cannot be replayed, and
    LedgerError."""
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
    """Return the last micro-batch whose rows are all visible, or will be without being read again."""
    decided = [sink.known.decision.batch for sink in heads if sink.name is None and sink.known.decision is not None]
    return min(max([logs.done[-1], *decided]), logs.planned[-1])


def _group(heads: Sequence[SinkHead]) -> str | None:
    """Return the group that the query commits its offsets to; they move back, too."""
    return next((sink.known.decision.group for sink in heads if sink.known.decision is not None), None)


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
                raise stop(
                    "EOS_REPLAY_REFUSED.same_topic",
                    topic=request.topic,
                    more=", or may have, as it has written to more than 200 topics",
                )
            raise stop("EOS_REPLAY_REFUSED.same_topic", topic=request.topic, more=", or did")
