"""The config file of kafka_to_iceberg: what becomes of it, and what is refused before Spark starts and anything is
written."""

from __future__ import annotations

import argparse
import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.kafka_to_iceberg import KafkaToIceberg, main, plan
from jobs.runner.config import load
from spark_eos.errors import EosError, UnsupportedError

GOOD = """\
kafka: {bootstrap.servers: localhost:9092}
source: {subscribe: flights}
transform: {TRANSFORM}
target: {table: lake.flights, TARGET}
checkpoint: /c
"""
SQL = "sql: SELECT value FROM input"
PARSE = "parse: {format: avro, registry: http://localhost:8081}"
Read = Callable[..., KafkaToIceberg]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(transform: str = SQL, target: str = "", text: str = GOOD) -> KafkaToIceberg:
        file = tmp_path / "job.yaml"
        file.write_text(text.replace("TRANSFORM", transform).replace("TARGET", target))
        return load(file, KafkaToIceberg, {})

    return read


@pytest.mark.parametrize(
    "transform",
    [
        SQL,
        f"{SQL}, engine: duckdb, onMalformed: drop",
        f"{SQL}, {PARSE}",
        "arrow: 'json:dumps', onMalformed: drop",
    ],
)
def test_records_are_transformed_past_the_jvm(read: Read, transform: str) -> None:
    """By DuckDB without saying so, as nothing else runs SQL here."""
    assert plan(read(transform), argparse.Namespace()).clusters


def test_the_section_of_the_table_has_the_options_of_the_sink(read: Read) -> None:
    """With their names; nothing is said of the catalog but its name."""
    target = "catalog: prod, partitionBy: [day(timestamp), topic], afterRollback: 7, schema: evolve"
    config = read(target=f"{target}, catalog.token: rosebud, catalog.uri: 'https://user:swordfish@host'")
    assert config.target.options() == {
        "format": "iceberg",
        "table": "lake.flights",
        "catalog": "prod",
        "schema": "evolve",
        "partitionBy": "day(timestamp),topic",
        "afterRollback": "7",
        "catalog.token": "rosebud",
        "catalog.uri": "https://user:swordfish@host",
    }
    planned = plan(config, argparse.Namespace())
    assert planned.line.startswith("flights → appended to lake.flights in the catalog prod; no group; checkpoint /c")
    for text in (repr(config), str(config.target), planned.line):
        assert "rosebud" not in text and "swordfish" not in text


def test_the_largest_snapshot_is_one(read: Read) -> None:
    """Ids of snapshots are random, of all that 63 bits hold."""
    assert read(target=f"afterRollback: {2**63 - 1}").target.after_rollback == 2**63 - 1


def test_without_a_transform_headers_are_for_the_table(read: Read) -> None:
    """As all columns of the source are."""
    bare = read(text=GOOD.replace("transform: {TRANSFORM}\n", ""))
    assert bare.source_options()["includeHeaders"] == "true"
    assert "includeHeaders" not in read().source_options()
    assert bare.source_options()["startingOffsets"] == "earliest"


def test_sql_that_is_not_of_each_row_is_refused(read: Read) -> None:
    """As by `spark_eos.copy`."""
    with pytest.raises(EosError, match="it groups or aggregates rows"):
        plan(read("sql: SELECT count(*) AS n FROM input"), argparse.Namespace())


def test_without_pyiceberg_the_extra_is_named_before_spark_starts(read: Read, monkeypatch) -> None:
    """The job itself needs none of it."""
    right = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.partition(".")[0] == "pyiceberg":
            raise ImportError(name)
        return right(name, *more)

    config = read()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnsupportedError) as caught:
        plan(config, argparse.Namespace())
    assert caught.value.entry == "EOS_NOT_INSTALLED.extra" and "[iceberg]" in caught.value.hint


def test_a_mistake_ends_the_job_with_the_file_and_the_key(tmp_path: Path, capsys) -> None:
    """And without the secrets that are in the file."""
    file = tmp_path / "job.yaml"
    secrets = "catalog.token: rosebud, catalog.uri: 'https://user:swordfish@host', partitionBy: [week(timestamp)]"
    file.write_text(GOOD.replace("TRANSFORM", SQL).replace("TARGET", secrets))
    assert main(["--conf", str(file)]) == 1
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert f"{file}: 'target.partitionBy'" in text and "truncate(WIDTH, COLUMN)" in text
    assert "rosebud" not in text and "swordfish" not in text
