"""Errors that a job's plan raises for a row, in Spark's JVM: by `raise_error`, with texts of conditions.toml."""

from __future__ import annotations

import string

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_eos.errors import HINT, texts_of


def raised(entry: str, /, **columns: Column | str) -> Column:
    """A column whose evaluation fails with the error of this entry. Texts are filled in by ``columns``: a column by its
    value, NULL for null."""
    condition, (message, hint) = entry.partition(".")[0], texts_of(entry)
    words = []
    for text, name, _, _ in string.Formatter().parse(f"[{condition}] {message}{HINT}{hint}"):
        words.append(F.lit(text))
        if name is not None:
            value = columns[name]
            words.append(F.lit(value) if isinstance(value, str) else F.coalesce(value.cast("string"), F.lit("NULL")))
    return F.raise_error(F.concat(*words))
