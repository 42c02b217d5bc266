"""``spark.read.format("eos-kafka")``: a batch between two sets of offsets, both resolved on the driver."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_eos.base.topic_partition import PartitionOffsets, by_topic, flat, nested
from spark_eos.errors import invalid_option
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.options.parse import SourceOptions
from spark_eos.source import range_math
from spark_eos.source.bounds import resolve_end, resolve_start
from spark_eos.source.fetching import Fetching
from spark_eos.source.watch import TopicWatch
from spark_eos.spark.tracebacks import hidden_traceback


class EosKafkaBatchReader(DataSourceReader):
    """Reads the rows below the last stable offsets at the time of planning. Each action plans again."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @property
    def _client(self) -> BrokerClient:
        """This process's client; the reader itself travels to tasks, and has none."""
        return broker_client(self._options.kafka)

    @hidden_traceback()
    def partitions(self) -> list[InputPartition]:
        """Return the ranges to read. Raises the errors of `resolve_start` and `resolve_end`."""
        options = self._options
        watch = TopicWatch(self._client, options.selection, options.isolation, looks_only=True)
        ids = watch.topics().ids
        start = resolve_start(options, watch)
        assert options.ending is not None
        end = resolve_end(options.ending_option, options.ending, watch)
        self._check_order(start, end, watch)
        first = watch.epochs_at(flat(start), {})
        last = watch.epochs_at(flat(end), first)
        reads = range_math.ranges(start, end, nested(first), nested(last), ids)
        return list(range_math.tasks(reads, options.min_partitions, options.max_records_per_partition))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task's ranges, as Arrow. Raises EosError."""
        from spark_eos.source.task import read_task  # which the driver's process has no use for

        if isinstance(partition, range_math.RangeTask):  # for an empty batch Spark invents a partition
            with hidden_traceback():
                yield from read_task(Fetching.from_options(self._client, self._options), partition)

    def _check_order(self, start: PartitionOffsets, end: PartitionOffsets, watch: TopicWatch) -> None:
        """Raise OptionError (EOS_OPTION_INVALID) for an end before its start. With ``latest`` that is no error: a start
        beyond the last stable offset, inside an open transaction, reads nothing. Nor is an end before the log's first
        offset, where data loss is not to fail: nothing of that partition is left to read."""
        if self._options.ending == "latest":
            return
        starts = flat(start)  # a partition without one was created since, and is not read
        early = {partition: until for partition, until in flat(end).items() if until < starts.get(partition, until)}
        begins = {} if self._options.fail_on_data_loss or not early else flat(watch.begins(by_topic(early)))
        for (topic, p), until in early.items():
            if until > begins.get((topic, p), -1):
                raise invalid_option(
                    self._options.ending_option,
                    f"offset {until} for {topic}-{p}, before the start, which is {starts[topic, p]}",
                    "an end at the start or later",
                )
