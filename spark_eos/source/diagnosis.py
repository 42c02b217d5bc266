"""Checks in a task that reads: topic and log must still be the planned ones; and why it cannot continue."""

from __future__ import annotations

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import (
    TIMEOUT_S,
    begin_offsets,
    describe_topics,
    end_offsets,
)
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.source.epochs import ANY_LEADER, LeaderEpochs, Noted, leaders_of
from spark_eos.source.losses import begins_late, data_loss, log_diverged


def check_id(client: BrokerClient, range_: OffsetRange) -> None:
    """Raise KafkaError (EOS_SOURCE_RECREATED) if the topic of that name has another id than the range's. A missing
    topic passes: a broker that has just started may not know it yet."""
    there = describe_topics(client, [range_.topic], missing_ok=True).get(range_.topic)
    if there is not None and there.id != range_.topic_id:
        raise recreated(range_.topic)


def check_epoch(client: BrokerClient, range_: OffsetRange, offset: int, epoch: int) -> None:
    """Raise DataLossError (EOS_SOURCE_LOG_DIVERGED) if the leader's log has no record of this leader epoch before the
    offset. Without a known epoch (-1) there is nothing to check."""
    differs_at = _diverged_at(client, range_, offset, epoch)
    if differs_at is not None:
        raise log_diverged(range_.topic, range_.partition, offset, differs_at, epoch)


def _diverged_at(client: BrokerClient, range_: OffsetRange, offset: int, epoch: int) -> int | None:
    partition = range_.topic, range_.partition
    epochs = LeaderEpochs(leaders_of(client, TIMEOUT_S))
    return epochs.diverged({partition: Noted(offset, epoch)}, {partition: ANY_LEADER}).get(partition)


def recreated(topic: str) -> EosError:
    """Return the error for a topic that was deleted and created again while it was read by its id."""
    return stop("EOS_SOURCE_RECREATED", topic=topic)


def begins_later(client: BrokerClient, range_: OffsetRange, position: int) -> EosError | None:
    """Return the error for a range whose log begins behind ``position`` by now: DataLossError (EOS_SOURCE_DATA_LOSS).
    None if it does not. Raises ConnectionFailed."""
    r = range_
    begin = begin_offsets(client, {r.topic: [r.partition]})[r.topic][r.partition]
    if begin <= position:
        return None
    return data_loss(r.topic, r.partition, position, begin, begins_late(begin), (min(begin, r.end), r.end))


def why_not(client: BrokerClient, range_: OffsetRange, position: int, refusal: str | None = None) -> EosError:
    """Return the error for a range that cannot be read from ``position`` on.

    DataLossError (EOS_SOURCE_DATA_LOSS) if the log does not hold the offsets. Otherwise KafkaError: EOS_SOURCE_FETCH
    for ``refusal``, the broker's error, or EOS_SOURCE_STALLED without one. Raises ConnectionFailed.
    """
    r, loss = range_, begins_later(client, range_, position)
    if loss is not None:
        return loss
    end = end_offsets(client, {r.topic: [r.partition]}, "read_uncommitted")[r.topic][r.partition]
    if end < r.end:
        differs = _diverged_at(client, r, r.end, r.most_epoch)  # from there on, the driver has read again
        same = end if differs is None else min(end, differs)
        readable = position, max(position, same)
        return data_loss(r.topic, r.partition, r.end, same, f"its log ends at {end}", readable)
    where = f"{r.topic}-{r.partition} at offset {position}, of {r.start} to {r.end}"
    if refusal is not None:
        return stop(
            "EOS_SOURCE_FETCH.failed",
            topic=r.topic,
            partition=r.partition,
            position=position,
            where=where,
            refusal=refusal,
        )
    return stop("EOS_SOURCE_STALLED", topic=r.topic, partition=r.partition, position=position, where=where)
