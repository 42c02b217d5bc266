"""Reading topics with a plain consumer that shares no code with the library."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from spark_eos.kafka.messages import offset_of, place_of

_TIMEOUT_S = 30
_CONSUME_S = 0.05
#: What is answered where a leader is not known, or does not know its newest epoch or its end.
_NO_LEADER = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}


@dataclass(frozen=True)
class TopicRow:
    """One record as a consumer sees it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Reader:
    """Reads the topics from their beginning, whole partitions, without a consumer group.

    ``committed``: as ``read_committed`` consumers see them, else everything that is in the log. ``wait_ms``: how long
    the broker holds a request when it has nothing new; rows come at once in any case.
    """

    def __init__(self, bootstrap_servers: str, topics: Iterable[str], *, committed: bool, wait_ms: int = 20) -> None:
        client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "broker.address.family": "v4",
            "log_level": 0,  # errors are raised; what the client logs would be between the lines of the demo
        }
        # Of its own: a consumer's questions wait behind its requests for rows, which the broker holds.
        self._clients = ExitStack()
        self._admin = self._clients.enter_context(AdminClient(client))
        self._level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        consumer = Consumer(
            {
                **client,
                "group.id": "demo-reader",  # asked for by the client; nothing is committed to it
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": wait_ms,
            }
        )
        self._consumer = self._clients.enter_context(closing(consumer))
        self._partitions = [TopicPartition(name, p, 0) for name in topics for p in self._partitions_of(name)]
        self._consumer.assign(self._partitions)
        self._at_end: set[tuple[str, int]] = set()
        #: For each partition the offset before which everything has been read, what is not visible included.
        self.reached: dict[tuple[str, int], int] = {(p.topic, p.partition): 0 for p in self._partitions}

    def close(self) -> None:
        self._clients.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def to_end(self) -> Iterator[TopicRow]:
        """Every row up to the present end of each partition: for ``committed``, the last stable offset."""
        deadline = time.monotonic() + _TIMEOUT_S
        while len(self._at_end) < len(self._partitions):
            # A longer timeout would be waited out in full whenever fewer messages than asked for are left.
            messages = self._consumer.consume(10_000, timeout=_CONSUME_S)
            if messages:
                deadline = time.monotonic() + _TIMEOUT_S
            elif time.monotonic() > deadline:
                raise TimeoutError(f"nothing came from the broker for {_TIMEOUT_S} s")
            yield from self._rows(messages)

    def new_rows(self, timeout_s: float = 0.0) -> list[TopicRow]:
        """What has come since the last call; waits at most so long for it."""
        return list(self._rows(self._consumer.consume(10_000, timeout=timeout_s)))

    def end_offsets(self) -> dict[tuple[str, int], int]:
        """The end offset of each partition: the last stable offset for ``committed``, else the high watermark.

        A broker that a busy machine has starved may lead nothing for a moment: it is asked again.
        """
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted, deadline = dict.fromkeys(self._partitions, newest), time.monotonic() + _TIMEOUT_S
        while True:
            asked = self._admin.list_offsets(wanted, isolation_level=self._level, request_timeout=_TIMEOUT_S)
            try:
                return {(p.topic, p.partition): future.result().offset for p, future in asked.items()}
            except KafkaException as error:
                if error.args[0].code() not in _NO_LEADER or time.monotonic() > deadline:
                    raise
            time.sleep(_CONSUME_S)

    def _partitions_of(self, topic: str) -> list[int]:
        metadata = self._consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        return sorted(metadata.partitions)

    def _rows(self, messages: list[Message]) -> Iterator[TopicRow]:
        for message in messages:
            place = place_of(message)
            error = message.error()
            if error is None:
                self._at_end.discard(place)
                self.reached[place] = offset_of(message) + 1
                yield TopicRow(*place, offset_of(message), message.key(), message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end.add(place)
                self.reached[place] = max(self.reached[place], offset_of(message))
            elif not error.retriable():
                raise KafkaException(error)


def group_offsets(bootstrap_servers: str, group: str, topic: str, partitions: int) -> dict[tuple[str, int], int]:
    """What the consumer group has committed; negative where it has nothing."""
    client = {"bootstrap.servers": bootstrap_servers, "broker.address.family": "v4", "log_level": 0}
    consumer = Consumer({**client, "group.id": group})
    try:
        places = [TopicPartition(topic, p) for p in range(partitions)]
        return {(p.topic, p.partition): p.offset for p in consumer.committed(places, timeout=_TIMEOUT_S)}
    finally:
        consumer.close()
