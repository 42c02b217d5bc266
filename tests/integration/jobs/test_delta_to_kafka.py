"""Delta table → topics: tables that only Spark reads."""

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
