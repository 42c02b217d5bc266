"""The offsets that a replay reads again, and whether their records still exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_eos.base.topic_partition import OffsetRange, TopicPartition, by_topic, flat, nested
from spark_eos.checkpoint.offset_log import OTHER, SourceLine, lowest_offsets, source_line, with_offsets, with_text_keys
from spark_eos.errors import stop
from spark_eos.kafka.admin.topics import (
    NO_OFFSET,
    begin_offsets,
    cluster_id,
    describe_topics,
    end_offsets,
    offsets_at,
)
from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.records.batches import Damage, find_batches
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.ops.checkpoint_logs import Logs
from spark_eos.options.offsets import EARLIEST, LATEST, parse_offsets
from spark_eos.options.values import parsed
from spark_eos.protocol.head import Offsets

_LOOK_BYTES = 64 * 1024


@dataclass(frozen=True)
class ReplayRange:
    """Offsets that are read again. ``first_ms`` and ``last_ms``: when the first and the last record batch of them was
    written, in milliseconds since 1970; None where there is none."""

    offsets: OffsetRange
    first_ms: int | None = None
    last_ms: int | None = None


def check_sources(logs: Logs, batch: int) -> list[SourceLine]:
    """Return the sources of the query in the offset log of a micro-batch. Raises ReplayError if one does not read
    Kafka: such a source keeps its progress in other files of the checkpoint."""
    sources = logs.source_lines(batch)
    if any(source.kind == OTHER for source in sources):
        raise stop("EOS_REPLAY_REFUSED.other_source", location=logs.checkpoint.location, batch=batch)
    return sources


def check_cluster(client: BrokerClient, sources: Iterable[SourceLine], location: str) -> None:
    """Raise ReplayError if a source reads another cluster than the ledger's, where topics with the same names are
    different topics."""
    noted = {s.position.cluster for s in sources if s.position.cluster is not None}
    here = cluster_id(client) if noted else ""
    if here and noted - {here}:
        raise stop(
            "EOS_REPLAY_REFUSED.other_cluster",
            location=location,
            source_cluster=", ".join(sorted(noted)),
            ledger_cluster=here,
        )


def lines_of(logs: Logs, batch: int, position: int) -> tuple[str, ...]:
    """Return the lines of the offset log at a micro-batch. ``position``: the last micro-batch that is done. Raises
    ReplayError if the micro-batch is later, or no longer in the offset log."""
    if batch not in logs.planned or batch > position:
        raise stop(
            "EOS_REPLAY_REFUSED.not_kept",
            batch=batch,
            location=logs.checkpoint.location,
            planned=logs.planned[0],
            position=position,
        )
    return logs.entry(batch).lines


def moved(sources: Iterable[SourceLine], wanted: Mapping[TopicPartition, int]) -> tuple[str, ...]:
    """Return the lines of the sources with each partition at its wanted offset. A partition without one, or with a
    later one than the query's, keeps its offset."""
    lines = []
    for source in sources:
        offsets = {p: min(at, wanted.get(p, at)) for p, at in flat(source.position.offsets).items()}
        lines.append(with_offsets(source, nested(offsets)))
    return tuple(lines)


def by_timestamp(client: BrokerClient, sources: Sequence[SourceLine], at_ms: int) -> dict[TopicPartition, int]:
    """Return the first offset of each partition whose record is of this time or later; partitions without one are left
    out."""
    asked = {topic: dict.fromkeys(parts, at_ms) for s in sources for topic, parts in s.position.offsets.items()}
    return {p: offset for p, offset in flat(offsets_at(client, asked)).items() if offset != NO_OFFSET}


def by_offsets(client: BrokerClient, sources: Sequence[SourceLine], text: str) -> dict[TopicPartition, int]:
    """Return the offsets in the JSON ``text``. Raises OptionError, and ReplayError for a partition that the query does
    not read, and an offset that it has not reached."""
    wanted = flat(parsed("--to-offsets", parse_offsets, text))
    known = {p: at for s in sources for p, at in flat(s.position.offsets).items()}
    begin = flat(begin_offsets(client, by_topic(p for p, at in wanted.items() if at == EARLIEST)))
    for (topic, partition), at in wanted.items():
        now = known.get((topic, partition))
        if now is None or at == LATEST or at > now:
            limit = "the query does not read it" if now is None else f"the query is at {now}"
            raise stop("EOS_REPLAY_REFUSED.skips", offset=at, topic=topic, partition=partition, limit=limit)
    return wanted | begin


def ranges(client: BrokerClient, lines: Sequence[str], position: Sequence[SourceLine]) -> list[ReplayRange]:
    """Return the offsets from these lines of the offset log up to the query's position. Raises TopicError, and
    ReplayError if a topic was recreated, or records were deleted."""
    starts = [source_line(line) for line in lines]
    ends = {partition: at for s in position for partition, at in flat(s.position.offsets).items()}
    _check_ids(client, [*starts, *position])
    wanted = [(partition, at) for s in starts for partition, at in flat(s.position.offsets).items()]
    # The query read partitions that were added later from their beginning, and does so again.
    known = dict(wanted)
    wanted += [(partition, 0) for partition in ends if partition not in known]
    partitions = by_topic(dict(wanted))
    begin, end = begin_offsets(client, partitions), end_offsets(client, partitions, "read_uncommitted")
    replayed = []
    for (topic, p), at in wanted:
        until = ends.get((topic, p), at)
        if until > end[topic][p]:
            why = f"{topic}-{p} ends at offset {end[topic][p]}, and the query has read up to {until}"
            raise stop("EOS_REPLAY_REFUSED.topic_recreated", topic=topic, why=why)
        if at < begin[topic][p]:
            first = begin[topic][p]
            raise stop("EOS_REPLAY_REFUSED.offsets_gone", topic=topic, partition=p, start=at, begin=first)
        replayed.append(_with_times(client, OffsetRange(topic, p, at, until)))
    return sorted(replayed, key=lambda each: each.offsets)


def _check_ids(client: BrokerClient, sources: Sequence[SourceLine]) -> None:
    topics = describe_topics(client, {topic for source in sources for topic in source.position.offsets})
    for topic, id_ in (pair for source in sources for pair in source.position.ids.items()):
        if topic in topics and topics[topic].id != id_:
            why = f"its id was {id_}, and is now {topics[topic].id}"
            raise stop("EOS_REPLAY_REFUSED.topic_recreated", topic=topic, why=why)


def _with_times(client: BrokerClient, r: OffsetRange) -> ReplayRange:
    """Return the range with the times of its first and last record batch."""
    if r.start >= r.end:
        return ReplayRange(r)
    first = _time(client, r, r.start)
    latest = (_time(client, r, max(r.start, r.end - back)) for back in (1, 2, 8, 64, 512))
    return ReplayRange(r, first, next((at for at in latest if at is not None), first))


def _time(client: BrokerClient, r: OffsetRange, offset: int) -> int | None:
    """Return the time of the first record batch from an offset on; None if there is none in the range, or it is not
    known."""
    fetched = fetch_once(client, r.topic, r.partition, offset, _LOOK_BYTES)
    if fetched is None or fetched[0].error != OK:
        return None
    response, data = fetched
    try:
        batches, _ = find_batches(data, response.size, offset, r.end, response.aborted)
    except Damage:
        return None
    return batches[0].time if batches else None


def as_offsets(lines: Sequence[str]) -> Offsets:
    """Return the offsets of all lines together."""
    return with_text_keys(lowest_offsets(map(source_line, lines)))
