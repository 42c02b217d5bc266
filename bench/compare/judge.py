"""What an output holds, by a plain consumer that reads committed rows: what is lost, doubled, reordered, aborted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from bench.compare.feeder import ABORTED

_SECONDS = 60.0
#: Rows that a consumer gives at once.
_ROWS = 5_000


@dataclass(frozen=True)
class Verdict:
    """Numbers of rows. ``fed``: how many were committed to the input; ``reordered``: those that come behind a later one
    of their input partition in a partition of the output, for the first time; ``aborted``: those of aborted
    transactions."""

    fed: int
    lost: int
    doubled: int
    reordered: int
    aborted: int

    @property
    def is_clean(self) -> bool:
        """Whether each row is there once, and none that was aborted."""
        return not (self.lost or self.doubled or self.aborted)


class NoResult(Exception):
    """Nothing can be said of a contender, for the reason that is given."""


def judge(servers: str, source: str, output: str, fed: Sequence[int]) -> Verdict:
    """``source``, ``output``: topics; ``fed``: how many rows each partition of the source was given. Raises NoResult
    where the source does not hold just those, and KafkaException where a topic cannot be read."""
    given = verdict(read(servers, source), fed)
    if not given.is_clean:
        raise NoResult(f"{source} itself has {given}")
    return verdict(read(servers, output), fed)


def verdict(output: Mapping[int, Sequence[str]], fed: Sequence[int]) -> Verdict:
    """By the values in each partition of the output, in their order: ``p.n`` is row ``n`` of the input's ``p``."""
    seen: Counter[tuple[int, int]] = Counter()
    reordered = aborted = 0
    for values in output.values():
        highest: dict[int, int] = {}
        for value in values:
            if value.endswith(ABORTED):
                aborted += 1
                continue
            p, n = map(int, value.split("."))
            reordered += n < highest.get(p, -1) and not seen[p, n]
            highest[p] = max(n, highest.get(p, -1))
            seen[p, n] += 1
    wanted = {(p, n) for p, count in enumerate(fed) for n in range(count)}
    doubled = sum(count - 1 for count in seen.values())
    return Verdict(sum(fed), len(wanted - seen.keys()), doubled, reordered, aborted)


def read(servers: str, topic: str) -> dict[int, list[str]]:
    """The values of each partition that are committed now."""
    found: dict[int, list[str]] = {}
    for partition, value in rows(servers, topic):
        found.setdefault(partition, []).append(value)
    return found


def rows(servers: str, topic: str) -> Iterator[tuple[int, str]]:
    """Partition and value of each row, to the present last stable offset of each partition."""
    consumer = consumer_of(servers, tells_ends=True)
    try:
        places = places_of(consumer, topic)
        consumer.assign(places)
        left = {place.partition for place in places}
        while left:
            for message in consumer.consume(_ROWS, 1.0):
                error, value, partition = message.error(), message.value(), message.partition()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    left.discard(partition)
                elif error is not None:
                    raise KafkaException(error)
                elif value is not None and partition is not None:
                    yield partition, value.decode()
    finally:
        consumer.close()


def consumer_of(servers: str, *, tells_ends: bool = False) -> Consumer:
    """One that reads committed rows, and belongs to no group."""
    return Consumer(
        {
            "bootstrap.servers": servers,
            "broker.address.family": "v4",
            "group.id": "judge",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": tells_ends,
            "log_level": 0,
        }
    )


def places_of(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """The beginnings of the topic's partitions; none where there is no topic yet."""
    found = consumer.list_topics(topic, timeout=_SECONDS).topics[topic]
    return [] if found.error is not None else [TopicPartition(topic, p, 0) for p in found.partitions]
