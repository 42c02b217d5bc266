"""Which Iceberg tables and catalogs are written to, and that no secret is in what is said of them."""

from __future__ import annotations

import sqlite3
import sys
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimeType, UUIDType
from pyiceberg.utils.config import Config

from spark_eos.errors import EosError
from spark_eos.pipelines.tables.iceberg.catalog import without_secrets
from spark_eos.pipelines.tables.iceberg.table import folder_of, layout_of
from spark_eos.pipelines.tables.iceberg.target import reference_to
from tests.support.judges.conditions import raises
from tests.support.tables.table_kinds import Iceberg

ID, TEXT = NestedField(1, "id", LongType()), NestedField(2, "s", StringType())
PLAIN = Schema(ID, TEXT)
WRITTEN = pa.schema({"id": pa.int64(), "s": pa.string()})


def refusal(kind: Iceberg, **more: str) -> EosError:
    """Why a query does not start."""
    with pytest.raises(EosError) as error:
        kind.place(**more).target(WRITTEN, create=True)
    return error.value


def create(kind: Iceberg, schema: Schema = PLAIN, **more: Any) -> None:
    catalog = kind.opened()
    catalog.create_namespace_if_not_exists("tests")
    catalog.create_table(kind.table, schema, **more)


def spec(source: int, transform: Any) -> PartitionSpec:
    return PartitionSpec(PartitionField(source, 1000, transform, "f"))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"properties": {"format-version": "1"}}, "version 1 of the format"),
        ({"properties": {"write.format.default": "orc"}}, "write.format.default=orc"),
        ({"properties": {"encryption.key-id": "k"}}, "encryption.key-id=k"),
        ({"partition_spec": spec(1, VoidTransform())}, "field f by void"),
        ({"schema": Schema(ID, NestedField(2, "t", TimeType()))}, "column t of type time"),
        (
            {"schema": Schema(ID, NestedField(2, "r", StructType(NestedField(3, "u", UUIDType()))))},
            "column r.u of type",
        ),
        (
            {
                "schema": Schema(ID, NestedField(2, "r", StructType(NestedField(3, "n", LongType())))),
                "partition_spec": spec(3, IdentityTransform()),
            },
            "field f by identity",
        ),
    ],
)
def test_a_table_that_files_would_not_follow_is_refused(kind, more, says) -> None:
    """By name, at the start."""
    create(kind, **more)
    refused = refusal(kind)
    assert refused.entry == "EOS_ICEBERG_TABLE.rules" and says in refused.message


def test_version_3_of_the_format_is_refused(kind) -> None:
    """pyiceberg reads it, and cannot create it yet: it gives each row an id."""
    create(kind)
    metadata = kind.load().metadata.model_dump()
    with pytest.raises(EosError, match="version 3 of the format"):
        layout_of(TableMetadataV3.model_validate({**metadata, "format-version": 3, "next-row-id": 0}), "t")


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (Schema(NestedField(1, "ID", LongType()), TEXT), "the table has no id; ID is not written"),
        (Schema(ID, NestedField(2, "s", LongType())), "s is int64 in the table, and written as string"),
        (Schema(NestedField(1, "id", LongType(), required=True), TEXT), "id is int64 NOT NULL in the table"),
    ],
)
def test_a_table_with_other_columns_is_refused(kind, schema, says) -> None:
    """Each difference is named."""
    create(kind, schema)
    refused = refusal(kind)
    assert refused.entry == "EOS_TABLE_DIFFERS" and says in refused.message


def test_a_table_is_created_once(kind) -> None:
    """With its namespace; a second query finds it. A query with a checkpoint creates none."""
    with raises("EOS_ICEBERG_NO_TABLE"):
        kind.place().target(WRITTEN, create=False)
    first = kind.place().target(WRITTEN, create=True)
    assert first == kind.place().target(WRITTEN, create=True)
    assert kind.place().remembered("q").last is None


@pytest.mark.parametrize("location", ["hdfs://host/t", "gs://b/t", "relative/t", "/a b/c%20d", "s3:/b", "file:t"])
def test_places_that_are_not_written_to_are_refused(kind, location) -> None:
    """Neither on a local disk nor on S3, or read as another place by some."""
    create(kind)
    metadata = kind.load().metadata.model_copy(update={"location": location})
    with raises("EOS_ICEBERG_TABLE.location"):
        folder_of(metadata, "t")


def test_a_catalog_that_forgets_is_refused(kind) -> None:
    """One in memory has no table in the next process."""
    refused = refusal(kind, **{"catalog.type": "in-memory"})
    assert refused.entry == "EOS_ICEBERG_TABLE.catalog" and "InMemoryCatalog" in refused.message


def test_a_catalog_that_cannot_be_opened_is_named_without_its_secrets(kind) -> None:
    """pyiceberg's own message has all properties. No time heals it, so it is not waited for."""
    secrets = {"catalog.type": "sql", "catalog.uri": "nothing://user:swordfish@host/db", "catalog.s3.secret": "rosebud"}
    refused = refusal(kind, **secrets)
    assert refused.condition == "EOS_ICEBERG_FAILED" and not refused.restart_helps
    assert "swordfish" not in str(refused) and "rosebud" not in str(refused)


def test_secrets_are_left_out() -> None:
    """By the names of properties, and out of addresses, as they are and as they are meant."""
    properties = {
        "uri": "postgresql://user:p%40ss@host/db",
        "proxy": "https://ann:pa/sswd@proxy",
        "token": "abc",
        "s3.secret-access-key": "def",
        "header.X-Api": "ghi",
        "warehouse": "s3://bucket/jkl",
        "auth": {"basic": {"password": "mno"}},
        "ssl": {"cabundle": "/pqr"},
    }
    text = "postgresql://user:p%40ss@host/db p@ss abc def ghi s3://bucket/jkl mno /pqr https://ann:pa/sswd@proxy"
    shown = "postgresql://***@host/db *** *** *** *** s3://bucket/jkl *** /pqr https://***@proxy"
    assert without_secrets(text, properties) == shown


def test_secrets_of_pyicebergs_own_configuration_are_left_out(monkeypatch) -> None:
    """Also where the catalog cannot be opened, and pyiceberg's message has them."""
    uri = "nothing://user:swordfish@host/db"
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", uri)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # which is read once
    with raises("EOS_ICEBERG_FAILED") as error:
        reference_to("a.b", "prod", {}).target(WRITTEN, create=True)
    assert "from the uri: nothing://***@host/db" in error.value.message


def test_without_pyiceberg_the_extra_is_named(monkeypatch) -> None:
    """Before anything else."""
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(EosError) as error:
        reference_to("a.b", "default", {})
    assert error.value.entry == "EOS_NOT_INSTALLED.extra" and "[iceberg]" in error.value.hint


@pytest.mark.parametrize("trouble", ["locked", "away"])
def test_a_database_that_is_locked_or_away_when_a_query_starts_is_waited_for(tmp_path, trouble) -> None:
    """By a restart; a running query waits by itself. The next start goes on, whether the table was there or not."""
    kind = Iceberg(tmp_path / "catalog")
    place = kind.place(**{"catalog.uri": f"sqlite:///{kind.folder}/catalog.db?timeout=0.1"})
    kind.opened()
    if trouble == "away":
        kind.folder.rename(tmp_path / "elsewhere")
    else:
        holder = sqlite3.connect(kind.folder / "catalog.db", isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(EosError) as error:
        place.target(WRITTEN, create=True)
    assert error.value.condition == "EOS_ICEBERG_UNREACHABLE" and error.value.restart_helps
    if trouble == "away":
        (tmp_path / "elsewhere").rename(kind.folder)
    else:
        holder.close()
    place.target(WRITTEN, create=True)
