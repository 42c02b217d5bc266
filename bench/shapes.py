"""Mode ``shapes``: how time and memory grow with what is large in some people's clusters. Ours alone."""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, cycle, islice, repeat
from pathlib import Path
from statistics import median

from bench import queries, shape
from bench.child import python_child
from bench.drain import costs, wait_for_end
from bench.load import write_rows
from bench.meter import Meter
from bench.queries import COPY, EOS_KAFKA, Flow
from bench.result import ModeResult, Series, cell
from bench.session import Bench
from bench.source import PARTITIONS
from bench.turns import BenchPlan
from spark_eos.kafka.transactions import FENCING_END
from spark_eos.ops.metrics.hub import Event
from spark_eos.ops.metrics.session import start as start_metrics
from spark_eos.protocol.head import Decision, Head, Pair, Probe, Written
from spark_eos.protocol.head_codec import encode

_METRIC = "took_ms"
_SECONDS = 600
_ROW = (None, bytes(i % 251 for i in range(100)))
#: Topics are no larger than this many partitions, so that brokers make them in time.
_MOST_PARTITIONS = 1_000
#: How far a running query's head is from the ledger's end, at most.
_BEHIND = 1_000
#: Rows of each of many partitions in a micro-batch, and how many micro-batches count.
_EACH, _COUNTED = 1_000, 4
#: Micro-batches whose commits are timed, and how many of the first do not count.
_COMMITS, _LEFT_OUT = 8, 4
_RETAINED = "spark.sql.streaming.minBatchesToRetain"
#: With less than this share of the rows it is about whether it runs.
_SHORT = 0.1

Measurements = dict[str, float | None]
#: The names of what is measured at a size, and how.
Looks = Iterator[tuple[str, Callable[[], Measurements]]]


@dataclass(frozen=True)
class Shape:
    """``unit``: of what there are ``base`` times the ``growth``."""

    unit: str
    base: int
    growth: tuple[int, ...]
    looks: Callable[[Bench, int], Looks]

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


def _looked(bench: Bench, what: str, name: str, query: str = "") -> Measurements:
    spec = shape.LookSpec(what, bench.bootstrap_servers, name, query)
    with python_child(shape.__name__, spec.to_json()) as process:
        return dict(process.result(_SECONDS))


def _planning(bench: Bench, size: int) -> Looks:
    name = _fresh("plan")
    counts = [min(_MOST_PARTITIONS, size - start) for start in range(0, size, _MOST_PARTITIONS)]
    with _topics(bench, {f"{name}-{n}": count for n, count in enumerate(counts)}) as topics:
        for topic, count in topics.items():
            write_rows(bench.cluster, topic, count, repeat(_ROW, count))
        yield "planning a micro-batch", partial(_looked, bench, "planning", name)


def _ledger(bench: Bench, size: int) -> Looks:
    """One that was never compacted: the heads of other queries, and of two that are looked for."""
    behind = min(_BEHIND, size // 10)
    others = [(f"other-{n}".encode(), _head(n)) for n in range(100)]
    heads = chain(
        [(b"stopped", _head(0))],
        islice(cycle(others), size - behind),
        [(b"running", _head(0))],
        islice(cycle(others), behind),
    )
    with _compacted(bench) as name:
        write_rows(bench.cluster, name, 1, heads)
        yield "the head of a running query", partial(_looked, bench, "head", name, "running")
        yield "the oldest head", partial(_looked, bench, "head", name, "stopped")


def _queries(bench: Bench, size: int) -> Looks:
    with _compacted(bench) as name:
        heads = [(f"query-{n}".encode(), _head(n)) for n in range(size)]
        write_rows(bench.cluster, name, 1, islice(cycle(heads), 10 * size))
        yield "'status'", partial(_looked, bench, "heads", name)


def _head(batch: int) -> bytes:
    """That of a query with four tasks."""
    pairs = [Pair(f"spark-eos-task-{task}", 1_000 + task, batch) for task in range(PARTITIONS)]
    written = tuple(Written(n, pair, 1_000, batch, Probe("out", n, batch)) for n, pair in enumerate(pairs))
    return encode(Head("run", 1, (), FENCING_END, Decision(batch, 0, len(written), 4_000, batch, None, written)))


def _batches(bench: Bench, size: int) -> Looks:
    """Record batches of so many rows, copied; the fewer there are, the more is written at once."""
    name = _fresh("in")
    with _topics(bench, {name: PARTITIONS, f"{name}-copy": PARTITIONS}):
        write_rows(bench.cluster, name, PARTITIONS, repeat(_ROW, max(50_000, 100 * size)), rows_in_batch=size)
        yield "copying 100,000 rows in batches", partial(_looked, bench, "copy", name)


def _rows(partitions: int, bench: Bench, size: int) -> Looks:
    """One run up to the end of what is there, by bounded micro-batches: a task for each partition."""
    with _filled(bench, partitions, size) as name:
        yield "one run over", partial(_copied, bench, name, partitions, size)


def _copied(bench: Bench, name: str, partitions: int, size: int) -> Measurements:
    """To a new topic, in micro-batches of the default size."""
    with Meter(bench.roots) as meter:
        begin = time.time()
        _run(bench, Flow(COPY, EOS_KAFKA, name), partitions)
        end = time.time()
    cost = costs(meter.between(begin, end), size)
    return {
        _METRIC: 1000 * (end - begin),
        "client_core_us": cost["client_core_us"],
        "broker_core_us": cost["broker_core_us"],
        "peak_mib": cost["largest_worker_mib"],
    }


def _partitions(bench: Bench, size: int) -> Looks:
    """Micro-batches of `_EACH` rows from each of so many partitions: the latter ones."""
    rows = _EACH * size
    with _filled(bench, size, 2 * _COUNTED * rows) as name:
        for what, source in (("a copy", COPY), ("a query", EOS_KAFKA)):
            flow = Flow(source, EOS_KAFKA, name, max_offsets=rows)
            yield f"a micro-batch of {what}, {_EACH:,} rows each", partial(_one_micro_batch, bench, flow, size)


def _one_micro_batch(bench: Bench, flow: Flow, partitions: int) -> Measurements:
    """The median, from trigger to commit."""
    took = [each["triggerExecution"] for each in _run(bench, flow, partitions) if "addBatch" in each]
    return {_METRIC: float(median(took[-_COUNTED:])), "peak_mib": None}


def _run(bench: Bench, flow: Flow, partitions: int) -> list[dict[str, int]]:
    """Run it to its end, into a new topic; the milliseconds of each micro-batch's steps."""
    flow = replace(flow, output=_fresh("out"))
    with (
        _topics(bench, {str(flow.output): partitions}),
        tempfile.TemporaryDirectory(prefix="spark-eos-bench-") as checkpoint,
    ):
        query = queries.start_query(bench.spark, bench.bootstrap_servers, flow, checkpoint)
        wait_for_end(query)
        return [entry["durationMs"] for entry in query.recentProgress]


@dataclass
class _Commits:
    """Takes the library's own events: the seconds of each commit."""

    took_s: list[float] = field(default_factory=list)

    def take(self, event: Event) -> None:
        if event["event"] == "committed":
            self.took_s.append(event["commit_s"])


def _tasks(bench: Bench, size: int) -> Looks:
    """Micro-batches whose tasks write a row each."""
    yield "the commit of a micro-batch", partial(_commit, bench, size)


def _commit(bench: Bench, tasks: int) -> Measurements:
    commits = _Commits()
    reader = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", tasks)
    rows = (
        reader.option("numPartitions", tasks)
        .load()
        .selectExpr("cast(null as string) as key", "cast(value as string) as value")
    )
    flow = Flow("", EOS_KAFKA, "", _fresh("out"))
    with (
        closing(start_metrics(bench.spark, None, None, None, commits)),
        _topics(bench, {str(flow.output): PARTITIONS}),
        tempfile.TemporaryDirectory(prefix="spark-eos-bench-", ignore_cleanup_errors=True) as checkpoint,
    ):
        query = queries.write_stream(rows, bench.bootstrap_servers, flow, checkpoint).start()
        try:
            while len(commits.took_s) < _COMMITS:
                query.awaitTermination(0.1)  # type: ignore[arg-type]  # parts of a second will do; raises its error
        finally:
            query.stop()
    return {_METRIC: 1000 * median(commits.took_s[_LEFT_OUT:_COMMITS]), "peak_mib": None}


def _checkpoint(bench: Bench, size: int) -> Looks:
    """A query that goes on from a checkpoint with so many micro-batches, as Spark keeps them where it is told to."""
    flow = Flow(COPY, EOS_KAFKA, _fresh("in"), _fresh("out"))

    def run(checkpoint: str) -> float:
        write_rows(bench.cluster, flow.input, PARTITIONS, [_ROW])
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


def _fresh(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


@contextmanager
def _filled(bench: Bench, partitions: int, size: int) -> Iterator[str]:
    """A topic of so many rows."""
    name = _fresh("in")
    with _topics(bench, {name: partitions}):
        write_rows(bench.cluster, name, partitions, repeat(_ROW, size))
        yield name


@contextmanager
def _compacted(bench: Bench) -> Iterator[str]:
    """A topic as ledgers are."""
    name = _fresh("ledger")
    with _topics(bench, {name: 1}, cleanup_policy="compact"):
        yield name


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


SHAPES = (
    Shape("partitions", 100, (1, 10, 100), _planning),
    Shape("records in a ledger", 10_000, (1, 10, 100, 1_000), _ledger),
    Shape("queries in a ledger", 10, (1, 10, 100), _queries),
    Shape("rows each", 1, (1, 10, 100, 10_000), _batches),
    Shape("rows", 1_000_000, (1, 10, 100), partial(_rows, PARTITIONS)),
    Shape("rows in one partition", 1_000_000, (1, 10), partial(_rows, 1)),
    Shape("partitions with rows", 4, (1, 4, 16, 64), _partitions),
    Shape("tasks", 1, (1, 4, 16, 64, 256, 1_000), _tasks),
    Shape("micro-batches in a checkpoint", 100, (1, 10, 1_000), _checkpoint),
)
