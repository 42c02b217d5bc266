"""The job of a micro-batch that its tasks share, the identity of an attempt, and the message of a task."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from spark_eos.base import system
from spark_eos.base.clocks import Moment
from spark_eos.errors import stop
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.extra import Kind
from spark_eos.protocol.head import Write
from spark_eos.protocol.task import TaskReport
from spark_eos.sink.counting import CountingIterator
from spark_eos.sink.preflight import Facts, preflight
from spark_eos.sink.schema import Columns
from spark_eos.spark.worker_gc import spare_collections

if TYPE_CHECKING:
    from spark_eos.sink.task import Task

_SPARK_PROPERTIES = ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")


@dataclass(frozen=True)
class Identity:
    """Which attempt of which task of which micro-batch this is."""

    query: str
    run: str
    batch: int
    partition: int
    attempt: int

    @classmethod
    def here(cls) -> Identity:
        """Return the identity of the task that runs in this process. Raises UnsupportedError outside of a streaming
        query."""
        context = TaskContext.get()
        query, run, batch = (context.getLocalProperty(name) if context else None for name in _SPARK_PROPERTIES)
        if context is None or query is None or run is None or batch is None:
            raise stop("EOS_USE_UNSUPPORTED.not_a_streaming_task")
        return cls(
            query=query,
            run=run,
            batch=int(batch),
            partition=context.partitionId(),
            attempt=context.attemptNumber(),
        )


def is_in_foreach_batch() -> bool:
    """Return whether this task writes within foreachBatch; Spark tells if the function runs on the query's thread."""
    context = TaskContext.get()
    return context is not None and context.getLocalProperty(_SPARK_PROPERTIES[2]) is not None


class RowSource(Protocol):
    """Source of the rows that tasks write. It travels to the tasks with the writer.

    `spark_eos.sink.spark_rows.SparkRows`: Spark hands the rows to the tasks.
    `spark_eos.pipelines.copy.task.RangeRows`: Spark hands over ranges of offsets, and the tasks read their records."""

    @property
    def columns(self) -> Columns:
        """The columns that the rows have."""
        ...

    @property
    def kind(self) -> Kind | None:
        """The kind of the extra that decisions on these rows have, if any."""
        ...

    def write(self, task: Task, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write the rows that ``batches`` are or stand for into an open transaction; called in a task. Any failure
        aborts that transaction and raises."""
        ...

    def committed(self, batch: int, rows: int, size: int, dropped: int, read: int) -> None:
        """Note on the driver that a micro-batch is committed. ``size``: in bytes, if the tasks have reported it;
        ``dropped``: records that they left out; ``read``: records that they read, if they count them."""
        ...


@dataclass(frozen=True)
class SinkJob:
    """A micro-batch, as all its tasks get it.

    ``write``: the write, where it is no streaming query. ``planned``: when the driver planned the micro-batch, by its
    clocks; None where that is not needed.
    """

    options: SinkOptions
    facts: Facts
    rows: RowSource
    write: Write | None = None
    planned: Moment | None = None

    @classmethod
    def plan(cls, client: BrokerClient, options: SinkOptions, rows: RowSource, write: Write | None = None) -> SinkJob:
        """Check the cluster, on the driver and before each micro-batch. Raises EosError."""
        facts = preflight(client, options, dated=rows.columns.timestamp)
        if options.two_phase:
            from spark_eos.sink.two_phase import check_two_phase

            check_two_phase(client, options.prefix)
        spare_collections()
        # By a clock that all processes of a machine share, and that goes on while it sleeps, and by the time of day,
        # which also notices that a virtual machine was paused. Clocks of executors may be off.
        planned = Moment.now(system.steady, system.time_of_day)
        return cls(options, facts, rows, write, planned)

    def run(
        self, client: BrokerClient, identity: Identity, batches: Iterator[pa.RecordBatch], *, count_bytes: bool
    ) -> Message:
        """Write a task's rows into a transaction of this attempt's own, which stays open, and report on it. Any failure
        aborts that transaction and raises."""
        from spark_eos.sink.task import Task  # which the driver's processes have no use for

        began = time.perf_counter()
        counting = CountingIterator(batches)
        task = Task.for_job(client, self, identity)
        report = self.rows.write(task, counting if count_bytes else batches)
        spare_collections()
        took_s = time.perf_counter() - began
        size = report.bytes or counting.bytes
        return Message(identity.query, identity.run, self.facts, report, took_s, time.time(), size, self.planned)

    @property
    def columns(self) -> Columns:
        """The columns of the rows."""
        return self.rows.columns


@dataclass(frozen=True)
class Message(WriterCommitMessage):
    """A task's report on its way to the driver through Spark, with the driver's state when it planned.

    Times are seconds: how long the task took, and when, by its clock, it was done. ``bytes``: size of the keys and
    values that it was given, if metrics count them; see `TaskReport` for the bytes of a copy. ``planned``: see
    `SinkJob`.
    """

    query: str
    run: str
    facts: Facts
    report: TaskReport
    took_s: float
    done: float
    bytes: int = 0
    planned: Moment | None = None
