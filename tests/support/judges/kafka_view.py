"""What an independent client sees of a cluster: plain consumers and Kafka's own answers, no code of the library."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, ResourceType
from kafka import KafkaAdminClient
from kafka.errors import ConcurrentTransactionsError
from kafka.errors import KafkaError as KafkaPythonError
from kafka.protocol.producer.transaction import EndTxnRequest

from tests.support.waiting import TIMEOUT, wait_for

T = TypeVar("T")
#: What a broker answers that does not coordinate a group any more, or not yet.
COORDINATOR_MOVES = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
#: What a leader answers that does not know of it yet, of its newest epoch, or of its end; and one that was away.
_LEADER_NOT_READY = {
    KafkaError._TRANSPORT,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
_LEVELS = {True: IsolationLevel.READ_COMMITTED, False: IsolationLevel.READ_UNCOMMITTED}


@dataclass(frozen=True)
class Row:
    """One record as a consumer sees it; ``timestamp`` in milliseconds."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = field(default=0, compare=False)
    headers: tuple[tuple[str, bytes | None], ...] = ()


class KafkaView:
    """One cluster, seen from outside. Close it.

    A coordinator says that a transaction has ended a moment before its markers are written. What follows from them
    (rows, ends and a group's offsets) is looked at when they are there; what is open stays so.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._client = {"bootstrap.servers": bootstrap_servers, "broker.address.family": "v4", "log_level": 0}
        self.admin = AdminClient(self._client)

    def close(self) -> None:
        if "kafka_python" in self.__dict__:
            self.kafka_python.close()

    @cached_property
    def kafka_python(self) -> KafkaAdminClient:
        return KafkaAdminClient(
            bootstrap_servers=self.bootstrap_servers,
            # By default it gives up after half a minute.
            request_timeout_ms=int(1000 * TIMEOUT),
            bootstrap_timeout_ms=int(1000 * TIMEOUT),
        )

    # Topics

    def partitions(self, topic: str) -> list[int]:
        return sorted(self.admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions)

    def configure(self, topic: str, **config: object) -> None:
        """Change settings of the topic; an underscore is a dot. Returns when brokers tell of them."""
        given = {name.replace("_", "."): str(value) for name, value in config.items()}
        entries = [ConfigEntry(*pair, incremental_operation=AlterConfigOpType.SET) for pair in given.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT)

        def there() -> bool:
            (found,) = self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
            return all(found.result()[name].value == value for name, value in given.items())

        wait_for(there, f"the settings of {topic}")

    def ends(self, *topics: str, committed: bool = False) -> dict[tuple[str, int], int]:
        """Each partition's high watermark, or its last stable offset.

        A leader is known to all a moment before it knows of that itself; the admin client does not ask again.
        """
        self._settle(*topics)
        return self._ends(*topics, committed=committed)

    def _ends(self, *topics: str, committed: bool) -> dict[tuple[str, int], int]:
        places = [TopicPartition(topic, p) for topic in topics for p in self.partitions(topic)]
        wanted, level = dict.fromkeys(places, OffsetSpec.latest()), _LEVELS[committed]

        def ends() -> dict[tuple[str, int], int] | None:
            asked = self.admin.list_offsets(wanted, isolation_level=level, request_timeout=TIMEOUT)
            try:
                return {(place.topic, place.partition): future.result().offset for place, future in asked.items()}
            except KafkaException as error:
                if error.args[0].code() not in _LEADER_NOT_READY:
                    raise
                return None

        return wait_for(ends, f"the leaders of {', '.join(topics)}") if places else {}

    def _settle(self, *topics: str) -> None:
        if self.held(*topics):
            self.wait_for_markers()

    def ends_at_rest(self, *topics: str) -> dict[tuple[str, int], int]:
        """Each partition's high watermark, when the markers of all that has been ended are written."""
        wait_for(lambda: not self.held(*topics), f"the markers in {', '.join(topics)}")
        return self.ends(*topics)

    def held(self, *topics: str) -> dict[tuple[str, int], tuple[int, int]]:
        """Partitions where an open transaction keeps readers back: last stable offset and end."""
        ends, stable = (self._ends(*topics, committed=committed) for committed in (False, True))
        return {place: (stable[place], ends[place]) for place in ends if stable[place] != ends[place]}

    def rows(self, *topics: str, committed: bool = True) -> list[Row]:
        """Every row up to the present end, in the order of each partition, by a plain consumer."""
        if committed:
            self._settle(*topics)
        places = [TopicPartition(topic, p, 0) for topic in topics for p in self.partitions(topic)]
        consumer = Consumer(
            {
                **self._client,
                "group.id": "view",  # asked for by the client; nothing is committed to it
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",  # where the first rows were deleted
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                # By default it waits for a second whenever it has read ahead far enough.
                "fetch.queue.backoff.ms": 1,
            }
        )
        try:
            consumer.assign(places)
            return list(_to_end(consumer, len(places)))
        finally:
            consumer.close()

    def values(self, *topics: str, committed: bool = True) -> list[str]:
        return [row.value.decode() for row in self.rows(*topics, committed=committed) if row.value is not None]

    # Groups and transactions

    def group(self, group: str, topic: str) -> dict[tuple[str, int], int]:
        """What the consumer group has committed, by partition; partitions without are left out.

        The admin client's own call ends the process where the group's coordinator has moved (librdkafka issue 5040).
        """
        self._settle("__consumer_offsets")
        own = {"group.id": group, "enable.auto.commit": False, "isolation.level": "read_uncommitted"}
        consumer = Consumer(self._client | own)
        places = [TopicPartition(topic, p) for p in self.partitions(topic)]

        def committed() -> list[TopicPartition] | None:
            try:
                return consumer.committed(places, timeout=TIMEOUT)
            except KafkaException as error:
                if error.args[0].code() not in COORDINATOR_MOVES:
                    raise
                return None

        try:
            found = wait_for(committed, f"the coordinator of group {group}")
        finally:
            consumer.close()
        return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def transactions(self, containing: str, *states: str) -> dict[str, str]:
        """Transactional ids that contain this text (such as a query id), with the state of each."""
        asked = list(states) or None
        listed = _asked(lambda: self.kafka_python.list_transactions(state_filters=asked), "the list of transactions")
        every = [t for of_broker in listed.values() for t in of_broker if containing in t.transactional_id]
        return {t.transactional_id: getattr(t.state, "value", t.state) for t in every}

    def wait_for_markers(self, containing: str = "") -> None:
        """Until no transactional id that contains this text has a transaction that has ended without its markers."""
        prepared = "PrepareCommit", "PrepareAbort"
        wait_for(lambda: not self.transactions(containing, *prepared), f"the markers of '{containing}'")

    def open_transactions(self, containing: str) -> set[str]:
        """Those whose outcome is still open. One that only waits for its markers is not."""
        return set(self.transactions(containing, "Ongoing"))

    def pair(self, name: str) -> tuple[int, int]:
        """Producer id and epoch that the coordinator holds of a transactional id."""
        described = _asked(lambda: self.kafka_python.describe_transactions([name]), f"the state of {name}")[name]
        return described.producer_id, described.producer_epoch

    def feature(self, name: str) -> int:
        """Its finalized level; 0 where there is none."""
        return _asked(self.kafka_python.describe_features, "the features").get(name, {}).get("finalized", (0, 0))[1]

    def end_transaction(self, name: str, commit: bool) -> None:
        """End somebody's open transaction with its present producer id and epoch."""
        producer_id, epoch = self.pair(name)
        assert self.end(name, producer_id, epoch, commit) == 0

    def end(self, name: str, producer_id: int, epoch: int, commit: bool) -> int:
        """EndTxn, by version 5 just where the cluster's transaction.version is 2; the error code. Waits for transitions
        under way (51)."""
        fences = self.feature("transaction.version") >= 2
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
            min_version=5 if fences else 3,
            max_version=5 if fences else 4,
        )
        return wait_for(lambda: _unless_concurrent(self._ask(request)), f"an end of {name}")[0]

    def _ask(self, request: EndTxnRequest) -> int:
        """The answer of a cluster's one broker."""
        manager = self.kafka_python._manager
        (broker,) = manager.cluster.brokers()

        async def send() -> int:
            return (await manager.send(request, node_id=broker.node_id)).error_code

        return manager.run(send)


def _asked(call: Callable[[], T], what: str) -> T:
    """What kafka-python answers, which does not wait by itself where a broker was away a moment ago."""

    def answer() -> tuple[T] | None:
        try:
            return (call(),)
        except KafkaPythonError as error:
            if not error.retriable:
                raise
            return None

    return wait_for(answer, what)[0]


def _unless_concurrent(code: int) -> tuple[int] | None:
    return None if code == ConcurrentTransactionsError.errno else (code,)


def _to_end(consumer: Consumer, partitions: int) -> Iterator[Row]:
    deadline = time.monotonic() + TIMEOUT
    at_end: set[tuple[str, int]] = set()
    while len(at_end) < partitions:
        assert time.monotonic() < deadline, "nothing came from the broker"
        for message in consumer.consume(10_000, timeout=0.005):
            place = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                at_end.discard(place)
                yield Row(
                    *place,
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    tuple(message.headers() or ()),
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(place)
            elif not error.retriable():
                raise AssertionError(error)


@contextmanager
def open_view(bootstrap_servers: str) -> Iterator[KafkaView]:
    view = KafkaView(bootstrap_servers)
    try:
        yield view
    finally:
        view.close()


def write(bootstrap_servers: str, topic: str, rows: Iterable[tuple[int, str]], *, commit: bool | None = None) -> None:
    """Produce (partition, value); with ``commit`` given, in one transaction that is committed or aborted, and whose
    markers are written."""
    config = {"bootstrap.servers": bootstrap_servers, "broker.address.family": "v4", "linger.ms": 0, "log_level": 0}
    if commit is not None:
        config["transactional.id"] = f"writer-of-{topic}"
    producer = Producer(config)
    if commit is not None:
        producer.init_transactions(TIMEOUT)
        producer.begin_transaction()
    for partition, value in rows:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(TIMEOUT) == 0
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(TIMEOUT)
        Producer(config).init_transactions(TIMEOUT)  # which has to wait for them


def doubled(values: Iterable[object]) -> dict[object, int]:
    """What is there more than once, and how often."""
    return {value: count for value, count in Counter(values).items() if count > 1}
