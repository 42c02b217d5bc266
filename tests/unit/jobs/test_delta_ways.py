"""Which way the rows of a table go to topics: past the JVM or through Spark."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs import delta_to_kafka
from jobs.delta.ways import chosen
from jobs.delta_to_kafka import DeltaToKafka
from jobs.runner.config import load
from spark_eos.errors import ConfigError, EosError, stop

Read = Callable[..., DeltaToKafka]
GOOD = """\
kafka: {bootstrap.servers: localhost:9092}
source: {path: /t SOURCE}
TRANSFORM
sink: {topic: people}
checkpoint: /c
"""
SQL = "transform: {sql: SELECT 1 AS value FROM input}"
DUCKDB = "transform: {sql: SELECT 1 AS value FROM input, engine: duckdb}"
CHANGES = ", readChangeFeed: true"
REFUSED = stop("EOS_DELTA_TABLE_SETTINGS.reading", path="/t", rules="the feature x")


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(transform: str, source: str = "") -> DeltaToKafka:
        file = tmp_path / "job.yaml"
        file.write_text(GOOD.replace("TRANSFORM", transform).replace("SOURCE", source))
        return load(file, DeltaToKafka, {})

    return read


@pytest.mark.parametrize(
    ("transform", "source", "is_copy", "needs_spark"),
    [
        ("", "", False, None),
        ("", CHANGES, False, None),
        (SQL, CHANGES, False, "'transform.sql' is run by Spark"),
        (SQL, "", False, "'transform.sql' is run by Spark"),
        ("transform: {function: 'json:dumps'}", "", False, "'transform.function' is run by Spark"),
        (DUCKDB, "", True, None),
        (DUCKDB, CHANGES, True, None),
        ("transform: {arrow: 'json:dumps'}", ", startingVersion: 3, maxBytesPerTrigger: 1g", True, None),
    ],
)
def test_the_config_file_may_need_one_way(
    read: Read, transform: str, source: str, is_copy: bool, needs_spark: str | None
) -> None:
    """Or leave it open, without a transform."""
    config = read(transform, source)
    assert (config.is_copy, config.needs_spark) == (is_copy, needs_spark)


@pytest.mark.parametrize(
    ("transform", "spark", "knows"),
    [
        ("", "", False),
        ("", "spark.jars.packages: io.delta:delta-spark_4.2_2.13:4.4.0", True),
        ("", "spark.jars: /opt/delta-spark_4.2_2.13-4.4.0.jar", True),
        (SQL, "", True),
        (DUCKDB, "spark.jars.packages: io.delta:delta-spark_4.2_2.13:4.4.0", False),
    ],
)
def test_the_session_knows_delta_where_rows_may_pass_through_it(
    read: Read, transform: str, spark: str, knows: bool
) -> None:
    """Else Spark would warn that it has no such classes."""
    config = read(f"{transform}\nspark: {{{spark}}}")
    plan = delta_to_kafka.plan(config, argparse.Namespace())
    assert ("DeltaSparkSessionExtension" in plan.spark.get("spark.sql.extensions", "")) == knows


@pytest.mark.parametrize(
    ("transform", "source", "says"),
    [
        ("transform: {engine: duckdb, function: 'json:dumps'}", "", "'transform.engine' is for 'sql'"),
        ("transform: {arrow: 'json:dumps', sql: SELECT 1}", "", "'transform' does not have just one transformation"),
    ],
)
def test_a_mistake_is_named_by_its_key(read: Read, transform: str, source: str, says: str) -> None:
    """Before Spark starts."""
    with pytest.raises(ConfigError) as caught:
        read(transform, source)
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("needs_spark", "is_copy", "began", "error", "past_jvm", "why"),
    [
        (None, False, None, None, True, "the query is new, and nothing in it needs Spark"),
        (None, False, None, REFUSED, False, "the feature x"),
        (None, False, True, REFUSED, True, "this query has always done so"),
        (None, False, False, None, False, "this query has always done so, and its offsets are Delta's"),
        (None, True, None, REFUSED, True, "so is its transform"),
        (None, True, True, None, True, "this query has always done so"),
        ("because", False, None, None, False, "because"),
        ("because", False, False, None, False, "because"),
    ],
)
def test_a_query_keeps_its_way(
    needs_spark: str | None, is_copy: bool, began: bool | None, error: EosError | None, past_jvm: bool, why: str
) -> None:
    """A new one goes past the JVM where it can, and says why it does not."""

    def check_new() -> None:
        if error is not None:
            raise error

    way = chosen("/t", needs_spark, is_copy=is_copy, began=began, check_new=check_new)
    assert way.past_jvm == past_jvm and why in way.why
    assert str(way).startswith(f"rows are read {'past the JVM' if past_jvm else 'through Spark'}: ")


def test_a_query_that_would_have_to_change_its_way_is_refused() -> None:
    """By the reason, and whatever the table is now."""
    with pytest.raises(EosError) as caught:
        chosen("/t", "'transform.sql' is run by Spark", is_copy=False, began=True, check_new=pytest.fail)
    assert caught.value.entry == "EOS_DELTA_OTHER_SOURCE.past_jvm" and "'transform.sql'" in caught.value.message
    with pytest.raises(EosError) as caught:
        chosen("/t", None, is_copy=True, began=False, check_new=pytest.fail)
    assert caught.value.entry == "EOS_DELTA_OTHER_SOURCE.through_spark"


@pytest.mark.parametrize(
    "error",
    [
        stop("EOS_DELTA_NO_TABLE.path", path="/t", more=""),
        stop("EOS_DELTA_TABLE_SETTINGS.change_feed", path="/t", name="delta.`/t`"),
        stop("EOS_DELTA_TABLE_SETTINGS.changes", cause="version 3"),
    ],
    ids=lambda error: error.entry,
)
def test_what_no_reader_could_read_is_an_error(error: EosError) -> None:
    """Spark would not find a table or its changes either."""

    def check_new() -> None:
        raise error

    with pytest.raises(EosError) as caught:
        chosen("/t", None, is_copy=False, began=None, check_new=check_new)
    assert caught.value is error


def test_a_copy_has_the_sources_options(read: Read) -> None:
    """By the names that Delta's source has."""
    source = read(DUCKDB, ", readChangeFeed: true, startingVersion: 3, maxFilesPerTrigger: 7").source
    assert source.of_copy == {
        "format": "delta",
        "path": "/t",
        "readChangeFeed": "true",
        "startingVersion": "3",
        "maxFilesPerTrigger": "7",
    }
    assert "readChangeFeed" not in read(DUCKDB).source.of_copy


def test_the_way_is_known_by_config_file_and_checkpoint_whatever_else_the_sink_has(tmp_path: Path) -> None:
    """A group of consumers, which a table has no offsets for, is refused later, by its own name."""
    config = DeltaToKafka.model_validate(
        {
            "kafka": {"bootstrap.servers": "localhost:9092"},
            "source": {"path": "/t"},
            "transform": {"sql": "SELECT 1 AS value FROM input"},
            "sink": {"topic": "people", "offsets.group.id": "g"},
            "checkpoint": str(tmp_path / "checkpoint"),
        }
    )
    assert not delta_to_kafka.way_of({}, config).past_jvm
