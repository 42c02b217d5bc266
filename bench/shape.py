"""One look at something large, as a program of its own, whose memory is then known.

``python -m bench.shape '<spec as JSON>'`` prints the milliseconds that it took, and its largest size in MiB.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.spec import Spec, answer
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.requests.end_txn import end_txns
from spark_eos.ledger.log import KafkaLog
from spark_eos.ledger.owners import Cluster
from spark_eos.ledger.reader import LedgerReader
from spark_eos.ops.heads import newest_heads
from spark_eos.options.parse import stream_options
from spark_eos.options.table import DEFAULT_PREFIX
from spark_eos.source.copying import copy_range
from spark_eos.source.fetching import Fetching
from spark_eos.source.reader import EosKafkaStreamReader

_TIMES = 5
_PARTITIONS = 4
_TRANSACTION_MS = 60_000


@dataclass(frozen=True)
class LookSpec(Spec):
    """``what`` is a key of `LOOKS`. ``name``: a topic, or the beginning of the names of some; ``query``: whose head is
    looked for."""

    what: str
    bootstrap_servers: str
    name: str
    query: str = ""

    @property
    def kafka(self) -> KafkaProperties:
        return KafkaProperties({"bootstrap.servers": self.bootstrap_servers})


def _planning(spec: LookSpec) -> float:
    """A micro-batch over all partitions of all topics, once the reader knows them."""
    options = {"kafka.bootstrap.servers": spec.bootstrap_servers, "subscribePattern": f"{spec.name}.*"}
    reader = EosKafkaStreamReader(stream_options({**options, "startingOffsets": "earliest"}))
    start = reader.initialOffset()
    reader.latestOffset(start, reader.getDefaultReadLimit())

    def plan() -> None:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if not reader.partitions(start, end):
            raise RuntimeError("there is nothing to read")

    return _median_ms(plan)


def _head(spec: LookSpec) -> float:
    """The first look of a process for a query's head."""

    def look() -> None:
        if LedgerReader(KafkaLog(broker_client(spec.kafka), spec.name), 0, spec.query).read() is None:
            raise RuntimeError(f"no head of {spec.query}")

    look()  # connects
    return _median_ms(look, 3)


def _heads(spec: LookSpec) -> float:
    """What ``spark-eos status`` reads of a ledger."""
    return _median_ms(lambda: newest_heads(Cluster(broker_client(spec.kafka), spec.name, DEFAULT_PREFIX)), 3)


def _copy(spec: LookSpec) -> float:
    """A topic by whole record batches, as a task of a copy does it, for 100,000 rows of it."""
    client, output = broker_client(spec.kafka), f"{spec.name}-copy"
    ends = end_offsets(client, {spec.name: range(_PARTITIONS)}, "read_committed")[spec.name]
    begin, rows = time.perf_counter(), 0
    for partition, end in ends.items():
        producer = ArrowProducer(client, f"copy-{partition}", _TRANSACTION_MS)
        producer.init()
        range_ = OffsetRange(spec.name, partition, 0, end)
        rows += copy_range(Fetching(client), range_, (output, partition), producer).rows
        producer.flush()
        pair = producer.identity()
        own = (pair.id, pair.producer_id, pair.epoch)
        end_txns(client, [own], commit=True, version=producer.endtxn_version)
        producer.close()
    return 1000 * (time.perf_counter() - begin) * 100_000 / rows


def _median_ms(step: Callable[[], object], times: int = _TIMES) -> float:
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        step()
        found.append(1000 * (time.perf_counter() - begin))
    return median(found)


def _peak_mib() -> float:
    """The largest size of this process so far. (That of `resource` may be the size of whoever has started it.)"""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


LOOKS = {"planning": _planning, "head": _head, "heads": _heads, "copy": _copy}

if __name__ == "__main__":
    asked = LookSpec.given()
    took_ms = LOOKS[asked.what](asked)
    answer({"took_ms": took_ms, "peak_mib": _peak_mib()})
