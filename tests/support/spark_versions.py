"""What a test needs of Spark that not every version has."""

from __future__ import annotations

import importlib.util
import inspect

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

needs_admission_control = pytest.mark.skipif(
    importlib.util.find_spec("pyspark.sql.streaming.datasource") is None,
    reason="this Spark has no admission control for sources in Python: AvailableNow is one micro-batch, without a lag",
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of Spark's, with timestamps in UTC: what Spark before 4.2 does without being told."""
    zone = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)
