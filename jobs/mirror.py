"""Kafka → Kafka, exactly once: mirrors topics of one cluster to another one, record for record.

    python -m jobs.mirror --conf conf/mirror.yaml
    spark-submit jobs/mirror.py --conf conf/mirror.yaml
    spark-eos run mirror --conf job.yaml

docs/mirror.md describes what it does, and the config file.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

if not __package__:
    importlib.import_module("runner.script").run_as_module(__file__)  # spark-submit has started this file

from .runner import script

if __name__ == "__main__":
    script.leave_on_signals()

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_eos.kafka.config.librdkafka import check
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.mirror.map_topic import DEFAULT_MAP
from spark_eos.mirror.plan import Targets
from spark_eos.mirror.settings import not_numbers
from spark_eos.mirror.start import mirror
from spark_eos.options.parse import sink_options, stream_options
from spark_eos.topic_partition import OWN_NAMES

from .runner.checks import check_master
from .runner.cluster import JobCluster
from .runner.config import Rejected
from .runner.job import JobCommand, Plan, until_it_ends
from .runner.sections import MetricsConfig, RestartConfig, TriggerConfig, beginning, check_servers, is_new, with_prefix

#: Options that have keys of their own, by their names in lower case.
_SOURCE_KEYS = {
    "subscribe": "Use 'source.topics'.",
    "subscribepattern": "Use 'source.pattern'.",
    "startingoffsets": "Use 'source.startingOffsets'.",
    "maxoffsetspertrigger": "Use 'source.maxOffsetsPerTrigger'.",
    "offsets.group.id": "Use 'source.group'.",
    "kafka.bootstrap.servers": "Use 'source.kafka'.",
}
_TARGET_KEYS = {
    "topic": "Remove it: topics have the names of their sources, with 'target.prefix' before them.",
    "checkpointlocation": "Use 'checkpoint'.",
    "kafka.bootstrap.servers": "Use 'target.kafka'.",
}
_LONGEST_NAME = 249
_NAMES = f"Topics have names of letters, digits, '.', '_' and '-', {_LONGEST_NAME} at the most."
_NAME = re.compile(rf"(?!\.{{1,2}}$)[a-zA-Z0-9._-]{{1,{_LONGEST_NAME}}}")


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
        _check_options(self.options, _SOURCE_KEYS)
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
        _check_options(self.options, _TARGET_KEYS)
        for name in not_numbers(self.settings):
            raise Rejected("WRONG_VALUE", "is not a whole number.", "Use a number, without a unit.", ["settings", name])
        if self.replication != -1 and self.replication < 1:
            hint = "Use a number from 1 on, or -1 for the brokers' default."
            raise Rejected("WRONG_VALUE", "is no replication factor.", hint, ["replication"])
        if self.prefix and not _NAME.fullmatch(self.prefix + "x"):
            raise Rejected("WRONG_VALUE", "makes names that no topic can have.", _NAMES, ["prefix"])
        if not _NAME.fullmatch(self.map):
            raise Rejected("WRONG_VALUE", "is a name that no topic can have.", _NAMES, ["map"])
        if self.map in self._ledgers() or (self.map.startswith(OWN_NAMES) and not self.map.startswith(DEFAULT_MAP)):
            hint = f"Use another name, such as {DEFAULT_MAP}."
            raise Rejected("WRONG_VALUE", "is the name of a ledger.", hint, ["map"])

    def _ledgers(self) -> list[str]:
        """The ledger's name, if it is given."""
        return [value for name, value in self.options.items() if name.lower() == "ledger.topic"]

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
        longest = max(map(len, self.source.topics or ()), default=0)
        if self.target.prefix and len(self.target.prefix) + longest > _LONGEST_NAME:
            raise Rejected("WRONG_VALUE", "makes names that no topic can have.", _NAMES, ["target", "prefix"])

    def __str__(self) -> str:
        """The job's first line."""
        here, there = self.source.kafka.bootstrap_servers, self.target.kafka.bootstrap_servers
        names = f"names with {self.target.prefix} before them" if self.target.prefix else "the same names"
        return f"{self.source} on {here} → {names} on {there}; checkpoint {self.checkpoint}; {self.trigger}"

    def sink_settings(self) -> dict[str, str]:
        """Every option of the sink, by its name."""
        return {"checkpointLocation": self.checkpoint} | with_prefix(self.target.kafka) | dict(self.target.options)


def _check_options(options: Mapping[str, str], own: Mapping[str, str]) -> None:
    """``own``: what to use in place of options that the job itself sets. Raises Rejected."""
    for name in options:
        if name.lower() in own:
            raise Rejected("WRONG_VALUE", "is an option that this job sets.", own[name.lower()], ["options", name])


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
