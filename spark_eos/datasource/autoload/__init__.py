"""Installed as ``pyspark_spark_eos``: Spark registers the data source that it finds in modules of that name.

The worker that looks for them does nothing else, and is let go after a minute.
"""

from spark_eos.datasource.provider import EosKafkaDataSource as DefaultSource
from spark_eos.spark.worker_exit import quiet_here

__all__ = ["DefaultSource"]

quiet_here()
