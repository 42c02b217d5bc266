"""Exactly-once Kafka source and sink for PySpark Structured Streaming.

``import spark_eos`` starts nothing and imports neither Spark nor a Kafka client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_eos._version import __version__
from spark_eos.reasons import Reason, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Reason", "__version__", "reason", "register"]


def register(spark: SparkSession) -> None:
    """Register ``format("eos-kafka")`` with a session.

    Needed only if Spark's own look-up of installed data sources does not find it, for example with an editable install.
    """
    from spark_eos.datasource import EosKafkaDataSource

    spark.dataSource.register(EosKafkaDataSource)
