"""`spark_eos.copy` to a Delta table with a transform: its rows are the table's, each once, or it does not start."""

from __future__ import annotations

import uuid
from collections import Counter
from datetime import UTC, date, datetime
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from spark_eos.errors import EosError
from tests.support.judges.table_readers import local_dataset
from tests.support.queries.table_queries import IntoTable
from tests.support.tables.table_kinds import delta_places as places

#: Numbers of JSON, with their places; by day.
NUMBERS = """
    SELECT "partition", "offset", decode(value)::INT AS n, timestamp::DATE AS day FROM input
"""
DAY = int(datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def query(spark, view, topic, tmp_path):
    yield IntoTable(spark, view, tmp_path / uuid.uuid4().hex, topic(3))
    for running in spark.streams.active:
        running.stop()


def found(query: IntoTable) -> list[dict[str, Any]]:
    """The table's rows by place, as delta-rs and DuckDB read them alike."""
    order = [("partition", "ascending"), ("offset", "ascending")]
    table = DeltaTable(str(query.table))
    rows: list[dict[str, Any]] = table.to_pyarrow_table().sort_by(order).to_pylist()
    with duckdb.connect() as connection:
        connection.register("t", local_dataset(table))
        assert connection.sql("SELECT * FROM t").to_arrow_table().sort_by(order).to_pylist() == rows
    return rows


def test_sql_makes_the_rows_of_a_table_that_is_created(query, write, transactions) -> None:
    """With its columns and partitions; in several micro-batches, and again in a second run. Aborted records are not
    there."""
    query.arguments = {"transform": NUMBERS}
    query.reads |= {"maxOffsetsPerTrigger": 200}
    for p in range(3):
        write(query.topic, *(b"%d" % n for n in range(150)), partition=p, timestamp=DAY)
        transactions.abort(query.topic, "7", partition=p)
    id_ = query.run(partitionBy="day")
    write(query.topic, b"150", partition=1, timestamp=DAY + 86_400_000)
    assert query.run() == id_
    first, second = date(2024, 5, 1), date(2024, 5, 2)
    rows = found(query)
    assert len(rows) == 3 * 150 + 1 and set(places(query.table).values()) == {1}
    assert Counter(row["day"] for row in rows) == Counter({first: 450, second: 1})
    assert [row["n"] for row in rows if row["partition"] == 1] == [*range(150), 150]
    assert DeltaTable(str(query.table)).metadata().partition_columns == ["day"]
    assert list((query.table / "day=2024-05-02").glob("*.parquet"))


def test_what_cannot_be_a_table_is_refused_before_anything_is_there(query, write) -> None:
    """Neither a table nor a checkpoint."""
    write(query.topic, b"1", partition=0)
    query.arguments = {"transform": NUMBERS, "partition": "key"}
    with pytest.raises(EosError) as refused:
        query.start()
    assert refused.value.entry == "EOS_OPTION_CONFLICT.remove"
    assert not query.table.exists() and not query.checkpoint.exists()
