"""The door: the data source ``eos-kafka``; readers and writers are handed out here."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType


class EosKafkaDataSource(DataSource):
    """``format("eos-kafka")`` for ``read``, ``readStream`` and ``writeStream``."""

    @classmethod
    def name(cls) -> str:
        return "eos-kafka"

    def schema(self) -> StructType:
        """Asked for by ``load()``: so bad options of the source are refused there."""
        from spark_eos.options import source_options
        from spark_eos.source.schema import schema

        return schema(source_options(self.options).include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_eos.options import batch_options
        from spark_eos.source.batch import EosKafkaBatchReader

        return EosKafkaBatchReader(batch_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark_eos.options import stream_options
        from spark_eos.source.reader import EosKafkaStreamReader

        return EosKafkaStreamReader(stream_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from spark_eos.options import sink_options
        from spark_eos.sink.writer import EosKafkaStreamWriter

        return EosKafkaStreamWriter(sink_options(self.options), schema)
