"""Queries past the JVM from a topic to a table, for tests in one Spark session, and what the table has then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import spark_eos
from tests.support.judges.kafka_view import KafkaView, Row
from tests.support.queries.drained_query import Drained
from tests.support.tables.table_kinds import Delta, TableKind


class IntoTable(Drained):
    """A query and its checkpoint; ``run`` may be called again and again. ``kind``: of its table, by default Delta's;
    ``table``: of Delta's, its folder."""

    def __init__(
        self, spark: SparkSession, view: KafkaView, folder: Path, topic: str, kind: Callable[[Path], TableKind] = Delta
    ) -> None:
        self.topic, self.table, self.checkpoint = topic, folder / "table", folder / "checkpoint"
        self.kind = kind(folder)
        self._spark, self._servers = spark, {"kafka.bootstrap.servers": view.bootstrap_servers}
        self.reads: dict[str, Any] = {"includeHeaders": True}
        #: Further arguments of `spark_eos.copy`, such as a transform.
        self.arguments: dict[str, Any] = {}

    def start(self, trigger: dict[str, object] | None = None, **sink: Any) -> StreamingQuery:
        """``sink``: options of the table besides."""
        return spark_eos.copy(
            self._spark,
            source={**self._servers, "subscribe": self.topic, "startingOffsets": "earliest", **self.reads},
            sink={**self.kind.sink(), **sink},
            checkpoint=str(self.checkpoint),
            trigger=trigger or {"availableNow": True},
            **self.arguments,
        )

    def rows(self) -> list[dict[str, Any]]:
        """The table's rows as one of its readers has them, by place."""
        return sorted(self.kind.rows(), key=lambda row: (row["topic"], row["partition"], row["offset"]))

    def versions(self) -> int:
        return self.kind.versions()


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
