"""Mode ``registry``: a topic of Avro with a registry's schema → filter → another one. Ours, and row by row."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any

from bench import orders, registry_loop
from bench.child import python_child
from bench.copier import FLINK_ORDERS
from bench.count import committed_values
from bench.drain import Run, run_out
from bench.load import write_rows
from bench.other_loops import run_loop
from bench.queries import EOS_KAFKA, Flow
from bench.registry_queries import Start, start_arrow, start_columns, start_sql, start_udf
from bench.result import ModeResult, WrongResult
from bench.session import Bench
from bench.source import BATCHES, METRIC, PARTITIONS, UNIT
from bench.turns import BenchPlan, Say, multiple, take_turns
from spark_eos.tools.devcluster.registry import DevRegistry

ROWS = 16_000_000
CASE = "topic to topic"
BASELINE = "fastavro"


@dataclass(frozen=True)
class Way:
    """A contender. ``run``: is given input, output, the number of rows, and the registry's address. ``share``: of the
    rows, for one that would take too long for all of them. It reads a topic of its own then."""

    run: Callable[[Bench, str, str, int, str], Run]
    share: float = 1.0

    def rows(self, full: int) -> int:
        """Of so many rows, those that it reads."""
        return multiple(full * self.share, UNIT)


def measure(bench: Bench, plan: BenchPlan, say: Say) -> ModeResult:
    """All contenders. Raises WrongResult when one wrote other rows than it had to."""
    result, full = ModeResult("registry", BASELINE, METRIC), plan.rows(ROWS, UNIT)
    with DevRegistry() as registry:
        numbers = {way.rows(full) for name, way in WAYS.items() if plan.runs(name)}
        topics = {rows: _input(bench, rows, registry.url, say) for rows in numbers}
        runs = {
            name: partial(_measured, bench, name, topics, way.rows(full), registry.url) for name, way in WAYS.items()
        }
        take_turns(plan, result, CASE, runs, say)
        for topic in topics.values():
            bench.delete_topic(topic)
    return result


def _measured(bench: Bench, name: str, topics: Mapping[int, str], rows: int, registry: str) -> dict[str, Any]:
    output = f"out-{uuid.uuid4().hex[:8]}"
    bench.cluster.create_topic(output, PARTITIONS)
    run = WAYS[name].run(bench, topics[rows], output, rows, registry)
    if run.rows != rows:
        raise WrongResult(f"{name} read {run.rows:,} of {rows:,} rows")
    orders.check_paid(committed_values(bench.bootstrap_servers, output), registry, output, rows)
    bench.delete_topic(output)
    return asdict(run)


def _input(bench: Bench, rows: int, registry: str, say: Say) -> str:
    """A topic with so many orders."""
    topic = f"in-{uuid.uuid4().hex[:8]}"
    values = orders.serialized(registry, topic)
    say(f"registry: writing {rows:,} rows of {sum(map(len, values)) // len(values)} B")
    bench.cluster.create_topic(topic, PARTITIONS)
    write_rows(bench.cluster, topic, PARTITIONS, islice(cycle((None, value) for value in values), rows))
    return topic


def _query(start: Start, bench: Bench, topic: str, output: str, rows: int, registry: str) -> Run:
    flow = Flow(EOS_KAFKA, EOS_KAFKA, topic, output, max_offsets=rows // BATCHES)
    return run_out(
        lambda checkpoint: start(bench.spark, bench.bootstrap_servers, flow, registry, checkpoint), bench.roots
    )


def _flink(bench: Bench, topic: str, output: str, rows: int, registry: str) -> Run:
    paid = orders.paid_among(rows).total()
    return FLINK_ORDERS.copy(bench, topic, output, [registry, orders.SCHEMA], rows, paid)


def _loop(bench: Bench, topic: str, output: str, rows: int, registry: str) -> Run:
    spec = registry_loop.AvroLoopSpec(
        bench.bootstrap_servers, topic, output, PARTITIONS, rows, rows // BATCHES, registry=registry
    )
    return run_loop(bench, python_child(registry_loop.__name__, spec.to_json()))


WAYS = {
    "ours, past the JVM: SQL": Way(partial(_query, start_sql)),
    "ours, past the JVM: Arrow": Way(partial(_query, start_arrow)),
    "ours, through Spark": Way(partial(_query, start_columns)),
    BASELINE: Way(partial(_query, start_udf)),
    "Flink": Way(_flink),
    "confluent-kafka": Way(_loop, share=0.1),
}
