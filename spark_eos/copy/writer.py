"""The sink of a copy: as `spark_eos.sink.writer`, with tasks that fetch what they write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_eos.copy.plan import CopyPlan
from spark_eos.metrics_events import NOWHERE, Events
from spark_eos.protocol.commit import CommitReport
from spark_eos.protocol.task import MicroBatch, TaskReport
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.messages import Message
from spark_eos.sink.schema import Columns
from spark_eos.sink.writer import EosKafkaStreamWriter


class CopyStreamWriter(EosKafkaStreamWriter):
    """See EosKafkaStreamWriter."""

    def __init__(self, plan: CopyPlan, events: Events = NOWHERE) -> None:
        self._plan = plan
        super().__init__(plan.sink, StructType(), events)

    def _check(self, schema: StructType) -> Columns:
        """The columns of the transform, or of records: Spark's rows are ranges."""
        return self._plan.columns

    def _run(self, job: SinkJob, identity: Identity, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        from spark_eos.copy.task import run_task

        return run_task(self._plan, job, identity, iterator)

    def _report(
        self, query: str, batch: MicroBatch, received: Sequence[Message], report: CommitReport, took_s: float
    ) -> None:
        """To the log, and for the source's part of the query's progress."""
        super()._report(query, batch, received, report, took_s)
        self._plan.written.note(batch.id, report.rows, batch.bytes)
