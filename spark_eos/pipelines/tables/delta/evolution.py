"""Adds columns to a Delta table, for a query that begins: one commit, which has nothing else.

- *It is the version after the one that was read, or nothing.* So delta-rs refuses what it resends after a lost
  response, and the second of two drivers that add columns at the same moment. If the table was recreated meanwhile, and
  is just as long, the new one gets the columns and the old one's id: the version before tells, and they are taken back.
- *An error does not tell the outcome.* So after each error the table is opened anew. If it has the columns by then,
  nobody needs to know who has added them.
- *The query's transactions stay as they are*: columns are no micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as types

from spark_eos.base import failpoints
from spark_eos.base.log import logger
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.tables.delta.table import (
    Table,
    check_columns,
    check_kept,
    columns_of,
    differences,
    refused,
    taken_back,
    without_secrets,
)
from spark_eos.pipelines.tables.evolution import added, in_words, widened
from spark_eos.pipelines.tables.target import PATIENCE_S, until_known

if TYPE_CHECKING:
    from deltalake import DeltaTable, Field

_NTZ = "timestampNtz"


def add_columns(table: Table, schema: pa.Schema, patience_s: float = PATIENCE_S) -> Table:
    """The table with these columns, of which it is given those that it lacks.

    Raises TableError: EOS_TABLE_DIFFERS where it would have others then, as somebody has changed it meanwhile,
    EOS_DELTA_TABLE_SETTINGS.columns where the protocol would have to change, and EOS_TABLE_UNCLEAR where no try has
    succeeded for ``patience_s`` seconds.
    """
    location, columns = table.location, columns_of(schema)
    cause = partial(without_secrets, location=location)
    until_known(_Addition(table, schema).once, None, location.path, cause, patience_s)
    with refused(location):
        check_columns(location, location.open(), columns, table.partition_by)
    return replace(table, columns=tuple(columns.items()))


@dataclass(frozen=True)
class _Addition:
    table: Table
    schema: pa.Schema

    def once(self) -> bool:
        """Add the columns unless the table has them. Returns whether it had them."""
        location, path = self.table.location, self.table.location.path
        handle = location.open()
        self._check_id(handle)
        check_kept(location, handle)
        there = pa.schema(handle.schema().to_arrow())
        wide = widened(there, self.schema)
        found = differences(columns_of(self.schema), columns_of(wide))
        if found:
            raise stop("EOS_TABLE_DIFFERS", path=path, differences="; ".join(found))
        new = list(added(there, wide))
        if not new:
            return True
        self._check_protocol(handle, new)
        failpoints.reach("table.evolving")
        version = handle.version()
        self._commit(handle, there, wide)
        self._check_same(version)
        logger.info("table=%s: added %s", path, in_words(name for name, _ in new))
        failpoints.reach("table.evolved")
        return False

    def _check_id(self, handle: DeltaTable) -> None:
        if str(handle.metadata().id) != self.table.id:
            path = self.table.location.path
            raise stop("EOS_OTHER_TABLE.recreated", path=path, doing="columns were to be added to it")

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

    def _commit(self, handle: DeltaTable, there: pa.Schema, wide: pa.Schema) -> None:
        from deltalake import CommitProperties, PostCommitHookProperties

        with refused(self.table.location):  # nothing is committed yet: another try would end in the same way
            fields = _changed(there, wide)
        handle.alter.add_columns(
            fields,
            commit_properties=CommitProperties(max_commit_retries=0),
            # A hook that fails would raise an error after a successful commit.
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )

    def _check_protocol(self, handle: DeltaTable, new: Sequence[tuple[tuple[str, ...], pa.DataType]]) -> None:
        """The table's protocol has the types of the new columns. Otherwise delta-rs would change it, and leave out the
        features that the former version implied. Raises TableError."""
        if _NTZ in (handle.protocol().reader_features or ()):
            return
        for path, type_ in new:
            if _has_ntz(type_):
                location = self.table.location.path
                raise stop("EOS_DELTA_TABLE_SETTINGS.columns", path=location, column=".".join(path), feature=_NTZ)


def _changed(there: pa.Schema, wide: pa.Schema) -> list[Field]:
    """The columns of ``wide`` that are not as they are there."""
    from deltalake import Schema

    before = columns_of(there)
    changed = [name for name, kind in columns_of(wide).items() if before.get(name) != kind]
    return [field for field in Schema.from_arrow(wide).fields if field.name in changed]


def _has_ntz(type_: pa.DataType) -> bool:
    if types.is_timestamp(type_):
        return type_.tz is None
    return any(_has_ntz(type_.field(place).type) for place in range(type_.num_fields))
