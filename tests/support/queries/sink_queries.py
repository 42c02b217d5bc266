"""Queries that end in the sink, for tests in one Spark session: their input in files, and their output."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_eos.pipelines.arrow_types import arrow_schema
from spark_eos.tools.devcluster import DevCluster
from tests.support.queries.drained_query import Drained
from tests.support.waiting import TIMEOUT

VALUE = "value string"


class Files:
    """Input that a file source reads: each list of rows is a file, and a task of its own."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str) -> None:
        self._spark, self._folder, self._schema = spark, folder, schema
        self._names = spark.createDataFrame([], schema).schema.names
        self._arrow = arrow_schema(spark.createDataFrame([], schema).schema)
        folder.mkdir()

    def add(self, *tasks: Sequence[Any]) -> Files:
        """Rows are tuples, or single values for a schema of one column."""
        for rows in tasks:
            tuples = [row if isinstance(row, tuple) else (row,) for row in rows]
            columns = {name: [row[i] for row in tuples] for i, name in enumerate(self._names)}
            file = self._folder / f"{uuid.uuid4().hex}.parquet"
            pyarrow.parquet.write_table(pa.Table.from_pydict(columns, self._arrow), file.with_suffix(".tmp"))
            file.with_suffix(".tmp").rename(file)
        return self

    def stream(self) -> DataFrame:
        self._spark.conf.set("spark.sql.files.minPartitionNum", 64)  # or else Spark puts small files together
        return (
            self._spark.readStream.schema(self._schema).option("pathGlobFilter", "*.parquet").parquet(str(self._folder))
        )


class Sink(Drained):
    """A query's sink and checkpoint; ``start`` may be called again and again. Dots in options are two underscores."""

    def __init__(self, cluster: DevCluster, folder: Path, **options: object) -> None:
        self.checkpoint = folder / "checkpoint"
        self.options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        self.options |= {key.replace("__", "."): str(value) for key, value in options.items()}
        self.id: str | None = None

    def start(self, frame: DataFrame, mode: str = "append", **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.format("eos-kafka").outputMode(mode)
        writer = writer.options(**self.options).option("checkpointLocation", str(self.checkpoint))
        started = writer.trigger(**(trigger or {"availableNow": True})).start()
        self.id = started.id
        return started

    def stopped_by(self, frame: DataFrame, condition: str) -> str:
        """Run, and expect an error, maybe of its start: its text."""
        with pytest.raises(PySparkException, match=condition) as caught:
            self.start(frame).awaitTermination(TIMEOUT)
        return str(caught.value)


def kafka_frame(
    spark: SparkSession, cluster: DevCluster, topic: str, limit: int | None = None, **options: str
) -> DataFrame:
    """The values of a topic from its beginning, as a stream of our own source; ``limit``: maxOffsetsPerTrigger."""
    return (
        spark.readStream.format("eos-kafka")
        .options(**options)
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**({} if limit is None else {"maxOffsetsPerTrigger": str(limit)}))
        .load()
        .select("value")
    )


def ended_by(query: StreamingQuery, condition: str) -> str:
    """Wait for the end of a query, which must be this error: its text."""
    with pytest.raises(StreamingQueryException, match=condition) as caught:
        query.awaitTermination(TIMEOUT)
    return str(caught.value)
