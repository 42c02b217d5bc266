"""Topics → Delta table by appends: nothing is lost, doubled or changed, and what breaks that is an error by name."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

from spark_eos.errors import ConfigError
from tests.support.tables.delta import ToDelta, versions_of

#: In milliseconds; brokers remove what is older than the retention of its topic.
MINUTES_AGO = 1000 * (int(time.time()) - 300)
TEXT = "SELECT decode(value) AS value FROM input"


@pytest.mark.chaos
def test_a_copy_keeps_every_part_of_every_record(job: ToDelta, write, view):
    """Headers, tombstones, empty and missing keys, timestamps; a second run appends only what is new, and the group is
    told how far the query is."""
    headers = [("h", b"1"), ("h", b""), ("null", None)]
    write(job.topic, "a", None, b"", partition=0, key="k", headers=headers, timestamp=MINUTES_AGO + 123)
    write(job.topic, "b", partition=1, key=b"", timestamp=MINUTES_AGO)
    write(job.topic, "c", partition=1, timestamp=MINUTES_AGO)
    assert job.run(source=f", offsets.group.id: {job.topic}-group") is None
    at, then = (
        datetime.fromtimestamp(s, UTC).replace(microsecond=ms * 1000)
        for s, ms in [(MINUTES_AGO / 1000, 123), (MINUTES_AGO / 1000, 0)]
    )
    kept = tuple((("key", name), ("value", value)) for name, value in headers)
    expected = [
        (0, 0, b"k", b"a", at, 0, kept),
        (0, 1, b"k", None, at, 0, kept),
        (0, 2, b"k", b"", at, 0, kept),
        (1, 0, b"", b"b", then, 0, None),
        (1, 1, None, b"c", then, 0, None),
    ]
    columns = ("partition", "offset", "key", "value", "timestamp", "timestampType", "headers")
    assert job.rows(*columns) == expected
    assert view.group(f"{job.topic}-group", job.topic) == {(job.topic, 0): 3, (job.topic, 1): 2}

    write(job.topic, "d", partition=1)
    assert job.run() is None
    assert [row[:4] for row in job.rows(*columns)] == [row[:4] for row in expected] + [(1, 2, None, b"d")]


@pytest.mark.chaos
def test_a_micro_batch_that_is_in_the_table_is_not_appended_again(job: ToDelta, write):
    """As after a kill between Delta's commit and Spark's: the replay appends nothing, and the next one goes on."""
    write(job.topic, "a", "b")
    assert job.run(TEXT, engine="duckdb") is None
    version = versions_of(job.table)
    job.forget_the_last_commit()
    assert job.run(TEXT, engine="duckdb") is None
    assert job.rows() == [("a",), ("b",)] and versions_of(job.table) == version
    write(job.topic, "c")
    assert job.run(TEXT, engine="duckdb") is None
    assert job.rows() == [("a",), ("b",), ("c",)]


@pytest.mark.chaos
def test_other_columns_than_the_tables_are_refused_or_added_when_asked(job: ToDelta, write):
    """A new column and another type are errors before any row is read; ``evolve`` adds the column."""
    write(job.topic, "1")
    assert job.run("SELECT decode(value) AS v, 1 AS n FROM input", engine="duckdb") is None
    write(job.topic, "2")
    wanted = "SELECT decode(value) AS v, 2 AS m FROM input"
    refused = job.run(wanted, engine="duckdb")
    assert refused.condition == "EOS_TABLE_COLUMNS" and "have a column m" in refused.text, refused
    other_type = job.run("SELECT decode(value) AS v, 'x' AS n FROM input", target=", schema: evolve", engine="duckdb")
    assert other_type.condition == "EOS_TABLE_COLUMNS", other_type
    assert job.rows() == [("1", 1)]
    assert job.run(wanted, target=", schema: evolve", engine="duckdb") is None
    assert job.rows("v", "n", "m") == [("1", 1, None), ("2", None, 2)]


@pytest.mark.chaos
def test_a_new_table_gets_partitions_and_properties(job: ToDelta, write):
    """As the config file says; rows go to their partition."""
    write(job.topic, "1", "2")
    target = ", partitionBy: [v], delta.enableChangeDataFeed: true"
    sql = 'SELECT decode(value) AS v, \\"offset\\" FROM input'
    assert job.run(sql, target=target, engine="duckdb") is None
    table = DeltaTable(str(job.table))
    assert table.metadata().partition_columns == ["v"]
    assert table.metadata().configuration["delta.enableChangeDataFeed"] == "true"
    assert job.rows("v", "offset") == [("1", 0), ("2", 1)]


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (
            {
                "sql": "SELECT 1 AS k",
                "target": ", merge: [k]",
                "more": "spark: {spark.sql.files.ignoreMissingFiles: true}",
            },
            "'spark.spark.sql.files.ignoreMissingFiles'",
        ),
        ({"target": ", merge: [offset]"}, "EOS_CONFIG_INVALID_VALUE"),
        ({"target": ", merge: [k]"}, "'transform' is missing"),
        ({"target": ", schema: maybe"}, "EOS_CONFIG_INVALID_VALUE"),
        ({"target": ", schemas: evolve"}, "Did you mean 'schema'?"),
    ],
    ids=["setting", "key", "merge without columns", "choice", "unknown key"],
)
def test_mistakes_in_the_file_are_found_without_spark(tmp_path, parts: dict[str, str], says: str):
    """By key."""
    from jobs.kafka_to_delta import KafkaToDelta
    from jobs.runner.config import load

    job = ToDelta(None, "localhost:1", "t", tmp_path)
    with pytest.raises(ConfigError) as refused:
        load(job.config(**parts), KafkaToDelta)
    assert says in str(refused.value)
