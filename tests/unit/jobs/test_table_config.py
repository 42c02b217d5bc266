"""The config file of kafka_to_delta: which rows pass through Spark, and what goes with which way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.kafka_to_delta import KafkaToDelta
from jobs.runner.config import load
from spark_eos.errors import ConfigError

GOOD = """\
kafka: {bootstrap.servers: localhost:9092}
source: {subscribe: people}
transform: {TRANSFORM}
target: {path: /t, TARGET}
checkpoint: /c
"""
SQL = "sql: SELECT 1 AS n FROM input"
PARSE = "parse: {format: avro, registry: http://localhost:8081}"
Read = Callable[..., KafkaToDelta]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(transform: str, target: str = "") -> KafkaToDelta:
        file = tmp_path / "job.yaml"
        file.write_text(GOOD.replace("TRANSFORM", transform).replace("TARGET", target))
        return load(file, KafkaToDelta, {})

    return read


@pytest.mark.parametrize(
    ("transform", "target", "is_copy"),
    [
        (f"{SQL}, engine: duckdb", "partitionBy: [n], afterRestore: 3", True),
        (f"{SQL}, engine: duckdb, {PARSE}, onMalformed: drop", "", True),
        ("arrow: 'json:dumps', onMalformed: drop", "", True),
        (SQL, "", False),
        (f"{SQL}, {PARSE}, onMalformed: drop", "merge: [n]", False),
        ("function: 'json:dumps'", "schema: evolve", False),
        ("arrow: 'json:dumps'", "schema: evolve", True),
    ],
)
def test_rows_pass_through_spark_where_its_engine_transforms_them(
    read: Read, transform: str, target: str, is_copy: bool
) -> None:
    """Also where they are decoded with schemas of a registry."""
    assert read(transform, target).is_copy == is_copy


@pytest.mark.parametrize(
    ("transform", "target", "says"),
    [
        (f"{SQL}, engine: duckdb", "merge: [n]", "'target.merge' is for rows that pass through Spark"),
        (SQL, "schema: merge", "'target.schema' is none of the values"),
        (SQL, "mergeSchema: true", "'target.mergeSchema' is not a known key"),
        (SQL, "afterRestore: 3", "'target.afterRestore' is only for rows that are appended past the JVM"),
        (f"{SQL}, engine: duckdb", "afterRestore: 1_0", "'target.afterRestore' is not a whole number"),
        (f"{SQL}, engine: duckdb", "afterRestore: 12.0", "'target.afterRestore' is not a whole number"),
        (f"{SQL}, engine: duckdb", "afterRestore: -1", "'target.afterRestore' is too small"),
        ("arrow: 'json:dumps', sql: SELECT 1", "", "'transform' does not have just one transformation"),
        ("engine: duckdb, function: 'json:dumps'", "", "'transform.engine' is for 'sql'"),
        (f"{SQL}, engine: duckdb, format: string", "", "'transform.format' is for rows that pass through Spark"),
        (f"{SQL}, engine: duckdb, onMalformed: deadLetters", "", "'transform.onMalformed'"),
        (f"{SQL}, onMalformed: drop", "", "'transform.onMalformed' is for values that are parsed"),
        (f"{SQL}, {PARSE}, format: string", "", "'transform.format' is there besides 'parse'"),
    ],
)
def test_a_mistake_is_named_by_its_key(read: Read, transform: str, target: str, says: str) -> None:
    """Before Spark starts."""
    with pytest.raises(ConfigError) as caught:
        read(transform, target)
    assert says in caught.value.message


def test_a_schema_needs_one_topic_to_be_named_by(read: Read, tmp_path: Path) -> None:
    """Or a subject."""
    (tmp_path / "two.yaml").write_text(
        GOOD.replace("TRANSFORM", f"{SQL}, {PARSE}").replace("TARGET", "").replace("people", "'people,others'")
    )
    with pytest.raises(ConfigError, match=r"parse\.subject' is missing, as there is not one topic"):
        load(tmp_path / "two.yaml", KafkaToDelta, {})
