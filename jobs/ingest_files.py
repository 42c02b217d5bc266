"""Files → Spark → Kafka, exactly once: takes the files of a folder that keeps growing, each of them once, into a topic.

    python -m jobs.ingest_files --conf conf/ingest_files.yaml
    spark-submit jobs/ingest_files.py --conf conf/ingest_files.yaml
    spark-eos run ingest_files --conf job.yaml

docs/ingest.md describes the job and its config file.
"""

from __future__ import annotations

import argparse
import importlib
import sys

if __name__ == "__main__":
    script = ".runner.script" if __package__ else "runner.script"
    importlib.import_module(script, __package__).begin(__file__, __package__)

from typing import Self

from pydantic import model_validator

from spark_eos.datasource.restarts import WorkStart, restarting
from spark_eos.options.writes import write_options
from spark_eos.pipelines.files.run import Ingest

from .files.ingest import FolderIngest
from .files.input import Files
from .files.writing import Way, check_before_spark, way_of
from .runner import query
from .runner.checks import JobCluster, output_check
from .runner.job import JobCommand, JobContext, Plan
from .runner.lines import say
from .runner.models import Job
from .runner.options import option, options_of, sink_of
from .runner.transforms import SparkTransform, check_schema
from .runner.values import AtLeastOne, Properties, Rejected, Text, missing

NOTES_TOPIC = "__spark_eos_files"
_BY_SPARK = "Set 'transform.sql' with 'engine: spark', or 'transform.function'"


class IngestFiles(Job):
    """The config file of this job."""

    #: Name of the ingest; with another name, all files are taken again.
    name: Text
    files: Files
    #: Without it, lines of text and JSON, and rows of Parquet, [go on as they are](ingest.md#past-the-jvm); with
    #: DuckDB or `arrow`, they do not pass through Spark either.
    transform: SparkTransform | None = None
    #: Options of [batch writes](batch.md); `topic` is required.
    sink: Properties
    #: Topic in which taken files are noted. It is created like the ledger, and must not be changed later.
    notes: Text = NOTES_TOPIC
    #: Among how many tasks the files of a micro-batch are distributed; the default is Spark's parallelism.
    tasks: AtLeastOne | None = None

    @model_validator(mode="after")
    def _topic(self) -> Self:
        if option(self.sink, "topic") is None:
            raise missing(["sink", "topic"], hint="Name the topic for all rows.")
        return self

    @model_validator(mode="after")
    def _parsed_or_not(self) -> Self:
        files, transform = self.files, self.transform
        by_spark = transform is not None and not transform.is_copy
        if files.format == "csv" and transform is None:
            raise missing(["transform"], hint="CSV is parsed: make the columns that the sink has of those of 'schema'.")
        if files.format == "csv" and not by_spark:
            hint = f"{_BY_SPARK}; or 'format: text', for lines as they are."
            raise Rejected("is csv, which only Spark parses.", hint, ["files", "format"])
        if files.format == "json" and by_spark:
            check_schema(files.ddl, required=True, at=["files"])
        drops = files.on_malformed == "drop" and transform is None
        of_parsers = {**files.options, "schema": files.ddl, "onMalformed": drops}
        if not by_spark and (given := [key for key, value in of_parsers.items() if value]):
            hint = "Remove it, or set 'transform': without, records go on as they are."
            if transform is not None:
                hint = f"Remove it for lines as they are. {_BY_SPARK} for parsed ones."
            raise Rejected("is for records that are parsed.", hint, ["files", given[0]])
        return self

    @property
    def way(self) -> Way:
        """The way of rows from the files to the topic, by the one transform that there is."""
        return way_of(self.files, self.transform)

    def ingest(self) -> Ingest:
        """Return the ingest under its name, with every option of its writes."""
        return Ingest(self.name, options_of(self.kafka, self.sink), self.notes)


def plan(config: IngestFiles, args: argparse.Namespace) -> Plan:
    """Plan a job that takes files in one micro-batch after the other."""
    sink = sink_of(config.sink, config.ingest().options, lambda options: write_options(options).sink)
    topic = str(option(config.sink, "topic"))
    check_before_spark(config.files, config.transform)

    def work(context: JobContext) -> None:
        say(str(config.way))

        def start(attempt: WorkStart) -> None:
            ingest = FolderIngest(context, config)
            attempt.has_progressed = lambda: ingest.written > 0
            ingest.run()

        restarting(
            start,
            attempts=config.restart.attempts,
            pause_s=config.restart.pause_s,
            stop=context.stop.asked,
            on_restart=query.say_restart,
        )

    files = f"{config.files.path.rstrip('/')}/{config.files.pattern}"
    line = f"{files} → {topic}; ingest {config.name}; {config.when}"
    cluster = JobCluster(sink.kafka, [topic], [topic])
    return Plan(line, [cluster], config.spark, work, metrics=config.metrics, checks=[output_check(sink)])


main = JobCommand("ingest_files", __doc__, IngestFiles, plan).main

if __name__ == "__main__":
    sys.exit(main())
