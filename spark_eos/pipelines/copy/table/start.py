"""The start of a query from topics to a table: options, the table, and whether table and checkpoint belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_eos.errors import invalid_option, stop

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_eos.checkpoint.files import Checkpoint
    from spark_eos.pipelines.copy.plan import Function, OnMalformed, RowTransform
    from spark_eos.pipelines.copy.table.options import TableOptions
    from spark_eos.pipelines.copy.table.plan import TablePlan
    from spark_eos.pipelines.copy.table.rows import TableTransform
    from spark_eos.pipelines.copy.transforming import Chunk
    from spark_eos.pipelines.tables.target import TableReference
    from spark_eos.spi import BrokerClient, SourceOptions


def transform_of(function: Function | None, name: str | None, on_malformed: OnMalformed) -> RowTransform | None:
    """Return the transform; None for records as they are. ``name``: the function's. Raises OptionError for a value of
    ``on_malformed`` that tables do not support."""
    from spark_eos.pipelines.copy.plan import RowTransform

    if on_malformed == "deadLetters":
        raise stop("EOS_OPTION_CONFLICT.table_letters", option="on_malformed")
    if on_malformed not in ("fail", "drop"):
        raise invalid_option("on_malformed", f"'{on_malformed}'", "fail, drop")
    if function is not None:
        return RowTransform(function, str(name), on_malformed=on_malformed)
    if on_malformed != "fail":
        raise stop(
            "EOS_OPTION_CONFLICT.remove",
            option="on_malformed",
            given="set",
            why="records go to the table as they are: there is no transform to reject them",
        )
    return None


def planned(
    source: Mapping[str, str],
    options: TableOptions,
    checkpoint: str,
    transform: RowTransform | None = None,
) -> TablePlan:
    """Return the plan with the table, which is created where there is none, and given columns that it lacks if the
    options say so: when all else is checked. Raises EosError."""
    from spark_eos.pipelines.copy.table.plan import TablePlan
    from spark_eos.spi import cluster_id

    reads, client = _reads(source)
    reads, cluster = replace(reads, sink=options.mark), cluster_id(client)
    reference, kept = _ends(options, checkpoint)
    fitted, columns, there = _columns(transform, client, reads, reference, evolves=options.evolves)
    table = reference.target(columns if there is None else there, create=kept.last_batch("commits") is None)
    last = _check_last(reference, kept)
    if there is not None:
        table = table.evolved(columns)
        fitted = None if fitted is None else replace(fitted, schema=table.layout.schema)
    return TablePlan(reads, cluster, table, last, fitted)


def check(
    source: Mapping[str, str],
    options: TableOptions,
    checkpoint: str,
    transform: RowTransform | None = None,
    *,
    decodes: bool = False,
) -> None:
    """Check as `planned` does, without a session and without writing anything. ``decodes``: the columns are not known
    yet, as they come from a registry. Raises EosError."""
    reference, kept = _ends(options, checkpoint)
    there = reference.columns()
    is_new = there is None and kept.last_batch("commits") is None
    if decodes:
        if is_new:
            reference.check_new(None)
        return
    reads, client = _reads(source)
    _, columns, known = _columns(transform, client, reads, reference, evolves=options.evolves)
    if is_new:
        reference.check_new(columns)
    else:
        reference.target(columns if known is None else known, create=False)
        _check_last(reference, kept)


def _reads(source: Mapping[str, str]) -> tuple[SourceOptions, BrokerClient]:
    """Return the source's options, checked, and its client. Raises OptionError."""
    from spark_eos.pipelines.copy.checks import bounded, check_source
    from spark_eos.spi import broker_client, stream_options

    reads = bounded(stream_options(source))
    check_source(reads, ordered=False, keeps_order="")
    return reads, broker_client(reads.kafka)


def _ends(options: TableOptions, checkpoint: str) -> tuple[TableReference, Checkpoint]:
    """Return where the table is, and the checkpoint of its query."""
    from spark_eos.checkpoint.files import Checkpoint

    storage = options.storage.on_this_machine()
    return options.reference(storage), Checkpoint(checkpoint, storage)


def _columns(
    transform: RowTransform | None,
    client: BrokerClient,
    reads: SourceOptions,
    reference: TableReference,
    *,
    evolves: bool,
) -> tuple[TableTransform | None, pa.Schema, pa.Schema | None]:
    """Return the transform with the table, the columns that are written, and the current columns of a table that lacks
    some of them."""
    from spark_eos.source.schema import arrow_schema

    fitted = None if transform is None else fitting(transform, client, reads, reference, evolves=evolves)
    columns = arrow_schema(reads.include_headers) if fitted is None else fitted.schema
    there = reference.columns() if evolves else None
    if there is None or not set(there.schema.names) <= set(columns.names):
        return fitted, columns, None  # columns that nobody writes are refused as without the option
    return fitted, columns, there.schema


def _check_last(reference: TableReference, checkpoint: Checkpoint) -> int | None:
    """Return the query's last micro-batch in the table, which goes with its checkpoint. Raises TableError, also for a
    query whose rows have passed through Spark."""
    from spark_eos.pipelines.tables.micro_batch import check_start

    newest = checkpoint.last_batch("offsets")
    lines = () if newest is None else checkpoint.source_lines(newest)
    if not all(line.position.copy or line.damaged for line in lines):  # the source names the damaged file
        raise stop("EOS_OTHER_TABLE.through_spark", path=reference.name)
    query = checkpoint.query_id()
    last = None if query is None else reference.remembered(query).last
    if query is not None:
        check_start(reference.name, last, finished=checkpoint.last_batch("commits"), planned=newest)
    return last


def fitting(
    transform: RowTransform,
    client: BrokerClient,
    reads: SourceOptions,
    reference: TableReference,
    *,
    evolves: bool = False,
) -> TableTransform:
    """Return the transform with its table: the existing one at ``reference``, or a new one with the columns that it
    returns for no records. ``evolves``: columns that an existing table lacks are to be added.

    Where a column of the empty result has no type, a sample of the topics gives it one. Raises RowError and
    SchemaError, also for results of the sample, and TableError.
    """
    import pyarrow as pa

    from spark_eos.pipelines.copy.sample import check_chunks, taken
    from spark_eos.pipelines.copy.table.rows import TableTransform, table_rows
    from spark_eos.pipelines.copy.transforming import ERROR, OFFSET, as_batch, without_rejected
    from spark_eos.pipelines.tables.values import conformed
    from spark_eos.source.schema import arrow_schema

    empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(reads.include_headers))
    result = as_batch(transform.function(empty))
    rows, _ = without_rejected(result, keeps_offset=True)
    if not rows.schema.names:
        raise stop("EOS_TABLE_COLUMNS.empty")
    sample = taken(client, reads)
    there = reference.columns()
    columns = reference.new_columns(typed(rows.schema, transform, sample)) if there is None else there
    schema, partition_by, keys = columns.schema, columns.partition_by, columns.keys
    if there is not None:
        if ERROR in result.schema.names and ERROR in schema.names:
            raise stop("EOS_TABLE_COLUMNS.reserved", column=ERROR)
        if ERROR in result.schema.names and OFFSET not in schema.names:
            rows = rows.drop_columns([OFFSET])
        if evolves:
            schema = reference.widened(schema, typed(rows.schema, transform, sample))
        conformed(rows, schema, partition_by)
    names = frozenset(result.schema.names)
    fitted = TableTransform(
        transform.function, transform.name, names, schema, partition_by, keys, on_malformed=transform.on_malformed
    )
    check_chunks(fitted, sample, table_rows)
    return fitted


def typed(schema: pa.Schema, transform: RowTransform, sample: Sequence[Chunk]) -> pa.Schema:
    """Give types to columns that have none, such as from an empty Python list, by the results for a sample. Columns
    that stay without a type have Arrow's type ``null``."""
    import pyarrow as pa

    from spark_eos.pipelines.copy.sample import types_by_sample

    if not any(pa.types.is_null(column.type) for column in schema):
        return schema
    for other in types_by_sample(transform, sample):
        for number, column in enumerate(schema):
            if pa.types.is_null(column.type) and column.name in other.names:
                schema = schema.set(number, other.field(column.name))
    return schema
