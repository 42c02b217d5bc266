"""Which offsets a replay reads again, and whether they are still there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

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
from spark_eos.kafka.records.batches import Damage, UnsupportedFormat, find_batches
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.ops.checkpoint_logs import Logs
from spark_eos.options.offsets import EARLIEST, parse_offsets
from spark_eos.protocol.head import Offsets
from spark_eos.topic_partition import OffsetRange, by_topic, flat, nested

_LOOK_BYTES = 64 * 1024
#: From where to begin in one partition, by topic and number; None leaves it where the query is.
Choice = Callable[[str, int], int | None]


@dataclass(frozen=True)
class ReplayRange:
    """Offsets that are read again. ``first_ms`` and ``last_ms``: when the first and the last record batch of them was
    written, in milliseconds since 1970; None where there is none."""

    offsets: OffsetRange
    first_ms: int | None = None
    last_ms: int | None = None


def check_sources(logs: Logs, batch: int) -> list[SourceLine]:
    """The sources of the query by its micro-batch. Raises ReplayError where one is not Kafka's: its own files in
    the checkpoint say what it has read."""
    sources = logs.sources(batch)
    if any(source.kind == OTHER for source in sources):
        raise stop("EOS_REPLAY_REFUSED.other_source", location=logs.checkpoint.location, batch=batch)
    return sources


def check_cluster(client: BrokerClient, sources: Iterable[SourceLine], location: str) -> None:
    """Raise ReplayError where a source is on another cluster than the ledger: its topics are not to be asked there, and
    the topics of these names are other ones."""
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
    """The lines of the offset log at a micro-batch; ``position`` is the last one that is done.

    Raises ReplayError.
    """
    if batch not in logs.planned or batch > position:
        raise stop(
            "EOS_REPLAY_REFUSED.not_kept",
            batch=batch,
            location=logs.checkpoint.location,
            planned=logs.planned[0],
            position=position,
        )
    return logs.entry(batch).lines


def moved(sources: Iterable[SourceLine], choice: Choice) -> tuple[str, ...]:
    """The lines of the sources, each partition moved to where ``choice`` says, never forward."""
    lines = []
    for source in sources:
        wanted = {place: (at, choice(*place)) for place, at in flat(source.position.offsets).items()}
        offsets = {place: at if to is None else min(at, to) for place, (at, to) in wanted.items()}
        lines.append(with_offsets(source, nested(offsets)))
    return tuple(lines)


def by_timestamp(client: BrokerClient, sources: Sequence[SourceLine], at_ms: int) -> Choice:
    """The first record of this time or later; where there is none, nothing is read again."""
    asked = {topic: dict.fromkeys(parts, at_ms) for s in sources for topic, parts in s.position.offsets.items()}
    found = offsets_at(client, asked)

    def choice(topic: str, p: int) -> int | None:
        offset = found[topic][p]
        return None if offset == NO_OFFSET else offset

    return choice


def by_offsets(client: BrokerClient, sources: Sequence[SourceLine], text: str) -> Choice:
    """These offsets; a partition that is not named stays where it is. Raises ReplayError."""
    wanted = parse_offsets("--to-offsets", text)
    known = {place: at for s in sources for place, at in flat(s.position.offsets).items()}
    earliest = {t: [p for p, at in parts.items() if at == EARLIEST] for t, parts in wanted.items()}
    begin = begin_offsets(client, {t: parts for t, parts in earliest.items() if parts})
    for topic, parts in wanted.items():
        for p, at in parts.items():
            if (topic, p) not in known or at == -1 or at > known[topic, p]:
                where = f"the query is at {known[topic, p]}" if (topic, p) in known else "the query does not read it"
                raise stop("EOS_REPLAY_REFUSED.skips", offset=at, topic=topic, partition=p, limit=where)
    return lambda topic, p: (
        begin[topic][p] if wanted.get(topic, {}).get(p) == EARLIEST else wanted.get(topic, {}).get(p)
    )


def ranges(client: BrokerClient, lines: Sequence[str], position: Sequence[SourceLine]) -> list[ReplayRange]:
    """What is read again from these lines of the offset log up to where the query is, after a look at whether it is
    there. Raises TopicError and ReplayError."""
    starts = [source_line(line) for line in lines]
    ends = {place: at for s in position for place, at in flat(s.position.offsets).items()}
    topics = describe_topics(client, {topic for s in (*starts, *position) for topic in s.position.offsets})
    for source in (*starts, *position):
        _check_ids(source, topics)
    wanted = [(place, at) for s in starts for place, at in flat(s.position.offsets).items()]
    # What was added since is read from its beginning, as it was then.
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
    """When the first batch from here on was written; None where there is none in the range, or it cannot be told."""
    fetched = fetch_once(client, r.topic, r.partition, offset, _LOOK_BYTES)
    if fetched is None or fetched[0].error != OK:
        return None
    answer, data = fetched
    try:
        batches, _ = find_batches(data, answer.size, offset, r.end, answer.aborted)
    except (Damage, UnsupportedFormat):
        return None
    return batches[0].time if batches else None


def as_offsets(lines: Sequence[str]) -> Offsets:
    """The offsets of all lines together."""
    return with_text_keys(merged(map(source_line, lines)))
