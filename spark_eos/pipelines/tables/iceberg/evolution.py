"""Adds columns to an Iceberg table, for a query that begins: one commit of the catalog, without a snapshot.

- *It requires the columns and the last field id that were read.* By the first, one of two drivers is refused. The
  second is for a request that a catalog executes late: the columns may be the same by then, but the new ids may be ids
  of columns that existed meanwhile, and readers would find values in their files.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
)

from spark_eos.base import failpoints
from spark_eos.errors import stop
from spark_eos.pipelines.tables.commit import ColumnAddition
from spark_eos.pipelines.tables.evolution import added, in_words
from spark_eos.pipelines.tables.iceberg.catalog import KnownTable, before_commit
from spark_eos.pipelines.tables.iceberg.columns import iceberg_schema, iceberg_type
from spark_eos.pipelines.tables.iceberg.table import check_field_names, differences, layout_of

#: By this property, files without field ids are read by the names of their columns.
_NAMES = "schema.name-mapping.default"


@dataclass(frozen=True)
class IcebergAddition(ColumnAddition[Table]):
    """The columns that a table is given. Raises TableError (EOS_ICEBERG_TABLE) where one cannot be added."""

    known: KnownTable

    def look(self) -> Table:
        table = self.known.name.load()
        if str(table.metadata.table_uuid) != self.known.id:
            raise stop("EOS_OTHER_TABLE.recreated", path=self.path, doing="columns were to be added to it")
        return table

    def columns(self, handle: Table) -> pa.Schema:
        return layout_of(handle.metadata, self.path).schema

    def differences(self, there: pa.Schema) -> list[str]:
        return differences(self.schema, there)

    def add(self, handle: Table, there: pa.Schema, wide: pa.Schema) -> None:
        metadata = handle.metadata
        if _NAMES in metadata.properties:
            new = in_words(path for path, _ in added(there, wide))
            raise stop("EOS_ICEBERG_TABLE.columns", path=self.path, columns=new, name=_NAMES)
        with before_commit(self.known.name):
            # Of all that the table has had, as older files are still by them.
            fields = [field for spec in metadata.partition_specs for field in spec.fields]
            check_field_names(iceberg_schema(wide), fields, metadata.schema())
            schema = _schema(handle, there, wide)
        failpoints.reach("table.evolving")
        # Parts of the request have the names of Iceberg's REST specification.
        handle.catalog.commit_table(
            handle,
            (
                AssertTableUUID(uuid=metadata.table_uuid),
                AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
                AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id}),
            ),
            (AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})),
        )


def _schema(table: Table, there: pa.Schema, wide: pa.Schema) -> Schema:
    """Return the table's columns with the new ones, which have ids that it has never given. Nothing is committed."""
    transaction = table.transaction()
    with transaction.update_schema() as update:
        for path, type_ in added(there, wide):
            update.add_column(path, iceberg_type(type_, count(1)))
    return transaction.table_metadata.schema()
