"""Start a query whose rows in Spark are ranges of offsets."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from spark_eos.pipelines.copy.source import RangeDataSource


def start_ranges(
    spark: SparkSession,
    plan: DataclassInstance,
    base: type[RangeDataSource],
    format_name: str,
    checkpoint: str,
    trigger: Mapping[str, object] | None,
    name: str | None,
) -> StreamingQuery:
    """A query of this plan, which reads and writes by a data source of its own, made from ``base`` under a name that
    begins with ``format_name``. Its commits note what they wrote in the plan's ``written``."""
    from spark_eos.base import metrics_events
    from spark_eos.pipelines.copy.source import data_source_of
    from spark_eos.pipelines.copy.written import of_one_query
    from spark_eos.spark.versions import in_session

    format_ = f"{format_name}-{uuid.uuid4().hex[:8]}"
    noting = replace(plan, written=of_one_query())
    spark.dataSource.register(data_source_of(noting, format_, metrics_events.here(), base))
    with in_session(spark):
        ranges = spark.readStream.format(format_).load()
        writer = ranges.writeStream.format(format_).option("checkpointLocation", checkpoint)
        if name is not None:
            writer = writer.queryName(name)
        if trigger:
            writer = writer.trigger(**trigger)  # type: ignore[call-overload]  # `check_trigger` has seen it
        return writer.start()
