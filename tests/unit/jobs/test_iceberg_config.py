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
from spark_eos.errors import ConfigError, EosError, OptionError, UnsupportedError

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


@pytest.mark.parametrize(
    ("transform", "target", "says"),
    [
        (SQL, "pathh: /t", "'target.pathh' is not a known key"),
        (SQL, "cataloge: x", "Did you mean 'catalog'?"),
        (SQL, "catalogue.uri: x", "'target.catalogue.uri' is not a known key"),
        (SQL, "catalog.uri: [x]", "'target.catalog.uri' is not one value"),
        (SQL, "catalog: {type: rest}", "'target.catalog' is not one value"),
        (SQL, "partitionBy: day(timestamp)", "'target.partitionBy' is not a list"),
        (SQL, "afterRollback: soon", "'target.afterRollback' is not a whole number"),
        (SQL, "afterRollback: 1_0", "'target.afterRollback' is not a whole number"),
        (SQL, "afterRollback: 12.0", "'target.afterRollback' is not a whole number"),
        (SQL, "afterRollback: -1", "'target.afterRollback' is too small"),
        (SQL, f"afterRollback: {2**63}", "'target.afterRollback' is too large"),
        (f"{SQL}, engine: spark", "", "'transform.engine' is none of the values that it can have. Hint: Use 'duckdb'"),
        (f"{SQL}, format: json", "", "'transform.format' is not a known key"),
        ("function: 'json:dumps'", "", "'transform.function' is not a known key"),
        (f"{SQL}, arrow: 'json:dumps'", "", "'transform' does not have just one transformation"),
        ("onMalformed: drop", "", "'transform' does not have just one transformation. Hint: Set one of sql, arrow."),
        (f"{SQL}, onMalformed: deadLetters", "", "'transform.onMalformed'"),
        (f"{SQL}, parse: {{format: avro}}", "", "'transform.parse.registry' is missing"),
    ],
)
def test_a_mistake_is_named_by_its_key(read: Read, transform: str, target: str, says: str) -> None:
    """When the file is read."""
    with pytest.raises(ConfigError) as caught:
        read(transform, target)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "key", "entry"),
    [
        ("lake.flights", "flights", "target.table", "EOS_OPTION_INVALID.value"),
        ("TARGET", "partitionBy: ['bucket(0, key)']", "target.partitionBy", "EOS_OPTION_INVALID.value"),
        ("TARGET", "partitionBy: ['week(timestamp)']", "target.partitionBy", "EOS_OPTION_INVALID.value"),
        ("subscribe: flights", "subscribe: flights, failOnDataloss: maybe", "source.failOnDataloss", "EOS_OPTION_"),
    ],
)
def test_a_wrong_option_is_named_by_its_key(read: Read, old: str, new: str, key: str, entry: str) -> None:
    """When the job is planned: before Spark starts."""
    config = read(text=GOOD.replace(old, new))
    with pytest.raises(OptionError) as caught:
        plan(config, argparse.Namespace())
    assert caught.value.entry.startswith(entry)
    assert caught.value.parameters["key"] == key and f"'{key}'" in caught.value.message


def test_sql_that_is_not_of_each_row_is_refused(read: Read) -> None:
    """As by `spark_eos.copy`."""
    with pytest.raises(EosError, match="it groups or aggregates rows"):
        plan(read("sql: SELECT count(*) AS n FROM input"), argparse.Namespace())


def test_a_schema_needs_one_topic_to_be_named_by(read: Read) -> None:
    """Or a subject."""
    with pytest.raises(ConfigError, match=r"parse\.subject' is missing, as there is not one topic"):
        read(f"{SQL}, {PARSE}", text=GOOD.replace("subscribe: flights", "subscribe: 'flights,others'"))


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
