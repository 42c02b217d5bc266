"""Consume, produce, commit: the plain exactly-once loop of a client, without Spark, as a program of its own.

``python -m bench.loop '<spec as JSON>'`` copies so many rows and prints when each transaction began and ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from bench.spec import Spec, answer

_TIMEOUT_S = 60.0
_AT_ONCE = 4096
#: What becomes of a value; None for a row that is left out.
Change = Callable[[bytes | None], bytes | None]


@dataclass(frozen=True)
class LoopSpec(Spec):
    """What to copy: ``rows`` rows, ``rows_per_transaction`` at a time (or some more), key and value; ``codec``:
    of what is written."""

    bootstrap_servers: str
    input: str
    output: str
    partitions: int
    rows: int
    rows_per_transaction: int
    codec: str = "none"


@dataclass(frozen=True)
class TimedTransaction:
    """Times in seconds since the epoch."""

    begin: float
    end: float
    rows: int


def client(servers: str) -> dict[str, str | int]:
    """Settings of a client of confluent-kafka that reads or writes the benchmark's rows."""
    return {"bootstrap.servers": servers, "broker.address.family": "v4", "log_level": 3}


def copy_by_client(spec: LoopSpec, change: Change | None = None) -> list[TimedTransaction]:
    """Rows and the group's offsets in one transaction, again and again. Raises KafkaException."""
    common = client(spec.bootstrap_servers)
    consumer = Consumer(
        {
            **common,
            "group.id": f"loop-{spec.output}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # By default it waits for a second whenever it has read ahead far enough.
            "fetch.queue.backoff.ms": 1,
        }
    )
    own: dict[str, str | int] = {"transactional.id": f"loop-{spec.output}", "compression.type": spec.codec}
    producer = Producer(common | own | {"delivery.report.only.error": True})
    producer.init_transactions(_TIMEOUT_S)
    places = [TopicPartition(spec.input, p, 0) for p in range(spec.partitions)]
    consumer.assign(places)
    done, transactions = 0, []
    while done < spec.rows:
        begin = time.time()
        wanted = min(spec.rows_per_transaction, spec.rows - done)
        rows = _transaction(consumer, producer, places, wanted, spec.output, change)
        transactions.append(TimedTransaction(begin, time.time(), rows))
        done += rows
    consumer.close()
    return transactions


def _transaction(
    consumer: Consumer,
    producer: Producer,
    places: list[TopicPartition],
    wanted: int,
    output: str,
    change: Change | None,
) -> int:
    producer.begin_transaction()
    rows = 0
    while rows < wanted:
        messages = consumer.consume(min(_AT_ONCE, wanted - rows), _TIMEOUT_S)
        if not messages:
            raise TimeoutError(f"no row for {_TIMEOUT_S:.0f} s")
        for message in messages:
            _forward(producer, message, output, change)
        rows += len(messages)
        producer.poll(0)
    producer.send_offsets_to_transaction(consumer.position(places), consumer.consumer_group_metadata())
    producer.commit_transaction(_TIMEOUT_S)
    return rows


def _forward(producer: Producer, message: Message, output: str, change: Change | None) -> None:
    if message.error() is not None:
        raise KafkaException(message.error())
    value = message.value()
    if change is not None and (value := change(value)) is None:
        return None
    while True:
        try:
            return producer.produce(output, value, message.key())
        except BufferError:
            producer.poll(0.01)


if __name__ == "__main__":
    answer(copy_by_client(LoopSpec.given()))
