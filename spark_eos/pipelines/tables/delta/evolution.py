"""Adds columns to a Delta table, for a query that begins: one commit, which has nothing else.

- *It is the version after the one that was read, or nothing.* So delta-rs refuses a commit that it resends after a lost
  response, and the second of two drivers that add columns at the same moment. If the table was recreated meanwhile, and
  is just as long, the new one gets the columns and the old one's id: the version before tells, and they are taken back.
- *The query's transactions stay as they are*: columns are no micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as types

from spark_eos.base import failpoints
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.tables.commit import ColumnAddition
from spark_eos.pipelines.tables.delta.table import Table, check_appendable, columns_of, differences, refused, taken_back
from spark_eos.pipelines.tables.evolution import added

if TYPE_CHECKING:
    from deltalake import DeltaTable, Field

_NTZ = "timestampNtz"


@dataclass(frozen=True)
class DeltaAddition(ColumnAddition["DeltaTable"]):
    """The columns that a table is given. Raises TableError (EOS_DELTA_TABLE_SETTINGS.columns) where its protocol would
    have to change."""

    table: Table

    def look(self) -> DeltaTable:
        location = self.table.location
        handle = location.open()
        self._check_id(handle)
        check_appendable(location, handle)
        return handle

    def columns(self, handle: DeltaTable) -> pa.Schema:
        return pa.schema(handle.schema().to_arrow())

    def differences(self, there: pa.Schema) -> list[str]:
        return differences(columns_of(self.schema), columns_of(there))

    def add(self, handle: DeltaTable, there: pa.Schema, wide: pa.Schema) -> None:
        from deltalake import CommitProperties, PostCommitHookProperties

        self._check_protocol(handle, list(added(there, wide)))
        with refused(self.table.location):  # nothing is committed yet: another try would end in the same way
            fields = _changed(there, wide)
        failpoints.reach("table.evolving")
        version = handle.version()
        handle.alter.add_columns(
            fields,
            commit_properties=CommitProperties(max_commit_retries=0),
            # A hook that fails would raise an error after a successful commit.
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )
        self._check_same(version)

    def _check_id(self, handle: DeltaTable) -> None:
        if str(handle.metadata().id) != self.table.id:
            raise stop("EOS_OTHER_TABLE.recreated", path=self.path, doing="columns were to be added to it")

    def _check_same(self, version: int) -> None:
        """Check that the columns were added behind a version of this table; else take them back. Raises TableError
        (EOS_OTHER_TABLE)."""
        try:
            self._check_id(self.table.location.open(version))
        except EosError:
            newest = self.table.location.open()
            if newest.version() == version + 1:
                taken_back(self.table.location, newest)
            raise

    def _check_protocol(self, handle: DeltaTable, new: Sequence[tuple[tuple[str, ...], pa.DataType]]) -> None:
        """Check that the table's protocol supports the types of the new columns. Otherwise delta-rs would change it,
        and leave out the features that the former version implied. Raises TableError."""
        if _NTZ in (handle.protocol().reader_features or ()):
            return
        for path, type_ in new:
            if _has_ntz(type_):
                column = ".".join(path)
                raise stop("EOS_DELTA_TABLE_SETTINGS.columns", path=self.path, column=column, feature=_NTZ)


def _changed(there: pa.Schema, wide: pa.Schema) -> list[Field]:
    """Return the columns of ``wide`` that differ from the table's."""
    from deltalake import Schema

    before = columns_of(there)
    changed = [name for name, kind in columns_of(wide).items() if before.get(name) != kind]
    return [field for field in Schema.from_arrow(wide).fields if field.name in changed]


def _has_ntz(type_: pa.DataType) -> bool:
    if types.is_timestamp(type_):
        return type_.tz is None
    return any(_has_ntz(type_.field(place).type) for place in range(type_.num_fields))
