"""The source in the tasks: ranges of partitions, from the broker into Arrow, by whole record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pyarrow as pa

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import DataLossError
from spark_eos.source.fetching import Fetching
from spark_eos.source.losses import Losses
from spark_eos.source.nearest_replica import rack_here
from spark_eos.source.range_math import RangeTask
from spark_eos.source.raw import read_raw
from spark_eos.source.small_ranges import gather, take
from spark_eos.spark.worker_gc import spare_collections

T = TypeVar("T")

#: Small batches of rows go to Spark together, up to so much.
_MERGED_BYTES = 4 * 1024 * 1024

#: Reads a range. Raises DataLossError at the offset where it cannot continue.
Read = Callable[[Fetching, OffsetRange], Iterator[T]]


def read_task(fetching: Fetching, task: RangeTask) -> Iterator[pa.RecordBatch]:
    """Yield the records of the task's ranges, one range after the other. Raises the errors of `read_range`."""
    answers = gather(fetching, task.ranges) if _is_for_gathering(fetching, task) else {}
    waiting: list[pa.RecordBatch] = []
    size = 0
    for range_ in task.ranges:
        rows = take(fetching, range_, answers) if answers else None
        waiting += rows or ()
        size += sum(batch.nbytes for batch in rows or ())
        if rows is None or size > _MERGED_BYTES:
            yield from _merged(waiting)
            waiting, size = [], 0
        if rows is None:
            yield from read_range(fetching, range_)
    yield from _merged(waiting)
    spare_collections()


def _is_for_gathering(fetching: Fetching, task: RangeTask) -> bool:
    """Return whether to read the ranges by one request to each leader, which excludes reading from nearest replicas."""
    return len(task.ranges) > 1 and not rack_here(fetching.client.properties)


def _merged(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the rows as one batch instead of many small ones: each batch costs Spark as much as some hundred rows."""
    return batches if len(batches) < 2 else pa.Table.from_batches(batches).combine_chunks().to_batches()


def read_range(fetching: Fetching, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order, as batches of `arrow_schema`; committed ones only, by default.

    Raises DataLossError where the log does not hold the range any more (EOS_SOURCE_DATA_LOSS) or is another one than
    when it was planned (EOS_SOURCE_LOG_DIVERGED), KafkaError
    (EOS_SOURCE_STALLED) where nothing comes for ``poll_timeout_s``, (EOS_SOURCE_DAMAGED) on bytes that are not sound,
    (EOS_SOURCE_FETCH) on formats before v2, and on other refusals of the broker. Where data loss is not to fail, the
    part of the range that the log still holds is read.
    """
    return resuming(fetching, range_, read_raw)


def resuming(fetching: Fetching, range_: OffsetRange, read: Read[T]) -> Iterator[T]:
    """Yield the results of ``read`` for a range; where data loss is not to fail, for the parts that the log still
    holds. Raises the errors of `read_range`."""
    losses = Losses(fetching.fail_on_data_loss)
    left = range_
    while left.start < left.end:
        try:
            yield from read(fetching, left)
            break
        except DataLossError as loss:
            losses.report(loss)
            left = left.cut(*(loss.parameters.get("readable") or (left.end, left.end)))
