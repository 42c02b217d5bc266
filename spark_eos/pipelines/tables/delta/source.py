"""A Delta table that a query reads past the JVM: its columns, and checks for features that such a reader does not
support."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_eos.errors import EosError, stop
from spark_eos.pipelines.tables.delta.table import MAPPING, Location, columns_in, refused
from spark_eos.pipelines.tables.values import check_columns

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: Features for readers of a table that are harmless here, or that a file or a property shows where they matter.
_READER_FEATURES = frozenset(
    ["columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"]
)
#: Features for writers, with which added files are read as without.
_WRITER_FEATURES = _READER_FEATURES | {
    *("allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "checkpointProtection", "clustering"),
    *("domainMetadata", "generatedColumns", "icebergCompatV1", "icebergCompatV2", "identityColumns"),
    *("inCommitTimestamp", "invariants", "rowTracking"),
}
_RECORDS_CHANGES = "delta.enableChangeDataFeed"

#: Columns of changes beside the table's: the kind of a change, and its version.
CHANGE_TYPE, COMMIT_VERSION = "_change_type", "_commit_version"
#: Kinds of changes, in the order in which a version makes them for one key.
CHANGE_KINDS = ("delete", "update_preimage", "update_postimage", "insert")
#: Columns that a table with a change data feed cannot have.
_RESERVED = frozenset([CHANGE_TYPE, COMMIT_VERSION, "_commit_timestamp"])


@dataclass(frozen=True)
class SourceTable:
    """A table that a query reads, as it was when the query started. ``version``: the newest then; ``columns``: its
    schema as Delta's JSON, without comments; ``schema``: the same as Arrow's; ``changes``: whether its changes are
    read, and not the rows that are appended."""

    location: Location
    id: str
    version: int
    columns: str
    schema: pa.Schema
    partition_by: tuple[str, ...]
    changes: bool = False


def source_table(location: Location, *, changes: bool = False) -> SourceTable:
    """Return the table as it is now. ``changes``: see `SourceTable`. Raises TableError (EOS_DELTA_NO_TABLE,
    EOS_DELTA_TABLE_SETTINGS), and SchemaError for columns that cannot be read past the JVM."""
    from deltalake.exceptions import TableNotFoundError

    with refused(location):
        try:
            handle = location.open()
        except TableNotFoundError:
            raise stop("EOS_DELTA_NO_TABLE.path", path=location.path, at=f" at {location.path}") from None
        metadata = handle.metadata()
        if changes and not records_changes(metadata.configuration):
            raise stop("EOS_DELTA_TABLE_SETTINGS.change_feed", path=location.path, name=f"delta.`{location.path}`")
        check_rules(location, [*_protocol_of(handle), *of_properties(metadata.configuration)])
        schema = pa.schema(handle.schema().to_arrow())
        reserved = [name for name in schema.names if changes and name.lower() in _RESERVED]
        check_rules(location, [f"the column {name} beside a change data feed" for name in reserved])
        folders = tuple(metadata.partition_columns)
        _check_schema(location, schema, folders)
        columns = columns_in(handle.schema().to_json())
        return SourceTable(location, str(metadata.id), handle.version(), json.dumps(columns), schema, folders, changes)


def _check_schema(location: Location, schema: pa.Schema, partition_by: Iterable[str]) -> None:
    """Refuse a partition column of type timestamp: its texts may lack the zone, which is the writer's session's."""
    check_columns(schema, tuple(partition_by))
    times = [name for name in partition_by if schema.field(name).type == pa.timestamp("us", "UTC")]
    check_rules(location, [f"the partition column {name} of type timestamp" for name in times])


def check_rules(location: Location, rules: Iterable[str]) -> None:
    """Raise TableError for features of the table that readers of its files would have to support."""
    if listed := "; ".join(rules):
        raise stop("EOS_DELTA_TABLE_SETTINGS.reading", path=location.path, rules=listed)


def of_protocol(reader: int, writer: int, readers: Iterable[str], writers: Iterable[str]) -> list[str]:
    """Describe the features of a table's protocol that cannot be read past the JVM."""
    unknown = {*(set(readers) - _READER_FEATURES), *(set(writers) - _WRITER_FEATURES)}
    named = [f"the feature {name}" for name in sorted(unknown)]
    return named + ([f"protocol {reader}, {writer}"] if reader > 3 or writer > 7 else [])


def _protocol_of(handle: DeltaTable) -> list[str]:
    """Return `of_protocol` of the table at a handle's version."""
    protocol = handle.protocol()
    features = protocol.reader_features or (), protocol.writer_features or ()
    return of_protocol(protocol.min_reader_version, protocol.min_writer_version, *features)


def of_properties(properties: Mapping[str, str]) -> list[str]:
    """Describe the properties of a table that prevent reading it past the JVM."""
    mode = properties.get(MAPPING, "none")
    return [] if mode == "none" else [f"the property {MAPPING}={mode}"]


def records_changes(properties: Mapping[str, str]) -> bool:
    """Return whether a table with these properties records its changes."""
    return (properties.get(_RECORDS_CHANGES) or "").lower() == "true"


def check_recorded(table: SourceTable, version: int, properties: Mapping[str, str]) -> None:
    """Check that the table recorded its changes at a version, by the properties that it had then. Raises TableError
    (EOS_DELTA_TABLE_SETTINGS)."""
    if not records_changes(properties):
        cause = f"version {version} of {table.location.path} has no {_RECORDS_CHANGES} = true"
        raise stop("EOS_DELTA_TABLE_SETTINGS.changes", cause=cause)


def check_then(table: SourceTable, handle: DeltaTable) -> None:
    """Check that the query can read the table at the version of a handle, as `check_metadata` does. Raises
    TableError."""
    version, metadata = handle.version(), handle.metadata()
    check_rules(table.location, [f"{rule} in version {version}" for rule in _protocol_of(handle)])
    body = {
        "id": str(metadata.id),
        "configuration": metadata.configuration,
        "partitionColumns": metadata.partition_columns,
        "schemaString": handle.schema().to_json(),
    }
    check_metadata(table, version, body)


def check_metadata(table: SourceTable, version: int, body: Mapping[str, Any]) -> None:
    """Check the metadata of the table in a version's JSON. Columns must be the query's, except in versions before it
    started. Raises TableError."""
    from deltalake import Schema

    path = table.location.path
    if body["id"] != table.id:
        raise other_table(path, f"at version {version}, its id is {body['id']}, not {table.id}")
    properties = body.get("configuration") or {}
    check_rules(table.location, [f"{rule} in version {version}" for rule in of_properties(properties)])
    if table.changes:
        check_recorded(table, version, properties)
    folders = tuple(body.get("partitionColumns") or ())
    changed = json.dumps(columns_in(Schema.from_json(body["schemaString"]).to_json())) != table.columns
    if version > table.version and (changed or folders != table.partition_by):
        raise stop("EOS_DELTA_SCHEMA_CHANGED", cause=f"version {version} of {path}")
    if folders != table.partition_by:
        check_rules(table.location, [f"other partition columns in version {version}"])


def other_table(path: str, why: str) -> EosError:
    """Return the error for a table that is not the one that was read before."""
    return stop("EOS_OTHER_TABLE.checkpoint", cause=f"{path}: {why}")
