"""Mode ``pipeline``: Kafka → Kafka, every row copied. Our source and sink, the built-in ones, a loop without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from confluent_kafka import Consumer, TopicPartition

from jobs._bench import loop
from jobs._bench.child import child
from jobs._bench.drain import LEFT_OUT, Run, Stretch, costs, drain
from jobs._bench.load import fill
from jobs._bench.meter import BROKER, CLIENT, Meter
from jobs._bench.queries import BUILTIN, OURS, Flow
from jobs._bench.result import Result, Series, WrongResult
from jobs._bench.session import Bench
from jobs._bench.source import BATCHES, PARTITIONS, UNIT
from jobs._bench.turns import Plan

ROWS = 2_000_000
VALUE_BYTES = 100
_LOOP_SECONDS = 900
_COUNT_SECONDS = 60
#: Our sink writes with librdkafka's defaults. These are the same for the built-in sink's Java client.
_AS_OURS = {"kafka.linger.ms": "5", "kafka.batch.size": "1000000", "kafka.compression.type": "none"}


@dataclass(frozen=True)
class Contender:
    """A source and a sink, or neither for the loop."""

    name: str
    source: str = ""
    sink: str = ""
    sink_options: dict[str, str] = field(default_factory=dict)


_BASELINE = "built-in → built-in, tuned"
CONTENDERS = (
    Contender("ours → ours", OURS, OURS),
    Contender("built-in → ours", BUILTIN, OURS),
    Contender("built-in → built-in", BUILTIN, BUILTIN),
    Contender(_BASELINE, BUILTIN, BUILTIN, _AS_OURS),
    Contender("loop without Spark"),
)


def measure(bench: Bench, plan: Plan, say: Callable[[str], None]) -> Result:
    """All contenders. Raises WrongResult when one read or wrote other rows than there are."""
    rows = plan.rows(ROWS, UNIT)
    topic = f"in-{uuid.uuid4().hex[:8]}"
    say(f"pipeline: writing {rows:,} rows of {VALUE_BYTES} bytes")
    fill(bench.cluster, topic, rows, VALUE_BYTES, PARTITIONS)
    series = {contender.name: Series(contender.name, f"{VALUE_BYTES} B") for contender in CONTENDERS}
    for turn, contender in plan.turns(CONTENDERS):
        output = f"out-{uuid.uuid4().hex[:8]}"
        bench.cluster.create_topic(output, PARTITIONS)
        run = (_query if contender.source else _loop)(bench, contender, topic, output, rows)
        arrived = count(bench.bootstrap_servers, output)
        if not run.rows == arrived == rows:
            raise WrongResult(f"{contender.name} read {run.rows:,} and wrote {arrived:,} of {rows:,} rows")
        bench.delete_topic(output)
        say(f"pipeline: {contender.name}, run {turn}: {run.rows_per_second:,.0f} rows/s")
        if turn > 0:
            series[contender.name].runs.append(asdict(run))
    bench.delete_topic(topic)
    return Result("pipeline", baseline=_BASELINE, compared="rows_per_second", series=list(series.values()))


def _query(bench: Bench, contender: Contender, topic: str, output: str, rows: int) -> Run:
    options = contender.sink_options
    flow = Flow(contender.source, contender.sink, topic, output, max_offsets=rows // BATCHES, sink_options=options)
    return drain(bench.spark, bench.bootstrap_servers, flow, bench.roots)


def _loop(bench: Bench, contender: Contender, topic: str, output: str, rows: int) -> Run:
    """One process, with as many rows in a transaction as the others have in a micro-batch."""
    spec = loop.Spec(bench.bootstrap_servers, topic, output, PARTITIONS, rows, rows // BATCHES)
    with (
        child(loop.__name__, spec.to_json()) as process,
        Meter({CLIENT: process.pid, BROKER: bench.roots[BROKER]}) as meter,
    ):
        done = [loop.Transaction(**fields) for fields in process.result(_LOOP_SECONDS)]
    counted = done[LEFT_OUT:]
    part = Stretch(len(counted), sum(t.rows for t in counted), counted[0].begin, counted[-1].end)
    return Run(
        rows=sum(t.rows for t in done),
        batches=len(done),
        counted_rows=part.rows,
        counted_batches=part.batches,
        rows_per_second=part.rows / (part.end - part.begin),
        **costs(meter.between(part.begin, part.end), part.rows),
    )


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
        rows, at_end = 0, set()
        while len(at_end) < PARTITIONS:
            messages = consumer.consume(10_000, 0.1)
            rows += sum(message.error() is None for message in messages)
            at_end |= {message.partition() for message in messages if message.error() is not None}
        return rows
    finally:
        consumer.close()
