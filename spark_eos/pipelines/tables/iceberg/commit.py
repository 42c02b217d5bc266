"""Commits a micro-batch's files to an Iceberg table exactly once, even if requests are lost or drivers are killed.

- *One request, and no other way to try it again.* Files, summary and tag are in one commit of the catalog, which it
  refuses if anybody else has committed since the table was read (`spark_eos.pipelines.tables.iceberg.snapshots`).
- *An error does not tell the outcome.* The reply to a successful commit may be lost, and what is sent again is then
  refused as a conflict. So after each error the table is read anew, and asked, before anything is tried again.
- *Nothing is deleted.* What was written for a commit that failed may be in the table after all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile as Entry
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from spark_eos.base import failpoints, system
from spark_eos.errors import stop
from spark_eos.pipelines.tables.files import DataFile
from spark_eos.pipelines.tables.iceberg.catalog import before_commit
from spark_eos.pipelines.tables.iceberg.data_files import entry
from spark_eos.pipelines.tables.iceberg.known import KnownTable
from spark_eos.pipelines.tables.iceberg.memory import check_in_main, memory_of, summary_of, tag_of
from spark_eos.pipelines.tables.iceberg.snapshots import append, stage
from spark_eos.pipelines.tables.iceberg.table import check_same, layout_of
from spark_eos.pipelines.tables.micro_batch import MicroBatch, behind, has

#: The most hours between the writing of a file and its commit: a quarter of the shortest time, a day, after which
#: engines let ``remove_orphan_files`` remove files that are in no snapshot. The rest is for wrong clocks and slow
#: commits.
MOST_HOURS = 6.0


@dataclass(frozen=True)
class Commit:
    """The commit of one micro-batch. See `spark_eos.pipelines.tables.target.Target.commit`."""

    known: KnownTable
    batch: MicroBatch
    files: Sequence[DataFile]
    rows: int
    is_there: bool

    def once(self) -> bool:
        """Commit the micro-batch unless the table has it. Returns whether it had it.

        Raises TableError where the table was recreated or has other columns, where its last micro-batch is not the one
        before this, after a rollback, and for files that are too old or gone; and what pyiceberg raises.
        """
        table, batch, path = self.known.name.load(), self.batch, self.known.name.table
        metadata = table.metadata
        memory = memory_of(metadata, batch.query, path)
        self._check(metadata)
        if has(path, memory.found, batch):
            return True
        if self.is_there:
            raise behind(path, batch.number, memory.found.last)
        check_in_main(memory, path, batch.number, self.known.after_rollback)
        self._check_age(table)
        failpoints.reach("table.asked")
        summary = summary_of(batch, self.rows, memory.ends, self.known.id)
        with before_commit(self.known.name):
            staged = stage(table, self._entries(metadata), summary)
        after = append(table, staged, tag_of(batch.query))
        failpoints.reach("table.committed")
        memory_of(after, batch.query, path)
        self._check_there(table)
        return False

    def _entries(self, metadata: TableMetadata) -> list[Entry]:
        """The files, as manifests have them."""
        folder, layout, spec = self.known.folder, self.known.layout, metadata.default_spec_id
        schema, properties = metadata.schema(), metadata.properties
        return [entry(file, folder, schema, spec, layout, properties) for file in self.files]

    def _check(self, metadata: TableMetadata) -> None:
        """It is the table that the query knows, and it still takes what tasks have written. Raises TableError."""
        path = self.known.name.table
        if str(metadata.table_uuid) != self.known.id:
            doing = f"micro-batch {self.batch.number} was written to it"
            raise stop("EOS_OTHER_TABLE.recreated", path=path, doing=doing)
        check_same(self.known.layout, layout_of(metadata, path), path)

    def _check_age(self, table: Table) -> None:
        """The files exist, and no clean-up will remove them. Raises TableError (EOS_TABLE_FILES_OLD)."""
        oldest = self._oldest()
        if oldest is None:
            return
        path, batch = self.known.name.table, self.batch.number
        hours = (system.time_of_day() - oldest.written_at_ms / 1000) / 3600
        if hours > MOST_HOURS:
            raise stop(
                "EOS_TABLE_FILES_OLD.late",
                path=path,
                batch=batch,
                hours=hours,
                limit=", and files in no snapshot may be removed after a day (remove_orphan_files)",
            )
        if not self._has(table, oldest):
            raise stop("EOS_TABLE_FILES_OLD.gone", path=path, batch=batch, file=oldest.path)

    def _check_there(self, table: Table) -> None:
        """After the commit: no clean-up has removed the files meanwhile. Raises TableError (EOS_TABLE_FILES_LOST)."""
        oldest = self._oldest()
        if oldest is not None and not self._has(table, oldest):
            path, batch = self.known.name.table, self.batch.number
            raise stop("EOS_TABLE_FILES_LOST", path=path, batch=batch, file=oldest.path)

    def _has(self, table: Table, file: DataFile) -> bool:
        return table.io.new_input(f"{self.known.folder}/{file.path}").exists()

    def _oldest(self) -> DataFile | None:
        """The file that a clean-up would remove first."""
        return min(self.files, key=lambda file: file.written_at_ms, default=None)
