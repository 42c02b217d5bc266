"""Topics as tables of Spark's catalog, by SQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest


@pytest.fixture
def names(spark) -> Iterator[tuple[str, str]]:
    """Two names of tables, which are dropped in the end."""
    both = tuple(f"topics_{uuid.uuid4().hex}" for _ in range(2))
    yield both
    for name in both:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_topic_is_a_table(cluster, spark, topic, view, names, tmp_path):
    """Written by INSERT, once and for all; read by SELECT, `spark.table` and as a stream."""
    name, (read, written) = topic(1), names
    options = f"'kafka.bootstrap.servers' '{cluster.bootstrap_servers}'"
    spark.sql(f"CREATE TABLE {written} USING `eos-kafka` OPTIONS ({options}, topic '{name}')")
    spark.sql(
        f"INSERT INTO {written} (key, value) SELECT encode('k', 'utf-8'), encode(string(id), 'utf-8') FROM range(3)"
    )
    spark.sql(f"INSERT INTO {written} (value) VALUES (X'33')")
    assert sorted(view.values(name)) == ["0", "1", "2", "3"]

    spark.sql(
        f"CREATE TABLE {read} USING `eos-kafka` OPTIONS ({options}, subscribe '{name}', startingOffsets 'earliest')"
    )
    texts = f"SELECT string(value) FROM {read} ORDER BY offset"
    assert sorted(row[0] for row in spark.sql(texts).collect()) == ["0", "1", "2", "3"]
    assert spark.table(read).count() == 4
    end = view.rows(name)[-1].offset
    last = f"SELECT string(value) FROM {read} WITH ('startingOffsets' = '{{\"{name}\": {{\"0\": {end}}}}}')"
    assert [row[0] for row in spark.sql(last).collect()] == [view.values(name)[-1]]
    query = (
        spark.readStream.table(read)
        .selectExpr("string(value) AS value")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == 4
