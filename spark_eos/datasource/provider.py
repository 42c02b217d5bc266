"""The entry point: the data source ``eos-kafka``, which creates readers and writers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark_eos.base.metrics_events import NOWHERE, Events
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError
from spark_eos.spark.by_value import by_value
from spark_eos.spark.tracebacks import hidden_traceback
from spark_eos.spark.versions import SupportsTriggerAvailableNow
from spark_eos.spark.worker_exit import quiet_here


class EosKafkaDataSource(DataSource):
    """``format("eos-kafka")`` for ``read``, ``readStream``, ``write`` and ``writeStream``."""

    _was_sent = False
    #: Hadoop's settings of file systems in the session.
    _settings = HadoopSettings()
    #: Where events of its queries go, for metrics.
    _events = NOWHERE

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        quiet_here()

    @classmethod
    def name(cls) -> str:
        return "eos-kafka"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_was_sent": True}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        quiet_here()

    @hidden_traceback()
    def schema(self) -> StructType:
        """Called by ``load()``, which therefore refuses bad options of the source, and by CREATE TABLE."""
        from spark_eos.datasource import tables
        from spark_eos.options.parse import source_options
        from spark_eos.source.schema import schema

        if tables.is_created(self.options):
            return tables.columns(self.options)
        return schema(source_options(self.options).include_headers)

    @hidden_traceback()
    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_eos.datasource.tables import options_of
        from spark_eos.options.parse import batch_options
        from spark_eos.source.batch import EosKafkaBatchReader
        from spark_eos.source.schema import check_given

        options = batch_options(options_of(schema, self.options))
        check_given(schema, options.include_headers)
        return EosKafkaBatchReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader. Never raises, as Spark would report ``UnboundLocalError: reader``
        (`python_streaming_source_runner`). For bad options it returns a reader that raises at Spark's first call."""
        from spark_eos.datasource.tables import options_of
        from spark_eos.options.parse import stream_options
        from spark_eos.source.reader import EosKafkaStreamReader
        from spark_eos.source.schema import check_given

        try:
            options = stream_options(options_of(schema, self.options))
            check_given(schema, options.include_headers)
        except EosError as error:
            return _Refused(error)
        return EosKafkaStreamReader(options, self._events)

    @hidden_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Called by ``df.write``, before any task: this also checks the cluster. The writer goes to the tasks, and to
        the process that commits or aborts."""
        from spark_eos.datasource.tables import options_of
        from spark_eos.options.writes import write_options
        from spark_eos.sink.batch_writer import EosKafkaBatchWriter
        from spark_eos.sink.schema import check_columns
        from spark_eos.sink.spark_rows import SparkRows
        from spark_eos.spark.reasons import batch_overwrite

        if overwrite:
            raise batch_overwrite()
        options = write_options(options_of(schema, self.options, writes=True))
        rows = SparkRows(check_columns(schema, options.sink.topic))
        return EosKafkaBatchWriter(options, rows, self._events)

    @hidden_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Called for the tasks of a micro-batch, on a data source created for it: this also checks the cluster. Also
        called for a commit or an abort, on a data source sent to another process: this uses the tasks' reports."""
        from spark_eos.datasource.tables import options_of
        from spark_eos.options.parse import sink_options
        from spark_eos.sink.schema import check_columns
        from spark_eos.sink.spark_rows import SparkRows
        from spark_eos.sink.writer import stream_writer

        options = sink_options(options_of(schema, self.options, writes=True), self._settings)
        rows = SparkRows(check_columns(schema, options.topic))
        return stream_writer(options, rows, self._events, was_sent=self._was_sent)


def with_settings(settings: Mapping[str, str], events: Events = NOWHERE) -> type[EosKafkaDataSource]:
    """Return the data source for a session with these settings of file systems and metrics, which Spark pickles with
    the class.
    """
    if not settings and not events:
        return EosKafkaDataSource
    return by_value(EosKafkaDataSource, _settings=HadoopSettings(settings), _events=events)


class _Refused(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that raises the given error at every call on the driver."""

    def __init__(self, error: EosError) -> None:
        self._error = error

    @hidden_traceback()
    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = partitions = read = prepareForTriggerAvailableNow = getDefaultReadLimit = _refuse
