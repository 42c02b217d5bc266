"""Copies, for tests in one Spark session: from one topic to another, until the input is drained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from tests.support.judges.kafka_view import KafkaView, Row
from tests.support.queries.drained_query import Drained
from tests.support.waiting import wait_for


class CopiedFrom(Drained):
    """A query and its checkpoint; ``run`` may be called again and again. Dots in options are two underscores."""

    def __init__(self, spark: SparkSession, view: KafkaView, folder: Path, source: str, target: str) -> None:
        self.spark, self.view = spark, view
        self.source, self.target = source, target
        self.checkpoint = folder / "checkpoint"
        self.servers = {"kafka.bootstrap.servers": view.bootstrap_servers}
        self.reads: dict[str, Any] = {}
        self.more: dict[str, Any] = {}

    def start(self, transform: Any = None, **sink: Any) -> StreamingQuery:
        """``reads`` are options of the source besides, ``more`` arguments of `spark_eos.copy`."""
        return spark_eos.copy(
            self.spark,
            source={**self.servers, "subscribe": self.source, "startingOffsets": "earliest", **self.reads},
            sink={**self.servers, "topic": self.target, **{k.replace("__", "."): v for k, v in sink.items()}},
            transform=transform,
            checkpoint=str(self.checkpoint),
            **{"trigger": {"availableNow": True}, **self.more},
        )

    def rows(self) -> list[Row]:
        """What consumers of the target see, when the markers are written."""
        wait_for(lambda: not self.view.held(self.target), "the markers")
        return self.view.rows(self.target)

    def values(self) -> list[bytes | None]:
        return sorted(row.value for row in self.rows())


def shouted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Values in capitals, without those that begin with a dash, to the partition that they come from."""
    texts = batch.column("value").cast(pa.string())
    kept = batch.filter(pc.invert(pc.starts_with(texts, "-")))
    values = pc.utf8_upper(kept.column("value").cast(pa.string()))
    return pa.RecordBatch.from_pydict({"key": kept["key"], "value": values, "partition": kept["partition"]})


def copied(rows: list[Row]) -> dict[int, list[tuple]]:
    """All that a copy keeps, in the order of each partition."""
    found: dict[int, list[tuple]] = {}
    for row in rows:
        found.setdefault(row.partition, []).append((row.key, row.value, row.timestamp, row.headers))
    return found
