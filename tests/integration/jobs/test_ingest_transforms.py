"""Ingests whose transform runs past the JVM: DuckDB or a function of Arrow batches, over lines and rows of Parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.ingests import Setting

#: For Spark and for DuckDB.
SQL = """
    SELECT CAST(n AS STRING) AS key, t || ' ' || CAST(x AS STRING) || ' ' || CAST(_line AS STRING) AS value
    FROM input WHERE n % 3 <> 0 OR n IS NULL
"""


def duckdb(sql: str) -> dict[str, dict[str, str]]:
    return {"transform": {"sql": sql, "engine": "duckdb"}}


def arrow(function: Callable[[pa.RecordBatch], pa.RecordBatch]) -> dict[str, dict[str, str]]:
    return {"transform": {"arrow": f"{__name__}:{function.__name__}"}}


@pytest.fixture
def other(cluster: DevCluster, spark: SparkSession, view: KafkaView, topic: Callable[..., str], setting: Setting):
    """An ingest of the same folder into another topic."""
    found = Setting(cluster, spark, view, topic(2), setting.folder / ".unused")
    found.folder = setting.folder
    return found


def rows(setting: Setting) -> list[tuple[bytes | None, bytes | None]]:
    setting.there()
    found = [(row.key, row.value) for row in setting.view.rows(setting.topic, committed=True)]
    return sorted(found, key=str)


def test_the_same_sql_makes_the_same_rows_of_parquet_both_ways(
    setting: Setting, other: Setting, capsys: pytest.CaptureFixture[str]
):
    """By DuckDB and by Spark, also where files have other columns, which makes them other micro-batches."""
    numbers = [None, *range(25_000)]
    texts = pa.array(["a", None, "ü"] * 8_334, pa.string()).slice(0, 25_001)
    table = pa.table({"n": pa.array(numbers, pa.uint32()), "t": texts.dictionary_encode(), "x": texts})
    moments = pa.array(range(0, 25_001 * 10**9, 10**9), pa.timestamp("us", "UTC"))
    pq.write_table(
        table.append_column("at", moments),
        setting.folder / "a.parquet",
        row_group_size=7_000,
        use_deprecated_int96_timestamps=True,  # as Spark writes them
    )
    other_columns = pa.table({"x": pa.array([7, 8], pa.int8()), "n": [1, 3], "t": ["p", "q"], "more": [[1], []]})
    other_columns = other_columns.append_column("at", moments.slice(0, 2))
    pq.write_table(other_columns, setting.folder / "b.parquet")
    setting.run(format="parquet", **duckdb(SQL))
    assert "1 file, 25,001 in, 16,667 out" in capsys.readouterr().err
    other.run(format="parquet", sql=SQL)
    assert rows(setting) == rows(other)
    assert len(rows(setting)) == 16_668
    assert [note["tasks"] for note in setting.noted()] == [1, 1]


def tripled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array([n // 3 for n in range(3 * batch.num_rows)], pa.int64())).select(["value"])


MARKED = "SELECT value || ' of ' || _line AS value FROM input WHERE value <> 'b 7'"


def marked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """`MARKED` by Arrow."""
    kept = batch.filter(pc.not_equal(batch["value"], "b 7"))
    values = pc.binary_join_element_wise(kept["value"], kept["_line"].cast(pa.string()), " of ")
    return pa.record_batch({"value": values})


@pytest.mark.chaos
def test_another_transform_does_not_repair_what_is_decided(setting: Setting, tmp_path: Path):
    """Lost rows are written again if they are the decided ones, whoever makes them. With another transform, the start
    stops and writes nothing; the right one then finishes."""
    for name in "ab":
        setting.put(name, *(f"{name} {n}" for n in range(50)))
    setting.dies("commit.decided", tmp_path / "faults", **duckdb(MARKED))
    lost = max(setting.view.open_transactions(setting.query))
    setting.view.end_transaction(lost, commit=False)
    for other in (duckdb("SELECT value FROM input"), arrow(tripled), {"sql": None}):
        setting.fails("EOS_REPLAY_DIVERGED", **other)
    setting.run(**arrow(marked))
    lines = ((name, n) for name in "ab" for n in range(50) if (name, n) != ("b", 7))
    assert setting.there() == sorted(f"{name} {n} of {n + 1}" for name, n in lines)
    setting.put("c", "c")
    setting.run(sql=None)
    assert setting.there()[-1] == "c" and setting.names() == ["a", "b", "c"]


def test_lines_that_are_left_out_are_counted(setting: Setting, capsys: pytest.CaptureFixture[str]):
    """Those that SQL rejects."""
    sql = "SELECT value, _line, CASE WHEN try_cast(value AS INT) IS NULL THEN 'no number' END AS error FROM input"
    setting.put("a", "1", "x", "3", "y")
    setting.put("b", "z")
    setting.run(onMalformed="drop", **duckdb(sql))
    assert setting.there() == ["1", "3"]
    assert "2 files, 5 in, 2 out, 3 dropped" in capsys.readouterr().err
    assert setting.names() == ["a", "b"]
