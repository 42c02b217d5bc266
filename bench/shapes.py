"""Mode ``shapes``: how time and memory grow with what is large in some people's clusters. Ours alone."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench import queries, shape
from bench.child import python_child
from bench.copying import commit
from bench.drain import costs, wait_for_end
from bench.loop import client
from bench.meter import Meter
from bench.queries import COPY, EOS_KAFKA, Flow
from bench.result import ModeResult, Series, cell
from bench.session import Bench
from bench.source import PARTITIONS
from bench.turns import BenchPlan
from spark_eos.kafka.admin.topics import cluster_id, describe_topics
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.transactions import FENCING_END
from spark_eos.pipelines.mirror.entries import MapEntry, OffsetRun, SourcePartition, partition_of, to_record
from spark_eos.pipelines.mirror.offset_map import Origin, write_origin
from spark_eos.protocol.head import Decision, Head, Pair, Probe, Written
from spark_eos.protocol.head_codec import encode

_METRIC = "took_ms"
_SECONDS = 600
_AT_ONCE = 250_000
_ROW = bytes(i % 251 for i in range(100))
#: Topics are no larger than this many partitions, so that brokers make them in time.
_MOST_PARTITIONS = 1_000
#: How far a running query's head is from the ledger's end, at most.
_BEHIND = 1_000
#: Partitions whose entries are in an offset map.
_MAPPED = 10
#: Rows of each of many partitions in a micro-batch, and how many micro-batches count.
_EACH, _COUNTED = 1_000, 4
_RETAINED = "spark.sql.streaming.minBatchesToRetain"
#: With less than this share of the rows it is about whether it runs.
_SHORT = 0.1

Measurements = dict[str, float | None]


@dataclass(frozen=True)
class Shape:
    """``unit``: of what there are ``base`` times the ``growth``. ``looks``: at each size, the names of what is measured
    and how."""

    unit: str
    base: int
    growth: tuple[int, ...]
    looks: Callable[[Bench, int], Iterator[tuple[str, Callable[[], Measurements]]]]

    def sizes(self, plan: BenchPlan) -> list[tuple[int, int]]:
        """(growth, number) of each."""
        base, growth = (max(1, self.base // 100), self.growth[:2]) if plan.scale < _SHORT else (self.base, self.growth)
        return [(n, base * n) for n in growth]


def measure(bench: Bench, plan: BenchPlan, say: Callable[[str], None]) -> ModeResult:
    """Every shape in its sizes, each the larger of which is compared with the smallest."""
    result = ModeResult("shapes", "× 1", _METRIC)
    for one in SHAPES:
        if not plan.has(one.unit):
            continue
        base = one.sizes(plan)[0][1]
        found: dict[str, Series] = {}
        for growth, size in one.sizes(plan):
            for what, look in one.looks(bench, size):
                case = f"{what} of {base:,} {one.unit}"
                series = found.setdefault(f"{case} {growth}", Series(f"× {growth:,}", case))
                for _ in range(plan.warm_ups if growth == 1 else 0):
                    look()
                series.runs += [dict(look()) for _ in range(plan.repeats)]
                say(f"shapes: {what} of {size:,} {one.unit}: {cell(_METRIC, series.runs[-1][_METRIC])} ms")
        result.series += sorted(found.values(), key=lambda series: series.case)
    return result


def _looked(bench: Bench, what: str, name: str, query: str = "", queries: int = 0) -> Measurements:
    spec = shape.LookSpec(what, bench.bootstrap_servers, name, query, queries)
    with python_child(shape.__name__, spec.to_json()) as process:
        return dict(process.result(_SECONDS))


def _planning(bench: Bench, size: int) -> Iterator[tuple[str, Callable[[], Measurements]]]:
    name = _fresh("plan")
    counts = [min(_MOST_PARTITIONS, size - start) for start in range(0, size, _MOST_PARTITIONS)]
    producer = Producer(client(bench.bootstrap_servers))
    with _topics(bench, {f"{name}-{n}": count for n, count in enumerate(counts)}) as topics:
        for topic, count in topics.items():
            for partition in range(count):
                producer.produce(topic, b"row", partition=partition)
        if producer.flush(_SECONDS):
            raise TimeoutError("the broker did not take a row for each partition")
        yield "planning a micro-batch", lambda: _looked(bench, "planning", name)


def _ledger(bench: Bench, size: int) -> Iterator[tuple[str, Callable[[], Measurements]]]:
    """One that was never compacted: the heads of other queries, and of two that are looked for."""
    name = _fresh("ledger")
    behind = min(_BEHIND, size // 10)
    others = [(f"other-{n}".encode(), _head(n)) for n in range(100)]
    with _topics(bench, {name: 1}, cleanup_policy="compact"), _pouring(bench, name, 1) as pour:
        pour([(b"stopped", _head(0))])
        for start in range(0, size - behind, _AT_ONCE):
            pour(others, min(_AT_ONCE, size - behind - start))
        pour([(b"running", _head(0))])
        pour(others, behind)
        pour.done()
        yield "the head of a running query", lambda: _looked(bench, "head", name, "running")
        yield "the oldest head", lambda: _looked(bench, "head", name, "stopped")


def _queries(bench: Bench, size: int) -> Iterator[tuple[str, Callable[[], Measurements]]]:
    name = _fresh("ledger")
    with _topics(bench, {name: 1}, cleanup_policy="compact"), _pouring(bench, name, 1) as pour:
        pour([(shape.name_of_query(n).encode(), _head(n)) for n in range(size)], 10 * size)
        pour.done()
        yield "'status'", lambda: _looked(bench, "heads", name)
        yield "a decision, 16 at once,", lambda: _looked(bench, "decide", name, queries=size)


def _batches(bench: Bench, size: int) -> Iterator[tuple[str, Callable[[], Measurements]]]:
    """Record batches of so many rows, copied; the fewer there are, the more is written at once."""
    name = _fresh("in")
    with _topics(bench, {name: PARTITIONS, f"{name}-copy": PARTITIONS}):
        own: dict[str, str | int] = {"enable.idempotence": True, "linger.ms": 5, "batch.num.messages": size}
        producer = Producer(client(bench.bootstrap_servers) | own)
        for row in range(max(50_000, 100 * size)):
            producer.produce(name, _ROW, partition=row % PARTITIONS)
            if row % 1_000 == 0:
                producer.poll(0)
                while len(producer) > 50_000:
                    producer.poll(0.01)
        if producer.flush(_SECONDS):
            raise TimeoutError("the broker did not take all rows")
        yield "copying 100,000 rows in batches", lambda: _looked(bench, "copy", name)


def _rows(bench: Bench, size: int) -> Iterator[tuple[str, Callable[[], Measurements]]]:
    """One run up to the end of what is there, by bounded micro-batches."""
    with _filled(bench, PARTITIONS, size) as name:
        yield "one run over", lambda: _copied(bench, Flow(COPY, EOS_KAFKA, name), PARTITIONS, size)


def _one_partition(bench: Bench, size: int) -> Iterator[tuple[str, Callable[[], Measurements]]]:
    """The same, whose rows are all in one partition: by one task, in order, and by some at once."""
    with _filled(bench, 1, size) as name:
        for what, tasks in (("one run over", None), ("one run, by 2 tasks at once, over", 2)):
            flow = Flow(COPY, EOS_KAFKA, name, tasks=tasks)
            yield what, lambda flow=flow: _copied(bench, flow, 1, size)  # type: ignore[misc]  # mypy cannot infer it


def _partitions(bench: Bench, size: int) -> Iterator[tuple[str, Callable[[], Measurements]]]:
    """Micro-batches of `_EACH` rows from each of so many partitions: the latter ones."""
    rows = _EACH * size
    with _filled(bench, size, 2 * _COUNTED * rows) as name:
        for what, source in (("a copy", COPY), ("a query", EOS_KAFKA)):
            flow = Flow(source, EOS_KAFKA, name, max_offsets=rows)
            yield f"a micro-batch of {what}, {_EACH:,} rows each", partial(_one_micro_batch, bench, flow, size)


def _one_micro_batch(bench: Bench, flow: Flow, partitions: int) -> Measurements:
    """The median, from trigger to commit."""
    flow = replace(flow, output=_fresh("out"))
    with (
        _topics(bench, {str(flow.output): partitions}),
        tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as checkpoint,
    ):
        query = queries.start_query(bench.spark, bench.bootstrap_servers, flow, checkpoint)
        wait_for_end(query)
        took = [entry["durationMs"] for entry in query.recentProgress if "addBatch" in entry["durationMs"]]
    return {_METRIC: float(np.median([each["triggerExecution"] for each in took[-_COUNTED:]])), "peak_mib": None}


def _fresh(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


@contextmanager
def _filled(bench: Bench, partitions: int, size: int) -> Iterator[str]:
    """A topic of so many rows."""
    name = _fresh("in")
    with _topics(bench, {name: partitions}), _pouring(bench, name, partitions) as pour:
        for start in range(0, size, _AT_ONCE):
            pour([(None, _ROW)], min(_AT_ONCE, size - start))
        pour.done()
        yield name


def _copied(bench: Bench, flow: Flow, partitions: int, size: int) -> Measurements:
    """To a new topic, in micro-batches of the default size."""
    flow = replace(flow, output=_fresh("out"))
    with (
        _topics(bench, {str(flow.output): partitions}),
        tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as checkpoint,
        Meter(bench.roots) as meter,
    ):
        begin = time.time()
        wait_for_end(queries.start_query(bench.spark, bench.bootstrap_servers, flow, checkpoint))
        end = time.time()
    cost = costs(meter.between(begin, end), size)
    return {
        _METRIC: 1000 * (end - begin),
        "client_core_us": cost.get("client_core_us"),
        "broker_core_us": cost.get("broker_core_us"),
        "peak_mib": cost.get("largest_worker_mib"),
    }


def _checkpoint(bench: Bench, size: int) -> Iterator[tuple[str, Callable[[], Measurements]]]:
    """A query that goes on from a checkpoint with so many micro-batches, as Spark keeps them where it is told to."""
    flow = Flow(COPY, EOS_KAFKA, _fresh("in"), _fresh("out"))

    def run(checkpoint: str) -> float:
        with _pouring(bench, flow.input, PARTITIONS) as pour:
            pour([(None, _ROW)])
            pour.done()
        begin = time.time()
        wait_for_end(queries.start_query(bench.spark, bench.bootstrap_servers, flow, checkpoint))
        return 1000 * (time.time() - begin)

    with (
        _topics(bench, {flow.input: PARTITIONS, str(flow.output): PARTITIONS}),
        tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as checkpoint,
    ):
        run(checkpoint)
        for log in ("offsets", "commits"):
            for batch in range(1, size):
                shutil.copy(Path(checkpoint, log, "0"), Path(checkpoint, log, str(batch)))
        bench.spark.conf.set(_RETAINED, 2 * size + 100)
        try:
            yield "the next run after", lambda: {_METRIC: run(checkpoint), "peak_mib": None}
        finally:
            bench.spark.conf.unset(_RETAINED)


def _map(bench: Bench, size: int) -> Iterator[tuple[str, Callable[[], Measurements]]]:
    """One of a topic of `_MAPPED` partitions, with an entry for each row."""
    each, map_topic, brokers = size // _MAPPED, _fresh("map"), broker_client(_kafka(bench))
    with (
        _filled(bench, _MAPPED, each * _MAPPED) as name,
        _topics(bench, {map_topic: 9}, cleanup_policy="compact"),
        _pouring(bench, map_topic, 9) as pour,
    ):
        cluster, topic = cluster_id(brokers), describe_topics(brokers, [name])[name]
        write_origin(brokers, map_topic, Origin(name, topic.id, name, topic.id, (cluster,)))
        for source in (SourcePartition(cluster, topic.id, partition) for partition in range(_MAPPED)):
            entries = (
                MapEntry(source, name, at, at + 1, name, topic.id, (OffsetRun(at, at, 1),)) for at in range(each)
            )
            pour([to_record(entry) for entry in entries], partition=partition_of(source, 9))
        pour.done()
        yield "translating a position", lambda: _looked(bench, "translate", map_topic, name)
        passed = iter(range(each // 10, each, each // 10))
        admin = AdminClient({"bootstrap.servers": bench.bootstrap_servers, "log_level": 3})

        def trimmed() -> Measurements:
            at = next(passed)
            for future in admin.delete_records([TopicPartition(name, p, at) for p in range(_MAPPED)]).values():
                future.result(_SECONDS)
            return _looked(bench, "trim", map_topic)

        yield "trimming a tenth", trimmed


def _head(batch: int) -> bytes:
    """That of a query with four tasks."""
    pairs = [Pair(f"spark-eos-task-{task}", 1_000 + task, batch) for task in range(PARTITIONS)]
    written = tuple(Written(n, pair, 1_000, batch, Probe("out", n, batch)) for n, pair in enumerate(pairs))
    return encode(Head("run", 1, (), FENCING_END, Decision(batch, 0, len(written), 4_000, batch, None, written)))


def _kafka(bench: Bench) -> KafkaProperties:
    return KafkaProperties({"bootstrap.servers": bench.bootstrap_servers})


@contextmanager
def _topics(bench: Bench, topics: Mapping[str, int], **config: str) -> Iterator[Mapping[str, int]]:
    """Topics with so many partitions each; gone at the end."""
    for name, partitions in topics.items():
        bench.cluster.create_topic(name, partitions, replication=1, **config)
    try:
        yield topics
    finally:
        for name in topics:
            bench.delete_topic(name)


class _Pouring:
    """Writes rows by whole record batches, in one transaction."""

    def __init__(self, kafka: KafkaProperties, topic: str, partitions: int) -> None:
        self._kafka, self._topic, self._partitions = kafka, topic, partitions
        self._producer = ArrowProducer(broker_client(kafka), f"pouring-{topic}", 1000 * _SECONDS)
        self._producer.init()

    def __call__(
        self, rows: Sequence[tuple[bytes | None, bytes]], number: int | None = None, partition: int | None = None
    ) -> None:
        """These rows once, or again and again up to so many; to one partition, or to each in turn."""
        number = len(rows) if number is None else number
        turns = pa.array(np.arange(number) % len(rows))
        keys, values = (pa.array(column, pa.binary()).take(turns) for column in zip(*rows, strict=True))
        to = np.arange(number) % self._partitions if partition is None else np.full(number, partition)
        self._producer.write(self._topic, self._partitions, key=keys, value=values, partition=pa.array(to, pa.int32()))

    def done(self) -> None:
        self._producer.flush()
        commit(self._kafka, self._producer)

    def close(self) -> None:
        self._producer.close()


@contextmanager
def _pouring(bench: Bench, topic: str, partitions: int) -> Iterator[_Pouring]:
    pouring = _Pouring(_kafka(bench), topic, partitions)
    try:
        yield pouring
    finally:
        pouring.close()


SHAPES = (
    Shape("partitions", 100, (1, 10, 100), _planning),
    Shape("records in a ledger", 10_000, (1, 10, 100, 1_000), _ledger),
    Shape("queries in a ledger", 10, (1, 10, 100), _queries),
    Shape("rows each", 1, (1, 10, 100, 10_000), _batches),
    Shape("rows", 1_000_000, (1, 10, 100), _rows),
    Shape("rows in one partition", 1_000_000, (1, 10), _one_partition),
    Shape("partitions with rows", 4, (1, 4, 16, 64), _partitions),
    Shape("micro-batches in a checkpoint", 100, (1, 10, 1_000), _checkpoint),
    Shape("entries in an offset map", 10_000, (1, 10, 100), _map),
)
