"""Counts the cores that Spark has for tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The least `defaultParallelism` of Spark with executors, also before the first one has come.
_NONE_YET = 2


def cores(spark: SparkSession) -> int | None:
    """Return how many cores executors have, or will have that the session waits for. None where the number changes
    (``spark.dynamicAllocation.enabled``), where no executor has come and no setting says how many will, and where the
    session does not say it, as with Spark Connect."""
    try:
        context = spark.sparkContext
        settings = dict(context.getConf().getAll())
        there = int(context.defaultParallelism)
        asked = int(settings.get("spark.executor.instances", 0)) * int(settings.get("spark.executor.cores", 1))
        asked = asked or int(settings.get("spark.cores.max", 0))
    except Exception:  # of a session without a context, or of a platform that forbids to look at it
        return None
    is_changing = settings.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true"
    is_here = settings.get("spark.master", "").partition("[")[0] == "local"  # in the driver's own JVM
    if is_changing or not (is_here or asked or there > _NONE_YET):
        return None
    return max(1, asked, there)


def cores_now(spark: SparkSession, least: int) -> int:
    """Return how many cores executors have now; ``least`` where they have fewer, or the session does not say it."""
    try:
        return max(least, int(spark.sparkContext.defaultParallelism))
    except Exception:  # as above
        return least
