"""Kafka → Kafka, exactly once: mirrors topics of one cluster to another one, record for record.

    python -m jobs.mirror --conf conf/mirror.yaml
    spark-submit jobs/mirror.py --conf conf/mirror.yaml
    spark-eos run mirror --conf job.yaml

docs/mirror.md describes the job and its config file.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from typing import Annotated, Self

if __name__ == "__main__":
    script = ".runner.script" if __package__ else "runner.script"
    importlib.import_module(script, __package__).begin(__file__, __package__)

from pydantic import Field, model_validator
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_eos.base.topic_partition import OWN_NAMES
from spark_eos.pipelines.mirror.offset_map import DEFAULT_MAP
from spark_eos.pipelines.mirror.plan import Targets
from spark_eos.pipelines.mirror.start import mirror
from spark_eos.pipelines.mirror.topics import not_numbers

from .runner.checks import JobCluster, output_check
from .runner.job import JobCommand, Plan, is_new, query_plan
from .runner.models import QueryJob, Section
from .runner.options import (
    CHECKPOINT,
    begins,
    option,
    options_of,
    refuse,
    selected,
    sink_of,
    source_of,
    source_options_of,
    topics_of,
)
from .runner.values import NO_PROPERTIES, Number, Properties, Rejected, Trigger, invalid

_OWNED = CHECKPOINT | {"topic": "Remove it: topics have the names of their sources, with 'topics.prefix' before them."}
_LONGEST_NAME = 249
_NAMES = f"Topics have names of letters, digits, '.', '_' and '-', {_LONGEST_NAME} at the most."
_NAME = re.compile(rf"(?!\.{{1,2}}$)[a-zA-Z0-9._-]{{1,{_LONGEST_NAME}}}")


class MirrorTopics(Section):
    """Topics of the target."""

    #: Before the names of topics.
    prefix: str = ""
    #: [Settings](mirror.md#topics-of-the-target) of topics that the mirror creates, which override settings of their
    #: sources.
    settings: Properties = NO_PROPERTIES
    #: Replication factor of topics that the mirror creates; -1 is the brokers' default.
    replication: Annotated[Number, Field(ge=-1)] = -1
    #: Topic of the [offset map](mirror.md#the-offset-map). It must not be changed later, and must be no ledger.
    map: str = DEFAULT_MAP

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for name in not_numbers(self.settings):
            raise Rejected("is not a whole number.", "Use a number, without a unit.", ["settings", name])
        if self.replication == 0:
            hint = "Use a number from 1 on, or -1 for the brokers' default."
            raise Rejected("is not a replication factor.", hint, ["replication"])
        if self.prefix and not _NAME.fullmatch(self.prefix + "x"):
            raise Rejected("makes names that no topic can have.", _NAMES, ["prefix"])
        if not _NAME.fullmatch(self.map):
            raise Rejected("is a name that no topic can have.", _NAMES, ["map"])
        return self


class Mirror(QueryJob):
    """The config file of this job."""

    #: [Options of the source](options.md#source). `startingOffsets` is `earliest` by default; `offsets.group.id` names
    #: a group that is told how far the query is.
    source: Properties
    #: [Options of the sink](options.md#sink), without `topic`.
    sink: Properties
    topics: MirrorTopics = MirrorTopics()
    trigger: Trigger = "1 second"

    @model_validator(mode="after")
    def _sections(self) -> Self:
        refuse("sink", self.sink, _OWNED)
        name = self.topics.map
        if name == option(self.sink, "ledger.topic") or (
            name.startswith(OWN_NAMES) and not name.startswith(DEFAULT_MAP)
        ):
            raise Rejected("is the name of a ledger.", f"Use another name, such as {DEFAULT_MAP}.", ["topics", "map"])
        return self

    def source_options(self) -> dict[str, str]:
        """Return every option of the source, by its name."""
        return source_options_of(self.kafka, self.source)

    def sink_options(self) -> dict[str, str]:
        """Return every option of the sink, by its name."""
        return options_of(self.kafka, self.sink) | {"checkpointLocation": self.checkpoint}


def plan(config: Mirror, args: argparse.Namespace) -> Plan:
    """Plan one streaming query from cluster to cluster."""
    reads = source_of(config.source, config.source_options())
    sink = sink_of(config.sink, config.sink_options())
    named, targets = topics_of(reads), config.topics
    if targets.prefix and len(targets.prefix) + max(map(len, named), default=0) > _LONGEST_NAME:
        raise invalid("topics.prefix", "makes names that no topic can have", _NAMES.rstrip("."))

    def start(spark: SparkSession) -> StreamingQuery:
        return mirror(
            spark,
            source=config.source_options(),
            target=config.sink_options(),
            targets=Targets(targets.prefix, dict(targets.settings), targets.replication, targets.map),
            checkpoint=config.checkpoint,
            trigger=config.trigger_arguments,
        )

    names = f"names with {targets.prefix} before them" if targets.prefix else "the same names"
    what = f"{selected(reads)} on {reads.kafka.bootstrap_servers} → {names} on {sink.kafka.bootstrap_servers}"
    needed = JobCluster(reads.kafka, named or [targets.map], named if is_new(config) else [])
    clusters = [needed, JobCluster(sink.kafka, [targets.map])]
    first = begins(reads, config.source_options())
    return query_plan(config, what, clusters, start, first, checks=[output_check(sink)])


main = JobCommand("mirror", __doc__, Mirror, plan).main

if __name__ == "__main__":
    sys.exit(main())
