"""Which way the rows of a table go to topics: a new query goes past the JVM where it can, and each query keeps its
way."""

from __future__ import annotations

import json

import pytest
from deltalake import DeltaTable

from spark_eos.pipelines.copy.from_table.position import from_text
from tests.support.delta import ToKafka, forget_the_last_commit, history

pytestmark = pytest.mark.chaos

BY_SPARK = "SELECT value FROM input"
MAPPED = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
VECTORS = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)"


def append(back: ToKafka, *values: str) -> None:
    """In one file, to a table whose columns are the sink's."""
    back.sql("CREATE TABLE IF NOT EXISTS {t} (value STRING) USING delta")
    rows = ", ".join(f"('{value}')" for value in values)
    back.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")


def query_of(back: ToKafka) -> str:
    return str(json.loads((back.checkpoint / "metadata").read_text())["id"])


def past_jvm(back: ToKafka) -> bool:
    """Which way all micro-batches of the checkpoint went."""
    entries = [file.read_text().splitlines()[2] for file in (back.checkpoint / "offsets").glob("[0-9]*")]
    ways = {from_text(entry) is not None for entry in entries}
    assert len(ways) == 1, entries
    return ways.pop()


def test_a_new_query_without_a_transform_goes_past_the_jvm_and_stays_there(back: ToKafka, view) -> None:
    """A micro-batch that was written is known again; a transform by Spark is refused, one by DuckDB is not."""
    append(back, "a", "b")
    assert back.run() is None
    query = query_of(back)
    append(back, "c")
    refused = back.run(BY_SPARK)
    assert refused is not None and refused.condition == "EOS_DELTA_OTHER_SOURCE"
    assert "'transform.sql' is run by Spark" in refused.text
    refused = back.run(source=", readChangeFeed: true")
    assert refused is not None and refused.condition == "EOS_DELTA_OTHER_SOURCE"
    forget_the_last_commit(back.checkpoint)
    assert back.run() is None
    append(back, "d")
    assert back.run(BY_SPARK, engine="duckdb") is None
    assert sorted(view.values(back.topic)) == ["a", "b", "c", "d"]
    assert past_jvm(back) and query_of(back) == query


def test_a_query_through_spark_stays_there(back: ToKafka, view) -> None:
    """Also where nothing in the config file needs Spark any more."""
    append(back, "a", "b")
    assert back.run(BY_SPARK) is None
    query = query_of(back)
    append(back, "c")
    refused = back.run(BY_SPARK, engine="duckdb")
    assert refused is not None and refused.condition == "EOS_DELTA_OTHER_SOURCE"
    forget_the_last_commit(back.checkpoint)
    assert back.run() is None
    append(back, "d")
    assert back.run() is None
    assert sorted(view.values(back.topic)) == ["a", "b", "c", "d"]
    assert not past_jvm(back) and query_of(back) == query


FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
CHANGES = "SELECT key, value, _commit_version, _change_type FROM input"


@pytest.mark.parametrize("began", ["", CHANGES], ids=["past the JVM", "through Spark"])
def test_a_query_of_changes_keeps_its_way(back: ToKafka, view, began: str) -> None:
    """A new one without a transform goes past the JVM; one that has gone through Spark does not, even then."""
    source = ", readChangeFeed: true"
    back.sql(f"CREATE TABLE {{t}} (key STRING, value STRING) USING delta {FEED}")
    back.sql("INSERT INTO {t} VALUES ('a', '1'), ('b', '1')")
    assert back.run(began or None, source=source) is None
    query = query_of(back)
    back.sql("UPDATE {t} SET value = '2' WHERE key = 'a'")
    forget_the_last_commit(back.checkpoint)
    assert back.run(source=source) is None
    back.sql("DELETE FROM {t} WHERE key = 'a'")
    back.sql("INSERT OVERWRITE {t} VALUES ('b', '3')")
    assert back.run(source=source) is None
    assert {key: [change[1:] for change in changes] for key, changes in history(view, back.topic).items()} == {
        b"a": [("insert", "1"), ("update_preimage", "1"), ("update_postimage", "2"), ("delete", "2")],
        b"b": [("insert", "1"), ("delete", "1"), ("insert", "3")],
    }
    assert past_jvm(back) == (not began) and query_of(back) == query
    if not began:
        refused = back.run()
        assert refused is not None and refused.condition == "EOS_DELTA_OTHER_SOURCE"


def test_changes_of_a_table_that_only_spark_reads_go_through_it(back: ToKafka, view) -> None:
    """By deletion vectors: what a version has deleted is no file."""
    back.sql(f"CREATE TABLE {{t}} (key STRING, value STRING) USING delta {FEED}")
    back.sql(VECTORS)
    back.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES ('a', '1'), ('b', '1'), ('c', '1')")
    back.sql("DELETE FROM {t} WHERE key = 'a'")
    assert any(batch.num_rows for batch in DeltaTable(str(back.table)).deletion_vectors())
    source = ", readChangeFeed: true"
    refused = back.run(CHANGES, source=source, engine="duckdb")
    assert refused is not None and refused.condition == "EOS_DELTA_TABLE_SETTINGS"
    assert back.run(source=source) is None
    assert sorted(history(view, back.topic)) == [b"b", b"c"] and not past_jvm(back)


def test_a_table_that_only_spark_reads_is_read_by_it(back: ToKafka, view) -> None:
    """Columns that have other names in the files. Where the transform is no Spark's, the query does not start."""
    append(back, "a")
    back.sql(MAPPED)
    refused = back.run(BY_SPARK, engine="duckdb")
    assert refused is not None and refused.condition == "EOS_DELTA_TABLE_SETTINGS"
    assert back.run() is None
    append(back, "b")
    assert back.run() is None
    assert sorted(view.values(back.topic)) == ["a", "b"] and not past_jvm(back)


def test_rows_that_are_marked_as_deleted_are_not_written(back: ToKafka, view) -> None:
    """By deletion vectors, which only Spark follows. When a query is running, they are a DELETE like any other."""
    append(back, "a", "b", "c")
    back.sql(VECTORS)
    back.sql("DELETE FROM {t} WHERE value = 'b'")
    adds = DeltaTable(str(back.table)).deletion_vectors()
    assert any(batch.num_rows for batch in adds), "the rows were not deleted by a vector"
    assert back.run() is None
    assert sorted(view.values(back.topic)) == ["a", "c"] and not past_jvm(back)


def test_a_delete_by_a_vector_ends_a_query_past_the_jvm(back: ToKafka, view) -> None:
    """By the name that it has through Spark."""
    append(back, "a", "b", "c")
    back.sql(VECTORS)
    assert back.run() is None
    back.sql("DELETE FROM {t} WHERE value = 'b'")
    append(back, "d")
    ended = back.run()
    assert ended is not None and ended.condition == "EOS_DELTA_ROWS_CHANGED" and "DELETE" in ended.text
    assert sorted(view.values(back.topic)) == ["a", "b", "c"] and past_jvm(back)
