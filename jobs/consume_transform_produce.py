"""Kafka → Spark → Kafka, exactly once: reads topics, transforms the rows by SQL or a function, writes them to topics.

    python -m jobs.consume_transform_produce --conf conf/consume_transform_produce.yaml
    spark-submit jobs/consume_transform_produce.py --conf conf/consume_transform_produce.yaml

docs/job.md describes the config file.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    # Until there is a query to stop, a signal ends the process, without a stack trace from an import.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
if not __package__:
    # Started as a script, as by spark-submit: Python's path then begins with jobs/ instead of its parent.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from jobs import query as runs
from jobs import session
from jobs.checks import check_interval, check_master
from jobs.cluster import Cluster
from jobs.config import Rejected, load, located
from jobs.lines import BatchLines, counted, say
from jobs.transform import TransformConfig, transformed
from spark_eos.checkpoint import Checkpoint
from spark_eos.errors import ConfigError, EosError
from spark_eos.kafka.config.librdkafka import check
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.options.parse import sink_options, stream_options

FORMATS = ("eos-kafka", "kafka")
_LAST_EVENT_S = 10.0
_EXIT_CODES = """\
exit codes:
  0   done, or stopped by SIGTERM or Ctrl-C
  1   it needs somebody: started again as it is, it would end the same way
  75  a restart helps: started again as it is, it goes on where it ended
"""


@dataclass(frozen=True)
class SourceConfig:
    """What to read. ``options``: further options of the source."""

    topics: tuple[str, ...]
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int | None = None
    options: KafkaProperties = KafkaProperties({})


@dataclass(frozen=True)
class SinkConfig:
    """Where to write; without ``topic``, the column of that name is used. ``options``: further options of the sink."""

    topic: str | None = None
    options: KafkaProperties = KafkaProperties({})


@dataclass(frozen=True)
class TriggerConfig:
    """When micro-batches begin: repeatedly until everything available has been read, or at an interval without end."""

    available_now: bool = False
    processing_time: str | None = None

    def __post_init__(self) -> None:
        if self.available_now == (self.processing_time is not None):
            raise Rejected(
                "WRONG_VALUE",
                "requires either 'availableNow: true' or 'processingTime'.",
                'Use {availableNow: true} or {processingTime: "1 second"}.',
            )
        if self.processing_time is not None:
            check_interval(self.processing_time, ["processingTime"])

    def __str__(self) -> str:
        return f"every {self.processing_time}" if self.processing_time else "until all that is there now is read"


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
        check_master(self.spark, ["spark"])

    def __str__(self) -> str:
        """The job's first line."""
        target = self.sink.topic or "the topics of the column 'topic'"
        group = f"group {self.group}" if self.group else "no group"
        return f"{', '.join(self.source.topics)} → {target}; {group}; checkpoint {self.checkpoint}; {self.trigger}"


def main(arguments: Sequence[str] | None = None) -> int:
    args = _arguments(arguments)
    return runs.interruptible(lambda stop: _job(args, stop))


def _job(args: argparse.Namespace, stop: runs.Stop) -> int:
    """Run the job. Returns the exit code."""
    try:
        config = load(args.conf, JobConfig)
        run(config, stop, source_format=args.source, sink_format=args.sink, verbose=args.verbose)
    except ConfigError as error:
        return runs.failed(located(error, args.conf), verbose=args.verbose)
    except (EosError, PySparkException, Py4JError) as error:
        if not stop.asked():
            return runs.failed(error, verbose=args.verbose)
    if stop.asked():
        say(f"stopped by {stop.signal}: started again, it goes on where it ended")
    return runs.DONE


def run(config: JobConfig, stop: runs.Stop, *, source_format: str, sink_format: str, verbose: bool) -> None:
    """Start the query and wait until it has ended, by itself or by ``stop``. Raises the error it failed with."""
    say(str(config))
    clusters = clusters_of(config, source_format, sink_format)
    for cluster in clusters:
        cluster.expect()
    with ExitStack() as stack:
        spark = _session(config, verbose)
        stack.callback(spark.stop)
        rows = transformed(read(spark, config, source_format), config.transform)
        lines = BatchLines()
        spark.streams.addListener(lines)
        for cluster in clusters:
            stack.enter_context(cluster.watched(lambda: lines.heard))
        stop.running = True
        runs.wait(write(counted(rows), config, sink_format), stop)
        lines.ended.wait(_LAST_EVENT_S)  # it comes a moment after the query's end
    if not stop.asked():
        say(f"done: {lines.total}")


def clusters_of(config: JobConfig, source_format: str, sink_format: str) -> list[Cluster]:
    """The clusters that eos-kafka reads from and writes to, one or two, and the topics that must be there.

    Raises OptionError for options that source or sink would refuse.
    """
    topics: dict[KafkaProperties, list[str]] = {}
    required: dict[KafkaProperties, list[str]] = {}
    if source_format == "eos-kafka":
        source = stream_options(source_settings(config, source_format)).kafka
        check(source, "consumer")
        topics.setdefault(source, []).extend(config.source.topics)
        if _is_new(config.checkpoint):  # for a query that continues, the source detects losses
            required.setdefault(source, []).extend(config.source.topics)
    if sink_format == "eos-kafka":
        sink = sink_options(sink_settings(config, sink_format)).kafka
        check(sink, "producer")
        targets = [config.sink.topic] if config.sink.topic else []
        topics.setdefault(sink, []).extend(targets)
        required.setdefault(sink, []).extend(targets)
    return [Cluster(kafka, names, required.get(kafka, [])) for kafka, names in topics.items()]


def _is_new(checkpoint: str) -> bool | None:
    """Whether this query has never been started; None if only Spark can tell, as the checkpoint is not on a local
    disk."""
    if re.match(r"(?!file:)[A-Za-z][\w+.-]*:", checkpoint):
        return None
    return Checkpoint(checkpoint).query_id() is None


def _session(config: JobConfig, verbose: bool) -> SparkSession:
    """The session, with lines before and after the seconds that it takes to start."""
    master = config.spark.get("spark.master")
    began = time.monotonic()
    say(f"starting Spark {pyspark.__version__}{f' on {master}' if master else ''} …")
    spark = session.start("consume-transform-produce", config.spark, verbose=verbose)
    first = f"; a new query, from {config.source.starting_offsets}"
    begin = {True: first, False: "; the query goes on", None: ""}[_is_new(config.checkpoint)]
    say(f"Spark is up after {time.monotonic() - began:.0f} s{begin}")
    return spark


def read(spark: SparkSession, config: JobConfig, source_format: str) -> DataFrame:
    return spark.readStream.format(source_format).options(**source_settings(config, source_format)).load()


def source_settings(config: JobConfig, source_format: str) -> dict[str, str]:
    """Every option of the source, by its name."""
    source = config.source
    settings = {"subscribe": ",".join(source.topics), "startingOffsets": source.starting_offsets}
    if source.max_offsets_per_trigger is not None:
        settings["maxOffsetsPerTrigger"] = str(source.max_offsets_per_trigger)
    if source_format == "kafka":
        settings["kafka.isolation.level"] = "read_committed"
    return settings | _kafka_settings(config) | dict(source.options)


def write(rows: DataFrame, config: JobConfig, sink_format: str) -> StreamingQuery:
    writer = rows.writeStream.format(sink_format).options(**sink_settings(config, sink_format))
    return _triggered(writer, config.trigger).start()


def sink_settings(config: JobConfig, sink_format: str) -> dict[str, str]:
    """Every option of the sink, by its name."""
    settings = {"checkpointLocation": config.checkpoint}
    if config.sink.topic is not None:
        settings["topic"] = config.sink.topic
    if config.group is not None and sink_format == "eos-kafka":
        settings["offsets.group.id"] = config.group
    return settings | _kafka_settings(config) | dict(config.sink.options)


def _triggered(writer: DataStreamWriter, trigger: TriggerConfig) -> DataStreamWriter:
    if trigger.available_now:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=str(trigger.processing_time))


def _kafka_settings(config: JobConfig) -> dict[str, str]:
    return {f"kafka.{key}": value for key, value in config.kafka.items()}


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="consume_transform_produce",
        description=(__doc__ or "").partition("\n")[0],
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--conf", required=True, metavar="FILE", help="the job's YAML file")
    formats = "'kafka' is Spark's built-in connector, whose jars must then be there (spark.jars)"
    parser.add_argument("--source", choices=FORMATS, default=FORMATS[0], help=f"format to read with; {formats}")
    parser.add_argument("--sink", choices=FORMATS, default=FORMATS[0], help="format to write with; as above")
    parser.add_argument("--verbose", action="store_true", help="Spark's own log, and the whole of an error")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
