"""How many cores Spark has for tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cores(spark: SparkSession) -> int | None:
    """Those of its executors now; None for a session of Spark Connect, which does not say it."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:  # such a session has no context
        return None
