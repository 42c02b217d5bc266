"""Files → Spark → Kafka, exactly once: takes the files of a folder that keeps growing, each of them once, into a topic.

    python -m jobs.ingest_files --conf conf/ingest_files.yaml
    spark-submit jobs/ingest_files.py --conf conf/ingest_files.yaml
    spark-eos run ingest_files --conf job.yaml

docs/ingest.md describes what it does, and the config file.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from dataclasses import dataclass

if not __package__:
    importlib.import_module("runner.script").run_as_module(__file__)  # spark-submit has started this file

from .runner import script

if __name__ == "__main__":
    script.leave_on_signals()

import spark_eos
from spark_eos.ingest.owner import Ingest
from spark_eos.kafka.config.librdkafka import check
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.options.writes import write_options

from .files.input import FilesConfig
from .files.taking import Taking
from .runner import query
from .runner.cluster import JobCluster
from .runner.config import Rejected
from .runner.job import JobCommand, JobContext, Plan
from .runner.sections import MetricsConfig, RestartConfig, TriggerConfig, check_kafka_and_spark, with_prefix
from .runner.transform import TransformConfig

NOTES_TOPIC = "__spark_eos_files"


@dataclass(frozen=True)
class FromFilesSinkConfig:
    """Where to write. ``options``: further options of the sink."""

    topic: str
    options: KafkaProperties = KafkaProperties({})


@dataclass(frozen=True)
class IngestFilesConfig:
    """The config file of this job. ``name``: that of the ingest; ``notes``: the topic of what was taken."""

    kafka: KafkaProperties
    name: str
    files: FilesConfig
    transform: TransformConfig
    sink: FromFilesSinkConfig
    notes: str = NOTES_TOPIC
    trigger: TriggerConfig = TriggerConfig(processing_time="10 seconds")
    restart: RestartConfig = RestartConfig()
    metrics: MetricsConfig | None = None
    spark: KafkaProperties = KafkaProperties({})

    def __post_init__(self) -> None:
        check_kafka_and_spark(self.kafka, self.spark)
        if self.transform.parse is not None:
            raise Rejected(
                "UNKNOWN_KEY",
                "is not for files.",
                "'files.format' and 'files.schema' say how they are parsed.",
                ["transform", "parse"],
            )

    def __str__(self) -> str:
        """The job's first line."""
        files = f"{self.files.path.rstrip('/')}/{self.files.pattern}"
        return f"{files} → {self.sink.topic}; ingest {self.name}; {self.trigger}"

    def ingest(self) -> Ingest:
        options = with_prefix(self.kafka) | dict(self.sink.options) | {"topic": self.sink.topic}
        return Ingest(self.name, options, self.notes)


def plan(config: IngestFilesConfig, args: argparse.Namespace) -> Plan:
    """Takes files in one micro-batch after the other."""
    kafka = write_options(config.ingest().options).sink.kafka
    check(kafka, "producer")

    def work(context: JobContext) -> None:
        spark_eos.run(
            lambda: Taking(context, config.ingest(), config.files, config.transform, config.trigger),
            attempts=config.restart.attempts,
            pause_s=config.restart.pause_s,
            stop=context.stop.asked,
            on_restart=query.say_restart,
        )

    cluster = JobCluster(kafka, [config.sink.topic], [config.sink.topic])
    return Plan(str(config), [cluster], config.spark, work, metrics=config.metrics)


main = JobCommand("ingest_files", __doc__, IngestFilesConfig, plan).main

if __name__ == "__main__":
    sys.exit(main())
