"""A query of which tasks write, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.types import StringType, StructType

from spark_eos.kafka.net.client import broker_client
from spark_eos.options.parse import SinkOptions, sink_options
from spark_eos.protocol.task import TaskReport
from spark_eos.sink import task
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.preflight import Facts, preflight
from spark_eos.sink.schema import check_columns
from spark_eos.sink.session import Session, session_for
from spark_eos.sink.spark_rows import SparkRows


def checked(options: SinkOptions) -> Facts:
    """Check the cluster as the driver does before a micro-batch."""
    return preflight(broker_client(options.kafka), options)


def session_of(options: SinkOptions, query: str) -> Session:
    """Return this process's session for a query, after the driver's checks."""
    client = broker_client(options.kafka)
    return session_for(client, options, preflight(client, options).ledger_partitions, query)


class Opening:
    """Of one query. ``given`` are options of the sink, ``topic`` among them."""

    def __init__(self, given: Mapping[str, str]) -> None:
        options = sink_options(given)
        columns = check_columns(StructType().add("value", StringType()), given["topic"])
        self.query = str(uuid.uuid4())
        self._client = broker_client(options.kafka)
        self._job = SinkJob(options, checked(options), SparkRows(columns))
        self.session = session_of(options, self.query)

    def write(self, run: str, values: Sequence[str]) -> TaskReport:
        """By the first task of the first micro-batch, which leaves its transaction open."""
        batch = pa.RecordBatch.from_pydict({"value": pa.array(values)})
        own = Identity(self.query, run, batch=0, partition=0, attempt=0)
        return task.run_task(task.Task.for_job(self._client, self._job, own), iter([batch]))
