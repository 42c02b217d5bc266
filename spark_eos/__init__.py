"""Exactly-once Kafka source and sink for PySpark Structured Streaming.

``import spark_eos`` starts nothing and imports neither Spark nor a Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_eos._version import __version__
from spark_eos.datasource.foreach_batch import batch_writer
from spark_eos.datasource.restarts import Restart, run
from spark_eos.pipelines.copy.start import copy
from spark_eos.spark.reasons import Reason, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_eos.ops.metrics import Metrics

__all__ = ["Reason", "Restart", "__version__", "batch_writer", "copy", "metrics", "reason", "register", "run"]


def register(spark: SparkSession) -> None:
    """Register ``format("eos-kafka")`` with a session, with the session's settings of file systems as they are now
    (``spark.hadoop.fs.s3a.…`` and the like), by which the sink reads checkpoints that are not on a local disk.

    Needed for these settings, and if Spark's own look-up of installed data sources does not find the format, for
    example with an editable install.
    """
    from spark_eos.base import metrics_events
    from spark_eos.checkpoint.settings import HadoopSettings
    from spark_eos.datasource.provider import with_settings

    spark.dataSource.register(with_settings(HadoopSettings.from_session(spark), metrics_events.here()))


def metrics(
    spark: SparkSession,
    port: int | None = 9400,
    *,
    host: str | None = None,
    events: str | None = None,
) -> Metrics:
    """Count what the session's queries do, and serve that to Prometheus at ``http://HOST:PORT/metrics``.

    Call it once, before queries start; it registers ``format("eos-kafka")``, too. ``port`` 0 is a free one, None is no
    endpoint; ``host`` is the interface to listen at, by default the loopback, and ``0.0.0.0`` for all. ``events``: a
    file to which each event is appended as a line of JSON, for ``spark-eos plot``. No query fails because of
    its metrics: problems are logged.

    Raises UnsupportedError where an endpoint is asked for and the extra ``metrics`` is not installed.
    """
    from spark_eos.ops.metrics import start

    return start(spark, port, host, events)
