"""Mode ``pipeline``: Kafka → Kafka, every row copied. Ours, the built-in ones, programs without Spark."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from confluent_kafka import Consumer, TopicPartition

from jobs._bench import loop
from jobs._bench.child import child, environment
from jobs._bench.drain import LEFT_OUT, Run, Stretch, drain, measured
from jobs._bench.meter import BROKER, CLIENT, Meter
from jobs._bench.queries import BUILTIN, OURS, Flow
from jobs._bench.result import Result, Series, WrongResult, cell
from jobs._bench.session import Bench
from jobs._bench.source import BATCHES, METRIC, PARTITIONS, UNIT, inputs
from jobs._bench.turns import Plan, multiple

_PROGRAM_S = 900
#: Librdkafka's defaults, for the built-in sink's Java client. Our sink has the last two of them, and does not linger.
_AS_OURS = {"kafka.linger.ms": "5", "kafka.batch.size": "1000000", "kafka.compression.type": "none"}


@dataclass(frozen=True)
class Contender:
    """A source and a sink, or a program. ``share``: of the rows, for one that would take too long for all of them.

    ``requirement``: of a program that needs an environment of its own.
    """

    name: str
    source: str = ""
    sink: str = ""
    sink_options: dict[str, str] = field(default_factory=dict)
    program: str = ""
    requirement: str | None = None
    share: float = 1.0

    def rows(self, full: int) -> int:
        """Of so many rows, those that it copies."""
        return multiple(full * self.share, UNIT)


_BASELINE = "built-in → built-in, tuned"
CONTENDERS = (
    Contender("ours → ours", OURS, OURS),
    Contender("built-in → ours", BUILTIN, OURS),
    Contender("built-in → built-in", BUILTIN, BUILTIN),
    Contender(_BASELINE, BUILTIN, BUILTIN, _AS_OURS),
    Contender("loop without Spark", program="jobs._bench.loop"),
    Contender("QuixStreams", program="jobs._bench.quix", requirement="quixstreams==3.28.1", share=0.1),
)


def measure(bench: Bench, plan: Plan, say: Callable[[str], None]) -> Result:
    """All contenders, for each size. Raises WrongResult when one read or wrote other rows than there are."""
    contenders = [contender for contender in CONTENDERS if contender.name != plan.without]
    interpreters = {c.name: environment(c.requirement) if c.requirement else sys.executable for c in contenders}
    result = Result("pipeline", _BASELINE, METRIC, "from one Kafka topic into another")
    for topic, value_bytes, rows in inputs(bench, plan, "pipeline", say):
        series = {contender.name: Series(contender.name, f"{value_bytes} B") for contender in contenders}
        for turn, contender in plan.turns(contenders):
            output = f"out-{uuid.uuid4().hex[:8]}"
            bench.cluster.create_topic(output, PARTITIONS)
            wanted = contender.rows(rows)
            if contender.program:
                run = _program(bench, contender, interpreters[contender.name], topic, output, wanted)
            else:
                run = _query(bench, contender, topic, output, wanted)
            arrived = count(bench.bootstrap_servers, output)
            if not run.rows == arrived == wanted:
                raise WrongResult(f"{contender.name} read {run.rows:,} and wrote {arrived:,} of {wanted:,} rows")
            bench.delete_topic(output)
            say(f"pipeline: {contender.name}, {value_bytes} B, run {turn}: {cell(METRIC, run.rows_per_second)} rows/s")
            if turn > 0:
                series[contender.name].runs.append(asdict(run))
        result.series += series.values()
    return result


def _query(bench: Bench, contender: Contender, topic: str, output: str, rows: int) -> Run:
    options = contender.sink_options
    flow = Flow(contender.source, contender.sink, topic, output, max_offsets=rows // BATCHES, sink_options=options)
    return drain(bench.spark, bench.bootstrap_servers, flow, bench.roots)


def _program(bench: Bench, contender: Contender, interpreter: str, topic: str, output: str, rows: int) -> Run:
    """One process, with as many rows in a transaction as the others have in a micro-batch."""
    spec = loop.Spec(bench.bootstrap_servers, topic, output, PARTITIONS, rows, rows // BATCHES)
    with (
        child(contender.program, spec.to_json(), interpreter) as process,
        Meter({CLIENT: process.pid, BROKER: bench.roots[BROKER]}) as meter,
    ):
        done = [loop.Transaction(**fields) for fields in process.result(_PROGRAM_S)]
    counted = done[LEFT_OUT:]
    part = Stretch(len(counted), sum(t.rows for t in counted), counted[0].begin, counted[-1].end)
    return measured(sum(t.rows for t in done), len(done), part, meter)


def count(bootstrap_servers: str, topic: str) -> int:
    """Rows of the topic that a read_committed consumer sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "broker.address.family": "v4",
            "group.id": "bench-count",  # asked for by the client; nothing is committed to it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        rows = 0
        at_end: set[int | None] = set()
        while len(at_end) < PARTITIONS:
            messages = consumer.consume(10_000, 0.1)
            rows += sum(message.error() is None for message in messages)
            at_end |= {message.partition() for message in messages if message.error() is not None}
        return rows
    finally:
        consumer.close()
