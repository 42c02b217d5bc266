"""Columns with a registry's schemas on a real topic: classic Spark and Connect, values of Confluent's serializers."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import col, struct

import spark_eos
from spark_eos.errors import EosError
from spark_eos.pipelines.registry import from_registry, to_registry
from tests.support.kills.killed_program import ROOT
from tests.support.servers.schema_registry import produce
from tests.support.spark.connect import connect_server
from tests.support.spark.registry_program import COPY
from tests.support.waiting import PROGRAM_S

SECRET = "the-secret-of-the-registry"
FIRST = '{"type":"record","name":"Order","namespace":"acme","fields":[{"name":"id","type":"long"}]}'
SECOND = FIRST.replace('"long"}', '"long"},{"name":"name","type":["null","string"],"default":null}')
ROWS = [{"id": 1}, {"id": 2, "name": "two"}, {"id": 3, "name": None}, None, {"id": 4}]
EXPECTED = [row and {"name": None} | row for row in ROWS]


def fill(cluster, registry, topic: str, rows=ROWS) -> None:
    """Each row with the first schema that has its fields; None is a tombstone."""
    for row in rows:
        schema = SECOND if isinstance(row, dict) and "name" in row else FIRST
        produce(cluster.bootstrap_servers, registry.url, topic, schema, [row])


def read(spark, cluster, topic: str):
    return (
        spark.read.format("eos-kafka")
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )


def test_rows_go_through_columns_and_back(spark, cluster, registry, topic):
    """Two writers' schemas in one topic, a tombstone among them."""
    source, target = topic(), topic()
    fill(cluster, registry, source)
    orders = read(spark, cluster, source).select(from_registry("value", registry.url, topic=source).alias("order"))
    assert [row.order and row.order.asDict() for row in orders.collect()] == EXPECTED
    copies = orders.select(to_registry(struct("order.id", "order.name"), registry.url, topic=target, **COPY))
    rows = [row[0] for row in copies.where("order is not null").collect()]
    (version,) = registry.call("GET", f"subjects/{target}-value/versions")
    id_ = registry.call("GET", f"subjects/{target}-value/versions/{version}")["id"]
    assert {bytes(value[:5]) for value in rows} == {b"\0" + id_.to_bytes(4, "big")}
    assert [json.loads(value[5:]) for value in rows] == [row for row in EXPECTED if row is not None]


@pytest.mark.chaos
def test_a_connect_client_needs_no_jvm(spark, cluster, registry, topic, tmp_path):
    """The same by a program that has only Spark Connect."""
    source, target = topic(), topic()
    fill(cluster, registry, source)
    with connect_server(tmp_path / "server") as server:
        arguments = [server.remote, cluster.bootstrap_servers, source, target, registry.url]
        program = subprocess.run(
            [sys.executable, "-m", "tests.support.spark.registry_program", *arguments],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=PROGRAM_S,
        )  # fmt: skip
        assert program.returncode == 0, program.stderr[-4000:] + server.log()[-2000:]
    assert json.loads(program.stdout.splitlines()[-1]) == EXPECTED
    back = read(spark, cluster, target).select(from_registry("value", registry.url, topic=target).alias("copy"))
    assert [row[0].asDict() for row in back.collect()] == [row for row in EXPECTED if row is not None]


def test_a_value_that_cannot_be_read_fails_or_is_null(spark, cluster, registry, topic):
    """By default the query stops, with the subject and the reason."""
    source = topic()
    fill(cluster, registry, source, [{"id": 1}, b"none", {"id": 2}])
    rows = read(spark, cluster, source)
    with pytest.raises(PySparkException) as caught:
        rows.select(from_registry("value", registry.url, topic=source)).collect()
    reason = spark_eos.reason(caught.value)
    assert reason is not None and reason.condition == "EOS_VALUE_MALFORMED"
    assert f"{source}-value" in reason.message and "less than the 5 bytes" in reason.message
    kept = rows.select(from_registry("value", registry.url, topic=source, on_malformed="null").alias("order"))
    assert [row.order and row.order.id for row in kept.collect()] == [1, None, 2]


def test_the_version_of_the_column_stays(spark, cluster, registry, topic):
    """A newer one that is registered later changes no column that is there."""
    source = topic()
    fill(cluster, registry, source, [{"id": 1}])
    orders = read(spark, cluster, source).select(from_registry("value", registry.url, topic=source).alias("order"))
    fill(cluster, registry, source, [{"id": 2, "name": "two"}])
    assert orders.select("order.*").columns == ["id"]
    assert sorted(row.id for row in orders.select("order.*").collect()) == [1, 2]
    again = read(spark, cluster, source).select(from_registry("value", registry.url, topic=source).alias("order"))
    assert again.select("order.*").columns == ["id", "name"]


def test_no_secret_is_in_plans_and_errors(spark, before, registry, cluster, topic, capfd):
    """Of the user's settings, which travel within the column's function."""
    source = topic()
    fill(cluster, registry, source)
    settings = {"url": before.url, "basic.auth.user.info": f"user:{SECRET}"}
    column = from_registry("value", settings, topic=source)
    orders = read(spark, cluster, source).select(column)
    orders.explain("extended")
    before.authorization = "another"
    with pytest.raises(PySparkException) as caught:
        orders.collect()
    reason = spark_eos.reason(caught.value)
    assert reason is not None and reason.condition == "EOS_REGISTRY_UNAUTHORIZED"
    output = capfd.readouterr()
    assert "from_registry" in output.out
    assert SECRET not in repr(column) + str(caught.value) + output.out + output.err


def test_what_the_registry_refuses_is_an_error_before_any_task(registry, subject):
    """Neither a schema that is not compatible, nor one that is not there, nor a subject without versions."""
    registry.register(subject, FIRST)
    registry.call("PUT", f"config/{subject}", {"compatibility": "FULL"})
    with pytest.raises(EosError, match="EOS_REGISTRY_INCOMPATIBLE"):
        to_registry(col("value"), registry.url, subject=subject, schema=FIRST.replace("long", "string"))
    with pytest.raises(EosError, match="has no version with this schema"):
        to_registry("value", registry.url, subject=subject, auto_register=False, schema=SECOND)
    for function in (to_registry, from_registry):
        with pytest.raises(EosError, match="EOS_REGISTRY_NOT_FOUND"):
            function("value", registry.url, subject=f"{subject}-none")
    for arguments in ({"on_malformed": "drop"}, {"on_malformed": "null", "kind": "xml"}):
        with pytest.raises(EosError, match="EOS_OPTION_INVALID"):
            to_registry("value", registry.url, subject=subject, **arguments)
