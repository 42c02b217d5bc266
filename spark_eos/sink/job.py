"""Which attempt of which task this is, and what all tasks of a query share."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext

from spark_eos.errors import stop
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.head import EachSink
from spark_eos.sink.preflight import Facts
from spark_eos.sink.schema import Columns

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
        """The identity of the task that runs in this process. Raises UnsupportedError outside of a streaming query."""
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
    """Whether this task writes within foreachBatch: Spark says so where the function runs on the query's own thread."""
    context = TaskContext.get()
    return context is not None and context.getLocalProperty(_SPARK_PROPERTIES[2]) is not None


@dataclass(frozen=True)
class SinkJob:
    """What all tasks of a query share. ``batch_write``: the query is one; ``each``: it is the writes to this sink
    within foreachBatch."""

    options: SinkOptions
    facts: Facts
    columns: Columns
    batch_write: str | None = None
    each: EachSink | None = None

    @property
    def in_foreach_batch(self) -> bool:
        """Whether this is a write within foreachBatch."""
        return self.each is not None
