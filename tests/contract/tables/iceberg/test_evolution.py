"""Columns that an Iceberg table is given, by a REST catalog that loses, delays and repeats requests."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import IntegerType

from spark_eos.errors import EosError, TableError
from tests.support.judges.conditions import raises
from tests.support.servers.rest_catalog import Fault, soon_overdue
from tests.support.tables.delta_files import SCHEMA, micro_batch
from tests.support.tables.table_kinds import Iceberg, files_of

WIDE = pa.schema([*SCHEMA, ("c", pa.string())])


def columns(kind: Iceberg) -> list[str]:
    return [field.name for field in kind.load().schema().fields]


@pytest.mark.parametrize(
    ("answer", "done"),
    [*((504, done) for done in ("before", "never", "late")), ("hung", "before"), ("lost", "late"), (409, "never")],
)
def test_columns_are_added_once_whatever_becomes_of_the_request(
    kind, server, target, monkeypatch, done, answer
) -> None:
    """Whether it is done before the error, not at all, or after the driver has moved on; then it is refused."""
    soon_overdue(server, monkeypatch)
    server.faults = [Fault("commit", answer, done)]
    assert target.evolved(WIDE).layout.schema.equals(WIDE)
    assert not server.faults and server.is_read_between_commits()
    assert server.catch_up() == ([409] if done == "late" else [])
    assert columns(kind) == WIDE.names and len(kind.load().metadata.schemas) == 2


def test_a_late_request_gives_no_id_that_another_column_had(kind, server, target) -> None:
    """The columns are by then those that it was made for, and another one has come and gone: it would have had the id
    that the request gives, and its values would come back under the new name."""
    server.faults = [Fault("commit", 504, "late")]
    with pytest.raises(TableError):
        target.evolved(WIDE, patience_s=0.001)
    with kind.load().update_schema() as update:
        update.add_column("gone", IntegerType())
    with kind.load().update_schema() as update:
        update.delete_column("gone")
    assert kind.load().metadata.current_schema_id == 0
    assert server.catch_up() == [409]
    assert columns(kind) == SCHEMA.names


def test_a_table_whose_files_are_read_by_names_is_refused(tmp_path) -> None:
    """Without the column in that property, too, readers would not find it in such files."""
    kind = Iceberg(tmp_path)
    target = kind.target()
    with kind.load().transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": "[]"})
    with pytest.raises(EosError) as error:
        target.evolved(WIDE)
    assert error.value.entry == "EOS_ICEBERG_TABLE.columns" and ": c." in error.value.message
    assert columns(kind) == SCHEMA.names


@pytest.mark.parametrize("transform", ["bucket(4, offset)", "truncate(4, offset)"])
def test_a_column_with_the_name_of_a_partition_field_is_refused_at_once(tmp_path, monkeypatch, transform) -> None:
    """Also where the table is created, and in other letters: nothing is asked of the catalog."""
    monkeypatch.setattr(SqlCatalog, "commit_table", lambda *_: pytest.fail("the catalog was asked"))
    kind = Iceberg(tmp_path)
    name = f"offset_{'bucket' if 'bucket' in transform else 'trunc'}"
    for column in (name, name.upper()):
        with raises("EOS_TABLE_COLUMNS.name", column):
            kind.place(partitionBy=transform).target(pa.schema([*SCHEMA, (column, pa.string())]), create=True)
        assert not kind.is_there()
    target = kind.target(partitionBy=transform)
    for column in (name, name.upper()):
        with raises("EOS_TABLE_COLUMNS.name", column):
            target.evolved(pa.schema([*SCHEMA, (column, pa.string())]))
    assert columns(kind) == SCHEMA.names


@pytest.mark.parametrize("within", ["evolution._schema", "commit.entry", "commit.stage"])
def test_what_fails_before_the_catalog_is_asked_is_no_unknown_outcome(tmp_path, monkeypatch, within) -> None:
    """It would fail again; an error of a store may pass."""
    target = Iceberg(tmp_path).target()
    batch = micro_batch(0, (0, 0, 2))
    files, failed = files_of(target, batch), [OSError("the store is away"), ValueError("a name of somebody else's")]
    monkeypatch.setattr(f"spark_eos.pipelines.tables.iceberg.{within}", lambda *_: (_ for _ in ()).throw(failed.pop(0)))
    with pytest.raises(EosError) as error:
        target.evolved(WIDE) if "evolution" in within else target.commit(batch, files, 2, is_there=False)
    assert error.value.condition == "EOS_ICEBERG_FAILED" and not error.value.restart_helps
    assert "somebody else's" in error.value.message and not failed


def test_a_name_that_is_the_path_of_another_column_is_refused(tmp_path) -> None:
    """pyiceberg finds fields by paths, and takes no such columns."""
    place = Iceberg(tmp_path).place()
    there = pa.schema({"a.b": pa.int32()})
    with pytest.raises(EosError, match=r"multiple fields for name a\.b"):
        place.widened(there, pa.schema({"a": pa.struct([("b", pa.int32())])}))
