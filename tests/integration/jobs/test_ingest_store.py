"""An ingest whose folder is in an object store: a local S3 server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.ingests import WAYS, Setting
from tests.support.servers.object_store import SECRET_KEY, ObjectStore, object_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture
def setting(
    cluster: DevCluster,
    spark: SparkSession,
    view: KafkaView,
    topic: Callable[..., str],
    store: ObjectStore,
    tmp_path: Path,
) -> Iterator[Setting]:
    """The session has the store's address and credentials, as Spark's own reader would need them."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[union-attr]
    for name, value in store.settings.items():
        hadoop.set(name, value)
    yield Setting(cluster, spark, view, topic(2), tmp_path / "nothing")
    for name in store.settings:
        hadoop.unset(name)


def test_files_of_a_bucket_are_taken_once(setting: Setting, store: ObjectStore):
    """By all tasks, whatever the format; another run, which knows nothing of the first, takes what is new. There may be
    none at first."""
    setting.run(path="s3a://checkpoints/in")
    store.put("in/a.txt", "one\ntwo\n")
    store.put("in/below/b.txt", "three\n")
    store.put("in/_draft.txt", "no\n")
    setting.run(path="s3a://checkpoints/in")
    store.put("in/c.txt", "four\n")
    setting.run(path="s3a://checkpoints/in", **WAYS["by DuckDB"])
    setting.run(path="s3a://checkpoints/in")
    assert setting.there() == ["four", "one", "three", "two"]
    assert sorted(str(note["uri"]) for note in setting.noted()) == [
        "s3a://checkpoints/in/a.txt",
        "s3a://checkpoints/in/below/b.txt",
        "s3a://checkpoints/in/c.txt",
    ]
    assert not any(SECRET_KEY in str(note) for note in setting.noted())


def test_a_marker_beside_an_object(setting: Setting, store: ObjectStore):
    """A run that ends by itself waits for the second in which an object may be replaced unseen, not for markers."""
    store.put("marked/a.txt", "one\n")
    store.put("marked/a.txt.done", "")
    store.put("marked/b.txt", "two\n")
    setting.run(path="s3a://checkpoints/marked", marker=".done")
    assert setting.there() == ["one"]


def test_parquet_in_a_bucket(setting: Setting, store: ObjectStore):
    """Which brings its own schema, and is read in parts."""
    with store.files.open_output_stream("checkpoints/parquet/a.parquet") as stream:
        pq.write_table(pa.table({"n": pa.array([1, 2, 3])}), stream, row_group_size=2)
    transform = {"engine": "duckdb", "sql": "SELECT CAST(n AS STRING) AS value FROM input"}
    setting.run(path="s3a://checkpoints/parquet", format="parquet", transform=transform)
    assert setting.there() == ["1", "2", "3"]
