"""The streaming queries that are measured: which source, which sink, and nothing set that a user would not set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter

#: Formats: ours, and Spark's own.
OURS, BUILTIN = "eos-kafka", "kafka"
NOOP = "noop"
#: Librdkafka's defaults, for the built-in sink's Java client. Our sink has the last two of them, and does not linger.
TUNED = {"kafka.linger.ms": "5", "kafka.batch.size": "1000000", "kafka.compression.type": "none"}


@dataclass(frozen=True)
class Flow:
    """From one topic to another, or to nothing. ``source`` and ``sink`` are formats.

    ``max_offsets``: so many offsets in a micro-batch, or None for no limit.
    """

    source: str
    sink: str
    input: str
    output: str | None = None
    max_offsets: int | None = None
    sink_options: Mapping[str, str] = field(default_factory=dict)


def read(spark: SparkSession, bootstrap_servers: str, flow: Flow) -> DataFrame:
    """Committed rows only: ours reads so in any case, the built-in source when it is told."""
    reader = spark.readStream.format(flow.source).option("kafka.bootstrap.servers", bootstrap_servers)
    reader = reader.option("subscribe", flow.input).option("startingOffsets", "earliest")
    if flow.source == BUILTIN:
        reader = reader.option("kafka.isolation.level", "read_committed")
    if flow.max_offsets is not None:
        reader = reader.option("maxOffsetsPerTrigger", flow.max_offsets)
    return reader.load()


def write(rows: DataFrame, bootstrap_servers: str, flow: Flow, checkpoint: str) -> DataStreamWriter:
    """Every column into nothing, or key and value into the topic."""
    if flow.sink == NOOP:
        return rows.writeStream.format(NOOP).option("checkpointLocation", checkpoint)
    writer = rows.select("key", "value").writeStream.format(flow.sink).option("checkpointLocation", checkpoint)
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers).option("topic", str(flow.output))
    return writer.options(**flow.sink_options)
