"""The start of a query from topics to a table: options, the table, and whether table and checkpoint belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_eos.checkpoint.settings import HadoopSettings, without_settings
from spark_eos.errors import stop

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from spark_eos.copy.plan import Function, OnMalformed, RowTransform
    from spark_eos.copy.table.plan import TablePlan
    from spark_eos.copy.table.rows import TableTransform
    from spark_eos.copy.transforming import Chunk
    from spark_eos.options.parse import SourceOptions
    from spark_eos.tables.delta.table import Location

#: The value of the sink's option ``format`` for a Delta table.
DELTA = "delta"
_FORMAT = "eos-kafka-table"
_OPTIONS = ("format", "path", "partitionBy", "afterRestore")
#: Prefix of the properties of a table that is created.
_PROPERTY = "delta."
_NO_SETTINGS = HadoopSettings()


@dataclass(frozen=True)
class TableOptions:
    """The sink's options for a table. ``partition_by`` and ``properties`` are for one that is created;
    ``after_restore``: the version of a RESTORE after which the query goes on; ``storage``: settings ``fs.…``."""

    path: str
    partition_by: tuple[str, ...] = ()
    after_restore: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    storage: HadoopSettings = _NO_SETTINGS


def table_options(raw: Mapping[str, str], session: Mapping[str, str]) -> TableOptions:
    """Parse the sink's options. ``session``: its settings of file systems. Raises OptionError."""
    from spark_eos.options.values import parse_batch, parse_text

    properties, given = {}, {}
    names = {name.lower(): name for name in _OPTIONS}
    options, storage = without_settings(raw, session)
    for key, value in options.items():
        if key.startswith(_PROPERTY):
            properties[key] = value
        elif key.lower() in names:
            given[names[key.lower()]] = value
        else:
            raise stop("EOS_OPTION_UNKNOWN.table", option=key, names=", ".join(_OPTIONS))
    if "path" not in given:
        raise stop("EOS_OPTION_MISSING.table_path")
    columns = tuple(filter(None, (name.strip() for name in given.get("partitionBy", "").split(","))))
    restored = given.get("afterRestore")
    return TableOptions(
        parse_text("path", given["path"]),
        columns,
        None if restored is None else parse_batch("afterRestore", restored),
        properties,
        storage,
    )


def transform_of(function: Function | None, name: str | None, on_malformed: OnMalformed) -> RowTransform | None:
    """The transform; None for records as they are. ``name``: the function's. Raises OptionError for what cannot become
    of records that it rejects."""
    from spark_eos.copy.plan import RowTransform

    if on_malformed == "deadLetters":
        raise stop("EOS_OPTION_CONFLICT.table_letters", option="on_malformed")
    if on_malformed not in ("fail", "drop"):
        raise stop("EOS_OPTION_INVALID.malformed", given=on_malformed, allowed="fail, drop")
    if function is not None:
        return RowTransform(function, str(name), on_malformed=on_malformed)
    if on_malformed != "fail":
        raise stop("EOS_OPTION_CONFLICT.table_malformed", option="on_malformed")
    return None


def to_table(
    spark: SparkSession,
    source: Mapping[str, str],
    sink: Mapping[str, str],
    checkpoint: str,
    trigger: Mapping[str, object] | None,
    name: str | None,
    transform: RowTransform | None = None,
) -> StreamingQuery:
    """Start a query from topics to a table. See `spark_eos.copy`. Raises EosError for what can be known before."""
    from spark_eos.checkpoint.settings import of_session
    from spark_eos.copy.query import start_ranges
    from spark_eos.copy.table.source import TableDataSource

    plan = planned(source, table_options(sink, of_session(spark)), checkpoint, transform)
    return start_ranges(spark, plan, TableDataSource, _FORMAT, checkpoint, trigger, name)


def planned(
    source: Mapping[str, str], options: TableOptions, checkpoint: str, transform: RowTransform | None = None
) -> TablePlan:
    """What the tasks need, with the table, which is created where there is none. Raises EosError."""
    from spark_eos.checkpoint.files import Checkpoint
    from spark_eos.checkpoint.settings import here
    from spark_eos.copy.checks import bounded, check_source
    from spark_eos.copy.table.plan import TablePlan
    from spark_eos.kafka.admin.topics import cluster_id
    from spark_eos.kafka.net.client import broker_client
    from spark_eos.options.parse import stream_options
    from spark_eos.source.schema import arrow_schema
    from spark_eos.tables.delta.actions import statistics_columns
    from spark_eos.tables.delta.memory import check_start
    from spark_eos.tables.delta.table import known, location_of, refused
    from spark_eos.tables.files import FileLayout

    reads = bounded(stream_options(source))
    check_source(reads, ordered=False, keeps_order="")
    cluster = cluster_id(broker_client(reads.kafka))
    storage = HadoopSettings(here(options.storage))
    location = location_of(options.path, storage)
    fitted = None if transform is None else fitting(transform, reads, location, options.partition_by)
    columns = arrow_schema(reads.include_headers) if fitted is None else fitted.schema
    found = Checkpoint(checkpoint, storage)
    query, finished = found.query_id(), found.last_batch("commits")
    table = known(location, columns, options.partition_by, options.properties, create=finished is None)
    last = None
    with refused(location):
        handle = location.open()
        bounded_columns = statistics_columns(handle.metadata().configuration)
        if query is not None:
            last = handle.transaction_version(query)
    if query is not None:
        check_start(location.path, last, finished=finished, planned=found.last_batch("offsets"))
    layout = FileLayout(columns, table.partition_by, statistics_columns=bounded_columns)
    return TablePlan(reads, cluster, table, layout, checkpoint, storage, last, options.after_restore, fitted)


def fitting(
    transform: RowTransform, reads: SourceOptions, location: Location, partition_by: tuple[str, ...]
) -> TableTransform:
    """The transform with the table that it writes to: the one at the location or, where there is none, one with the
    columns that it returns for no records, ``partition_by`` some of them.

    Where it gives a column no type for no records, a sample of the topics does. Raises RowError and SchemaError, also
    for what it makes of the sample, and TableError.
    """
    import pyarrow as pa

    from spark_eos.copy.sample import check_chunks, taken
    from spark_eos.copy.table.rows import TableTransform, table_rows
    from spark_eos.copy.transforming import ERROR, OFFSET, as_batch, without_rejected
    from spark_eos.source.schema import arrow_schema
    from spark_eos.tables.delta.table import columns_there
    from spark_eos.tables.values import check_columns, conformed, table_schema

    empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(reads.include_headers))
    result = as_batch(transform.function(empty))
    rows, _ = without_rejected(result, keeps_offset=True)
    if not rows.schema.names:
        raise stop("EOS_TABLE_COLUMNS.empty")
    sample = taken(reads)
    there = columns_there(location)
    if there is None:
        schema = table_schema(typed(rows.schema, transform, sample))
        check_columns(schema, partition_by)
    else:
        schema, partition_by = there
        if ERROR in result.schema.names and ERROR in schema.names:
            raise stop("EOS_TABLE_COLUMNS.reserved", column=ERROR)
        if ERROR in result.schema.names and OFFSET not in schema.names:
            rows = rows.drop_columns([OFFSET])
        conformed(rows, schema, partition_by)
    names = frozenset(result.schema.names)
    fitted = TableTransform(
        transform.function, transform.name, names, schema, partition_by, on_malformed=transform.on_malformed
    )
    check_chunks(fitted, sample, table_rows)
    return fitted


def typed(schema: pa.Schema, transform: RowTransform, sample: Sequence[Chunk]) -> pa.Schema:
    """The columns with types: those that a sample gives to columns that have none, as from an empty list of Python's.
    What stays without one is of Arrow's type ``null``."""
    import pyarrow as pa

    from spark_eos.copy.sample import types_by_sample

    found = types_by_sample(transform, sample)
    while any(pa.types.is_null(column.type) for column in schema) and (other := next(found, None)) is not None:
        for place, column in enumerate(schema):
            if pa.types.is_null(column.type) and column.name in other.names:
                schema = schema.set(place, other.field(column.name))
    return schema
