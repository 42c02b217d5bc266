"""Delta tables as targets of a query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_eos.errors import stop
from spark_eos.pipelines.tables import evolution
from spark_eos.pipelines.tables.delta.creation import check_creatable, check_folder, check_names, known
from spark_eos.pipelines.tables.delta.memory import MERGES, check_meant, remembered
from spark_eos.pipelines.tables.delta.table import Location, Table, columns_of, columns_there, refused, without_secrets
from spark_eos.pipelines.tables.files import DataFile, FileLayout
from spark_eos.pipelines.tables.micro_batch import RangeBatch, Remembered
from spark_eos.pipelines.tables.target import TableColumns, Target
from spark_eos.pipelines.tables.values import check_columns, table_schema
from spark_eos.spi import Store, open_store

if TYPE_CHECKING:
    from spark_eos.pipelines.tables.delta.commit import DeltaCommit
    from spark_eos.pipelines.tables.delta.evolution import DeltaAddition


@dataclass(frozen=True)
class DeltaReference:
    """See `spark_eos.pipelines.tables.target.TableReference`. ``partition_by`` and ``properties`` are for a table
    that is created; ``after_restore``: see `spark_eos.pipelines.tables.delta.commit.DeltaCommit`."""

    location: Location
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    after_restore: int | None = None

    @property
    def name(self) -> str:
        return self.location.path

    def columns(self) -> TableColumns | None:
        there = columns_there(self.location)
        return None if there is None else TableColumns(*there)

    def remembered(self, query: str) -> Remembered:
        memory = _remembered(self.location, query)
        if memory.last is not None:
            return memory
        # The job kafka_to_delta merges under another name, by Spark.
        return _remembered(self.location, MERGES.format(query))

    def check_kept(self, query: str, batch: int) -> None:
        from spark_eos.pipelines.tables.delta.commit import check_restored

        with refused(self.location):
            handle = self.location.open()
            memory = remembered(handle.transaction_version, query)
            check_restored(self.location, handle.version(), memory, query, batch, self.after_restore)

    def new_columns(self, schema: pa.Schema) -> TableColumns:
        columns = table_schema(schema)
        check_columns(columns, self.partition_by)
        return TableColumns(columns, self.partition_by)

    def check_new(self, schema: pa.Schema | None) -> None:
        with refused(self.location):
            if schema is None:
                check_folder(self.location.path, self.location.settings)
            else:
                check_creatable(self.location, self.new_columns(schema).schema, self.partition_by, self.properties)

    def widened(self, there: pa.Schema, given: pa.Schema) -> pa.Schema:
        columns = evolution.widened(there, table_schema(given))
        check_columns(columns)
        check_names(there, columns)
        return columns

    def target(self, schema: pa.Schema, *, create: bool) -> DeltaTarget:
        from spark_eos.pipelines.tables.delta.actions import statistics_columns

        table = known(self.location, schema, self.partition_by, self.properties, create=create)
        with refused(self.location):
            bounded = statistics_columns(self.location.open().metadata().configuration)
        layout = FileLayout(schema, table.partition_by, statistics_columns=bounded)
        return DeltaTarget(table, layout, self.after_restore)


@dataclass(frozen=True)
class DeltaTarget(Target):
    """See `spark_eos.pipelines.tables.target.Target`."""

    table: Table
    file_layout: FileLayout
    after_restore: int | None = None

    @property
    def name(self) -> str:
        return self.table.location.path

    @property
    def layout(self) -> FileLayout:
        return self.file_layout

    def store(self) -> Store:
        return open_store(self.table.location.path, self.table.location.settings)

    def cause(self, error: BaseException) -> str:
        return without_secrets(error, self.table.location)

    def files_commit(self, batch: RangeBatch, files: Sequence[DataFile], rows: int, is_there: bool) -> DeltaCommit:
        from spark_eos.pipelines.tables.delta.actions import add_action
        from spark_eos.pipelines.tables.delta.commit import DeltaCommit

        added = [add_action(file) for file in files]
        return DeltaCommit(self.name, batch, files, rows, is_there, self.table, self.after_restore, added)

    def column_addition(self, schema: pa.Schema) -> DeltaAddition:
        from spark_eos.pipelines.tables.delta.evolution import DeltaAddition

        return DeltaAddition(self.name, schema, self.table)

    def with_columns(self, schema: pa.Schema) -> DeltaTarget:
        table = replace(self.table, columns=tuple(columns_of(schema).items()))
        with refused(table.location):
            table.check(table.location.open())
        return replace(self, table=table, file_layout=replace(self.layout, schema=schema))


def _remembered(location: Location, query: str) -> Remembered:
    """Return the table's memory of a query. Raises TableError: EOS_DELTA_NO_TABLE where there is no table, and
    EOS_OTHER_TABLE where the query's last commit was meant for another one."""
    from deltalake.exceptions import TableNotFoundError

    with refused(location):
        try:
            handle = location.open()
        except TableNotFoundError:
            raise stop("EOS_DELTA_NO_TABLE.path", path=location.path, at=f" at {location.path}") from None
        memory = remembered(handle.transaction_version, query)
    check_meant(location.path, memory, str(handle.metadata().id), query)
    return memory
