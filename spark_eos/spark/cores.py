"""How many cores Spark has for tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cores(spark: SparkSession) -> int | None:
    """Those of executors that are there, or that the session waits for. None where their number changes
    (``spark.dynamicAllocation.enabled``), and where the session does not say it, as with Spark Connect."""
    try:
        context = spark.sparkContext
        settings = dict(context.getConf().getAll())
        there = int(context.defaultParallelism)
        asked = int(settings.get("spark.executor.instances", 0)) * int(settings.get("spark.executor.cores", 1))
    except Exception:  # of a session without a context, or of a platform that forbids to look at it
        return None
    is_changing = settings.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true"
    return None if is_changing else max(1, asked, there)
