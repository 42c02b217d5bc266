"""A reader and a writer that are built on the connector through its door alone: the example for `spark_eos.spi`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructType

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import Superseded
from spark_eos.spi import (
    Columns,
    ReadableRanges,
    Task,
    TaskReport,
    begin_offsets,
    broker_client,
    check_columns,
    cluster_id,
    describe_topics,
    end_offsets,
    open_own_run,
    own_query,
    own_write,
    run_task,
    stream_options,
    write_by_job,
)

SHARE, TASKS = 500, 2


@dataclass(frozen=True)
class Numbers:
    """A `RowSource` whose tasks write numbers from ``first`` on, each its share."""

    columns: Columns
    first: int
    kind: None = None

    def write(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """In a task: ``batches`` have the numbers of the shares to write."""
        begins = (self.first + share * SHARE for batch in batches for share in batch.column(0).to_pylist())
        values = ([b"%d" % number for number in range(begin, begin + SHARE)] for begin in begins)
        return run_task(task, (pa.record_batch({"value": pa.array(part, pa.binary())}) for part in values))

    def committed(self, batch: int, rows: int, size: int, dropped: int, read: int) -> None:
        """Nobody has to be notified."""


class NumbersRun:
    """A run that writes numbers into a topic, each once, wherever an earlier run was killed."""

    def __init__(self, name: str, options: dict[str, str]) -> None:
        """Open the run, which ends every other one of this name. Raises EosError."""
        self._options, self._run = options, str(uuid.uuid4())
        self._query = own_query(name, options["topic"])
        decision = open_own_run(own_write(options, self._query, self._run, 0)).decision
        self.batch = 0 if decision is None else decision.batch + (not decision.lost)

    def write(self, spark: SparkSession) -> None:
        """Write one micro-batch: the next numbers. Raises EosError."""
        columns = check_columns(StructType().add("value", BinaryType()), self._options["topic"])
        options = own_write(self._options, self._query, self._run, self.batch)
        rows = Numbers(columns, self.batch * SHARE * TASKS)
        write_by_job(spark.sparkContext, options, rows, TASKS)
        self.batch += 1


def committed_values(options: dict[str, str]) -> Iterator[bytes]:
    """The values of all committed records of a topic, up to its last stable offsets."""
    source = stream_options(options)
    client, topic = broker_client(source.kafka), options["subscribe"]
    described = describe_topics(client, [topic])[topic]
    partitions = {topic: range(described.partitions)}
    begins, ends = begin_offsets(client, partitions)[topic], end_offsets(client, partitions)[topic]
    readable = ReadableRanges(client, source, cluster_id(client), {topic: described.id})
    for range_ in readable.parts(
        OffsetRange(topic, partition, begins[partition], end) for partition, end in ends.items()
    ):
        for batch in readable.records(range_):
            yield from batch.column("value").to_pylist()


def test_a_program_writes_each_number_once_and_reads_what_is_committed(cluster, spark, view, topic):
    """Its second run goes on behind the first one, which can decide nothing any more."""
    numbers_topic, servers = topic(3), {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    first = NumbersRun("numbers", servers | {"topic": numbers_topic})
    first.write(spark)
    second = NumbersRun("numbers", servers | {"topic": numbers_topic})
    with pytest.raises(Superseded):
        first.write(spark)
    second.write(spark)
    numbers = sorted(int(row.value) for row in view.rows(numbers_topic))
    assert numbers == list(range(2 * SHARE * TASKS))
    assert sorted(map(int, committed_values(servers | {"subscribe": numbers_topic}))) == numbers
