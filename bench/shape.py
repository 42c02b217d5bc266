"""One look at something large, as a program of its own, whose memory is then known.

``python -m bench.shape '<spec as JSON>'`` prints the milliseconds that it took, and its largest size in MiB.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench import copying
from bench.spec import Spec, answer
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.ledger import KafkaLedger
from spark_eos.ledger.log import KafkaLog
from spark_eos.ledger.owners import Cluster
from spark_eos.ledger.reader import LedgerReader
from spark_eos.ops.heads import newest_heads
from spark_eos.options.parse import stream_options
from spark_eos.options.table import DEFAULT_PREFIX
from spark_eos.pipelines.mirror.cleaner import clean_map
from spark_eos.pipelines.mirror.offsets import translate
from spark_eos.source.reader import EosKafkaStreamReader

_TIMES = 5
_PARTITIONS = 4
#: Queries that decide at the same time.
_AT_ONCE = 16


@dataclass(frozen=True)
class LookSpec(Spec):
    """``what`` is a key of `LOOKS`. ``name``: a topic, or the beginning of the names of some; ``query``: whose head is
    looked for, or the source's topic, where ``name`` is that of an offset map; ``queries``: how many have a head there,
    by `name_of_query`."""

    what: str
    bootstrap_servers: str
    name: str
    query: str = ""
    queries: int = 0

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


def name_of_query(number: int) -> str:
    return f"query-{number}"


def _decide(spec: LookSpec) -> float:
    """A decision of every query, many of them at once: from its look at the ledger to its publication."""

    def decide(number: int) -> float:
        begin = time.perf_counter()
        ledger = KafkaLedger(broker_client(spec.kafka), spec.name, 1, DEFAULT_PREFIX, name_of_query(number))
        head, term = ledger.read(), ledger.take()
        if head is None or term.read() != head:
            raise RuntimeError(f"no head of {name_of_query(number)}, or another one")
        term.publish(head)
        return 1000 * (time.perf_counter() - begin)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return median(pool.map(decide, range(spec.queries)))


def _copy(spec: LookSpec) -> float:
    """A topic by whole record batches, for 100,000 rows of it."""
    done = copying.copy_batches(
        copying.CopySpec(spec.bootstrap_servers, spec.name, f"{spec.name}-copy", _PARTITIONS, 10**9)
    )
    return 1000 * (done[-1].end - done[0].begin) * 100_000 / sum(one.rows for one in done)


def _translate(spec: LookSpec) -> float:
    """What ``spark-eos mirror translate`` does, for a position near the end of a partition."""
    at = end_offsets(broker_client(spec.kafka), {spec.query: [0]})[spec.query][0] - 2  # before the marker
    client = broker_client(spec.kafka)
    return _median_ms(lambda: translate(client, client, spec.name, spec.query, 0, [at]), 3)


def _trim(spec: LookSpec) -> float:
    """What a mirror does every six hours."""

    def once() -> None:
        if not clean_map(broker_client(spec.kafka), broker_client(spec.kafka), spec.name):
            raise RuntimeError("nothing was to be deleted")

    return _median_ms(once, 1)


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


LOOKS = {
    "planning": _planning,
    "head": _head,
    "heads": _heads,
    "decide": _decide,
    "copy": _copy,
    "translate": _translate,
    "trim": _trim,
}

if __name__ == "__main__":
    asked = LookSpec.given()
    took_ms = LOOKS[asked.what](asked)
    answer({"took_ms": took_ms, "peak_mib": _peak_mib()})
