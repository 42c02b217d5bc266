"""Transactions opened like a task's, or written by other producers, and what a plain Fetch sees of them."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import Producer

from spark_eos.kafka.codes import OK
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.records.batches import RecordBatch, walk_batches
from spark_eos.kafka.records.rows import read_rows
from spark_eos.kafka.requests.end_txn import end_txns
from spark_eos.kafka.requests.fetch import FetchResponse, fetch_once
from spark_eos.kafka.requests.list_transactions import ids_by_state
from tests.support.judges.kafka_view import open_view
from tests.support.waiting import TIMEOUT, wait_for

#: Nothing expires while a slow machine is at it. What a test leaves open, `end_what_is_open` ends.
LIFE_MS = 600_000
#: Of rows: those past their retention go when the broker looks, every 5 minutes.
TIME = int(time.time() * 1000) - 3_600_000


class Transaction:
    """A transaction of a producer of its own, opened like a task's: its pair by the producer's own word."""

    def __init__(self, kafka: KafkaProperties, topic: str, name: str, rows: int = 1, life_ms: int = LIFE_MS) -> None:
        self.topic = topic
        self.producer = ArrowProducer(broker_client(kafka), name, life_ms)
        self.producer.init()
        self.pair = self.producer.identity()
        self.write(*(f"{name}.{i}" for i in range(rows)))

    def write(self, *values: str) -> None:
        """Write rows to partition 0; returns when the broker has them."""
        self.producer.write(self.topic, 1, value=pa.array(values))
        self.producer.flush()

    @property
    def asked(self) -> tuple[str, int, int]:
        return self.pair.id, self.pair.producer_id, self.pair.epoch


@contextmanager
def arrow_producers(kafka: KafkaProperties) -> Iterator[Callable[..., ArrowProducer]]:
    """``begin(name=…, kafka=…, batch__size=…, …)``: a producer that has its producer id and epoch; two underscores are
    a dot in a property. They are closed at the end."""
    begun: list[ArrowProducer] = []

    def begin(name: str | None = None, kafka: KafkaProperties = kafka, **more: object) -> ArrowProducer:
        properties = {key.replace("__", "."): str(value) for key, value in more.items() if "__" in key}
        more = {key: value for key, value in more.items() if "__" not in key}
        own = KafkaProperties({**kafka, **properties})
        begun.append(ArrowProducer(broker_client(own), name or f"arrow-{uuid.uuid4()}", LIFE_MS, **more))
        begun[-1].init()
        return begun[-1]

    try:
        yield begin
    finally:
        for producer in begun:
            producer.close()


def commit_as_driver(producer: ArrowProducer) -> None:
    """Commit what it has flushed, by a request."""
    pair, version = producer.identity(), producer.endtxn_version
    own = pair.id, pair.producer_id, pair.epoch
    wait_for(lambda: end_txns(producer.client, [own], True, version)[pair.id] == OK, f"an end of {pair}")


def end_what_is_open(bootstrap_servers: str) -> None:
    """Abort what transactions are open on a cluster of one broker, whoever has them; returns when they have ended."""
    client = broker_client(KafkaProperties({"bootstrap.servers": bootstrap_servers}))

    def open_ones() -> set[str]:
        return {name for name, _ in ids_by_state(client, ".*", ["Ongoing"], only_matching=False) or ()}

    if not (names := open_ones()):
        return
    with open_view(bootstrap_servers) as view:
        for name in names:
            view.end(name, *view.pair(name), commit=False)
    wait_for(lambda: not names & open_ones(), f"the end of {', '.join(sorted(names))}")


def write_rows(producer: Producer, topic: str, count: int, seed: int = 1) -> None:
    """Rows of all kinds: no, empty and other keys; tombstones; headers; timestamps in no order."""
    chance = random.Random(seed)
    for i in range(count):
        key = chance.choice([None, b"", b"key %d" % i])
        value = chance.choice([None, b"", b"%d" % i, b"value %d " % i * chance.randrange(40)])
        headers = [(chance.choice("häö"), chance.choice([None, b"", b"x" * 70])) for _ in range(chance.randrange(3))]
        producer.produce(topic, value, key, timestamp=TIME + chance.randrange(10_000), headers=headers)
    assert producer.flush(TIMEOUT) == 0


def write_in_turn(producer: Callable[..., Producer], rounds: int, write: Callable[[Producer, int], None]) -> None:
    """Let two producers with transactions, and one without, ``write(producer, round)`` in turn.

    The first one writes twice in a round. Every second transaction of it is committed, those of the other one never
    are: the log ends with what was aborted.
    """
    plain = producer()
    one, two = (producer(transactional_id=f"test-{uuid.uuid4()}", compression_type="zstd") for _ in range(2))
    for writer in (one, two):
        writer.init_transactions(TIMEOUT)
    for round_ in range(rounds):
        one.begin_transaction()
        two.begin_transaction()
        for writer in (one, plain, two, one):
            write(writer, round_)
        one.commit_transaction(TIMEOUT) if round_ % 2 else one.abort_transaction(TIMEOUT)
        two.abort_transaction(TIMEOUT)


@dataclass(frozen=True)
class Fetched:
    """A Fetch response, its batches, and the rows that a read_committed reader sees."""

    answer: FetchResponse
    batches: list[RecordBatch]
    rows: list[tuple[int, bytes | None, bytes | None]]


def fetch(client: BrokerClient, topic: str, partition: int, offset: int, max_bytes: int) -> Fetched | None:
    found = fetch_once(client, topic, partition, offset, max_bytes)
    if found is None:
        return None
    answer, data = found
    batches = list(walk_batches(data, answer.size, answer.aborted))
    return Fetched(answer, batches, [row for batch in batches if batch.visible for row in read_rows(data, batch)])
