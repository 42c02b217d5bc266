"""Mode ``registry``: a topic of Avro with a registry's schema → filter → another one. Ours, and row by row."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

from bench import loop, orders
from bench.child import python_child
from bench.copier import FLINK_ORDERS, Copier
from bench.count import committed_values
from bench.drain import Run, judge_transactions, run_out
from bench.duel import OURS_NAME
from bench.load import write_rows
from bench.meter import BROKER, CLIENT, Meter
from bench.queries import EOS_KAFKA, Flow
from bench.registry_codec import measure_codec
from bench.registry_loop import AvroLoopSpec
from bench.registry_queries import Start, start_arrow, start_columns, start_sql, start_udf
from bench.result import ModeResult, WrongResult
from bench.session import Bench
from bench.source import BATCHES, METRIC, PARTITIONS, UNIT
from bench.turns import BenchPlan, Say, multiple, take_turns
from spark_eos.tools.devcluster.registry import DevRegistry

ROWS = 16_000_000
CASE = "topic to topic"
BASELINE = "fastavro"
_PROGRAM_S = 900


@dataclass(frozen=True)
class Way:
    """A contender: a query that ``start`` starts, a program in Java, or otherwise the loop without Spark. ``share``: of
    the rows, for one that would take too long for all of them. It reads a topic of its own then."""

    name: str
    start: Start | None = None
    copier: Copier | None = None
    share: float = 1.0

    def rows(self, full: int) -> int:
        """Of so many rows, those that it reads."""
        return multiple(full * self.share, UNIT)


WAYS = (
    Way("ours, past the JVM: SQL", start_sql),
    Way("ours, past the JVM: Arrow", start_arrow),
    Way("ours, through Spark", start_columns),
    Way(BASELINE, start_udf),
    Way("Flink", copier=FLINK_ORDERS),
    Way("confluent-kafka", share=0.1),
)


def measure(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """All contenders from topic to topic, then decoding and encoding alone. Raises WrongResult when one wrote other
    rows than it had to."""
    result = ModeResult("registry", BASELINE, METRIC)
    with DevRegistry() as registry:
        if plan.has(CASE):
            _topic_to_topic(bench, plan, result, registry.url, say)
        measure_codec(plan, result, registry.url, (OURS_NAME, BASELINE), say)
    return result


def _topic_to_topic(bench: Bench, plan: BenchPlan, result: ModeResult, registry: str, say: Say) -> None:
    ways = [way for way in WAYS if plan.runs(way.name)]
    full = plan.rows(ROWS, UNIT)
    topics = {rows: _input(bench, rows, registry, say) for rows in {way.rows(full) for way in ways}}

    def measured(way: Way) -> dict[str, Any]:
        rows, output = way.rows(full), f"out-{uuid.uuid4().hex[:8]}"
        bench.cluster.create_topic(output, PARTITIONS)
        run = _run(bench, way, topics[rows], output, rows, registry)
        if run.rows != rows:
            raise WrongResult(f"{way.name} read {run.rows:,} of {rows:,} rows")
        orders.check_paid(committed_values(bench.bootstrap_servers, output), registry, output, rows)
        bench.delete_topic(output)
        return asdict(run)

    take_turns(plan, result, CASE, {way.name: partial(measured, way) for way in ways}, say)
    for topic in topics.values():
        bench.delete_topic(topic)


def _input(bench: Bench, rows: int, registry: str, say: Say) -> str:
    """A topic with so many orders."""
    topic = f"in-{uuid.uuid4().hex[:8]}"
    values = orders.serialized(registry, topic)
    say(f"registry: writing {rows:,} rows of {sum(map(len, values)) // len(values)} B")
    write_rows(bench.cluster, topic, PARTITIONS, islice(cycle((None, value) for value in values), rows))
    return topic


def _run(bench: Bench, way: Way, topic: str, output: str, rows: int, registry: str) -> Run:
    start, servers = way.start, bench.bootstrap_servers
    if way.copier is not None:
        paid = orders.paid_among(rows).total()
        return way.copier.copy(bench, topic, output, PARTITIONS, [registry, orders.SCHEMA], rows, paid)
    if start is None:
        return _program(bench, topic, output, rows, registry)
    flow = Flow(EOS_KAFKA, EOS_KAFKA, topic, output, max_offsets=rows // BATCHES)
    return run_out(lambda checkpoint: start(bench.spark, servers, flow, registry, checkpoint), bench.roots)


def _program(bench: Bench, topic: str, output: str, rows: int, registry: str) -> Run:
    """The loop, with an eighth of the rows in each transaction, as micro-batches have."""
    spec = AvroLoopSpec(bench.bootstrap_servers, topic, output, PARTITIONS, rows, rows // BATCHES, registry=registry)
    with (
        python_child("bench.registry_loop", spec.to_json()) as process,
        Meter({CLIENT: [process.pid], BROKER: bench.roots[BROKER]}) as meter,
    ):
        done = [loop.TimedTransaction(**fields) for fields in process.result(_PROGRAM_S)]
    return judge_transactions(done, meter)
