"""Start a query whose rows in Spark are ranges of offsets."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming import StreamingQuery


def start_ranges(
    spark: SparkSession,
    made: Callable[[str], type[DataSource]],
    format_name: str,
    checkpoint: str,
    trigger: Mapping[str, object] | None,
    name: str | None,
) -> StreamingQuery:
    """A query that reads and writes by one data source, which ``made`` makes under a name that begins with
    ``format_name``."""
    from spark_eos.spark.versions import in_session

    format_ = f"{format_name}-{uuid.uuid4().hex[:8]}"
    spark.dataSource.register(made(format_))
    with in_session(spark):
        ranges = spark.readStream.format(format_).load()
        writer = ranges.writeStream.format(format_).option("checkpointLocation", checkpoint)
        if name is not None:
            writer = writer.queryName(name)
        if trigger:
            writer = writer.trigger(**trigger)  # type: ignore[call-overload]  # `check_trigger` has seen it
        return writer.start()
