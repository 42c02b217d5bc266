"""What becomes of the sections of config files. What is refused in them is in test_mistakes.py."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

from jobs.kafka_to_iceberg import main
from jobs.runner.config import load
from jobs.runner.registry import ColumnCodecs, encoded_rows
from spark_eos.base.frozen_settings import texts
from spark_eos.pipelines.copy.sql import SqlTransform
from spark_eos.source.schema import arrow_schema
from tests.support.judges.conditions import raises
from tests.unit.jobs.conftest import SECRET, Loaded, Planned

PARSE = "parse: {format: avro, registry: http://localhost:8081}"
BY_SPARK = "engine: spark"


@pytest.mark.parametrize(
    ("transform", "target", "extras"),
    [
        ("", "partitionBy: [n], afterRestore: 3", {"sql"}),
        (f"{PARSE}, onMalformed: drop", "", {"sql", "registry"}),
        ("sql: -, engine: -, arrow: 'json:dumps', onMalformed: drop", "schema: evolve", set()),
        (f"{BY_SPARK}, {PARSE}, onMalformed: drop", "merge: [n]", {"registry", "delta"}),
        (f"{BY_SPARK}, format: json, schema: n INT", "merge: [n], schema: evolve", {"delta"}),
        ("sql: -, engine: -, function: 'json:dumps'", "merge: [n], partitionBy: [n]", {"delta"}),
    ],
)
def test_spark_merges_and_tasks_append(loaded: Loaded, transform: str, target: str, extras: set[str]) -> None:
    """Only Spark needs Delta's own package."""
    config = loaded("kafka_to_delta", f"transform: {{{transform}}}, target: {{{target}}}")
    assert set(config.extras()) == extras


@pytest.mark.parametrize(
    ("job", "patch", "section", "options"),
    [
        (
            "kafka_to_delta",
            "target: {schema: evolve, partitionBy: [n, m], afterRestore: 3, delta.enableChangeDataFeed: true}",
            "target",
            {"format": "delta", "path": "/t", "schema": "evolve", "partitionBy": "n,m", "afterRestore": "3"}
            | {"delta.enableChangeDataFeed": "true"},
        ),
        (
            "kafka_to_iceberg",
            "target: {catalog: prod, partitionBy: [day(timestamp), topic], schema: evolve, "
            f"afterRollback: {2**63 - 1}}}",
            "target",
            {"format": "iceberg", "table": "lake.flights", "catalog": "prod", "catalog.token": SECRET}
            | {"partitionBy": "day(timestamp),topic", "afterRollback": f"{2**63 - 1}", "schema": "evolve"},
        ),
        (
            "delta_to_kafka",
            "source: {readChangeFeed: true, startingVersion: 3, maxFilesPerTrigger: 7}",
            "source",
            {"format": "delta", "path": "/t", "readChangeFeed": "true", "startingVersion": "3"}
            | {"maxFilesPerTrigger": "7"},
        ),
    ],
)
def test_the_section_of_a_table_has_the_options_of_a_copy(
    loaded: Loaded, job: str, patch: str, section: str, options: dict[str, str]
) -> None:
    """By their names; what is not set has the copy's default. Secrets do not print."""
    found = getattr(loaded(job, patch), section)
    assert texts(found.options()) == options
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    "transform",
    ["", "engine: duckdb, onMalformed: drop", PARSE, "sql: -, arrow: 'json:dumps', onMalformed: drop"],
)
def test_records_for_iceberg_are_transformed_past_the_jvm(planned: Planned, transform: str) -> None:
    """By DuckDB without saying so, as nothing else runs SQL here. The plan names the catalog, and no secret of it."""
    plan = planned("kafka_to_iceberg", f"transform: {{{transform}}}, target: {{catalog: prod}}")
    assert plan.line.startswith("flights → appended to lake.flights in the catalog prod; no group; checkpoint /c")
    assert plan.clusters and SECRET not in plan.line


def test_without_a_transform_headers_are_for_the_table(loaded: Loaded) -> None:
    """As all columns of the source are."""
    bare = loaded("kafka_to_iceberg", "transform: -").source_options()
    assert (bare["includeHeaders"], bare["startingOffsets"]) == ("true", "earliest")
    assert "includeHeaders" not in loaded("kafka_to_iceberg").source_options()


def test_without_pyiceberg_the_extra_is_named_before_spark_starts(planned: Planned, not_installed) -> None:
    """The job itself needs none of it."""
    not_installed("pyiceberg")
    with raises("EOS_NOT_INSTALLED.extra", "[iceberg]"):
        planned("kafka_to_iceberg")


def test_a_mistake_ends_the_job_with_the_file_and_the_key(loaded: Loaded, tmp_path: Path, capsys) -> None:
    """And without the secrets that are in the file."""
    loaded("kafka_to_iceberg", "target: {catalog.uri: 'https://user:swordfish@host'}")
    file = tmp_path / "job.yaml"
    file.write_text(file.read_text().replace('"lake.flights"', '"flights"'))
    assert main(["--conf", str(file)]) == 1
    printed = capsys.readouterr().err
    assert f"{file}: 'target.table'" in printed and SECRET not in printed


def test_the_example_for_iceberg_takes_values_apart() -> None:
    """Its SQL, as tasks run it; what a value lacks is null."""
    config = load(
        Path(__file__).parents[3] / "conf" / "kafka_to_iceberg.yaml", main.__self__.config, {"CHECKPOINT": "/c"}
    )
    values = [b'{"carrier": "UA", "arr_delay": 16.5}', b'{"carrier": "DL"}']
    records = [{"value": value, "partition": 1, "offset": offset} for offset, value in enumerate(values)]
    found = SqlTransform(config.transform.sql)(pa.RecordBatch.from_pylist(records, arrow_schema(include_headers=False)))
    assert [(row["offset"], row["carrier"], row["delay"]) for row in found.to_pylist()] == [
        (0, "UA", 16.5),
        (1, "DL", None),
    ]


def test_the_topics_of_the_sink_have_to_be_there(planned: Planned) -> None:
    """That of dead letters among them."""
    letters = "transform: {onMalformed: deadLetters}, sink: {deadLetters.topic: dead}"
    (cluster,) = planned("consume_transform_produce", letters).clusters
    assert set(cluster.required) == {"flights", "copies", "dead"}


def test_a_mirror_says_its_topics_its_clusters_and_where_it_begins(planned: Planned) -> None:
    """Topics or a pattern."""
    by_time = planned("mirror", "source: {startingTimestamp: 5}")
    assert by_time.line.startswith("orders on here:9092 → the same names on there:9092; checkpoint /c")
    assert by_time.beginning == "a new query, from startingTimestamp 5"
    assert [cluster.required for cluster in by_time.clusters] == [["orders"], ()]
    pattern = planned("mirror", "source: {subscribe: -, subscribePattern: ^shop}")
    assert pattern.line.startswith("topics that match ^shop on here:9092")
    assert pattern.beginning == "a new query, from earliest"


@pytest.mark.parametrize(
    "value",
    [
        "settings: {max.message.bytes: 1000, retention.ms: -1, cleanup.policy: compact}",
        "replication: -1",
        "replication: 3",
        "prefix: _A.b-1",
        "prefix: ''",
        "map: __spark_eos_mirror",
        "map: __spark_eos_mirror_2",
        "map: offsets",
    ],
)
def test_values_that_a_target_of_a_mirror_can_have(loaded: Loaded, value: str) -> None:
    """Other options are taken as they are."""
    config = loaded("mirror", f"topics: {{{value}}}, source: {{kafka.fetch.max.bytes: 60000000}}")
    assert config.source_options()["kafka.fetch.max.bytes"] == "60000000"
    assert config.sink_options()["ledger.topic"] == "own-ledger"


def test_keys_and_values_may_be_decoded_and_encoded(loaded: Loaded) -> None:
    """Each by a section of its own; the registry is an address, or settings, which do not print."""
    sections = """transform: {format: -, schema: -, onMalformed: drop,
        parse: {format: avro, registry: {url: http://localhost:8081, basic.auth.user.info: "user:swordfish"}},
        parseKey: {format: avro, registry: http://localhost:8081, subject: keys, version: 2},
        encode: {format: json-schema, registry: http://localhost:8081, schema: "{}", autoRegister: false},
        encodeKey: {format: protobuf, registry: http://localhost:8081, message: acme.Key}}"""
    transform = loaded("consume_transform_produce", sections).transform
    assert transform.decodes and transform.on_malformed == "drop"
    assert transform.parse.registry["basic.auth.user.info"] == f"user:{SECRET}"
    assert SECRET not in repr(transform)
    assert (transform.parse.version, transform.parse_key.version, transform.parse_key.subject) == (None, 2, "keys")
    assert transform.encode.text == "{}" and not transform.encode.auto_register
    assert transform.encode_key.message == "acme.Key" and transform.encode_key.auto_register


def test_a_job_without_a_registry_does_not_load_its_modules(not_installed) -> None:
    """They import numpy, for 75 ms of each start. Headers stay as they are."""
    not_installed("spark_eos.pipelines.registry.wire")
    rows = Mock(columns=["value", "headers"])
    assert encoded_rows(rows, ColumnCodecs()) is rows
