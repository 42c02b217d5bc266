"""Iceberg tables as targets of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs

from spark_eos.base.caches import process_cache
from spark_eos.base.retry import retrying
from spark_eos.errors import stop
from spark_eos.pipelines.tables import evolution
from spark_eos.pipelines.tables.commit import PATIENCE_S
from spark_eos.pipelines.tables.files import DataFile, FileLayout
from spark_eos.pipelines.tables.iceberg.catalog import KnownTable, Properties, TableName, opened, refused
from spark_eos.pipelines.tables.micro_batch import RangeBatch, Remembered
from spark_eos.pipelines.tables.target import TableColumns, Target
from spark_eos.pipelines.tables.values import check_columns, table_schema
from spark_eos.spi import Store

if TYPE_CHECKING:
    from spark_eos.pipelines.tables.iceberg.commit import IcebergCommit
    from spark_eos.pipelines.tables.iceberg.evolution import IcebergAddition
    from spark_eos.pipelines.tables.iceberg.memory import Memory

#: Prefixes of the properties that pyiceberg's file systems take for S3.
_STORE = ("s3.", "client.")


def reference_to(
    table: str,
    catalog: str,
    properties: Mapping[str, str],
    partition_by: tuple[str, ...] = (),
    after_rollback: int | None = None,
) -> IcebergReference:
    """Return the location of a table, ``NAMESPACE.NAME``. Raises UnsupportedError where pyiceberg is not installed."""
    try:
        import pyiceberg  # noqa: F401  # whether it is there
    except ImportError:
        raise stop(
            "EOS_NOT_INSTALLED.extra", use="Writing to an Iceberg table", modules="pyiceberg", extra="iceberg"
        ) from None
    return IcebergReference(TableName(table, catalog, Properties(properties)), partition_by, after_rollback)


@dataclass(frozen=True)
class IcebergReference:
    """See `spark_eos.pipelines.tables.target.TableReference`. ``partition_by`` is for a table that is created;
    ``after_rollback``: see `spark_eos.pipelines.tables.iceberg.catalog.KnownTable`."""

    table: TableName
    partition_by: tuple[str, ...] = ()
    after_rollback: int | None = None

    @property
    def name(self) -> str:
        return self.table.table

    def columns(self) -> TableColumns | None:
        from spark_eos.pipelines.tables.iceberg.table import layout_of

        with refused(self.table):
            if not opened(self.table).table_exists(self.name):
                return None
            layout = layout_of(self.table.load().metadata, self.name)
            return TableColumns(layout.schema, keys=layout.keys)

    def remembered(self, query: str) -> Remembered:
        return self._memory(query).remembered

    def check_kept(self, query: str, batch: int) -> None:
        from spark_eos.pipelines.tables.iceberg.memory import check_in_main

        check_in_main(self._memory(query), self.name, batch, self.after_rollback)

    def _memory(self, query: str) -> Memory:
        from spark_eos.pipelines.tables.iceberg.memory import memory_of

        with refused(self.table):
            return memory_of(self.table.load().metadata, query, self.name)

    def new_columns(self, schema: pa.Schema) -> TableColumns:
        from spark_eos.pipelines.tables.iceberg.columns import arrow_schema, iceberg_schema
        from spark_eos.pipelines.tables.iceberg.table import partitioned
        from spark_eos.pipelines.tables.keys import key_of

        columns = table_schema(schema)
        check_columns(columns)
        with refused(self.table):  # a field within a struct may have the name of a column, a.b
            created = iceberg_schema(columns)
            partitioned(created, columns, self.partition_by)
            return TableColumns(arrow_schema(created), keys=tuple(map(key_of, self.partition_by)))

    def check_new(self, schema: pa.Schema | None) -> None:
        if schema is not None:
            self.new_columns(schema)

    def widened(self, there: pa.Schema, given: pa.Schema) -> pa.Schema:
        from spark_eos.pipelines.tables.iceberg.columns import arrow_schema, iceberg_schema

        columns = evolution.widened(there, table_schema(given))
        check_columns(columns)
        with refused(self.table):  # a name with a dot may be another column's path
            return arrow_schema(iceberg_schema(columns))

    def target(self, schema: pa.Schema, *, create: bool) -> IcebergTarget:
        from spark_eos.pipelines.tables.iceberg.table import created, differences, folder_of, layout_of

        with refused(self.table):
            if create and not opened(self.table).table_exists(self.name):
                created(self.table, schema, self.partition_by)
            table = self.table.load()
            metadata = table.metadata
            layout, folder = layout_of(metadata, self.name), folder_of(metadata, self.name)
            unlike = differences(schema, layout.schema)
            if unlike:
                raise stop("EOS_TABLE_DIFFERS", path=self.name, differences="; ".join(unlike))
            store = _store_properties(table.io.properties)
            known = KnownTable(self.table, str(metadata.table_uuid), layout, folder, self.after_rollback)
            with_table = store != _store_properties(table.catalog.properties)
            return IcebergTarget(known, store, with_table)


@dataclass(frozen=True)
class IcebergTarget(Target):
    """See `spark_eos.pipelines.tables.target.Target`. ``properties``: of the store where its files are; ``with_table``:
    the catalog hands out some of them with the table, such as credentials, which expire."""

    table: KnownTable
    properties: Properties
    with_table: bool = False

    @property
    def name(self) -> str:
        return self.table.name.table

    @property
    def layout(self) -> FileLayout:
        return self.table.layout

    def for_tasks(self) -> IcebergTarget:
        if not self.with_table:
            return self
        with refused(self.table.name):
            return replace(self, properties=_handed_out(self.table.name))

    def store(self) -> Store:
        return _store(self.table.folder, self.properties)

    def cause(self, error: BaseException) -> str:
        return self.table.name.cause(error, self.properties)

    def files_commit(self, batch: RangeBatch, files: Sequence[DataFile], rows: int, is_there: bool) -> IcebergCommit:
        from spark_eos.pipelines.tables.iceberg.commit import IcebergCommit

        return IcebergCommit(self.name, batch, files, rows, is_there, self.table)

    def column_addition(self, schema: pa.Schema) -> IcebergAddition:
        from spark_eos.pipelines.tables.iceberg.evolution import IcebergAddition

        return IcebergAddition(self.name, schema, self.table)

    def with_columns(self, schema: pa.Schema) -> IcebergTarget:
        from spark_eos.pipelines.tables.iceberg.table import differences, layout_of

        with refused(self.table.name):
            layout = layout_of(self.table.name.load().metadata, self.name)
        if unlike := differences(schema, layout.schema):
            raise stop("EOS_TABLE_DIFFERS", path=self.name, differences="; ".join(unlike))
        return replace(self, table=replace(self.table, layout=layout))


def _store_properties(of_files: Mapping[str, str]) -> Properties:
    return Properties({name: value for name, value in of_files.items() if name.startswith(_STORE)})


def _handed_out(name: TableName) -> Properties:
    """Return the store's properties, as the catalog hands them out now. A catalog that does not answer is asked for
    `PATIENCE_S` seconds. Raises pyiceberg's errors, and TableError."""
    from spark_eos.pipelines.tables.iceberg.rest import is_passing

    error = None
    for _ in retrying(PATIENCE_S):
        try:
            return _store_properties(name.load().io.properties)
        except Exception as raised:
            if not is_passing(raised):
                raise
            error = raised
    assert error is not None
    raise error


@process_cache(maxsize=8)
def _store(folder: str, properties: Properties) -> Store:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, bucket, path = PyArrowFileIO.parse_location(folder)
    if scheme == "file":
        return Store(pyarrow.fs.LocalFileSystem(), path, local=True)
    return Store(PyArrowFileIO(dict(properties)).fs_by_scheme(scheme, bucket), path)
