"""A query that has appended to a Delta table through Spark goes on past the JVM: the same checkpoint and numbers."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from deltalake import DeltaTable

from spark_eos import cli
from tests.support.delta import ToDelta, versions_of
from tests.support.table_kinds import delta_places as places

pytestmark = pytest.mark.chaos

#: The source's columns, through Spark.
BY_ROWS = "SELECT key, value, topic, partition, offset, timestamp, timestampType, headers FROM input"
HEADERS = ", includeHeaders: true"


def test_a_query_moves_over_with_its_identity_and_its_numbers(job: ToDelta, write) -> None:
    """Each row is there once; the micro-batches of both are numbered in one line, under one id."""
    write(job.topic, "a", "b", partition=0)
    assert job.run(BY_ROWS, source=HEADERS) is None
    write(job.topic, "c", partition=1)
    assert job.run() is None
    write(job.topic, "d", partition=1)
    assert job.run() is None
    assert places(job.table) == Counter({(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 1})
    done = sorted(int(file.name) for file in (job.checkpoint / "commits").iterdir() if file.name.isdigit())
    history = DeltaTable(str(job.table)).history()
    assert done == list(range(len(done))) and len(history) == len(done) + 1  # and the version that created it


@pytest.mark.parametrize(
    ("sql", "target"),
    [(BY_ROWS, ""), ("SELECT string(key) AS k, topic, partition, offset, false AS deleted FROM input", ", merge: [k]")],
)
def test_the_commands_know_the_table_of_rows_that_pass_through_spark(job: ToDelta, write, cluster, capsys, sql, target):
    """Appended or merged, by the offset log and the table alone. A start goes on, as is said."""

    def state() -> Any:
        capsys.readouterr()
        words = ["--bootstrap-servers", cluster.bootstrap_servers, "status", str(job.checkpoint), "--watch", "0"]
        assert cli.main([*words, "--format", "json"]) == 0
        return json.loads(capsys.readouterr().out)[0]

    source = HEADERS if not target else ""
    write(job.topic, "a", key="k")
    assert job.run(sql, source=source, target=target) is None
    found = state()
    assert found["table"] == {
        "format": "delta",
        "path": str(job.table),
        "last_batch": found["checkpoint"]["committed"][-1],
        "stop": None,
        "problem": None,
    }
    job.forget_the_last_commit()
    assert state()["next"].endswith("only adds no row if that has the same offsets")
    assert job.run(sql, source=source, target=target) is None
    assert state()["next"].startswith("plans micro-batch ")


def test_a_query_with_a_transform_moves_over_to_another_engine(job: ToDelta, write) -> None:
    """Its table keeps the types that Spark gave it; a micro-batch that was written by Spark is known again."""
    rows = "SELECT partition, offset, string(value) AS v, CAST(1 AS BIGINT) AS n FROM input"
    same = 'SELECT \\"partition\\", \\"offset\\", value AS v, 1 AS n FROM input'
    write(job.topic, "a", "b", partition=0)
    assert job.run(rows) is None
    job.forget_the_last_commit()
    version = versions_of(job.table)
    assert job.run(same, engine="duckdb") is None
    assert versions_of(job.table) == version
    write(job.topic, "c", partition=1)
    assert job.run(same, engine="duckdb") is None
    assert places(job.table) == Counter({(0, 0): 1, (0, 1): 1, (1, 0): 1})
    found = DeltaTable(str(job.table)).to_pyarrow_table()
    assert sorted(found["v"].to_pylist()) == ["a", "b", "c"] and set(found["n"].to_pylist()) == {1}
    assert len({each["appId"] for each in _transactions(job) if "#" not in each["appId"]}) == 1


def _transactions(job: ToDelta) -> list[dict[str, Any]]:
    """Those in the table's log."""
    lines = [line for file in (job.table / "_delta_log").glob("*.json") for line in file.read_text().splitlines()]
    return [json.loads(line)["txn"] for line in lines if line.startswith('{"txn"')]


def test_a_micro_batch_that_was_written_through_spark_is_known_again(job: ToDelta, write) -> None:
    """As after a kill between Delta's commit and Spark's, in the last run before it moved over."""
    write(job.topic, "a", "b", partition=0)
    assert job.run(BY_ROWS, source=HEADERS) is None
    version = versions_of(job.table)
    job.forget_the_last_commit()
    assert job.run() is None
    assert versions_of(job.table) == version
    write(job.topic, "c", partition=0)
    assert job.run() is None
    assert places(job.table) == Counter({(0, 0): 1, (0, 1): 1, (0, 2): 1})


def test_another_micro_batch_of_the_same_number_is_refused(job: ToDelta, write, tmp_path) -> None:
    """The job wrote other offsets through Spark under this id and number than the checkpoint has."""
    write(job.topic, "a", "b", partition=0)
    assert job.run(BY_ROWS, source=HEADERS) is None
    job.forget_the_last_commit()
    last = max((job.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    last.write_text(last.read_text().replace('"0": 2', '"0": 1'))
    (job.checkpoint / "offsets" / f".{last.name}.crc").unlink(missing_ok=True)
    refused = job.run()
    assert refused is not None and refused.condition == "EOS_TABLE_TWO_QUERIES"
