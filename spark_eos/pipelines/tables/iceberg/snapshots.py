"""Commits a snapshot with a tag, under requirements of its own. Only this module and
`spark_eos.pipelines.tables.iceberg.rest` use private names of pyiceberg.

pyiceberg's own transactions are unsuitable. They try a refused commit again, on the table as it is by then, so that two
drivers with the same micro-batch would both commit it; and they keep only one requirement of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from pyiceberg.manifest import DataFile as Entry
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from spark_eos.errors import stop

#: A snapshot's id, and the updates that add it to the main branch.
Staged = tuple[int, tuple[TableUpdate, ...]]

#: The longest age of a tag in milliseconds. Without one of its own, it would have the table's default.
_FOREVER_MS = (1 << 63) - 1
#: The property by which commits delete files of metadata that the table no longer names.
_DELETES = "write.metadata.delete-after-commit.enabled"


def append(table: Table, staged: Staged, tag: str) -> TableMetadata:
    """Commit a snapshot that adds files to the main branch, and move the tag to it. Returns the metadata after it.

    It is one request, which succeeds only if table, columns, partition fields, main branch and tag are still as
    ``table`` has read them. Raises pyiceberg's errors; then the outcome is unknown.
    """
    metadata = table.metadata
    snapshot, updates = staged
    refs = {name: ref.snapshot_id for name, ref in metadata.refs.items()}
    # Parts of the request have the names of Iceberg's REST specification.
    requirements: list[TableRequirement] = [
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": refs.get(MAIN_BRANCH)}),
    ]
    if metadata.snapshots:  # pyiceberg takes requirements on other refs only then; without snapshots there is no tag
        requirements.append(AssertRefSnapshotId.model_validate({"ref": tag, "snapshot-id": refs.get(tag)}))
    moved = SetSnapshotRefUpdate.model_validate(
        {"ref-name": tag, "type": SnapshotRefType.TAG, "snapshot-id": snapshot, "max-ref-age-ms": _FOREVER_MS}
    )
    done = table.catalog.commit_table(table, tuple(requirements), (*updates, moved))
    _delete_old_metadata(table, done.metadata)
    return done.metadata


def _delete_old_metadata(table: Table, now: TableMetadata) -> None:
    """Delete metadata files that the table no longer names, if its properties say so: each commit writes one. A file
    that cannot be deleted stays."""
    named = {entry.metadata_file for entry in now.metadata_log}
    if not named or now.properties.get(_DELETES, "").lower() != "true":
        return
    for entry in table.metadata.metadata_log:
        if entry.metadata_file not in named:
            with suppress(Exception):
                table.io.delete(entry.metadata_file)


class _Staging(Transaction):
    """A transaction in which nothing is changed yet, so that it has the table's own metadata. That of pyiceberg makes a
    copy of it, with all snapshots, whenever it looks at it: a dozen times for each commit."""

    @property
    def table_metadata(self) -> TableMetadata:
        return self._table.metadata


def stage(table: Table, files: Sequence[Entry], summary: Mapping[str, str]) -> Staged:
    """Write the manifests of a snapshot, which no reader sees yet; many small ones are merged if the table's
    ``commit.manifest-merge.enabled`` says so. Raises pyiceberg's errors."""
    producer = _Staging(table).update_snapshot(snapshot_properties=dict(summary)).merge_append()
    for file in files:
        producer.append_data_file(file)
    updates, _ = producer._commit()  # noqa: SLF001  # pyiceberg has no public way to get the updates
    if [type(update) for update in updates] != [AddSnapshotUpdate, SetSnapshotRefUpdate]:
        raise stop("EOS_ICEBERG_LIBRARY")
    return producer.snapshot_id, updates
