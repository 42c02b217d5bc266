"""Arrow UDFs that decode and encode a column with the schemas that the driver has looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import BinaryType, DataType, StringType, StructType

from spark_eos.errors import stop
from spark_eos.pipelines.arrow_types import arrow_type
from spark_eos.pipelines.registry.decoding import Decoding
from spark_eos.pipelines.registry.encoding import Encoding
from spark_eos.pipelines.registry.unknown_ids import UnknownIds

#: The fields of a column of `decoded_or_why`.
ROW, WHY = "row", "why"


def decoded(decoding: Decoding, column: Column, headers: Column | None, *, fails: bool) -> Column:
    """Return the decoded column. A value that cannot be decoded is an error (EOS_VALUE_MALFORMED) if ``fails``, else
    null."""
    subject = decoding.registered.subject

    def from_registry(*given: pa.Array) -> pa.Array:
        result = decoding.decode(*given)
        if fails and result.bad:
            raise stop("EOS_VALUE_MALFORMED.read", subject=subject, reason=result.bad[min(result.bad)])
        return result.rows

    made: Column = _udf(from_registry, from_arrow_type(decoding.type))(*_given(column, headers))
    return made


def decoded_or_why(decoding: Decoding, column: Column, headers: Column | None, *, twice: bool = False) -> Column:
    """Return a struct of `ROW`, the decoded value, and `WHY`, the reason why it cannot be decoded. Spark evaluates it
    once for each row, before later filters. ``twice``: the query reads the rows twice, once for rows that can be
    decoded and once for the others; then an unknown id is an error (EOS_REGISTRY_NOT_FOUND), as the registry may learn
    it between the two."""

    def from_registry(*given: pa.Array) -> pa.Array:
        unknown = UnknownIds()
        result = decoding.decode(given[0], given[1] if len(given) > 1 else None, unknown)
        if twice and unknown.names:
            first = unknown.names[0].partition("..")[0]
            raise stop("EOS_REGISTRY_NOT_FOUND.twice", schema=first, registry=decoding.settings.name)
        count = len(result.rows)
        why = pa.nulls(count, pa.string())
        if result.bad:
            why = pa.array([result.bad.get(row) for row in range(count)], pa.string())
        return pa.StructArray.from_arrays([result.rows, why], [ROW, WHY])

    type_ = StructType().add(ROW, from_arrow_type(decoding.type)).add(WHY, StringType())
    # Spark evaluates a deterministic function again for each filter and column that uses it.
    made: Column = _udf(from_registry, type_).asNondeterministic()(*_given(column, headers))
    return made


def encoded(encoding: Encoding, column: Column, *, fails: bool) -> Column:
    """Return the column as bytes. A row that the schema cannot hold is an error (EOS_VALUE_MALFORMED) if ``fails``,
    else null."""

    def to_registry(rows: pa.Array) -> pa.Array:
        return encoding.encode_all(rows) if fails else encoding.encode(rows).values

    made: Column = _udf(to_registry, BinaryType())(column)
    return made


def check_type(encoding: Encoding, type_: DataType) -> None:
    """Raise EosError where no row of this type could be written."""
    encoding.encode(pa.nulls(0, arrow_type(type_)))


def _given(column: Column, headers: Column | None) -> list[Column]:
    return [column] if headers is None else [column, headers]


def _udf(function: Callable[..., pa.Array], type_: DataType) -> Any:  # noqa: ANN401  # untyped in PySpark
    """Return an Arrow UDF; PySpark tells its kind by the function's annotations."""
    make: Any = arrow_udf
    return make(function, type_)
