"""Why a task cannot read on."""

from __future__ import annotations

from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import (
    TIMEOUT_S,
    begin_offsets,
    describe_topics,
    end_offsets,
    id_bytes,
    topic_of_leader,
)
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.source.epochs import ANY_LEADER, LeaderEpochs, Noted, leaders_of
from spark_eos.source.losses import data_loss, log_diverged
from spark_eos.topic_partition import OffsetRange


def check_id(client: BrokerClient, range_: OffsetRange) -> None:
    """Raises KafkaError (EOS_SOURCE_RECREATED) where brokers know another topic than the range's by that name; one that
    has just started may know none."""
    there = describe_topics(client, [range_.topic], missing_ok=True).get(range_.topic)
    if there is not None and there.id != range_.topic_id:
        raise recreated(range_.topic)


def check_id_by_leader(client: BrokerClient, range_: OffsetRange) -> None:
    """Check the topic's id by the partition's leader. Nothing is sent where the range has no id."""
    if id_bytes(range_.topic_id):
        client.forget_leader(range_.topic, range_.partition)
        if topic_of_leader(client, range_.topic, range_.partition).id != range_.topic_id:
            raise recreated(range_.topic)


def check_epoch(client: BrokerClient, range_: OffsetRange, offset: int, epoch: int) -> None:
    """Raises DataLossError (EOS_SOURCE_LOG_DIVERGED) where the leader's log does not have a record of this epoch before
    an offset of the range. Asks nobody where the epoch is not known."""
    place = range_.topic, range_.partition
    found = LeaderEpochs(leaders_of(client, TIMEOUT_S)).diverged({place: Noted(offset, epoch)}, {place: ANY_LEADER})
    if found:
        raise log_diverged(*place, offset, found[place], epoch)


def recreated(topic: str) -> EosError:
    """For a topic that is read by its id."""
    return stop("EOS_SOURCE_RECREATED", topic=topic)


def why_not(client: BrokerClient, range_: OffsetRange, position: int, refusal: str | None = None) -> EosError:
    """Why reading a range does not go on at a position: what the log holds now, else what the broker said.

    DataLossError (EOS_SOURCE_DATA_LOSS), or KafkaError: EOS_SOURCE_FETCH where there is a ``refusal``, else
    EOS_SOURCE_STALLED. Raises ConnectionFailed.
    """
    r, place = range_, {range_.topic: [range_.partition]}
    begin = begin_offsets(client, place)[r.topic][r.partition]
    if begin > position:
        return data_loss(r.topic, r.partition, position, begin, f"its log now starts at {begin} (retention)")
    end = end_offsets(client, place, "read_uncommitted")[r.topic][r.partition]
    if end < r.end:
        return data_loss(r.topic, r.partition, position, end, f"its log ends at {end}, before {r.end}")
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
