"""Queries that are started in a thread which the user has started, and which has no active session."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


def active(spark):
    """Whether this thread has an active session."""
    return spark._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession().isDefined()


def test_a_copy(copy, write, spark):
    """It runs, and the thread is as it was before."""
    query = copy(1)
    write(query.source, b"row")
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(active, spark).result()
        pool.submit(query.run).result()
        assert not pool.submit(active, spark).result()
    assert len(query.rows()) == 1
