"""The data source of a mirror: as that of the direct way, whose targets are prepared before each micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_eos.direct.source import DirectStreamReader, EosDirectDataSource
from spark_eos.direct.writer import DirectStreamWriter
from spark_eos.events import NOWHERE, Events
from spark_eos.mirror.plan import MirrorPlan
from spark_eos.mirror.topics import TargetTopics
from spark_eos.mirror.trimming import Trimming
from spark_eos.protocol.task import TaskReport
from spark_eos.source.offsets import Position
from spark_eos.source.planning import OffsetRange

if TYPE_CHECKING:
    from spark_eos.sink.job import Identity, SinkJob


class MirrorDataSource(EosDirectDataSource):
    """See EosDirectDataSource."""

    _plan: MirrorPlan

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return MirrorStreamReader(self._plan, self._events)

    def _writer(self) -> DirectStreamWriter:
        return MirrorStreamWriter(self._plan, self._events)


class MirrorStreamReader(DirectStreamReader):
    """See DirectStreamReader."""

    def __init__(self, plan: MirrorPlan, events: Events = NOWHERE) -> None:
        super().__init__(plan, events)
        self._mirror = plan

    def __reduce__(self) -> tuple[Any, ...]:
        return MirrorStreamReader, (self._mirror, self._events)

    @cached_property
    def _targets(self) -> TargetTopics:
        return TargetTopics(self._mirror)

    @cached_property
    def _trimming(self) -> Trimming:
        plan = self._mirror
        return Trimming(plan.source.kafka, plan.sink.kafka, plan.targets.map)

    def _prepare(self, ranges: Sequence[OffsetRange], end: Position) -> None:
        if end.offsets:  # else there is no topic to mirror yet
            self._targets.prepare(end.offsets)
            self._trimming.now_and_then()


class MirrorStreamWriter(DirectStreamWriter):
    """See DirectStreamWriter."""

    def _run(self, job: SinkJob, me: Identity, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        from spark_eos.direct.task import run_task
        from spark_eos.mirror.task import MirrorParts

        return run_task(self._plan, job, me, iterator, MirrorParts)
