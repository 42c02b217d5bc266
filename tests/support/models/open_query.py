"""A query of which tasks open runs, and write, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from spark_eos.options.parse import sink_options
from spark_eos.protocol.task import TaskReport
from spark_eos.sink import task
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.preflight import preflight
from spark_eos.sink.schema import check_columns
from spark_eos.sink.session import session_for
from spark_eos.sink.spark_rows import SparkRows


class Opening:
    """Of one query. ``given`` are options of the sink, ``topic`` among them."""

    def __init__(self, given: Mapping[str, str], query: str | None = None) -> None:
        options = sink_options(given)
        columns = check_columns(StructType().add("value", StringType()), given["topic"])
        self.query = query or str(uuid.uuid4())
        self._job = SinkJob(options, preflight(options), SparkRows(columns))
        self.session = session_for(options, self._job.facts.ledger_partitions, self.query)

    def open(self, run: str, partition: int, batch: int = 0) -> str:
        """By the task of a partition; the run that has the query after that."""
        own = Identity(self.query, run, batch=batch, partition=partition, attempt=0)
        return task.Task.of(self._job, own).open().run

    def write(self, run: str, values: Sequence[str]) -> TaskReport:
        """By the first task of the first micro-batch, which leaves its transaction open."""
        batch = pa.RecordBatch.from_pydict({"value": pa.array(values)})
        return task.run_task(self._job, Identity(self.query, run, batch=0, partition=0, attempt=0), iter([batch]))

    @property
    def run(self) -> str:
        """Which run has the query."""
        head = self.session.ports.ledger.read()
        assert head is not None
        return head.run
