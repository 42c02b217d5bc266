"""Rows of files through a transform in the tasks: cut into pieces, given to it, and its result as the sink's columns.

Pieces are cut by the contents of a file, never by how it was read, so that a repair calls the transform with the same
rows as the first attempt. A piece is of one file, whose lines name its rows: by `LINE`, a transform also names the rows
that it rejects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.errors import stop
from spark_eos.pipelines.copy.plan import Transform
from spark_eos.pipelines.copy.transforming import CHUNK_BYTES, Transformed, called, chunks, split
from spark_eos.pipelines.files.folder import File
from spark_eos.pipelines.files.source import LINE, Form


def pieces(batches: Iterable[pa.RecordBatch], form: Form, most_bytes: int = CHUNK_BYTES) -> Iterator[pa.RecordBatch]:
    """Return the rows of one file as a transform gets them: at most 8,192, and about 16 MiB unless one row has more."""
    sizes_of = _average_sizes if form.parquet else _lengths
    return (chunk.rows for chunk in chunks(batches, most_bytes=most_bytes, number_column=LINE, sizes_of=sizes_of))


def _lengths(rows: pa.RecordBatch) -> np.ndarray:
    return np.asarray(pc.binary_length(rows.column("value")), np.int64)


def _average_sizes(rows: pa.RecordBatch) -> np.ndarray:
    return np.full(rows.num_rows, -(-rows.nbytes // max(rows.num_rows, 1)), np.int64)


def made(transform: Transform, file: File, rows: pa.RecordBatch) -> Transformed:
    """Apply the transform to a piece of the file. Raises SchemaError, RowError, and the function's errors."""
    lines = rows.column(LINE)

    def where() -> str:
        return f"lines {lines[0]} to {lines[-1]} of {file.uri}" if rows.num_rows else f"no line of {file.uri}"

    result, failed = called(transform.function, rows, where, tolerant=True)
    if failed and transform.on_malformed == "fail":
        first, error = min(failed.items())
        line = f"line {lines[first].as_py()} of {file.uri}"
        or_drop = ", or set 'files.onMalformed: drop' to leave such rows out, which is slow where there are many"
        raise stop("EOS_TRANSFORM_SQL_ROW", where=line, or_drop=or_drop, error=error)
    done = split(transform, rows, result, failed, LINE)
    if done.rejected and transform.on_malformed == "fail":
        first, reason = min(done.rejected.items())
        raise stop("EOS_RECORD_REJECTED.line", line=lines[first].as_py(), file=file.uri, reason=reason)
    return done
