"""The offsets that a replay reads again, and whether their records still exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_eos.base.topic_partition import OffsetRange, TopicPartition, by_topic, flat, nested
from spark_eos.checkpoint.offset_log import OTHER, SourceLine, merged, source_line, with_offsets, with_text_keys
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import (
    NO_OFFSET,
    Topic,
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
    """The sources of the query in the offset log of a micro-batch. Raises ReplayError if one does not read Kafka: such
    a source keeps its progress in other files of the checkpoint."""
    sources = logs.sources(batch)
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
    """The lines of the offset log at a micro-batch. ``position``: the last micro-batch that is done. Raises ReplayError
    if the micro-batch is later, or no longer in the offset log."""
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
    """The lines of the sources with each partition at its wanted offset. A partition without one, or with a later one
    than the query's, keeps its offset."""
    lines = []
    for source in sources:
        offsets = {place: min(at, wanted.get(place, at)) for place, at in flat(source.position.offsets).items()}
        lines.append(with_offsets(source, nested(offsets)))
    return tuple(lines)


def by_timestamp(client: BrokerClient, sources: Sequence[SourceLine], at_ms: int) -> dict[TopicPartition, int]:
    """The first offset of each partition whose record is of this time or later; partitions without one are left out."""
    asked = {topic: dict.fromkeys(parts, at_ms) for s in sources for topic, parts in s.position.offsets.items()}
    return {place: offset for place, offset in flat(offsets_at(client, asked)).items() if offset != NO_OFFSET}


def by_offsets(client: BrokerClient, sources: Sequence[SourceLine], text: str) -> dict[TopicPartition, int]:
    """The offsets in the JSON ``text``. Raises OptionError, and ReplayError for a partition that the query does not
    read, and an offset that it has not reached."""
    wanted = flat(parsed("--to-offsets", parse_offsets, text))
    known = {place: at for s in sources for place, at in flat(s.position.offsets).items()}
    begin = flat(begin_offsets(client, by_topic(place for place, at in wanted.items() if at == EARLIEST)))
    for place, at in wanted.items():
        if place not in known or at == LATEST or at > known[place]:
            limit = f"the query is at {known[place]}" if place in known else "the query does not read it"
            raise stop("EOS_REPLAY_REFUSED.skips", offset=at, topic=place[0], partition=place[1], limit=limit)
    return wanted | begin


def ranges(client: BrokerClient, lines: Sequence[str], position: Sequence[SourceLine]) -> list[ReplayRange]:
    """The offsets from these lines of the offset log up to the query's position. Raises TopicError, and ReplayError if
    a topic was recreated, or records were deleted."""
    starts = [source_line(line) for line in lines]
    ends = {place: at for s in position for place, at in flat(s.position.offsets).items()}
    topics = describe_topics(client, {topic for s in (*starts, *position) for topic in s.position.offsets})
    for source in (*starts, *position):
        _check_ids(source, topics)
    wanted = [(place, at) for s in starts for place, at in flat(s.position.offsets).items()]
    # The query read partitions that were added later from their beginning, and does so again.
    known = {place for place, _ in wanted}
    wanted += [(place, 0) for place in ends if place not in known]
    places = by_topic(dict.fromkeys(place for place, _ in wanted))
    begin, end = begin_offsets(client, places), end_offsets(client, places, "read_uncommitted")
    found = []
    for (topic, p), at in wanted:
        until = ends.get((topic, p), at)
        _check_there(topic, p, at, until, begin[topic][p], end[topic][p])
        found.append(_with_times(client, OffsetRange(topic, p, at, until)))
    return sorted(found, key=lambda replayed: replayed.offsets)


def _check_ids(source: SourceLine, topics: Mapping[str, Topic]) -> None:
    for topic, known in source.position.ids.items():
        if topic in topics and topics[topic].id != known:
            raise _recreated(topic, f"its id was {known}, and is now {topics[topic].id}")


def _check_there(topic: str, partition: int, start: int, until: int, begin: int, end: int) -> None:
    if until > end:
        raise _recreated(topic, f"{topic}-{partition} ends at offset {end}, and the query has read up to {until}")
    if start < begin:
        raise stop("EOS_REPLAY_REFUSED.offsets_gone", topic=topic, partition=partition, start=start, begin=begin)


def _recreated(topic: str, why: str) -> EosError:
    return stop("EOS_REPLAY_REFUSED.topic_recreated", topic=topic, why=why)


def _with_times(client: BrokerClient, r: OffsetRange) -> ReplayRange:
    if r.start >= r.end:
        return ReplayRange(r)
    first = _time(client, r, r.start)
    last = next(
        (t for back in (1, 2, 8, 64, 512) if (t := _time(client, r, max(r.start, r.end - back))) is not None), None
    )
    return ReplayRange(r, first, first if last is None else last)


def _time(client: BrokerClient, r: OffsetRange, offset: int) -> int | None:
    """The time of the first record batch from an offset on; None if there is none in the range, or it is not known."""
    fetched = fetch_once(client, r.topic, r.partition, offset, _LOOK_BYTES)
    if fetched is None or fetched[0].error != OK:
        return None
    answer, data = fetched
    try:
        batches, _ = find_batches(data, answer.size, offset, r.end, answer.aborted)
    except Damage:
        return None
    return batches[0].time if batches else None


def as_offsets(lines: Sequence[str]) -> Offsets:
    """The offsets of all lines together."""
    return with_text_keys(merged(map(source_line, lines)))
