"""Try a transform with the first rows of a file, on the driver, before any task. See
`spark_eos.pipelines.copy.sample`."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from spark_eos.base import system
from spark_eos.base.log import logger
from spark_eos.errors import EosError, stop
from spark_eos.pipelines.confined import OutOfBounds
from spark_eos.pipelines.copy.plan import Transform
from spark_eos.pipelines.copy.sample import SampleDescription, apart, check_rows, copied
from spark_eos.pipelines.files.folder import File
from spark_eos.pipelines.files.source import LINE, Form, cast, first_rows
from spark_eos.pipelines.files.transforming import made, pieces
from spark_eos.spi import HadoopSettings

#: The sample, and seconds after which no further pieces of it are tried.
_ROWS, _BYTES, _TRYING_S = 128, 256 << 10, 0.03


def check_by_sample(transform: Transform, file: File, form: Form, given: pa.Schema, storage: HadoopSettings) -> bool:
    """Try the transform on the first rows of a file, together and in pieces, in a process of its own; whether there
    were any. Rows that are at fault themselves are no errors, nor is a file that cannot be read: tasks will say so.

    Raises RowError (EOS_TRANSFORM_RESULT) where it is not a function of each row, or takes more for one than it may,
    and SchemaError for a result that is no rows of the sink.
    """
    try:
        first = (cast(some, given, file) for some in first_rows(file, form, storage, _ROWS))
        rows = next(pieces(first, form, _BYTES), None)
    except Exception as error:  # of the user's function
        logger.info("%s could not be sampled to try the transform: %s", file.uri, type(error).__name__)
        return False
    if rows is None:
        return False

    def beyond(row: pa.RecordBatch, why: OutOfBounds) -> EosError:
        where = f"line {row.column(LINE)[0].as_py()} of {file.uri}"
        return stop("EOS_TRANSFORM_RESULT.beyond", where=where, why=why, file=file.uri)

    apart(partial(_check, transform, file, rows), partial(_one, transform, file), [rows], beyond)
    return True


def _check(transform: Transform, file: File, rows: pa.RecordBatch) -> None:
    until = system.monotonic() + _TRYING_S
    check_rows(lambda: partial(made, copied(transform), file), rows, until, _described(file, rows))


def _one(transform: Transform, file: File, row: pa.RecordBatch) -> None:
    made(copied(transform), file, row)


def _described(file: File, rows: pa.RecordBatch) -> SampleDescription:
    lines = rows.column(LINE)

    def position(number: int) -> dict[str, object]:
        return {"file": file.uri, "line": lines[number].as_py()}

    return SampleDescription(f"the first lines of {file.uri}", position, "line {line} of {file}".format_map)
