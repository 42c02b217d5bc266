"""The door: the data source ``eos-kafka``; readers and writers are handed out here."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_eos.errors import EosError
from spark_eos.tracebacks import hidden_traceback
from spark_eos.worker_exit import quiet_here


class EosKafkaDataSource(DataSource):
    """``format("eos-kafka")`` for ``read``, ``readStream`` and ``writeStream``."""

    _was_sent = False

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        quiet_here()

    @classmethod
    def name(cls) -> str:
        return "eos-kafka"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_was_sent": True}

    @hidden_traceback()
    def schema(self) -> StructType:
        """Asked for by ``load()``: so bad options of the source are refused there."""
        from spark_eos.options.parse import source_options
        from spark_eos.source.schema import schema

        return schema(source_options(self.options).include_headers)

    @hidden_traceback()
    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_eos.options.parse import batch_options
        from spark_eos.source.batch import EosKafkaBatchReader
        from spark_eos.source.schema import check_given

        options = batch_options(self.options)
        check_given(schema, options.include_headers)
        return EosKafkaBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Never raises: Spark would tell of that as ``UnboundLocalError: reader`` (`python_streaming_source_runner`).
        The reader that comes instead raises when Spark first asks it for anything."""
        from spark_eos.options.parse import stream_options
        from spark_eos.source.reader import EosKafkaStreamReader
        from spark_eos.source.schema import check_given

        try:
            options = stream_options(self.options)
            check_given(schema, options.include_headers)
        except EosError as error:
            return _Refused(error)
        return EosKafkaStreamReader(options)

    @hidden_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Asked for by ``df.write``, before any task. Always refuses."""
        from spark_eos.reasons import batch_write

        raise batch_write()

    @hidden_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For the tasks of a micro-batch, by a data source made for it: then the cluster is looked at, too. And for a
        commit or an abort, by a data source that was sent to another process: it takes what the tasks say."""
        from spark_eos.options.parse import sink_options
        from spark_eos.sink.writer import EosKafkaStreamWriter

        writer = EosKafkaStreamWriter(sink_options(self.options), schema)
        if not self._was_sent:
            writer.plan()
        return writer


class _Refused(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Instead of a reader: whatever it is asked, on the driver, it raises why there is none."""

    def __init__(self, error: EosError) -> None:
        self._error = error

    @hidden_traceback()
    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = partitions = read = prepareForTriggerAvailableNow = getDefaultReadLimit = _refuse
