"""Queries over ranges, without Spark: the names of their data sources."""

from __future__ import annotations

from unittest.mock import MagicMock

from spark_eos.datasource.ranges import RangeQuery


def test_a_start_replaces_the_data_source_of_the_start_before():
    """Spark keeps every data source that a session has, with the query's function and secrets."""
    spark = MagicMock()
    for checkpoint in ("/c", "/c", "/other"):
        RangeQuery("plan", MagicMock(), MagicMock()).start(spark, checkpoint, None, None)
    first, again, other = (call.args[0].name() for call in spark.dataSource.register.call_args_list)
    assert first == again != other
