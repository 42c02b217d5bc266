"""A batch write without a data frame: one job of Spark, whose tasks know by their numbers what to write.

For a data frame, Spark starts Python processes beside the tasks, one that makes the writer and one that commits. Here
the process that asks for the write does their part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark import SparkContext

from spark_eos.sink.batch_writer import EosKafkaBatchWriter
from spark_eos.sink.job import Message
from spark_eos.spark.reasons import as_error

_DESCRIPTION = "spark.job.description"


def write_by_job(sc: SparkContext, writer: EosKafkaBatchWriter, tasks: int) -> None:
    """Let each of so many tasks write what its number stands for, and commit. Raises EosError, and what Spark raises;
    whatever fails aborts the write.

    Spark does not ask here, as it does for a data frame, which of two attempts of a task may end: both may, each with
    an open transaction. It takes the result of one, and the commit decides on that and aborts the other.
    """
    try:
        writer.commit(_ended(sc, writer, tasks))
    except BaseException as error:
        writer.abort(())
        ours = as_error(error)
        if ours is None or ours is error:
            raise
        raise ours from None


def _ended(sc: SparkContext, writer: EosKafkaBatchWriter, tasks: int) -> list[Message | None]:
    """Run the tasks: the message of each, None for one that has none."""
    before = sc.getLocalProperty(_DESCRIPTION)
    sc.setLocalProperty(_DESCRIPTION, str(writer))
    try:
        found = sc.parallelize(range(tasks), tasks).mapPartitions(partial(_written, writer)).collect()
    finally:
        sc.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None takes it away
    messages = {message.report.partition: message for message in found}
    return [messages.get(number) for number in range(tasks)]


def _written(writer: EosKafkaBatchWriter, numbers: Iterable[int]) -> Iterator[Message]:
    """In a task."""
    yield writer.write(iter([pa.record_batch({"number": pa.array(numbers, pa.int64())})]))
