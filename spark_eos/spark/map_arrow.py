"""`DataFrame.mapInArrow` without pandas: PySpark looks for it there, and uses Arrow alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType


def map_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Apply ``function`` to the Arrow batches of each partition; the result has the columns of the DDL ``schema``."""
    udf = UserDefinedFunction(function, schema, "map_arrow", PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = udf(*[frame[name] for name in frame.columns])
    mapped = frame._jdf.mapInArrow(column._jc, False, None)  # noqa: SLF001  # as PySpark itself calls it
    return DataFrame(mapped, frame.sparkSession)
