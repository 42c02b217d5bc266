"""Queries that are started in a thread which the user has started, and which has no active session."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_eos.pipelines.mirror.plan import Targets
from spark_eos.pipelines.mirror.start import mirror
from tests.support.queries.copies import copied, shouted
from tests.support.waiting import TIMEOUT


def active(spark):
    """Whether this thread has an active session."""
    return spark._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession().isDefined()


@pytest.mark.parametrize("transform", [None, shouted])
def test_a_copy(transform, copy, write, view, spark):
    """It runs, and the thread is as it was before."""
    query = copy(1)
    write(query.source, b"row")
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(active, spark).result()
        pool.submit(query.run, transform).result()
        assert not pool.submit(active, spark).result()
    assert len(query.rows()) == 1


def test_a_mirror(copy, write, view, spark, tmp_path):
    """The same."""
    query = copy(1)
    write(query.source, b"row")

    def start():
        servers = {"kafka.bootstrap.servers": view.bootstrap_servers}
        return mirror(
            spark,
            source={**servers, "subscribe": query.source, "startingOffsets": "earliest"},
            target=servers,
            targets=Targets("t.", {"retention.ms": "-1"}, map=f"map-of-{query.source}"),
            checkpoint=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(start).result()
        assert running.awaitTermination(TIMEOUT)
    assert copied(view.rows(f"t.{query.source}")) == copied(view.rows(query.source))
