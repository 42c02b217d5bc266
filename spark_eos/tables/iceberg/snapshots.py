"""How a snapshot is committed with a tag, under requirements of its own. This module and
`spark_eos.tables.iceberg.rest` are the ones that use what is private in pyiceberg.

A transaction of pyiceberg is no way to do it. It tries a refused commit again by itself, on whatever the table is by
then, so that two drivers with the same micro-batch both commit it; and it keeps only one requirement of each kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyiceberg.manifest import DataFile as Entry
from pyiceberg.table import Table
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

#: The longest age of a tag in milliseconds. Without one of its own, it would have the table's default.
_FOREVER_MS = (1 << 63) - 1


def append(table: Table, files: Sequence[Entry], summary: Mapping[str, str], tag: str) -> int:
    """Commit a snapshot that adds the files to the main branch, and move the tag to it; the snapshot's id.

    It is one request, which succeeds only if table, columns, partition fields, main branch and tag still are what
    ``table`` has read. Raises what pyiceberg raises; then the outcome is unknown.
    """
    metadata = table.metadata
    snapshot, updates = _staged(table, files, summary)
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
    table.catalog.commit_table(table, tuple(requirements), (*updates, moved))
    return snapshot


def _staged(table: Table, files: Sequence[Entry], summary: Mapping[str, str]) -> tuple[int, tuple[TableUpdate, ...]]:
    """The snapshot's id, and the updates that add it to the main branch. Its manifests are written, and no reader sees
    them yet."""
    producer = table.transaction().update_snapshot(snapshot_properties=dict(summary)).fast_append()
    for file in files:
        producer.append_data_file(file)
    updates, _ = producer._commit()  # noqa: SLF001  # pyiceberg has no public way to get the updates
    if [type(update) for update in updates] != [AddSnapshotUpdate, SetSnapshotRefUpdate]:
        raise stop("EOS_ICEBERG_LIBRARY")
    return producer.snapshot_id, updates
