"""Batch writes that a program makes itself: one job of Spark, whose tasks write, and a commit in the program's process.

For ``df.write``, Spark starts Python processes beside the tasks, one that makes the writer and one that commits. Here
the process that asks for the write does their part.

Spark does not ask here, as it does for ``df.write``, which of two attempts of a task may end: both may, each with an
open transaction. It takes the result of one, and the commit decides on that and aborts the other.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from spark_eos.base import metrics_events
from spark_eos.options.writes import WriteOptions
from spark_eos.sink.batch_writer import EosKafkaBatchWriter
from spark_eos.sink.job import Message, RowSource
from spark_eos.spark.map_arrow import map_arrow
from spark_eos.spark.reasons import as_error

_DESCRIPTION = "spark.job.description"


def write_by_job(sc: SparkContext, options: WriteOptions, rows: RowSource, tasks: int) -> None:
    """Let each of so many tasks write the rows that its number stands for, and commit. Raises EosError and Spark's
    errors; any failure aborts the write."""
    writer = EosKafkaBatchWriter(options, rows, metrics_events.here())

    def ended() -> list[Message | None]:
        collected = sc.parallelize(range(tasks), tasks).mapPartitions(partial(_written, writer)).collect()
        messages = {message.report.partition: message for message in collected}
        return [messages.get(number) for number in range(tasks)]

    _write(sc, writer, ended)


def write_frame(frame: DataFrame, options: WriteOptions, rows: RowSource) -> None:
    """Let tasks write the rows of a data frame, and commit. Raises as `write_by_job` does."""
    sc, writer = frame.sparkSession.sparkContext, EosKafkaBatchWriter(options, rows, metrics_events.here())

    def ended() -> list[Message | None]:
        collected = map_arrow(frame, partial(_written_rows, writer), "message BINARY").collect()
        if not collected:  # Spark knows that there are no rows, and runs no task
            return list(sc.parallelize([0], 1).mapPartitions(partial(_written_nothing, writer)).collect())
        return [pickle.loads(row.message) for row in collected]  # from our own tasks

    _write(sc, writer, ended)


def _write(sc: SparkContext, writer: EosKafkaBatchWriter, ended: Callable[[], list[Message | None]]) -> None:
    """Commit when the tasks have ended, with the message of each; None for one that has none."""
    try:
        with _described(sc, str(writer)):
            messages = ended()
        writer.commit(messages)
    except BaseException as error:
        writer.abort(())
        ours = as_error(error)
        if ours is None or ours is error:
            raise
        raise ours from None


@contextmanager
def _described(sc: SparkContext, text: str) -> Iterator[None]:
    """Give jobs within the block this description."""
    before = sc.getLocalProperty(_DESCRIPTION)
    sc.setLocalProperty(_DESCRIPTION, text)
    try:
        yield
    finally:
        sc.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None takes it away


def _written(writer: EosKafkaBatchWriter, numbers: Iterable[int]) -> Iterator[Message]:
    """Write the numbers of rows in a task, and yield its message."""
    yield writer.write(iter([pa.record_batch({"number": pa.array(numbers, pa.int64())})]))


def _written_rows(writer: EosKafkaBatchWriter, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows in a task, and yield its message, pickled."""
    yield pa.record_batch({"message": pa.array([pickle.dumps(writer.write(batches))], pa.binary())})


def _written_nothing(writer: EosKafkaBatchWriter, _: Iterable[int]) -> Iterator[Message]:
    """Write no rows in a task, and yield its message."""
    yield writer.write(iter(()))
