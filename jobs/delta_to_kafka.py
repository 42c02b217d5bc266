"""Delta table → Kafka, exactly once: the rows that are appended to a table, or its changes, past the JVM.

    python -m jobs.delta_to_kafka --conf conf/delta_to_kafka.yaml
    spark-submit jobs/delta_to_kafka.py --conf conf/delta_to_kafka.yaml
    spark-eos run delta_to_kafka --conf job.yaml

docs/delta.md describes the config file.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Self

if __name__ == "__main__":
    script = ".runner.script" if __package__ else "runner.script"
    importlib.import_module(script, __package__).begin(__file__, __package__)

from pydantic import model_validator
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from spark_eos.base.frozen_settings import texts
from spark_eos.checkpoint.settings import HadoopSettings, of_spark
from spark_eos.checkpoint.stores import local_store
from spark_eos.pipelines.copy.from_table.start import check

from .runner.checks import Check, JobCluster, output_check
from .runner.job import JobCommand, Plan, query_plan
from .runner.models import QueryJob, Section
from .runner.options import CHECKPOINT, option, options_of, refuse, sink_of
from .runner.transforms import DuckdbTransform
from .runner.values import NO_PROPERTIES, AtLeastOne, AtLeastZero, Properties, Rejected, Text

#: Options of Delta's source that this job does not take, and why.
REFUSED = {
    "excludeRegex": "leaves files out",
    "failOnDataLoss": "passes over versions that are gone",
    "ignoreChanges": "repeats rows of files that were rewritten",
    "ignoreDeletes": "gives other rows at a replay, when deleted rows were part of the micro-batch",
    "ignoreFileDeletion": "repeats rows of files that were rewritten",
    "readChangeData": "is 'readChangeFeed: true' here",
    "skipChangeCommits": "leaves out the rows that a MERGE or an overwrite inserts",
    "startingTimestamp": "means other versions after a copy of the table, or when its log has been cleaned",
}


class TableSource(Section):
    """Table to read; keys have the names of the options of Delta's source."""

    #: The table.
    path: Text
    #: Read the table's changes instead of its appended rows.
    read_change_feed: bool = False
    #: First version of the table that a new query reads; without it, the table as it is, then later versions.
    starting_version: AtLeastZero | None = None
    #: Maximum number of files in a micro-batch; the default is 1000.
    max_files_per_trigger: AtLeastOne | None = None
    #: About how many bytes a micro-batch reads; the default is `1g`.
    max_bytes_per_trigger: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _refused(cls, data: object) -> object:
        known = {name.lower(): why for name, why in REFUSED.items()}
        for name in data if isinstance(data, dict) else ():
            if why := known.get(name.lower()):
                raise Rejected("is an option that this job refuses.", f"Remove it: it {why}.", [name])
        return data

    def options(self) -> dict[str, object]:
        """Return options of the copy from the table, by their names."""
        return {"format": "delta"} | {
            str(field.alias): getattr(self, name) for name, field in type(self).model_fields.items()
        }


class DeltaToKafka(QueryJob):
    """The config file of this job."""

    source: TableSource
    #: Without it, the table's columns are the sink's.
    transform: DuckdbTransform | None = None
    #: [Options of the sink](options.md#sink), such as `topic`.
    sink: Properties = NO_PROPERTIES

    @model_validator(mode="after")
    def _sections(self) -> Self:
        refuse("sink", self.sink, CHECKPOINT)
        return self

    def sink_options(self) -> dict[str, str]:
        """Return every option of the sink but its checkpoint, by its name."""
        return options_of(self.kafka, self.sink)


def plan(config: DeltaToKafka, args: argparse.Namespace) -> Plan:
    """Plan one streaming query from the table to the topics."""
    source, topic = config.source, option(config.sink, "topic")
    sink = sink_of(config.sink, {"checkpointLocation": config.checkpoint} | config.sink_options())
    target = topic or "the topics of the column 'topic'"
    what = "changes of" if source.read_change_feed else "rows of"
    first = "the table as it is" if source.starting_version is None else f"version {source.starting_version}"
    topics = [topic] if topic else []
    return query_plan(
        config,
        f"{what} {source.path} → {target}",
        [JobCluster(sink.kafka, topics, topics)],
        lambda spark: start(spark, config),
        first,
        checks=[*table_checks(config), output_check(sink)],
    )


def table_checks(config: DeltaToKafka) -> list[Check]:
    """Return the check of a table on a local disk; only the session knows how to reach another store."""
    settings = HadoopSettings(of_spark(config.spark))
    if any(local_store(location, settings) is None for location in (config.source.path, config.checkpoint)):
        return []
    sink = {"checkpointLocation": config.checkpoint} | config.sink_options()

    def look() -> None:
        check(texts(config.source.options()), sink, settings)

    return [Check(f"the table {config.source.path}", look)]


def start(spark: SparkSession, config: DeltaToKafka) -> StreamingQuery:
    """Return the query whose tasks read the table's files."""
    return spark_eos.copy(
        spark,
        source=config.source.options(),
        sink=config.sink_options(),
        checkpoint=config.checkpoint,
        transform=None if config.transform is None else config.transform.past_spark(),
        trigger=config.trigger_arguments,
    )


main = JobCommand("delta_to_kafka", __doc__, DeltaToKafka, plan).main

if __name__ == "__main__":
    sys.exit(main())
