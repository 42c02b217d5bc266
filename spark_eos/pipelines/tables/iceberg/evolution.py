"""Adds columns to an Iceberg table, for a query that begins: one commit of the catalog, without a snapshot.

- *It requires the columns and the last field id that were read.* By the first, of two drivers one is refused. The
  second is for a request that a catalog does late: the columns may be the same by then, and the ids that it gives may
  be those of columns that were there meanwhile, in whose files readers would find values.
- *An error does not tell the outcome.* So after each error the table is loaded anew. If it has the columns by then,
  nobody needs to know who has added them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from spark_eos.base.log import logger
from spark_eos.errors import stop
from spark_eos.pipelines.tables.evolution import added, in_words, widened
from spark_eos.pipelines.tables.iceberg.catalog import before_commit, refused
from spark_eos.pipelines.tables.iceberg.columns import iceberg_schema, iceberg_type
from spark_eos.pipelines.tables.iceberg.known import KnownTable
from spark_eos.pipelines.tables.iceberg.table import check_field_names, differences, layout_of
from spark_eos.pipelines.tables.target import PATIENCE_S, until_known

#: By this property, files without field ids are read by the names of their columns.
_NAMES = "schema.name-mapping.default"


def add_columns(
    known: KnownTable,
    schema: pa.Schema,
    cause: Callable[[BaseException], str],
    patience_s: float = PATIENCE_S,
) -> KnownTable:
    """The table with these columns, of which it is given those that it lacks. ``cause``: an error in words without
    secrets.

    Raises TableError: EOS_TABLE_DIFFERS where it would have others then, as somebody has changed it meanwhile,
    EOS_ICEBERG_TABLE where a column cannot be added, and EOS_TABLE_UNCLEAR where no try has succeeded for
    ``patience_s`` seconds.
    """
    name = known.name
    until_known(_Addition(known, schema).once, None, name.table, cause, patience_s)
    with refused(name):
        layout = layout_of(name.load().metadata, name.table)
    found = differences(schema, layout.schema)
    if found:
        raise stop("EOS_TABLE_DIFFERS", path=name.table, differences="; ".join(found))
    return replace(known, layout=layout)


@dataclass(frozen=True)
class _Addition:
    known: KnownTable
    schema: pa.Schema

    def once(self) -> bool:
        """Add the columns unless the table has them. Returns whether it had them."""
        table, path = self.known.name.load(), self.known.name.table
        metadata = table.metadata
        if str(metadata.table_uuid) != self.known.id:
            raise stop("EOS_OTHER_TABLE.recreated", path=path, doing="columns were to be added to it")
        there = layout_of(metadata, path).schema
        wide = widened(there, self.schema)
        found = differences(self.schema, wide)
        if found:
            raise stop("EOS_TABLE_DIFFERS", path=path, differences="; ".join(found))
        new = in_words(name for name, _ in added(there, wide))
        if not new:
            return True
        if _NAMES in metadata.properties:
            raise stop("EOS_ICEBERG_TABLE.columns", path=path, columns=new, name=_NAMES)
        with before_commit(self.known.name):
            # Of all that the table has had, as older files are still by them.
            fields = [field for spec in metadata.partition_specs for field in spec.fields]
            check_field_names(iceberg_schema(wide), fields, metadata.schema())
            schema = _schema(table, there, wide)
        failpoints.reach("table.evolving")
        # Parts of the request have the names of Iceberg's REST specification.
        table.catalog.commit_table(
            table,
            (
                AssertTableUUID(uuid=metadata.table_uuid),
                AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
                AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id}),
            ),
            (AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate.model_validate({"schema-id": -1})),
        )
        logger.info("table=%s: added %s", path, new)
        failpoints.reach("table.evolved")
        return False


def _schema(table: Table, there: pa.Schema, wide: pa.Schema) -> Schema:
    """The table's columns with the new ones, which have ids that it has never given. Nothing is committed."""
    transaction = table.transaction()
    with transaction.update_schema() as update:
        for path, type_ in added(there, wide):
            update.add_column(path, iceberg_type(type_, count(1)))
    return transaction.table_metadata.schema()
