"""`spark_eos.copy` from a Delta table: each appended row once, whoever else writes and however often it starts."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from tests.support.judges.conditions import raises
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.drained_query import Drained
from tests.support.waiting import wait_for


class FromTable(Drained):
    """A query, its table and its checkpoint; ``run`` may be called again and again."""

    def __init__(self, spark: SparkSession, view: KafkaView, folder: Path, topic: str) -> None:
        self.spark, self.view, self.topic = spark, view, topic
        self.table, self.checkpoint = folder / "table", folder / "checkpoint"
        self.reads: dict[str, Any] = {}

    def append(self, *values: str) -> None:
        """A version with one file that has a row for each value."""
        write_deltalake(str(self.table), pa.table({"value": list(values)}), mode="append")

    def start(self, **more: Any) -> StreamingQuery:
        """``reads`` are options of the table besides, ``more`` arguments of `spark_eos.copy`."""
        return spark_eos.copy(
            self.spark,
            source={"format": "delta", "path": str(self.table), **self.reads},
            sink={"kafka.bootstrap.servers": self.view.bootstrap_servers, "topic": self.topic},
            checkpoint=str(self.checkpoint),
            trigger={"availableNow": True},
            **more,
        )

    def values(self) -> list[str]:
        """What consumers of the topic see, when the markers are written."""
        wait_for(lambda: not self.view.held(self.topic), "the markers")
        return sorted((row.value or b"").decode() for row in self.view.rows(self.topic))


@pytest.fixture
def query(spark, view, topic, tmp_path):
    yield FromTable(spark, view, tmp_path / uuid.uuid4().hex, topic(2))
    for running in spark.streams.active:
        running.stop()


def test_rows_that_are_there_and_those_that_come_are_written_once(query) -> None:
    """In several micro-batches, again in later runs, and though the table is compacted meanwhile."""
    query.reads = {"maxFilesPerTrigger": 2}
    for n in range(5):
        query.append(f"{n}.0", f"{n}.1")
    id_ = query.run()
    assert query.values() == sorted(f"{n}.{i}" for n in range(5) for i in range(2))
    query.append("5.0", "5.1")
    DeltaTable(str(query.table)).optimize.compact()
    query.append("6.0", "6.1")
    assert query.run() == query.run() == id_
    assert query.values() == sorted(f"{n}.{i}" for n in range(7) for i in range(2))
    assert len(list((query.checkpoint / "offsets").glob("[0-9]*"))) == 4


def test_what_is_for_topics_is_refused(query) -> None:
    """Arguments of `spark_eos.copy`."""
    query.append("1")
    with raises("EOS_OPTION_CONFLICT.remove") as error:
        query.start(on_malformed="drop")
    assert "on_malformed" in error.value.message
