"""The reader of a query from topics, by its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.checkpoint.offset_log import Position
from spark_eos.pipelines.copy.checks import check_targets
from spark_eos.pipelines.copy.plan import CopyPlan, FromTopics
from spark_eos.source.range_reader import KafkaRangeReader
from spark_eos.spi import broker_client


class RangeStreamReader(KafkaRangeReader):
    """Plans ranges as the Kafka source does, checks a copy's targets, and reports rows that were written."""

    def __init__(self, plan: FromTopics, events: Events = NOWHERE) -> None:
        super().__init__(plan.source, plan.cores, events)
        self._plan = plan

    def _last_written(self) -> Mapping[str, int] | None:
        return self._plan.written.last()

    def _prepare(self, ranges: Sequence[OffsetRange], end: Position) -> None:
        if isinstance(self._plan, CopyPlan):
            check_targets(broker_client(self._plan.sink.kafka), self._plan, ranges)
