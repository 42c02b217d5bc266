"""Checkpoints that are not on a local disk: on a store that Python cannot look into, or in another place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import spark_eos
from spark_eos.checkpoint.settings import HadoopSettings
from tests.support.judges.kafka_view import write
from tests.support.queries.sink_queries import kafka_frame
from tests.support.waiting import TIMEOUT


@pytest.fixture
def odd(spark, tmp_path) -> Iterator[Callable[[str], str]]:
    """``odd(name)``: a location on a file system of the JVM only, which are folders of this disk."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    (tmp_path / "odd").mkdir()
    hadoop.set("fs.viewfs.mounttable.odd.link./there", (tmp_path / "odd").as_uri())
    yield lambda name: f"viewfs://odd/there/{name}"
    hadoop.unset("fs.viewfs.mounttable.odd.link./there")


def test_a_store_that_python_cannot_read(spark, cluster, view, topic, odd):
    """The query runs; with 'offsets.group.id' it stops before it writes, and says why."""
    source, out = topic(1), topic(1)
    write(cluster.bootstrap_servers, source, [(0, f"{i}") for i in range(3)])

    def started(name: str, **options: str):
        writer = kafka_frame(spark, cluster, source).writeStream.format("eos-kafka").options(**options)
        writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers).option("topic", out)
        return writer.option("checkpointLocation", odd(name)).trigger(availableNow=True).start()

    query = started("with", **{"offsets.group.id": "of-odd"})
    with pytest.raises(Exception, match="EOS_CHECKPOINT_STORE") as caught:
        query.awaitTermination(TIMEOUT)
    reason = spark_eos.reason(caught.value)
    assert reason is not None
    assert "offsets.group.id" in reason.hint
    assert view.rows(out) == []
    assert started("without").awaitTermination(TIMEOUT)
    assert [row.value for row in view.rows(out)] == [b"0", b"1", b"2"]


def test_what_is_taken_from_a_session(spark):
    """What the user or the code has set in it, and none of Hadoop's own defaults."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.access.key", "as code sets it")
    spark.conf.set("fs.s3a.endpoint", "as SQL sets it")
    try:
        assert dict(HadoopSettings.from_session(spark)) == {
            "fs.s3a.access.key": "as code sets it",
            "fs.s3a.endpoint": "as SQL sets it",
        }
    finally:
        hadoop.unset("fs.s3a.access.key")
        spark.conf.unset("fs.s3a.endpoint")
    assert dict(HadoopSettings.from_session(spark)) == {}
