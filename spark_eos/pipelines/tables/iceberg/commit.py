"""Commits a micro-batch's files to an Iceberg table exactly once, even if requests are lost or drivers are killed. See
`spark_eos.pipelines.tables.commit`.

- *One request, and no other way to try it again.* Files, summary and tag are in one commit of the catalog, which it
  refuses if anybody else has committed since the table was read (`spark_eos.pipelines.tables.iceberg.snapshots`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pyiceberg.manifest import DataFile as Entry
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from spark_eos.errors import stop
from spark_eos.pipelines.tables.commit import FilesCommit
from spark_eos.pipelines.tables.iceberg.catalog import KnownTable, before_commit
from spark_eos.pipelines.tables.iceberg.data_files import entry
from spark_eos.pipelines.tables.iceberg.memory import Memory, check_in_main, memory_of, summary_of, tag_of
from spark_eos.pipelines.tables.iceberg.snapshots import append, stage
from spark_eos.pipelines.tables.iceberg.table import check_same, is_local, layout_of
from spark_eos.pipelines.tables.micro_batch import Remembered

#: The most hours between the writing of a file and its commit: a quarter of the shortest time, a day, after which
#: engines let ``remove_orphan_files`` remove files that are in no snapshot. The rest is for wrong clocks and slow
#: commits.
MOST_HOURS = 6.0


class LoadedTable(NamedTuple):
    """A table as one look has read it, and its memory of the query. ``metadata``: the table's, or that after it."""

    table: Table
    metadata: TableMetadata
    memory: Memory


@dataclass(frozen=True)
class IcebergCommit(FilesCommit[LoadedTable]):
    """The commit of one micro-batch."""

    known: KnownTable
    removed_after = ", and files in no snapshot may be removed after a day (remove_orphan_files)"

    @property
    def is_local(self) -> bool:
        return is_local(self.known.folder)

    def look(self) -> LoadedTable:
        table = self.known.name.load()
        return self._look(table, table.metadata)

    def _look(self, table: Table, metadata: TableMetadata) -> LoadedTable:
        return LoadedTable(table, metadata, memory_of(metadata, self.batch.query, self.path))

    def remembered(self, handle: LoadedTable) -> Remembered:
        return handle.memory.remembered

    def check_table(self, handle: LoadedTable) -> None:
        if str(handle.metadata.table_uuid) != self.known.id:
            doing = f"micro-batch {self.batch.number} was written to it"
            raise stop("EOS_OTHER_TABLE.recreated", path=self.path, doing=doing)
        check_same(self.known.layout, layout_of(handle.metadata, self.path), self.path)

    def check_kept(self, handle: LoadedTable, memory: Remembered) -> None:
        check_in_main(handle.memory, self.path, self.batch.number, self.known.after_rollback)

    def most_hours(self, handle: LoadedTable) -> float:
        return MOST_HOURS

    def has_file(self, handle: LoadedTable, path: str) -> bool:
        return handle.table.io.new_input(f"{self.known.folder}/{path}").exists()

    def append(self, handle: LoadedTable) -> Callable[[], LoadedTable]:
        table, metadata = handle.table, handle.metadata
        summary = summary_of(self.batch, self.rows, handle.memory.ends, self.known.id)
        with before_commit(self.known.name):
            staged = stage(table, self._entries(metadata), summary)
        after = append(table, staged, tag_of(self.batch.query))
        return lambda: self._look(table, after)

    def _entries(self, metadata: TableMetadata) -> list[Entry]:
        """Return the files, as manifests have them."""
        folder, layout, spec = self.known.folder, self.known.layout, metadata.default_spec_id
        schema, properties = metadata.schema(), metadata.properties
        return [entry(file, folder, schema, spec, layout, properties) for file in self.files]
