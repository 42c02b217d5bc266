"""Converts records, or a transform's results, to rows with a table's columns and types.

Unlike a decision of topics (`spark_eos.pipelines.copy.plan.ByRange`), nothing is noted for a replay: files and offsets
are one commit of the table. A committed micro-batch is not read again, and no reader has seen rows of an uncommitted
one. So each attempt of a task may decode with the schemas that a registry has by then; within a range, an unknown id
stays unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from spark_eos.errors import stop
from spark_eos.pipelines.copy.plan import ByRange, RowTransform
from spark_eos.pipelines.copy.transforming import (
    ERROR,
    OFFSET,
    Chunk,
    Transformed,
    chunks,
    reasons_by_row,
    rejection,
    returned,
    without_rejected,
)
from spark_eos.pipelines.tables.keys import Key
from spark_eos.pipelines.tables.values import conformed


@dataclass(frozen=True)
class TableTransform(RowTransform):
    """A transform to a table. ``names``: the columns that it returns; the others: of the table, as
    `spark_eos.pipelines.tables.target.TableColumns`. A column ``error`` and, where the table has none, the ``offset``
    beside it are for rejected records alone."""

    names: frozenset[str]
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()


def rows_of(transform: TableTransform, batches: Iterable[pa.RecordBatch]) -> Iterator[Transformed]:
    """Yield the rows of one range in a task, and the records that are dropped, chunk by chunk. ``batches``: its
    records. Raises SchemaError, RowError, and errors of the function."""
    if isinstance(transform.function, ByRange):
        transform = replace(transform, function=transform.function.for_range(None))
    for chunk in chunks(batches):
        done = table_rows(transform, chunk)
        if done.rejected and transform.on_malformed == "fail":
            raise rejection(chunk.rows, done.rejected)
        yield done


def table_rows(transform: TableTransform, chunk: Chunk) -> Transformed:
    """Return the chunk's rows with the table's columns. A record with a row that the table cannot hold is rejected,
    too; its other rows are returned. Raises SchemaError, RowError, and errors of the function."""
    result, failed = returned(transform, chunk)
    if frozenset(result.schema.names) != transform.names:
        raise stop("EOS_TRANSFORM_RESULT.empty_batch", columns=", ".join(result.schema.names))
    rows, by_offset = without_rejected(result, keeps_offset=True)
    offsets = rows.column(OFFSET) if ERROR in transform.names else None
    if offsets is not None and OFFSET not in transform.schema.names:
        rows = rows.drop_columns([OFFSET])
    fit = conformed(rows, transform.schema, transform.partition_by, transform.keys)
    rejected = {**reasons_by_row(chunk.rows, by_offset), **failed}
    if not fit.bad:
        return Transformed(fit.rows, rejected)
    if offsets is not None:
        unfit = {offsets[place].as_py(): unfit_reason(reason) for place, reason in fit.bad.items()}
        return Transformed(fit.rows, {**reasons_by_row(chunk.rows, unfit), **rejected})
    if chunk.rows.num_rows == 1:
        return Transformed(fit.rows, {0: unfit_reason(next(iter(fit.bad.values()))), **rejected})
    return _in_halves(transform, chunk)


def unfit_reason(reason: str) -> str:
    """Return why a record is rejected whose row the table cannot hold. ``reason``: see
    `spark_eos.pipelines.tables.values.Conformed`."""
    return f"the table cannot hold its row: {reason}"


def _in_halves(transform: TableTransform, chunk: Chunk) -> Transformed:
    """Cut the chunk in halves, again and again, until the records are isolated whose rows do not fit the table."""
    middle = chunk.rows.num_rows // 2
    left, right = (
        Chunk(rows, rows.column(OFFSET)[0].as_py()) for rows in (chunk.rows.slice(0, middle), chunk.rows.slice(middle))
    )
    first = table_rows(transform, left)
    if first.rejected and transform.on_malformed == "fail":
        return first  # the query stops at the first of them
    second = table_rows(transform, right)
    rejected = {**first.rejected, **_behind(middle, second.rejected)}
    return Transformed(pa.concat_batches([first.rows, second.rows]), rejected)


def _behind(count: int, places: Mapping[int, str]) -> dict[int, str]:
    return {count + place: reason for place, reason in places.items()}
