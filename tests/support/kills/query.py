"""The query that the kill tests run: from a Spark session of the test, or as a program of its own, to be killed.

``python query.py '<spec as JSON>'`` runs it until its input is drained, or for ever with a processing-time trigger.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: Half the CPU time of a start.
FAST_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto"
FOR_EXECUTORS = ("PYTHONPATH", "SPARK_EOS_FAULTS", "SPARK_EOS_FAULTS_DIR")


@dataclass(frozen=True)
class Spec:
    """A query from one topic to another. ``shuffle``: the number of tasks after a shuffle, or None for none.

    ``copy``: rows do not pass through Spark; a function makes the same of them, or, with ``sql``, DuckDB, or, with
    ``copies``, nobody: they are copied as they are. ``mirrors``: copies with an offset map; the output's name ends in
    that of the input.
    ``source`` is the format to read with; ``kafka``, Spark's own, needs its jars in ``conf``: Spark's settings of the
    program. ``sink`` are options of the sink besides, ``kafka`` properties of the clients of both sides. ``also``: a
    second output topic, which gets every row as well. ``registry``: of a ``copy``, the address of the registry with the
    schemas of `tests.support.kills.registry_records`; what cannot be decoded goes to ``letters``. ``from_group``: a new
    checkpoint begins at the group's offsets. ``table``: a Delta table, whose rows are read past the JVM in place of
    ``input``; ``rows_per_batch`` counts its files; ``changes``: what is read is its changes.
    """

    bootstrap_servers: str
    input: str
    output: str
    checkpoint: str
    group: str
    rows_per_batch: int
    also: str | None = None
    registry: str | None = None
    letters: str | None = None
    from_group: bool = False
    table: str | None = None
    changes: bool = False
    shuffle: int | None = None
    copy: bool = False
    copies: bool = False
    sql: bool = False
    mirrors: bool = False
    available_now: bool = True
    master: str = "local[2]"
    source: str = "eos-kafka"
    conf: dict[str, str] = field(default_factory=dict)
    sink: dict[str, str] = field(default_factory=dict)
    kafka: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def expected(self, value: str) -> str:
        """What the query makes of a value."""
        return value if self.copies else expected(value)


def start(spark: SparkSession, spec: Spec) -> StreamingQuery:
    """Each row's value with ``out-`` before it; without a shuffle, into the partition that it came from."""
    kafka = {"kafka.bootstrap.servers": spec.bootstrap_servers}
    kafka |= {f"kafka.{key}": value for key, value in spec.kafka.items()}
    # Ours reads so without being told, and refuses to be told.
    isolation = {"kafka.isolation.level": "read_committed"} if spec.source == "kafka" else {}
    begins = {"startingOffsets": "earliest"}
    if spec.from_group:
        begins = {"startingOffsets": "group", "kafka.group.id": spec.group}
    if spec.mirrors:
        return start_mirror(spark, spec, kafka, begins)
    if spec.table is not None:
        return start_from_table(spark, spec, spec.table, kafka)
    if spec.copy:
        return start_copy(spark, spec, kafka, begins)
    rows = (
        spark.readStream.format(spec.source)
        .options(**kafka, **isolation)
        .option("subscribe", spec.input)
        .options(**begins)
        .option("maxOffsetsPerTrigger", spec.rows_per_batch)
        .option("minPartitions", 1)  # a task for each partition, few rows as there are
        .load()
    )
    if spec.shuffle is None:
        rows = rows.selectExpr("'out-' || cast(value AS string) AS value", "partition")
    else:
        rows = rows.repartition(spec.shuffle, "value").selectExpr("'out-' || cast(value AS string) AS value")
    if spec.also is not None:
        rows = rows.selectExpr("*", f"explode(array('{spec.output}', '{spec.also}')) AS topic")
    writer = (
        rows.writeStream.format("eos-kafka")
        .options(**kafka, **spec.sink, **({} if spec.also else {"topic": spec.output}))
        .option("checkpointLocation", spec.checkpoint)
        .option("offsets.group.id", spec.group)
    )
    return writer.trigger(**trigger_of(spec)).start()


def trigger_of(spec: Spec) -> dict[str, Any]:
    """As Spark's ``trigger`` takes it."""
    return {"availableNow": True} if spec.available_now else {"processingTime": "20 milliseconds"}


def start_copy(spark: SparkSession, spec: Spec, kafka: dict[str, str], begins: dict[str, str]) -> StreamingQuery:
    """The same rows in the same topics, by ranges of offsets."""
    import pyarrow as pa
    import pyarrow.compute as pc

    import spark_eos

    topics = [topic for topic in (spec.output, spec.also) if topic]

    def outgoing(batch: pa.RecordBatch) -> pa.Table:
        given = batch["value"].cast(pa.string()) if spec.registry is None else pc.struct_field(batch["value"], "row")
        values = pc.binary_join_element_wise("out-", given, "")
        rows = pa.table({"value": values, "partition": batch["partition"]})
        each = rows.take(pa.array([row for row in range(batch.num_rows) for _ in topics], pa.int64()))
        return each.append_column("topic", pa.array(topics * batch.num_rows, pa.string()))

    names = ", ".join(f"'{topic}'" for topic in topics)
    sql = f"SELECT concat('out-', decode(value)) AS value, partition, unnest([{names}]) AS topic FROM input"
    limits = {"maxOffsetsPerTrigger": spec.rows_per_batch, "minPartitions": 1}
    more: dict[str, Any] = {}
    if spec.registry is not None:
        from tests.support.kills.registry_records import decoding

        more = {"decode": {"value": decoding(spec.registry)}, "on_malformed": "deadLetters"}
    ends = {"topic": spec.output if spec.copies else None, "deadLetters.topic": spec.letters}
    return spark_eos.copy(
        spark,
        source={**kafka, **begins, **limits, "subscribe": spec.input},
        sink={**kafka, **ends, **spec.sink, "offsets.group.id": spec.group},
        checkpoint=spec.checkpoint,
        transform=None if spec.copies else sql if spec.sql else outgoing,
        trigger=trigger_of(spec),
        ordered=False,  # which allows to ask for a task for each partition
        **more,
    )


def start_from_table(spark: SparkSession, spec: Spec, table: str, kafka: dict[str, str]) -> StreamingQuery:
    """The values of a table's rows, by SQL, which makes the same of them; of changes, with their keys."""
    import spark_eos

    limits = {"startingVersion": 0, "maxFilesPerTrigger": spec.rows_per_batch, "readChangeFeed": spec.changes}
    key = "key, " if spec.changes else ""
    return spark_eos.copy(
        spark,
        source={"format": "delta", "path": table, **limits},
        sink={**kafka, **spec.sink, "topic": spec.output},
        checkpoint=spec.checkpoint,
        transform=f"SELECT {key}concat('out-', value) AS value FROM input",
        trigger=trigger_of(spec),
    )


def start_mirror(spark: SparkSession, spec: Spec, kafka: dict[str, str], begins: dict[str, str]) -> StreamingQuery:
    """The topic beside its source, on the same cluster. A task has 512 offsets, or a partition of which there are
    more."""
    from spark_eos.pipelines.mirror.plan import Targets
    from spark_eos.pipelines.mirror.start import mirror

    return mirror(
        spark,
        source={**kafka, **begins, "maxOffsetsPerTrigger": str(spec.rows_per_batch), "subscribe": spec.input},
        target={**kafka, **spec.sink, "offsets.group.id": spec.group},
        targets=Targets(prefix=spec.output.removesuffix(spec.input)),
        checkpoint=spec.checkpoint,
        trigger=trigger_of(spec),
    )


def expected(value: str) -> str:
    """What the query makes of a value, unless it copies."""
    return f"out-{value}"


def _end_with_the_test() -> None:
    """The test holds the other end of standard input; a test that is killed must leave nothing that runs."""
    os.read(sys.stdin.fileno(), 1)  # not through sys.stdin: its lock, held here, would fail the interpreter's own end
    os._exit(1)


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    from pyspark.sql import SparkSession

    import spark_eos
    from bench.compare import ending

    spec = Spec(**json.loads(sys.argv[1]))
    inherited = {f"spark.executorEnv.{name}": os.environ[name] for name in FOR_EXECUTORS if name in os.environ}
    spark = (
        SparkSession.builder.master(spec.master)
        .config(map={**inherited, **spec.conf})
        .appName("killed")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", FAST_JVM)
        .config("spark.executor.extraJavaOptions", FAST_JVM)
        .config("spark.executor.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "WARN")
        .config("spark.python.worker.tracebackDumpIntervalSeconds", "60")
        .config("spark.python.daemon.module", "spark_eos.worker_daemon")
        .getOrCreate()
    )
    spark_eos.register(spark)
    with ending.told():
        start(spark, spec).awaitTermination()


if __name__ == "__main__":
    main()
