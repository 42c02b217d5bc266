"""The streaming source on the driver: offsets in, offsets out, ranges for the tasks.

What Spark calls, in a Python process of its own that lives as long as the query::

    new query    initialOffset → latestOffset → [micro-batch 0: partitions] → latestOffset → [1: partitions] → …
    restart      partitions of the last logged micro-batch → latestOffset → …
    restart that finds micro-batch 0 logged but not committed: initialOffset → partitions → latestOffset → …

Spark does not tell a Python source where its checkpoint is, and asks again for the initial offset in the last case. See
`spark_eos.source.planning` for why that skips and repeats nothing: micro-batch 0 reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from spark_eos.options import SourceOptions
from spark_eos.source import offsets as formats
from spark_eos.source import planning
from spark_eos.source.fetch import read_range
from spark_eos.source.offsets import Offsets
from spark_eos.source.watch import TopicWatch

_NO_LIMIT = 2**63 - 1

SparkOffset = dict[str, dict[str, int]]


class EosKafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``readStream.format("eos-kafka")``. Holds no client, and travels to the tasks as its options only."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._initial: SparkOffset | None = None
        self._begun = False  # the offset log holds where the query begins
        self._planned: SparkOffset | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return EosKafkaStreamReader, (self._options,)

    @cached_property
    def _watch(self) -> TopicWatch:
        return TopicWatch(self._options.kafka, self._options.topics)

    # On the driver

    def initialOffset(self) -> SparkOffset:
        """Where a new query begins. Asked for more than once; the answer of this run stays the same."""
        if self._initial is None:
            self._initial = formats.to_spark(self._resolve_start())
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Always a number of rows: so ReadAllAvailable can only mean that the engine wants all in one micro-batch."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or _NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        """This run reads what is there and stable now, and then ends."""
        self._watch.pin()

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:
        """Where the next micro-batch ends; ``start`` itself when there is nothing to do."""
        start = start or self.initialOffset()
        once = isinstance(limit, ReadAllAvailable) and self._start_stays()
        if not self._begun and not once and start == self._initial:
            self._begun = True
            return start
        at = formats.from_spark(start)
        end = self._advance(at, limit.max_rows if isinstance(limit, ReadMaxRows) else _NO_LIMIT)
        self._planned = start if end == at else formats.to_spark(end)
        return self._planned

    def partitions(self, start: SparkOffset, end: SparkOffset) -> list[planning.OffsetRange]:
        """The ranges of one micro-batch. Raises DataLossError (EOS_SOURCE_DATA_LOSS) before any task."""
        self._begun = True
        reads = planning.ranges(formats.from_spark(start), formats.from_spark(end))
        if reads:
            self._check_readable(reads, replayed=end != self._planned)
        return reads

    def reportLatestOffset(self) -> SparkOffset | None:
        """For the query's progress: the last stable offsets seen last."""
        return formats.to_spark(self._watch.known_ends()) or None

    def commit(self, end: SparkOffset) -> None:
        """Nothing to do: the offset log is the one place where offsets are kept."""

    def stop(self) -> None:
        """Nothing to do: the clients belong to the process."""

    # In the tasks

    def read(self, partition: planning.OffsetRange) -> Iterator[pa.RecordBatch]:
        return read_range(self._options.kafka, partition)

    # Steps

    def _resolve_start(self) -> Offsets:
        wanted = self._options.starting_offsets
        if wanted == "latest":
            return self._watch.ends()
        begins = self._watch.begins()
        if wanted == "earliest":
            return begins
        result = formats.resolve("startingOffsets", wanted, begins, self._watch.ends())
        formats.check_inside("startingOffsets", result, begins, self._watch.high_watermarks())
        return result

    def _start_stays(self) -> bool:
        """Whether a replay of micro-batch 0 would begin where the first try began, so that it may read rows at once.

        Trigger.Once has no second micro-batch to read them in. (What retention takes between a crash of that one
        micro-batch and its replay is not noticed; Trigger.AvailableNow notices.)
        """
        wanted = self._options.starting_offsets
        if isinstance(wanted, str):
            return wanted == "earliest"
        return not any(at == formats.LATEST for partitions in wanted.values() for at in partitions.values())

    def _advance(self, at: Offsets, max_rows: int) -> Offsets:
        counts = self._watch.partition_counts()
        planning.check_partitions(at, counts)
        ends = self._watch.ends()
        behind = {t: {p: o for p, o in partitions.items() if ends[t][p] < o} for t, partitions in at.items()}
        if any(behind.values()):  # an open transaction may hold the stable end before a start that the user gave
            planning.check_end(behind, self._watch.high_watermarks(behind))
        return planning.merge(planning.advance(at, ends, max_rows), self._newcomers(at, counts))

    def _newcomers(self, at: Offsets, counts: dict[str, int]) -> Offsets:
        """Partitions and topics that the offset log does not know yet, with the offset at which they are taken up.

        A new partition of a known topic begins at 0: if its log begins later, that shows as the data loss that it is.
        """
        new_topics = {topic: range(count) for topic, count in counts.items() if topic not in at}
        result = self._watch.begins(new_topics) if new_topics else {}
        for topic, known in at.items():
            result[topic] = {p: 0 for p in range(counts[topic]) if p not in known}
        return result

    def _check_readable(self, reads: list[planning.OffsetRange], replayed: bool) -> None:
        places: dict[str, Iterable[int]] = {}
        for r in reads:
            places[r.topic] = [*places.get(r.topic, ()), r.partition]
        planning.check_begin(reads, self._watch.begins(places))
        if replayed:
            ends: Offsets = {}
            for r in reads:
                ends.setdefault(r.topic, {})[r.partition] = r.end
            planning.check_end(ends, self._watch.high_watermarks(places))
