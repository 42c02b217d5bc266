"""The streaming queries that are measured: which source, which sink, and nothing set that a user would not set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import spark_eos
from spark_eos.checkpoint.offset_log import marks_of
from spark_eos.pipelines.mirror.plan import Targets
from spark_eos.pipelines.mirror.start import mirror

#: Formats: ours, and Spark's own.
EOS_KAFKA, BUILTIN_KAFKA = "eos-kafka", "kafka"
NOOP = "noop"
#: In the place of a format of the source: rows do not pass through the JVM, but are copied, are Arrow, or are mirrored.
COPY, ARROW, MIRROR = "copy", "arrow", "mirror"
#: Librdkafka's defaults, for the built-in sink's Java client. Our sink has the last two of them, and does not linger.
TUNED = {"kafka.linger.ms": "5", "kafka.batch.size": "1000000", "kafka.compression.type": "none"}
UNTIL_ALL_IS_READ: Mapping[str, Any] = {"availableNow": True}
#: A micro-batch right after the other.
AT_ONCE: Mapping[str, Any] = {"processingTime": "0 seconds"}


@dataclass(frozen=True)
class Flow:
    """From one topic to another, or to nothing. ``source`` and ``sink`` are formats; or `COPY`, `ARROW`, `MIRROR` and
    ours. What a mirror writes to ends in the name of what it reads.

    ``max_offsets``: so many offsets in a micro-batch, or None for no limit.
    """

    source: str
    sink: str
    input: str
    output: str | None = None
    max_offsets: int | None = None
    sink_options: Mapping[str, str] = field(default_factory=dict)


def read_topic(spark: SparkSession, bootstrap_servers: str, flow: Flow) -> DataFrame:
    """Committed rows only: our source reads them by default, the built-in one when it is told to."""
    reader = spark.readStream.format(flow.source).option("kafka.bootstrap.servers", bootstrap_servers)
    reader = reader.option("subscribe", flow.input).option("startingOffsets", "earliest")
    if flow.source == BUILTIN_KAFKA:
        reader = reader.option("kafka.isolation.level", "read_committed")
    if flow.max_offsets is not None:
        reader = reader.option("maxOffsetsPerTrigger", flow.max_offsets)
    return reader.load()


def write_stream(rows: DataFrame, bootstrap_servers: str, flow: Flow, checkpoint: str) -> DataStreamWriter:
    """Every column into nothing, or key and value into the topic."""
    if flow.sink == NOOP:
        return rows.writeStream.format(NOOP).option("checkpointLocation", checkpoint)
    writer = rows.select("key", "value").writeStream.format(flow.sink).option("checkpointLocation", checkpoint)
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers).option("topic", str(flow.output))
    return writer.options(**flow.sink_options)


def start_query(
    spark: SparkSession,
    bootstrap_servers: str,
    flow: Flow,
    checkpoint: str,
    trigger: Mapping[str, Any] = UNTIL_ALL_IS_READ,
) -> StreamingQuery:
    """The query, which ends when all is read, unless ``trigger`` says otherwise."""
    if flow.source == MIRROR:
        return _start_mirror(spark, bootstrap_servers, flow, checkpoint, trigger)
    if flow.source in (COPY, ARROW):
        return _start_copy(spark, bootstrap_servers, flow, checkpoint, trigger)
    rows = read_topic(spark, bootstrap_servers, flow)
    return write_stream(rows, bootstrap_servers, flow, checkpoint).trigger(**trigger).start()


def source_options(bootstrap_servers: str, flow: Flow) -> dict[str, str]:
    """The options of a source whose rows do not pass through the JVM."""
    limit = {} if flow.max_offsets is None else {"maxOffsetsPerTrigger": str(flow.max_offsets)}
    begins = {"subscribe": flow.input, "startingOffsets": "earliest"}
    return {"kafka.bootstrap.servers": bootstrap_servers, **begins, **limit}


def _start_mirror(
    spark: SparkSession, bootstrap_servers: str, flow: Flow, checkpoint: str, trigger: Mapping[str, Any]
) -> StreamingQuery:
    """What `jobs.mirror` starts, with the topic beside its source, on the same cluster."""
    return mirror(
        spark,
        source=source_options(bootstrap_servers, flow),
        target={"kafka.bootstrap.servers": bootstrap_servers, **flow.sink_options},
        targets=Targets(prefix=str(flow.output).removesuffix(flow.input)),
        checkpoint=checkpoint,
        trigger=trigger,
    )


def _start_copy(
    spark: SparkSession, bootstrap_servers: str, flow: Flow, checkpoint: str, trigger: Mapping[str, Any]
) -> StreamingQuery:
    def changed(batch: pa.RecordBatch) -> pa.RecordBatch:
        """Key and value, of which the first byte is another one."""
        value = pc.binary_replace_slice(batch["value"], 0, 1, b"-")
        return pa.RecordBatch.from_arrays([batch["key"], value], names=["key", "value"])

    return spark_eos.copy(
        spark,
        source=source_options(bootstrap_servers, flow),
        sink={"kafka.bootstrap.servers": bootstrap_servers, "topic": str(flow.output), **flow.sink_options},
        transform=changed if flow.source == ARROW else None,
        checkpoint=checkpoint,
        trigger=trigger,
    )


def copy_to_table(
    spark: SparkSession,
    bootstrap_servers: str,
    topic: str,
    sink: Mapping[str, str],
    checkpoint: str,
    trigger: Mapping[str, Any] = UNTIL_ALL_IS_READ,
    max_offsets: int | None = None,
) -> StreamingQuery:
    """The query past the JVM from a topic to a table. ``sink``: its options; for the others, see `start_query`."""
    return spark_eos.copy(
        spark,
        source=source_options(bootstrap_servers, Flow(COPY, sink["format"], topic, max_offsets=max_offsets)),
        sink=sink,
        checkpoint=checkpoint,
        trigger=trigger,
    )


def write_delta(
    rows: DataFrame, path: str, checkpoint: str, trigger: Mapping[str, Any] = UNTIL_ALL_IS_READ
) -> StreamingQuery:
    """The query that appends rows to a Delta table by Delta's own sink."""
    writer = rows.writeStream.format("delta").option("path", path).option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).start()


def rows_read(progress: Mapping[str, Any]) -> int:
    """By a micro-batch. Where ranges pass through Spark, its own number is of ranges; all offsets are of rows here."""
    planned = marks_of(progress["sources"][0]["latestOffset"]).get("planned")
    return int(progress["numInputRows"] if planned is None else planned["offsets"])
