"""The topic of the offset map on the target's cluster: created and checked, written and read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from confluent_kafka import Producer

from spark_eos.base.retry import retrying
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.configs import create_topic, topic_config
from spark_eos.kafka.admin.topics import begin_offsets, describe_topics, end_offsets, topic_partitions
from spark_eos.kafka.codes import FETCH_RETRIES, OK, name_of
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.records.rows import Row
from spark_eos.ledger.log import LOG_FETCH_BYTES, KafkaLog
from spark_eos.ledger.reader import Fetched
from spark_eos.pipelines.mirror.entries import ENTRY_PARTITIONS

DEFAULT_MAP = "__spark_eos_mirror"
#: The partition of the map that has the origins of topics, and the claims on them.
METADATA = 0

#: What is raised where a record is decoded that begins as those of mirrors do, and is none.
FOREIGN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)

_WRITE_S = 30.0

#: Enough to fetch one record: brokers send the first batch whole, however large it is.
_ONE_RECORD = 1 << 10
_PARTITIONS = METADATA + 1 + ENTRY_PARTITIONS
_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(100 << 20),  # the newest segment is never cleaned
    "compression.type": "producer",
}


def make_map(client: BrokerClient, topic: str, replication: int) -> None:
    """Create the topic if it is missing, and check that it is compacted. Raises TopicError, KafkaError."""
    if not describe_topics(client, [topic], missing_ok=True, unknown_s=0):
        code, message = create_topic(client, topic, _PARTITIONS, replication, _CONFIG)
        if code != OK:
            raise not_made(topic, message or name_of(code))
    policy = topic_config(client, topic)["cleanup.policy"]
    if policy != "compact":
        raise stop(
            "EOS_MIRROR_TARGET_SETTINGS",
            topic=topic,
            setting="cleanup.policy",
            value=policy,
            why="entries of the offset map would be deleted",
            needed="compact",
        )


class MapWriter:
    """Writes records to the map's topic outside of any transaction."""

    def __init__(self, client: BrokerClient, topic: str) -> None:
        own = {"enable.idempotence": True, "queue.buffering.max.messages": 0}
        self._producer = Producer(librdkafka_config(client.properties, "producer", own))
        self._topic = topic
        self._refused: set[str] = set()

    def write(self, partition: int, key: bytes, value: bytes | None) -> None:
        self._producer.produce(self._topic, value, key, partition=partition, on_delivery=self._delivered)

    def flush(self, wait_s: float) -> str:
        """Returns when the brokers have everything: an empty text, or why they do not."""
        left = self._producer.flush(wait_s)
        return "; ".join(sorted(self._refused)) or "no answer" if left or self._refused else ""

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._refused.add(str(error))


def write_metadata(client: BrokerClient, topic: str, records: Iterable[tuple[bytes, bytes | None]], what: str) -> None:
    """Write records, of key and value, to the partition `METADATA`. Returns when the brokers have them. ``what`` they
    say, for the error. Raises KafkaError (EOS_MIRROR_MAP_NOT_WRITABLE)."""
    writer = MapWriter(client, topic)
    for key, value in records:
        writer.write(METADATA, key, value)
    refused = writer.flush(_WRITE_S)
    if refused:
        raise stop("EOS_MIRROR_MAP_NOT_WRITABLE.metadata", topic=topic, what=what, refused=refused)


def not_made(topic: str, why: str) -> EosError:
    """``why``: the broker's message, or the name of its error code."""
    return stop("EOS_MIRROR_TOPIC_REFUSED.not_created", topic=topic, why=why)


def held_partition(client: BrokerClient, topic: str, wait_s: float) -> int | None:
    """Wait for ``wait_s`` seconds until all that the map has now is stable; a partition where it is not, or None."""
    numbers = {topic: range(topic_partitions(client, [topic])[topic])}
    ends = end_offsets(client, numbers, "read_uncommitted")[topic]
    behind: list[int] = []
    for _ in retrying(wait_s):
        stable = end_offsets(client, numbers)[topic]
        behind = [p for p, end in ends.items() if stable[p] < end]
        if not behind:
            return None
    return behind[0]


class MapPartition:
    """One partition of the map's topic, up to ``end``, the last stable offset of now. Errors as for `begin_offsets`."""

    def __init__(self, client: BrokerClient, topic: str, number: int) -> None:
        self.topic, self.number = topic, number
        self._log = KafkaLog(client, topic)
        self._begin = begin_offsets(client, {topic: [number]})[topic][number]
        self.end = end_offsets(client, {topic: [number]})[topic][number]

    def __iter__(self) -> Iterator[Row]:
        """All records, in the order of the log; a record without a value deletes the earlier ones of its key. Raises
        ConnectionFailed, KafkaError (EOS_MIRROR_MAP_UNREADABLE)."""
        return self.since(self._begin)

    def since(self, offset: int) -> Iterator[Row]:
        """The records from this offset on. Errors as for all records."""
        at = max(offset, self._begin)
        while at < self.end:
            found = self._fetch(at)
            yield from (row for row in found.rows if row[0] < self.end)
            at = found.after

    def record(self, at: int) -> Row | None:
        """The record at this offset; None if compaction has removed it. Errors as for all records."""
        rows = self._fetch(at, _ONE_RECORD).rows if at < self.end else ()
        return next((row for row in rows if row[0] == at), None)

    def _fetch(self, at: int, max_bytes: int = LOG_FETCH_BYTES) -> Fetched:
        log = self._log
        for _ in log.retrying():
            found = log.fetch(self.number, at, max_bytes)
            if found is not None and (found.damage or found.error not in FETCH_RETRIES | {OK}):
                raise unreadable(log.topic, self.number, at, found.damage or name_of(found.error))
            if found is not None and found.error == OK and found.after > at:
                return found
        raise stop(
            "EOS_KAFKA_UNREACHABLE.coordinator",
            reason="Timed out",
            topic=log.topic,
            who=f"the leader of {log.topic}-{self.number}",
            waited_s=log.seconds,
            why="",
        )


def unreadable(topic: str, partition: int, offset: int, why: str) -> EosError:
    return stop("EOS_MIRROR_MAP_UNREADABLE", topic=topic, offset=offset, partition=partition, why=why)


def foreign(topic: str, partition: int, offset: int, error: Exception) -> EosError:
    """``error``: one of `FOREIGN`, which the record at this offset has raised when it was decoded."""
    why = f"the record there is none that a mirror has written ({type(error).__name__})"
    return unreadable(topic, partition, offset, why)
