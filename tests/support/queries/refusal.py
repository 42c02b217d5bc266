"""A query that must stop, and what it must not have done."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.sink_queries import Sink
from tests.support.waiting import TIMEOUT, wait_for


class Refusal:
    """Runs a query that must stop, and looks at what it did."""

    def __init__(self, spark: SparkSession, view: KafkaView) -> None:
        self._spark, self.view = spark, view

    def __call__(
        self, sink: Sink, frame: DataFrame, condition: str, *outputs: str, tasks: bool = False, says: str = ""
    ) -> str:
        """The error's text; ``says`` is in it. ``tasks``: whether only a task can know. Outputs stay as they are."""
        ends = self.view.ends(*outputs)
        jobs = set(self._spark.sparkContext.statusTracker().getJobIdsForGroup(None))
        query = None
        with pytest.raises(PySparkException, match=rf"\[{condition}\]") as caught:
            query = sink.start(frame)
            query.awaitTermination(TIMEOUT)
        text = str(caught.value)
        assert says in text
        if query is not None and not tasks:
            ran = self._spark.sparkContext.statusTracker().getJobIdsForGroup(query.runId)
            assert list(ran) == [], "tasks ran"
        assert set(self._spark.sparkContext.statusTracker().getJobIdsForGroup(None)) <= jobs  # Spark forgets old ones
        if not tasks:
            assert self.view.ends(*outputs) == ends
        assert self.view.values(*outputs) == []
        wait_for(lambda: not self.view.held(*outputs), "the end of what was open")
        return text
