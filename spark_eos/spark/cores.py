"""How many cores Spark has for tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cores(spark: SparkSession) -> int | None:
    """Those of executors that are there, or that the session waits for. None where their number changes
    (``spark.dynamicAllocation.enabled``), and for a session of Spark Connect, which does not say it."""
    try:
        context = spark.sparkContext
    except Exception:  # such a session has no context
        return None
    settings = dict(context.getConf().getAll())
    if settings.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true":
        return None
    asked = int(settings.get("spark.executor.instances", 0)) * int(settings.get("spark.executor.cores", 1))
    return max(1, asked, context.defaultParallelism)
