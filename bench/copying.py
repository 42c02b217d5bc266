"""Copies topics by whole record batches, as a task of a copy does, without Spark, as a program of its own.

``python -m bench.copying '<spec as JSON>'`` copies all partitions and prints when each transaction began and
ended, its rows, and the seconds of processor time that it took.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from itertools import pairwise

from bench.spec import Spec, answer
from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.codes import OK
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.requests.end_txn import end_txns
from spark_eos.source.copying import copy_range
from spark_eos.source.fetching import Fetching

_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class CopySpec(Spec):
    """What to copy: so many partitions, each in transactions of ``offsets_per_transaction``. ``kafka``: properties,
    as of the options of source and sink, without their prefix."""

    bootstrap_servers: str
    input: str
    output: str
    partitions: int
    offsets_per_transaction: int
    kafka: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class CopiedTransaction:
    """Times in seconds since the epoch; ``cpu``: seconds of this process; ``bytes``: as the target has them."""

    begin: float
    end: float
    cpu: float
    rows: int
    bytes: int


def copy_batches(spec: CopySpec) -> list[CopiedTransaction]:
    """All partitions up to their last stable offset, one after the other. Raises EosError, TimeoutError."""
    kafka = KafkaProperties({**spec.kafka, "bootstrap.servers": spec.bootstrap_servers})
    stable = end_offsets(broker_client(kafka), {spec.input: list(range(spec.partitions))}, "read_committed")[spec.input]
    name = f"copying-{uuid.uuid4()}"
    return [
        _transaction(kafka, name, OffsetRange(spec.input, partition, start, end), spec.output)
        for partition, last in sorted(stable.items())
        for start, end in pairwise([*range(0, last, spec.offsets_per_transaction), last])
    ]


def _transaction(kafka: KafkaProperties, name: str, range_: OffsetRange, output: str) -> CopiedTransaction:
    begin, cpu = time.time(), time.process_time()
    producer = ArrowProducer(broker_client(kafka), name, int(1000 * _TIMEOUT_S))
    try:
        producer.init()
        copied = copy_range(Fetching(broker_client(kafka)), range_, (output, range_.partition), producer)
        producer.flush()
        if copied.rows:
            commit(kafka, producer)
    finally:
        producer.close()
    return CopiedTransaction(begin, time.time(), time.process_time() - cpu, copied.rows, producer.bytes_written())


def commit(kafka: KafkaProperties, producer: ArrowProducer) -> None:
    """End the producer's transaction. Raises TimeoutError."""
    pair = producer.identity()
    own, client = (pair.id, pair.producer_id, pair.epoch), broker_client(kafka)
    for _ in retrying(_TIMEOUT_S):
        if end_txns(client, [own], commit=True, version=producer.endtxn_version)[pair.id] == OK:
            return
    raise TimeoutError(f"no answer to the end of a transaction for {_TIMEOUT_S:.0f} s")


if __name__ == "__main__":
    answer(copy_batches(CopySpec.given()))
