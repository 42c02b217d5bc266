"""Queries past the JVM from a topic to a Delta table, for tests in one Spark session, and what the table has then."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from tests.support.drained import Drained
from tests.support.kafka_view import KafkaView, Row


class IntoTable(Drained):
    """A query and its checkpoint; ``run`` may be called again and again."""

    def __init__(self, spark: SparkSession, view: KafkaView, folder: Path, topic: str) -> None:
        self.topic, self.table, self.checkpoint = topic, folder / "table", folder / "checkpoint"
        self._spark, self._servers = spark, {"kafka.bootstrap.servers": view.bootstrap_servers}
        self.reads: dict[str, Any] = {"includeHeaders": True}
        #: Further arguments of `spark_eos.copy`, such as a transform.
        self.arguments: dict[str, Any] = {}

    def start(self, trigger: dict[str, object] | None = None, **sink: Any) -> StreamingQuery:
        """``sink``: options of the table besides."""
        return spark_eos.copy(
            self._spark,
            source={**self._servers, "subscribe": self.topic, "startingOffsets": "earliest", **self.reads},
            sink={"format": "delta", "path": str(self.table), **sink},
            checkpoint=str(self.checkpoint),
            trigger=trigger or {"availableNow": True},
            **self.arguments,
        )

    def rows(self) -> list[dict[str, Any]]:
        """The table's rows as delta-rs reads them, by place."""
        rows = DeltaTable(str(self.table)).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))

    def versions(self) -> int:
        return DeltaTable(str(self.table)).version()


def places(table: Path) -> Counter[tuple[int, int]]:
    """How often each partition and offset is in the table, by DuckDB over the files that delta-rs names."""
    at_once = DeltaTable(str(table))  # others may write meanwhile
    files = at_once.file_uris()
    if not files:
        return Counter()
    found = duckdb.sql(f'SELECT partition, "offset", count(*) FROM read_parquet({files!r}) GROUP BY ALL').fetchall()
    counted = Counter({(partition, offset): count for partition, offset, count in found})
    read: pa.Table = at_once.to_pyarrow_table(columns=["partition", "offset"])
    assert counted == Counter((row["partition"], row["offset"]) for row in read.to_pylist())
    return counted


def parts(row: Row) -> dict[str, Any]:
    """What the table has of a record."""
    headers = [{"key": key, "value": value} for key, value in row.headers or ()] or None
    return {
        "partition": row.partition,
        "offset": row.offset,
        "key": row.key,
        "value": row.value,
        "headers": headers,
        "timestamp": row.timestamp,
    }
