"""The config files of the jobs from and to Delta: what goes with appends, and what with merges."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.delta_to_kafka import REFUSED, DeltaToKafka
from jobs.kafka_to_delta import KafkaToDelta
from jobs.runner.config import load
from spark_eos.errors import ConfigError
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


@pytest.mark.parametrize(
    ("transform", "target", "says"),
    [
        (f"{SQL}, engine: duckdb", "merge: [n]", "'target.merge' is for rows that pass through Spark"),
        (SQL, "schema: merge", "'target.schema' is none of the values"),
        (SQL, "mergeSchema: true", "'target.mergeSchema' is not a known key"),
        (SQL, "", "'transform.engine' means Spark, which only merges: rows are appended past the JVM"),
        (f"{SQL}, engine: spark", "", "'transform.engine' means Spark"),
        (f"{SQL}, format: json, schema: n INT", "", "'transform.engine' means Spark"),
        ("function: 'json:dumps'", "", "'transform.function' means Spark"),
        (SQL, "merge: [n], afterRestore: 3", "'target.afterRestore' is only for rows that are appended"),
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


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"transform": "arrow: 'json:dumps', sql: SELECT 1"}, "'transform' does not have just one transformation"),
        ({"transform": "function: 'json:dumps'"}, "'transform.function' is not a known key. Hint: Set 'arrow', a func"),
        ({"transform": f"{SQL}, engine: spark"}, "'transform.engine' is none of the values that it can have"),
        ({"more": "tasks: 4"}, "'tasks' is not a known key. Hint: Remove it: the order of changes says how many tasks"),
        ({"source": ", maxFiles: 1"}, "'source.maxFiles' is not a known key. Hint: Did you mean 'maxFilesPerTrigger'"),
        ({"source": ", startingVersion: latest"}, "'source.startingVersion' is not a whole number"),
        ({"source": ", startingVersion: -1"}, "'source.startingVersion' is too small"),
    ],
)
def test_a_mistake_in_the_file_of_the_way_back_is_named_by_its_key(
    read_back: Callable[..., DeltaToKafka], parts: dict[str, str], says: str
) -> None:
    """Keys that only rows through Spark had, too, with what to do instead. A start at "latest" would be another version
    where the first micro-batch is replayed."""
    with pytest.raises(ConfigError) as caught:
        read_back(**parts)
    assert says in str(caught.value)


@pytest.mark.parametrize("option", REFUSED)
def test_options_that_lose_or_repeat_rows_are_refused_by_name(
    read_back: Callable[..., DeltaToKafka], option: str
) -> None:
    """Before Spark starts, in any case of letters, with the reason."""
    said = f"EOS_CONFIG_INVALID_VALUE.*source.{option.upper()}.*this job refuses.*Remove it"
    with pytest.raises(ConfigError, match=said):
        read_back(source=f", {option.upper()}: true")


def test_a_schema_needs_one_topic_to_be_named_by(read: Read, tmp_path: Path) -> None:
    """Or a subject."""
    (tmp_path / "two.yaml").write_text(
        GOOD.replace("TRANSFORM", f"{SQL}, {PARSE}").replace("TARGET", "").replace("people", "'people,others'")
    )
    with pytest.raises(ConfigError, match=r"parse\.subject' is missing, as there is not one topic"):
        load(tmp_path / "two.yaml", KafkaToDelta, {})
