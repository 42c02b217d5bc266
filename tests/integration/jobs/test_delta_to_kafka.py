"""Delta table → topics: appended rows each once; what a stream of them cannot tell is an error by name; and tables that
only Spark reads."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.support.runs.page_programs import run_program
from tests.support.tables.delta import ToKafka, session
from tests.support.waiting import TIMEOUT

MAPPED = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
VECTORS = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)"
NAMES = "SELECT id AS key, name AS value FROM input"
VALUES = "SELECT CAST(id AS STRING) AS value FROM input"


def numbers(back: ToKafka, first: int, end: int) -> None:
    """Append these to the table, in a file."""
    back.sql("CREATE TABLE IF NOT EXISTS {t} (id BIGINT) USING delta")
    back.sql(f"INSERT INTO {{t}} SELECT /*+ COALESCE(1) */ id FROM range({first}, {end})")


def out(view, back: ToKafka) -> list[int]:
    return sorted(map(int, view.values(back.topic)))


@pytest.mark.chaos
def test_a_delete_by_a_vector_ends_the_query(back: ToKafka, view) -> None:
    """As any other DELETE: no file says which rows are left."""
    numbers(back, 0, 3)
    back.sql(VECTORS)
    assert back.run(VALUES) is None
    back.sql("DELETE FROM {t} WHERE id = 1")
    numbers(back, 3, 4)
    ended = back.run(VALUES)
    assert ended is not None and ended.condition == "EOS_DELTA_ROWS_CHANGED" and "DELETE" in ended.text
    assert out(view, back) == [0, 1, 2]


def by_spark(servers: str, topic: str, table: str, checkpoint: str) -> None:
    """In the process: the program of docs/delta.md, until it has read all that there is."""
    names = {"localhost:9092": servers, '"people"': f'"{topic}"', "/data/people": table, "/data/checkpoint": checkpoint}
    names |= {".start()": ".trigger(availableNow=True).start()"}
    query: Any = run_program("delta.md", 'readStream.format("delta")', names, spark=session())["query"]
    assert query.awaitTermination(TIMEOUT) and query.exception() is None


@pytest.mark.chaos
@pytest.mark.parametrize("table", [MAPPED, VECTORS], ids=["column mapping", "deletion vectors"])
def test_a_table_that_only_spark_reads_is_read_by_its_own_source(back: ToKafka, delta, cluster, view, table) -> None:
    """The job refuses it, and names that way; each row is in the topic once, and none that a vector deletes."""
    back.sql("CREATE TABLE {t} (id STRING, name STRING) USING delta")
    back.sql(table)
    back.sql("INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES ('a', '1'), ('b', '2'), ('c', '3')")
    back.sql("DELETE FROM {t} WHERE id = 'b'")
    refused = back.run(NAMES)
    assert refused is not None and refused.condition == "EOS_DELTA_TABLE_SETTINGS" and "docs/delta.md" in refused.text
    shutil.rmtree(back.checkpoint, ignore_errors=True)
    for _ in range(2):
        delta(by_spark, cluster.bootstrap_servers, back.topic, str(back.table), str(back.checkpoint))
    assert {row.key: row.value for row in view.rows(back.topic)} == {
        b"a": b'{"id":"a","name":"1"}',
        b"c": b'{"id":"c","name":"3"}',
    }
    assert len(view.rows(back.topic)) == 2
    again = back.run(NAMES)
    assert again is not None and again.condition == "EOS_DELTA_OTHER_SOURCE"
