"""Kafka → Spark → Kafka, exactly once: reads topics, transforms the rows by SQL or a function, writes them to topics.

    python -m jobs.consume_transform_produce --conf conf/consume_transform_produce.yaml
    spark-submit jobs/consume_transform_produce.py --conf conf/consume_transform_produce.yaml

docs/job.md describes the config file.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if not __package__:
    # Started as a script, as spark-submit does: Python's path then begins with jobs/ instead of the folder around it.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from jobs import query as runs
from jobs import session
from jobs.config import Rejected, load
from jobs.transform import TransformConfig, transformed
from spark_eos.errors import EosError
from spark_eos.options import KafkaProperties

FORMATS = ("eos-kafka", "kafka")


@dataclass(frozen=True)
class SourceConfig:
    """What to read. ``options``: further options of the source."""

    topics: tuple[str, ...]
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int | None = None
    options: KafkaProperties = KafkaProperties({})


@dataclass(frozen=True)
class SinkConfig:
    """Where to write; without ``topic`` the rows' own column says it. ``options``: further options of the sink."""

    topic: str | None = None
    options: KafkaProperties = KafkaProperties({})


@dataclass(frozen=True)
class TriggerConfig:
    """When a micro-batch begins: over and over until what is there has been read, or at an interval for ever."""

    available_now: bool = False
    processing_time: str | None = None

    def __post_init__(self) -> None:
        if self.available_now == (self.processing_time is not None):
            raise Rejected(
                "WRONG_VALUE",
                "needs 'availableNow: true' or 'processingTime', one of them.",
                'Write {availableNow: true} or {processingTime: "1 second"}.',
            )


@dataclass(frozen=True)
class JobConfig:
    """The config file of this job. ``kafka``: client settings of both sides, without the prefix ``kafka.``."""

    kafka: KafkaProperties
    source: SourceConfig
    transform: TransformConfig
    checkpoint: str
    group: str | None = None
    sink: SinkConfig = SinkConfig()
    trigger: TriggerConfig = TriggerConfig(processing_time="1 second")
    spark: KafkaProperties = KafkaProperties({})

    def __post_init__(self) -> None:
        if not self.kafka.get("bootstrap.servers"):
            raise Rejected(
                "MISSING_KEY", "'kafka.bootstrap.servers' is missing.", "Add 'bootstrap.servers: host1:9092,…'."
            )


def main(arguments: Sequence[str] | None = None) -> int:
    args = _arguments(arguments)
    stop = threading.Event()
    try:
        config = load(args.conf, JobConfig)
        spark = session.start("consume-transform-produce", config.spark, verbose=args.verbose)
        with runs.stop_signals(stop):
            try:
                run(spark, config, stop, source_format=args.source, sink_format=args.sink)
            finally:
                spark.stop()
    except (EosError, PySparkException, Py4JError) as error:
        if stop.is_set() and isinstance(error, Py4JError):
            runs.say("stopped: Spark's JVM got the signal, too, and has ended")
            return 0
        runs.say("failed: " + runs.failure_text(error, verbose=args.verbose))
        return 1
    return 0


def run(spark: SparkSession, config: JobConfig, stop: threading.Event, *, source_format: str, sink_format: str) -> None:
    """Start the query and return when it has ended, by itself or by ``stop``. Raises what it failed with."""
    rows = transformed(read(spark, config, source_format), config.transform)
    with runs.batch_lines(spark):
        runs.wait(write(rows, config, sink_format), stop)


def read(spark: SparkSession, config: JobConfig, source_format: str) -> DataFrame:
    source = config.source
    reader = spark.readStream.format(source_format).option("subscribe", ",".join(source.topics))
    reader = reader.option("startingOffsets", source.starting_offsets)
    if source.max_offsets_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", source.max_offsets_per_trigger)
    if source_format == "kafka":
        reader = reader.option("kafka.isolation.level", "read_committed")
    return reader.options(**_kafka_options(config) | dict(source.options)).load()


def write(rows: DataFrame, config: JobConfig, sink_format: str) -> StreamingQuery:
    writer = rows.writeStream.format(sink_format).option("checkpointLocation", config.checkpoint)
    if config.sink.topic is not None:
        writer = writer.option("topic", config.sink.topic)
    if config.group is not None and sink_format == "eos-kafka":
        writer = writer.option("offsets.group.id", config.group)
    writer = writer.options(**_kafka_options(config) | dict(config.sink.options))
    return _triggered(writer, config.trigger).start()


def _triggered(writer: DataStreamWriter, trigger: TriggerConfig) -> DataStreamWriter:
    if trigger.available_now:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=str(trigger.processing_time))


def _kafka_options(config: JobConfig) -> dict[str, str]:
    return {f"kafka.{key}": value for key, value in config.kafka.items()}


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="consume_transform_produce", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--conf", required=True, metavar="FILE", help="the job's YAML file")
    formats = "'kafka' is Spark's built-in connector, whose jars must then be there (spark.jars)"
    parser.add_argument("--source", choices=FORMATS, default=FORMATS[0], help=f"format to read with; {formats}")
    parser.add_argument("--sink", choices=FORMATS, default=FORMATS[0], help="format to write with; as above")
    parser.add_argument("--verbose", action="store_true", help="Spark's own log, and the whole of an error")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
