"""Queries past the JVM from a Delta table to a topic, for tests in one Spark session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from tests.support.judges.kafka_view import KafkaView, Row
from tests.support.queries.drained_query import Drained
from tests.support.waiting import wait_for


class FromTable(Drained):
    """A query, its table and its checkpoint; ``run`` may be called again and again."""

    def __init__(self, spark: SparkSession, view: KafkaView, folder: Path, topic: str) -> None:
        self.spark, self.view, self.topic = spark, view, topic
        self.table, self.checkpoint = folder / "table", folder / "checkpoint"
        self.reads: dict[str, Any] = {}
        self.more: dict[str, Any] = {}

    def append(self, *values: str) -> None:
        """A version with one file that has a row for each value."""
        write_deltalake(str(self.table), pa.table({"value": list(values)}), mode="append")

    def start(self, transform: Any = None) -> StreamingQuery:
        """``reads`` are options of the table besides, ``more`` arguments of `spark_eos.copy`."""
        return spark_eos.copy(
            self.spark,
            source={"format": "delta", "path": str(self.table), **self.reads},
            sink={"kafka.bootstrap.servers": self.view.bootstrap_servers, "topic": self.topic},
            transform=transform,
            checkpoint=str(self.checkpoint),
            trigger={"availableNow": True},
            **self.more,
        )

    def rows(self) -> list[Row]:
        """What consumers of the topic see, when the markers are written."""
        wait_for(lambda: not self.view.held(self.topic), "the markers")
        return self.view.rows(self.topic)

    def values(self) -> list[str]:
        return sorted((row.value or b"").decode() for row in self.rows())
