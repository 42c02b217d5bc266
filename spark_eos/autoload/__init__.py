"""Installed as ``pyspark_spark_eos``: Spark registers the data source that it finds in modules of that name."""

from spark_eos.datasource import EosKafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]
