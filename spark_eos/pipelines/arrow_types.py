"""Spark's types as Arrow's."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType


def arrow_type(type_: DataType) -> pa.DataType:
    """Return a type, with timestamps in UTC."""
    return _in_utc(to_arrow_type, type_)


def arrow_schema(struct: StructType) -> pa.Schema:
    """Return the Arrow schema, with timestamps in UTC."""
    return _in_utc(to_arrow_schema, struct)


def _in_utc(convert: Any, of: DataType) -> Any:  # noqa: ANN401  # PySpark's converters have no type
    """Convert with UTC as the time zone. Spark before 4.2 has no parameter for it, and always uses UTC."""
    return convert(of, timezone="UTC") if "timezone" in inspect.signature(convert).parameters else convert(of)
