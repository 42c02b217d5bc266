"""Iceberg tables by pyiceberg: checks that this writer supports their rules, and their creation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.transforms import parse_transform

from spark_eos.errors import stop
from spark_eos.pipelines.tables import evolution
from spark_eos.pipelines.tables.files import Codec, FileLayout
from spark_eos.pipelines.tables.iceberg.catalog import TableName, opened
from spark_eos.pipelines.tables.iceberg.columns import NoColumn, arrow_schema, iceberg_schema
from spark_eos.pipelines.tables.keys import Key, is_known, key_of
from spark_eos.pipelines.tables.values import check_columns

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

#: The version of the format that is written. Version 1 has no sequence numbers; 3 gives each row an id.
_VERSION = 2
_DATA, _FORMAT, _CODEC = "write.data.path", "write.format.default", "write.parquet.compression-codec"
#: Whether commits merge small manifests. Iceberg's default is true, pyiceberg's is not.
_MERGES = "commit.manifest-merge.enabled"
_STATISTICS_COLUMNS = 100
#: Characters of a location that some readers would decode.
_DECODED = re.compile(r"[?#%\\\x00-\x1f\x7f]")


def layout_of(metadata: TableMetadata, path: str) -> FileLayout:
    """Return how the table's files are written. ``path``: the table, for messages. Raises TableError
    (EOS_ICEBERG_TABLE.rules) for rules of the table that an append of such files would violate, and SchemaError."""
    schema, rules = metadata.schema(), []
    if metadata.format_version != _VERSION:
        rules.append(f"version {metadata.format_version} of the format")
    for name, value in sorted(metadata.properties.items()):
        if name.startswith("encryption.") or (name == _FORMAT and value.lower() != "parquet"):
            rules.append(f"the property {name}={value}")
    columns = pa.schema([])
    try:
        columns = arrow_schema(schema)
    except NoColumn as error:
        rules.append(str(error))
    keys = []
    for field in metadata.spec().fields:
        key = _key(field, schema)
        if key is not None and key.column in columns.names and key.fits(columns.field(key.column).type):
            keys.append(key)
        else:
            rules.append(f"the partition field {field.name} by {field.transform}")
    if rules:
        raise stop("EOS_ICEBERG_TABLE.rules", path=path, rules="; ".join(rules))
    check_columns(columns)
    codec: Codec = "snappy" if metadata.properties.get(_CODEC, "").lower() == "snappy" else "zstd"
    return FileLayout(columns, codec=codec, statistics_columns=_STATISTICS_COLUMNS, keys=tuple(keys))


def _key(field: PartitionField, schema: Schema) -> Key | None:
    """Return the key of a partition field; None if files are not written by it."""
    column = next((one.name for one in schema.fields if one.field_id == field.source_id), None)
    transform = str(field.transform)
    return Key(field.name, column, transform) if column is not None and is_known(transform) else None


def folder_of(metadata: TableMetadata, path: str) -> str:
    """Return where the table's files are, by its metadata. Raises TableError (EOS_ICEBERG_TABLE.location) for a
    location that is neither on a local disk nor on S3."""
    folder = metadata.properties.get(_DATA) or f"{metadata.location.rstrip('/')}/data"
    if _DECODED.search(folder) or not (is_local(folder) or re.match("s3[an]?://", folder)):
        raise stop("EOS_ICEBERG_TABLE.location", path=path, location=folder)
    return folder.rstrip("/")


def is_local(folder: str) -> bool:
    """Return whether a table's folder is on a local disk."""
    return re.match("/|file:(//)?/(?!/)", folder) is not None


def check_same(layout: FileLayout, now: FileLayout, path: str) -> None:
    """Check that the table takes files that tasks have written by ``layout``. Raises TableError (EOS_TABLE_DIFFERS)."""
    unlike = differences(layout.schema, now.schema)
    if not unlike and not layout.schema.equals(now.schema, check_metadata=True):
        unlike.append("a column was dropped and added again")
    if layout.keys != now.keys:
        unlike.append("its partition fields have changed")
    if unlike:
        raise stop("EOS_TABLE_DIFFERS", path=path, differences="; ".join(unlike))


def differences(written: pa.Schema, there: pa.Schema) -> list[str]:
    """See `evolution.differences`."""
    ours, theirs = ({field.name: field for field in schema} for schema in (written, there))
    return evolution.differences(ours, theirs, _kind)


def _kind(column: pa.Field) -> str:
    return str(column.type) if column.nullable else f"{column.type} NOT NULL"


def created(name: TableName, schema: pa.Schema, partition_by: Sequence[str]) -> Table:
    """Create the table with these columns, unless another writer creates it meanwhile, and return it. Its namespace is
    created where there is none. ``partition_by``: as `spark_eos.pipelines.tables.keys.key_of` takes it. Raises
    OptionError and SchemaError, and errors of pyiceberg."""
    check_columns(schema)
    catalog, columns = opened(name), iceberg_schema(schema)
    spec = partitioned(columns, schema, partition_by)
    catalog.create_namespace_if_not_exists(name.table.rpartition(".")[0])
    properties = {"format-version": str(_VERSION), _MERGES: "true"}
    return catalog.create_table_if_not_exists(name.table, columns, partition_spec=spec, properties=properties)


def partitioned(columns: Schema, schema: pa.Schema, partition_by: Sequence[str]) -> PartitionSpec:
    """Return the partition fields of a table that is created with ``columns``, made of ``schema``. Raises OptionError
    and SchemaError."""
    fields: list[PartitionField] = []
    for number, key in enumerate(map(key_of, partition_by)):
        if key.column not in schema.names:
            raise stop(
                "EOS_TABLE_COLUMNS.partition", column=key.column, why=f"its columns are {', '.join(schema.names)}"
            )
        if [field.name for field in fields].count(key.name):
            raise stop("EOS_TABLE_COLUMNS.twice", column=key.name)
        if not key.fits(schema.field(key.column).type):
            raise stop(
                "EOS_TABLE_COLUMNS.partition", column=key.column, why=f"the column is {schema.field(key.column).type}"
            )
        source, id_ = columns.find_field(key.column).field_id, PARTITION_FIELD_ID_START + number
        fields.append(PartitionField(source, id_, parse_transform(key.transform), key.name))
    check_field_names(columns, fields, columns)
    return PartitionSpec(*fields)


def check_field_names(columns: Schema, fields: Iterable[PartitionField], sources: Schema) -> None:
    """Raise SchemaError for a column with the name of a partition field, which only the column of that field may have,
    if it is not transformed. ``sources``: the columns that the fields are of."""
    names = {name.lower(): name for name in columns.column_names}
    for field in fields:
        column, source = names.get(field.name.lower()), sources.find_column_name(field.source_id)
        if column is not None and not (column == source and str(field.transform) in ("identity", "void")):
            raise stop(
                "EOS_TABLE_COLUMNS.name",
                column=column,
                why=f"its partition field by {field.transform} of {source} has that name",
            )
