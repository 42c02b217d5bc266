"""Which way the rows of a table go to topics: past the JVM by `spark_eos.copy`, or through Spark by Delta's source."""

from __future__ import annotations

from collections.abc import Callable

from spark_eos.errors import EosError, stop

from ..runner.past_spark import Way

#: Conditions of tables, and wordings about their paths, that Spark may read nevertheless.
_FOR_SPARK = ("EOS_DELTA_TABLE_SETTINGS.reading", "EOS_TABLE_COLUMNS", "EOS_OPTION_INVALID.table")


def chosen(
    path: str, needs_spark: str | None, *, is_copy: bool, began: bool | None, check_new: Callable[[], None]
) -> Way:
    """The way of a query, which it keeps for as long as it has its checkpoint.

    ``path``: of the table. ``needs_spark``: what in the config file is for rows that pass through Spark, in words;
    ``is_copy``: whether something there is for rows that do not. With neither, both ways write the same rows.
    ``began``: whether the query of the checkpoint reads past the JVM; None for a new one. ``check_new`` raises EosError
    where a new query cannot.

    Raises TableError (EOS_DELTA_OTHER_SOURCE) where the file needs another way than the query has, and what
    ``check_new`` raises, unless Spark may read the table.
    """
    if needs_spark is not None:
        if began:
            raise stop("EOS_DELTA_OTHER_SOURCE.past_jvm", path=path, why=needs_spark)
        return Way(False, needs_spark)
    if began is False:
        if is_copy:
            raise stop("EOS_DELTA_OTHER_SOURCE.through_spark", path=path)
        return Way(False, "this query has always done so, and its offsets are Delta's")
    if began:
        return Way(True, "this query has always done so")
    if is_copy:
        return Way(True, "so is its transform")
    try:
        check_new()
    except EosError as error:
        if not error.entry.startswith(_FOR_SPARK):
            raise
        return Way(False, error.message)
    return Way(True, "the query is new, and nothing in it needs Spark")
