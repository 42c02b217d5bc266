"""Kafka → Kafka, exactly once: mirrors topics of one cluster to another one, record for record.

    python -m jobs.mirror --conf conf/mirror.yaml
    spark-submit jobs/mirror.py --conf conf/mirror.yaml
    spark-eos run mirror --conf job.yaml

docs/mirror.md describes what it does, and the config file.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    # Until there is a query to stop, a signal ends the process, without a stack trace from an import.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
if not __package__:
    # Started as a script, as by spark-submit: Python's path then begins with jobs/ instead of its parent.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    __package__ = "jobs"

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_eos.kafka.config.librdkafka import check
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.mirror.map_topic import DEFAULT_MAP
from spark_eos.mirror.plan import Targets
from spark_eos.mirror.start import mirror
from spark_eos.options.parse import sink_options, stream_options

from .checks import check_master
from .cluster import JobCluster
from .config import Rejected
from .job import JobCommand, Plan, until_it_ends
from .sections import MetricsConfig, RestartConfig, TriggerConfig, beginning, check_servers, is_new, with_prefix


@dataclass(frozen=True)
class MirrorSourceConfig:
    """What to mirror. ``group``: is told how far the mirror is; ``options``: further options of the source."""

    kafka: KafkaProperties
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    starting_offsets: str = "earliest"
    max_offsets_per_trigger: int | None = None
    group: str | None = None
    options: KafkaProperties = KafkaProperties({})

    def __post_init__(self) -> None:
        check_servers(self.kafka)
        if (self.topics is None) == (self.pattern is None):
            raise Rejected(
                "WRONG_VALUE", "requires either 'topics' or 'pattern'.", "Use {topics: [one, two]} or {pattern: ^one}."
            )

    def __str__(self) -> str:
        return ", ".join(self.topics) if self.topics is not None else f"topics that match {self.pattern}"

    def settings(self) -> dict[str, str]:
        """Every option of the source, by its name."""
        what = {"subscribePattern": self.pattern} if self.topics is None else {"subscribe": ",".join(self.topics)}
        settings = {**what, "startingOffsets": self.starting_offsets, "offsets.group.id": self.group}
        if self.max_offsets_per_trigger is not None:
            settings["maxOffsetsPerTrigger"] = str(self.max_offsets_per_trigger)
        given = {name: value for name, value in settings.items() if value is not None}
        return given | with_prefix(self.kafka) | dict(self.options)


@dataclass(frozen=True)
class MirrorTargetConfig:
    """Where to. ``settings`` and ``replication``: of topics that are made; ``map``: the topic of the offset map;
    ``options``: further options of the sink."""

    kafka: KafkaProperties
    prefix: str = ""
    settings: KafkaProperties = KafkaProperties({})
    replication: int = -1
    map: str = DEFAULT_MAP
    options: KafkaProperties = KafkaProperties({})

    def __post_init__(self) -> None:
        check_servers(self.kafka)

    def targets(self) -> Targets:
        return Targets(self.prefix, dict(self.settings), self.replication, self.map)


@dataclass(frozen=True)
class MirrorConfig:
    """The config file of this job."""

    source: MirrorSourceConfig
    target: MirrorTargetConfig
    checkpoint: str
    trigger: TriggerConfig = TriggerConfig(processing_time="1 second")
    restart: RestartConfig = RestartConfig()
    metrics: MetricsConfig | None = None
    spark: KafkaProperties = KafkaProperties({})

    def __post_init__(self) -> None:
        check_master(self.spark, ["spark"])

    def __str__(self) -> str:
        """The job's first line."""
        here, there = self.source.kafka.bootstrap_servers, self.target.kafka.bootstrap_servers
        names = f"names with {self.target.prefix} before them" if self.target.prefix else "the same names"
        return f"{self.source} on {here} → {names} on {there}; checkpoint {self.checkpoint}; {self.trigger}"

    def sink_settings(self) -> dict[str, str]:
        """Every option of the sink, by its name."""
        return {"checkpointLocation": self.checkpoint} | with_prefix(self.target.kafka) | dict(self.target.options)


def plan(config: MirrorConfig, args: argparse.Namespace) -> Plan:
    """One streaming query from cluster to cluster."""
    source, sink = stream_options(config.source.settings()).kafka, sink_options(config.sink_settings()).kafka
    check(source, "consumer")
    check(sink, "producer")

    def start(spark: SparkSession) -> StreamingQuery:
        return mirror(
            spark,
            source=config.source.settings(),
            target=config.sink_settings(),
            targets=config.target.targets(),
            checkpoint=config.checkpoint,
            trigger=config.trigger.arguments,
        )

    required = is_new(config.checkpoint) and config.source.topics is not None
    topics = list(config.source.topics or [config.target.map])
    return Plan(
        str(config),
        [JobCluster(source, topics, topics if required else []), JobCluster(sink, [config.target.map])],
        config.spark,
        until_it_ends(start, config.restart),
        beginning(config.checkpoint, config.source.starting_offsets),
        config.metrics,
        config.checkpoint,
    )


main = JobCommand("mirror", __doc__, MirrorConfig, plan).main

if __name__ == "__main__":
    sys.exit(main())
