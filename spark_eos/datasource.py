"""The door: the data source ``eos-kafka``; readers and writers are handed out here."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType


class EosKafkaDataSource(DataSource):
    """``format("eos-kafka")`` for ``readStream`` and ``writeStream``."""

    @classmethod
    def name(cls) -> str:
        return "eos-kafka"

    def schema(self) -> StructType:
        from spark_eos.source.schema import SCHEMA

        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark_eos.options import source_options
        from spark_eos.source.reader import EosKafkaStreamReader

        return EosKafkaStreamReader(source_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from spark_eos.options import sink_options
        from spark_eos.sink.writer import EosKafkaStreamWriter

        return EosKafkaStreamWriter(sink_options(self.options), schema)
