"""What each version of a Delta table has appended, by the JSON of its log.

The JSON of a version never changes. It says what delta-rs does not: whether an added file has new rows, or those of
files that OPTIMIZE has rewritten (``dataChange``). Files are numbered as they stand there, from 0 on. What the table
had when a query began comes first, by delta-rs, in the order of the paths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as types

from spark_eos.errors import EosError, stop
from spark_eos.tables.delta.table import MAPPING, Location, columns_in, refused
from spark_eos.tables.partitions import NoPartition, text_of
from spark_eos.tables.values import check_columns

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
_VECTORS = "deletionVectors"
_CHECKPOINT = "_delta_log/_last_checkpoint"
#: Versions whose files are kept in memory, as a micro-batch is planned twice.
_KEPT = 2048

#: Files of a version. ``path``: within the table; ``size``: bytes; ``partition``: a JSON list of a text, or null, for
#: each partition column.
FILES = pa.schema([("path", pa.string()), ("size", pa.int64()), ("partition", pa.string())])


@dataclass(frozen=True)
class SourceTable:
    """A table that a query reads, as it was when the query started. ``version``: the newest then; ``columns``: its
    schema as Delta's JSON, without comments; ``schema``: the same as Arrow's."""

    location: Location
    id: str
    version: int
    columns: str
    schema: pa.Schema
    partition_by: tuple[str, ...]


@dataclass(frozen=True)
class Appended:
    """The files of a version, with the columns `FILES`, in their order. ``mark``: a digest of the version's JSON, or of
    the files where these are all that the table had."""

    files: pa.Table
    mark: str


def source_table(location: Location) -> SourceTable:
    """The table as it is now. Raises TableError (EOS_DELTA_NO_TABLE, EOS_DELTA_TABLE_SETTINGS), and SchemaError for
    columns that cannot be read past the JVM."""
    from deltalake.exceptions import TableNotFoundError

    with refused(location):
        try:
            handle = location.open()
        except TableNotFoundError:
            raise stop("EOS_DELTA_NO_TABLE.path", path=location.path, more="") from None
        protocol, metadata = handle.protocol(), handle.metadata()
        found = _protocol(
            protocol.min_reader_version,
            protocol.min_writer_version,
            protocol.reader_features or (),
            protocol.writer_features or (),
        )
        _check(location, [*found, *_properties(metadata.configuration)])
        schema = pa.schema(handle.schema().to_arrow())
        folders = tuple(metadata.partition_columns)
        _check_schema(location, schema, folders)
        columns = columns_in(handle.schema().to_json())
        return SourceTable(location, str(metadata.id), handle.version(), json.dumps(columns), schema, folders)


def _check_schema(location: Location, schema: pa.Schema, partition_by: Iterable[str]) -> None:
    """A partition column of type timestamp is refused: its texts may lack the zone, which is the writer's session's."""
    check_columns(schema, tuple(partition_by))
    times = [name for name in partition_by if schema.field(name).type == pa.timestamp("us", "UTC")]
    _check(location, [f"the partition column {name} of type timestamp" for name in times])


def _check(location: Location, found: Iterable[str]) -> None:
    """Raises TableError for what the table has and readers of its files would have to follow."""
    rules = "; ".join(found)
    if rules:
        raise stop("EOS_DELTA_TABLE_SETTINGS.reading", path=location.path, rules=rules)


def _protocol(reader: int, writer: int, readers: Iterable[str], writers: Iterable[str]) -> list[str]:
    unknown = {*(set(readers) - _READER_FEATURES), *(set(writers) - _WRITER_FEATURES)}
    found = [f"the feature {name}" for name in sorted(unknown)]
    return found + ([f"protocol {reader}, {writer}"] if reader > 3 or writer > 7 else [])


def _properties(properties: Mapping[str, str]) -> list[str]:
    mode = properties.get(MAPPING, "none")
    return [] if mode == "none" else [f"the property {MAPPING}={mode}"]


# The log


@dataclass(frozen=True)
class AppendLog:
    """The log of a table, in one process, which keeps what it has read last."""

    table: SourceTable
    _kept: dict[int, Appended] = field(default_factory=dict, compare=False)
    _first: dict[int, Appended] = field(default_factory=dict, compare=False)

    def appended(self, version: int) -> Appended | None:
        """What a version has appended; None where it is not there yet.

        Raises TableError where it says more than that or the table's log is another's (EOS_DELTA_ROWS_CHANGED,
        EOS_DELTA_SCHEMA_CHANGED, EOS_DELTA_TABLE_SETTINGS, EOS_OTHER_TABLE, EOS_DELTA_LOG_DAMAGED), and
        DataLossError where it is no longer there (EOS_DELTA_DATA_LOSS).
        """
        if version not in self._kept:
            with refused(self.table.location):
                data = self._read(version)
            if data is None:
                return None
            while len(self._kept) >= _KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[version] = appended_by(self.table, version, data)
        return self._kept[version]

    def first(self, version: int) -> Appended:
        """All files that the table had at a version. Raises TableError."""
        if version not in self._first:
            self._first.clear()
            with refused(self.table.location):
                handle = self.table.location.open()
                handle.load_as_version(version)
            self._first[version] = _all_files(self.table, handle)
        return self._first[version]

    def newest(self) -> int:
        """The newest version. Raises TableError."""
        with refused(self.table.location):
            return self._same_table().version()

    def mark(self, version: int) -> str | None:
        """The mark of a version's JSON, as it is now; None where there is none. Raises TableError."""
        with refused(self.table.location):
            data = self.table.location.read(_name(version))
        return None if data is None else _digest(data)

    def check(self, version: int, mark: str) -> None:
        """The table is the one whose version had this mark. Where the JSON is gone, as the log was cleaned, the table
        must have its id and be past that version. Raises TableError (EOS_OTHER_TABLE, EOS_DELTA_NO_TABLE)."""
        path, now = self.table.location.path, self.mark(version)
        if now is None:
            with refused(self.table.location):
                newest = self._same_table().version()
            if newest < version:
                raise other_table(path, f"it is at version {newest}, and version {version} was read")
        elif now != mark:
            raise other_table(path, f"its version {version} is not the one that was read")

    def _same_table(self) -> DeltaTable:
        from deltalake.exceptions import TableNotFoundError

        table = self.table
        try:
            handle = table.location.open()
        except TableNotFoundError:
            raise stop("EOS_DELTA_NO_TABLE.path", path=table.location.path, more=" It was there before.") from None
        if str(handle.metadata().id) != table.id:
            raise other_table(table.location.path, f"its id is {handle.metadata().id}, not {table.id}")
        return handle

    def _read(self, version: int) -> bytes | None:
        """The JSON of a version. It has to be there where the next one is, or a checkpoint of it. Raises OSError."""
        location = self.table.location
        data = location.read(_name(version))
        if data is not None or not (location.has(_name(version + 1)) or self._checkpoint() >= version):
            return data
        data = location.read(_name(version))  # it may have come since
        if data is None:
            cause = f"version {version} of {location.path} is gone, and the table is past it"
            raise stop("EOS_DELTA_DATA_LOSS.log", cause=cause)
        return data

    def _checkpoint(self) -> int:
        """The version of the last checkpoint that the log names; -1 where it names none."""
        try:
            return int(json.loads(self.table.location.read(_CHECKPOINT) or b"{}").get("version", -1))
        except (ValueError, AttributeError, TypeError):
            return -1


def _name(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def other_table(path: str, why: str) -> EosError:
    """The error for a table that is not the one that was read before."""
    return stop("EOS_OTHER_TABLE.checkpoint", cause=f"{path}: {why}")


def _all_files(table: SourceTable, handle: DeltaTable) -> Appended:
    if str(handle.metadata().id) != table.id:
        raise other_table(table.location.path, f"its id is {handle.metadata().id}, not {table.id}")
    if _VECTORS in (handle.protocol().reader_features or ()):
        vectors = pa.RecordBatchReader.from_stream(handle.deletion_vectors())
        if any(batch.num_rows for batch in vectors):
            _check(table.location, ["files with deletion vectors"])
    adds = pa.table(handle.get_add_actions())
    values = [_texts_in(table, adds, name) for name in table.partition_by]
    partitions = [json.dumps(row) for row in zip(*values, strict=True)] if values else ["[]"] * adds.num_rows
    paths = [_path(table, path) for path in adds.column("path").to_pylist()]
    files = pa.table([paths, adds.column("size_bytes"), partitions], schema=FILES).sort_by("path").combine_chunks()
    return Appended(files, _digest(json.dumps(files.to_pydict()).encode()))


def _texts_in(table: SourceTable, adds: pa.Table, name: str) -> list[str | None]:
    """The partition values of a column, as texts of a log."""
    kind = table.schema.field(name).type
    values = adds.column("partition").combine_chunks().field(name)
    if types.is_timestamp(kind):
        values = values.cast(pa.int64())
    try:
        return [text_of(value, kind) for value in values.to_pylist()]
    except NoPartition as error:
        raise stop("EOS_DELTA_FAILED", cause=f"partition column {name} of {table.location.path}: {error}") from None


# One version


def appended_by(table: SourceTable, version: int, data: bytes) -> Appended:
    """What the JSON of a version says. Raises TableError, see `AppendLog.appended`."""
    path = table.location.path
    adds: list[Mapping[str, Any]] = []
    operation = "unknown"
    try:
        for line in data.splitlines():
            if not line.strip():
                continue
            ((kind, body),) = json.loads(line).items()
            if kind == "add" and body["dataChange"]:
                adds.append(body)
            elif kind == "remove" and body["dataChange"]:
                cause = f"version {version} of {path} removes rows (operation {operation})"
                raise stop("EOS_DELTA_ROWS_CHANGED", cause=cause)
            elif kind == "metaData":
                _check_metadata(table, version, body)
            elif kind == "protocol":
                reader, writer = int(body["minReaderVersion"]), int(body["minWriterVersion"])
                features = body.get("readerFeatures") or (), body.get("writerFeatures") or ()
                _check(table.location, _protocol(reader, writer, *features))
            elif kind == "commitInfo":
                operation = body.get("operation", operation)
        # Behind the removals, as a DELETE may add a file with a deletion vector, which is the lesser reason to stop.
        files = [_file(table, version, body) for body in adds]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        cause = f"version {version} of {path}: {type(error).__name__}: {error}"
        raise stop("EOS_DELTA_LOG_DAMAGED", cause=cause) from None
    if len({name for name, _, _ in files}) < len(files):
        raise stop("EOS_DELTA_LOG_DAMAGED", cause=f"version {version} of {path} adds a file twice")
    rows = [{"path": name, "size": size, "partition": partition} for name, size, partition in files]
    return Appended(pa.Table.from_pylist(rows, FILES), _digest(data))


def _file(table: SourceTable, version: int, body: Mapping[str, Any]) -> tuple[str, int, str]:
    if body.get("deletionVector") is not None:
        _check(table.location, [f"a file with a deletion vector in version {version}"])
    values = body["partitionValues"]
    if set(values) != set(table.partition_by):
        raise ValueError(f"partition values of {', '.join(sorted(values)) or 'no column'}")
    partition = [values[name] or None for name in table.partition_by]
    return _path(table, body["path"]), int(body["size"]), json.dumps(partition)


def _path(table: SourceTable, path: str) -> str:
    """The log has paths in the form of URIs."""
    if path.startswith("/") or "://" in path or path.startswith("file:"):
        _check(table.location, [f"a file elsewhere, {path}, as a shallow clone has them"])
    return unquote(path)


def _check_metadata(table: SourceTable, version: int, body: Mapping[str, Any]) -> None:
    """The columns are those of the query, or will be: what they were before it started does not matter."""
    from deltalake import Schema

    path = table.location.path
    if body["id"] != table.id:
        raise other_table(path, f"since version {version}, its id is {body['id']}, not {table.id}")
    _check(table.location, _properties(body.get("configuration") or {}))
    folders = tuple(body.get("partitionColumns") or ())
    changed = json.dumps(columns_in(Schema.from_json(body["schemaString"]).to_json())) != table.columns
    if version > table.version and (changed or folders != table.partition_by):
        raise stop("EOS_DELTA_SCHEMA_CHANGED", cause=f"version {version} of {path}")
    if folders != table.partition_by:
        _check(table.location, [f"other partition columns in version {version}"])
