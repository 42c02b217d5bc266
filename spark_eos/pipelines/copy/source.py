"""The reader and the writer of a query, by its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter

from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.checkpoint.offset_log import Position
from spark_eos.pipelines.copy.checks import check_targets
from spark_eos.pipelines.copy.plan import CopyPlan, FromTopics, ToTopics
from spark_eos.source.range_reader import KafkaRangeReader
from spark_eos.spi import broker_client

if TYPE_CHECKING:
    from spark_eos.spi import RowSource


def to_topics(
    rows: Callable[[Any], RowSource], plan: ToTopics, events: Events, was_sent: bool
) -> DataSourceStreamWriter:
    """Return the writer to topics. ``rows``: makes them of the plan. Raises EosError."""
    from spark_eos.sink.writer import stream_writer

    return stream_writer(plan.sink, rows(plan), events, was_sent=was_sent)


class RangeStreamReader(KafkaRangeReader):
    """Plans ranges of topics by the plan of a query."""

    def __init__(self, plan: FromTopics, events: Events = NOWHERE) -> None:
        super().__init__(plan.source, plan.cores, events)
        self._plan = plan

    def _last_written(self) -> Mapping[str, int] | None:
        return self._plan.written.last()

    def _prepare(self, ranges: Sequence[OffsetRange], end: Position) -> None:
        if isinstance(self._plan, CopyPlan):
            check_targets(broker_client(self._plan.sink.kafka), self._plan, ranges)
