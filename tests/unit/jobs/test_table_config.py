"""The config files of the jobs from and to Delta: what goes with appends, and what with merges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.delta_to_kafka import DeltaToKafka
from jobs.kafka_to_delta import KafkaToDelta
from jobs.runner.config import load
from spark_eos.pipelines.copy.start import texts

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
    ("transform", "target", "extras"),
    [
        (f"{SQL}, engine: duckdb", "partitionBy: [n], afterRestore: 3", {"sql"}),
        (f"{SQL}, engine: duckdb, {PARSE}, onMalformed: drop", "", {"sql", "registry"}),
        ("arrow: 'json:dumps', onMalformed: drop", "schema: evolve", set()),
        (f"{SQL}, {PARSE}, onMalformed: drop", "merge: [n]", {"registry", "delta"}),
        (f"{SQL}, format: json, schema: n INT", "merge: [n], schema: evolve", {"delta"}),
        ("function: 'json:dumps'", "merge: [n], partitionBy: [n]", {"delta"}),
    ],
)
def test_spark_merges_and_tasks_append(read: Read, transform: str, target: str, extras: set[str]) -> None:
    """Only Spark needs Delta's own package."""
    assert set(read(transform, target).extras()) == extras


def test_the_section_of_a_table_that_is_appended_to_has_the_options_of_a_copy(read: Read) -> None:
    """By the names that Delta's writer has, with the properties of a new table."""
    more = "schema: evolve, partitionBy: [n, m], afterRestore: 3, delta.enableChangeDataFeed: true"
    assert texts(read(f"{SQL}, engine: duckdb", more).target.options()) == {
        "format": "delta",
        "path": "/t",
        "schema": "evolve",
        "partitionBy": "n,m",
        "delta.enableChangeDataFeed": "true",
        "afterRestore": "3",
    }


FROM_TABLE = """\
kafka: {bootstrap.servers: localhost:9092}
source: {path: /t SOURCE}
transform: {TRANSFORM}
sink: {topic: people}
checkpoint: /c
MORE
"""


@pytest.fixture
def read_back(tmp_path: Path) -> Callable[..., DeltaToKafka]:
    def read(transform: str = SQL, source: str = "", more: str = "") -> DeltaToKafka:
        file = tmp_path / "job.yaml"
        text = FROM_TABLE.replace("TRANSFORM", transform).replace("SOURCE", source).replace("MORE", more)
        file.write_text(text)
        return load(file, DeltaToKafka, {})

    return read


def test_the_section_of_a_table_that_is_read_has_the_options_of_a_copy(read_back: Callable[..., DeltaToKafka]) -> None:
    """By the names that Delta's source has; what is not set has the copy's default."""
    given = texts(
        read_back(source=", readChangeFeed: true, startingVersion: 3, maxFilesPerTrigger: 7").source.options()
    )
    assert given == {
        "format": "delta",
        "path": "/t",
        "readChangeFeed": "true",
        "startingVersion": "3",
        "maxFilesPerTrigger": "7",
    }
