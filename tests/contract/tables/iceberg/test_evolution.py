"""Columns that an Iceberg table is given, or cannot be given."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from spark_eos.errors import EosError
from tests.support.judges.conditions import raises
from tests.support.tables.delta_files import SCHEMA, micro_batch
from tests.support.tables.table_kinds import files_of

WIDE = pa.schema([*SCHEMA, ("c", pa.string())])


def test_a_table_whose_files_are_read_by_names_is_refused(kind, target) -> None:
    """Without the column in that property, too, readers would not find it in such files."""
    with kind.load().transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": "[]"})
    with pytest.raises(EosError) as error:
        target.evolved(WIDE)
    assert error.value.entry == "EOS_ICEBERG_TABLE.columns" and ": c." in error.value.message
    assert kind.load().schema().column_names == SCHEMA.names


@pytest.mark.parametrize("transform", ["bucket(4, offset)", "truncate(4, offset)"])
def test_a_column_with_the_name_of_a_partition_field_is_refused_at_once(kind, monkeypatch, transform) -> None:
    """Also where the table is created, and in other letters: nothing is asked of the catalog."""
    monkeypatch.setattr(SqlCatalog, "commit_table", lambda *_: pytest.fail("the catalog was asked"))
    name = f"offset_{'bucket' if 'bucket' in transform else 'trunc'}"
    for column in (name, name.upper()):
        with raises("EOS_TABLE_COLUMNS.name", column):
            kind.place(partitionBy=transform).target(pa.schema([*SCHEMA, (column, pa.string())]), create=True)
        assert not kind.is_there()
    target = kind.target(partitionBy=transform)
    for column in (name, name.upper()):
        with raises("EOS_TABLE_COLUMNS.name", column):
            target.evolved(pa.schema([*SCHEMA, (column, pa.string())]))
    assert kind.load().schema().column_names == SCHEMA.names


@pytest.mark.parametrize("within", ["evolution._schema", "commit.entry", "commit.stage"])
def test_what_fails_before_the_catalog_is_asked_is_no_unknown_outcome(target, monkeypatch, within) -> None:
    """It would fail again; an error of a store may pass."""
    batch = micro_batch(0, (0, 0, 2))
    files, failed = files_of(target, batch), [OSError("the store is away"), ValueError("a name of somebody else's")]
    monkeypatch.setattr(f"spark_eos.pipelines.tables.iceberg.{within}", lambda *_: (_ for _ in ()).throw(failed.pop(0)))
    with pytest.raises(EosError) as error:
        target.evolved(WIDE) if "evolution" in within else target.commit(batch, files, 2, is_there=False)
    assert error.value.condition == "EOS_ICEBERG_FAILED" and not error.value.restart_helps
    assert "somebody else's" in error.value.message and not failed


def test_a_name_that_is_the_path_of_another_column_is_refused(kind) -> None:
    """pyiceberg finds fields by paths, and takes no such columns."""
    there = pa.schema({"a.b": pa.int32()})
    with pytest.raises(EosError, match=r"multiple fields for name a\.b"):
        kind.place().widened(there, pa.schema({"a": pa.struct([("b", pa.int32())])}))
