"""Columns that tables of each kind are given when a query begins: read back by others, beside others, and whatever
happens between the schema's commit and that of the rows."""

from __future__ import annotations

from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.types import IntegerType

from spark_eos.pipelines.tables.micro_batch import RangeBatch
from spark_eos.pipelines.tables.target import Target
from tests.support.judges.conditions import raises
from tests.support.judges.table_readers import local_dataset
from tests.support.tables.delta_files import SCHEMA, micro_batch, records
from tests.support.tables.table_kinds import Delta, Iceberg, TableKind, files_of

FIRST, SECOND, THIRD = micro_batch(0, (0, 0, 2)), micro_batch(1, (0, 2, 4)), micro_batch(2, (0, 4, 5))
ITEM = pa.struct([pa.field("a", pa.int32(), nullable=False)])
WIDE_ITEM = pa.struct([("a", pa.int64()), ("b", pa.string())])


def lists_of(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", item))


MORE = pa.schema([*SCHEMA, ("c", pa.int32())])
#: What the table has, and what the rows have then.
BEFORE = pa.schema([*SCHEMA, ("s", ITEM), ("l", lists_of(ITEM)), ("r", pa.struct([("s", ITEM)]))])
AFTER = pa.schema(
    {
        "c": pa.string(),
        "offset": pa.int64(),
        "s": WIDE_ITEM,
        "l": lists_of(WIDE_ITEM),
        "r": pa.struct([("s", WIDE_ITEM), ("n", pa.int16())]),
        "new": pa.struct([("x", pa.float64()), ("y", lists_of(pa.date32()))]),
    }
)


def evolving(kind: TableKind, given: pa.Schema) -> Target:
    """The table for rows with these columns, as the start of a query has it."""
    place = kind.place()
    there = place.columns()
    assert there is not None
    return place.target(there.schema, create=False).evolved(place.widened(there.schema, given))


def commit(target: Target, batch: RangeBatch, **more: Any) -> None:
    """The micro-batch's rows, with these values besides."""
    files = files_of(target, batch, **more)
    assert not target.commit(batch, files, len(records(batch)), is_there=False).again


def commits(kind: TableKind) -> int:
    """Of any kind, those of schemas among them."""
    return kind.versions() if isinstance(kind, Delta) else len(kind.load().metadata.metadata_log)


def readers(kind: TableKind) -> list[list[dict[str, Any]]]:
    """The rows as libraries read them that share no code, by offset."""
    if isinstance(kind, Delta):
        table = DeltaTable(str(kind.path))
        with duckdb.connect() as connection:
            connection.register("t", local_dataset(table))
            by_duckdb = connection.sql("SELECT * FROM t").to_arrow_table().to_pylist()
        found = [table.to_pyarrow_table().to_pylist(), polars.read_delta(str(kind.path)).to_dicts(), by_duckdb]
    else:
        assert isinstance(kind, Iceberg)
        found = [kind.load().scan().to_arrow().to_pylist(), kind.rows()]
    return [sorted(rows, key=lambda row: row["offset"]) for rows in found]


def test_older_rows_are_null_in_what_the_table_was_given(kind) -> None:
    """At any depth, by each reader; the rest is as it was, and each row there once."""
    commit(kind.target(BEFORE), FIRST, s={"a": 1}, l=[{"a": 1}], r={"s": {"a": 1}})
    target = evolving(kind, AFTER)
    assert target.layout.schema.names == [*BEFORE.names, "c", "new"]
    wide = {"a": 2, "b": "x"}
    new = {"x": 0.5, "y": [None]}
    commit(target, SECOND, c="c", s=wide, l=[wide], r={"s": wide, "n": 7}, new=new)
    old = {"a": 1, "b": None}
    first = {"s": old, "l": [old], "r": {"s": old, "n": None}, "c": None, "new": None}
    second = {"s": wide, "l": [wide], "r": {"s": wide, "n": 7}, "c": "c", "new": new}
    expected = [
        dict(zip(SCHEMA.names, record, strict=True)) | values
        for batch, values in ((FIRST, first), (SECOND, second))
        for record in records(batch)
    ]
    for rows in readers(kind):
        assert rows == expected
    fields = {field.name: field for field in target.layout.schema}
    assert not fields["s"].type.field("a").nullable and fields["s"].type.field("a").type == pa.int32()
    before = commits(kind)
    assert evolving(kind, AFTER).layout.schema == target.layout.schema and commits(kind) == before


def test_two_drivers_add_a_column_once(kind, meanwhile) -> None:
    """Who comes second finds it, and goes on."""
    commit(kind.target(), FIRST)
    before, wanted = commits(kind), MORE
    others: list[Target] = []
    meanwhile("table.evolving", lambda: others.append(evolving(kind, wanted)))
    target = evolving(kind, wanted)
    assert commits(kind) == before + 1
    commit(others[0], SECOND, c=1)
    commit(target, THIRD, c=2)
    assert [row["c"] for row in readers(kind)[0]] == [None, None, 1, 1, 2]


@pytest.mark.parametrize(
    ("other", "says"), [({"c": pa.string()}, "c is "), ({"d": pa.string()}, "d is not written")], ids=["type", "name"]
)
def test_what_somebody_else_adds_meanwhile_is_not_written_over(kind, meanwhile, other, says) -> None:
    """Another type of the same column, or another column: the query names it, and adds nothing."""
    commit(kind.target(), FIRST)
    theirs = pa.schema([*SCHEMA, *other.items()])
    meanwhile("table.evolving", lambda: evolving(kind, theirs))
    with raises("EOS_TABLE_DIFFERS", says):
        evolving(kind, MORE)
    found = kind.place().columns()
    assert found is not None and found.schema.equals(theirs)


def test_rows_that_others_append_meanwhile_are_no_obstacle(kind, meanwhile) -> None:
    """They have the columns of before."""
    commit(kind.target(), FIRST)
    meanwhile("table.evolving", lambda: kind.append({"topic": "foreign", "partition": 9, "offset": 0}))
    commit(evolving(kind, MORE), SECOND, c=1)
    found = sorted((row["topic"], row["offset"], row["c"]) for row in readers(kind)[0] if row["c"] is None)
    assert found == [("foreign", 0, None), ("t", 0, None), ("t", 1, None)]


def test_another_table_is_not_changed(kind) -> None:
    """One that was made in its place since the query has looked."""
    target = kind.target()
    kind.recreate()
    with raises("EOS_OTHER_TABLE.recreated"):
        target.evolved(MORE)
    found = kind.place().columns()
    assert found is not None and found.schema.names == SCHEMA.names


def test_a_column_that_a_table_cannot_have_is_refused_by_name(kind) -> None:
    """Before anything is changed."""
    kind.target()
    before = commits(kind)
    with raises("EOS_TABLE_COLUMNS.unsupported", "column c"):
        evolving(kind, pa.schema([*SCHEMA, ("c", pa.null())]))
    assert commits(kind) == before


def test_manifests_of_older_columns_are_merged_with_newer_ones(tmp_path) -> None:
    """Partitions of every kind among them: each row stays, and is found by its partition."""
    kind = Iceberg(tmp_path)
    parts = {"partitionBy": "truncate(2, offset), bucket(4, topic)"}
    target = kind.place(**parts).target(SCHEMA, create=True)
    with kind.load().transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "2", "commit.manifest-merge.enabled": "true"})
    commit(target, FIRST)
    commit(target, SECOND)
    commit(evolving(kind, MORE), THIRD, c=1)
    snapshot = kind.load().current_snapshot()
    assert snapshot is not None and len(snapshot.manifests(kind.load().io)) == 1
    for rows in readers(kind):
        assert [(row["offset"], row["c"]) for row in rows] == [(n, 1 if n == 4 else None) for n in range(5)]
    for n in range(5):
        assert kind.load().scan(f"offset = {n} and topic = 't'").to_arrow().num_rows == 1


def test_ids_of_iceberg_are_never_given_twice(tmp_path) -> None:
    """Nor that of a column that was dropped: its values would come back under the new name."""
    kind = Iceberg(tmp_path)
    commit(kind.target(), FIRST)
    with kind.load().update_schema() as update:
        update.add_column("gone", IntegerType())
    kind.append({"topic": "foreign", "partition": 9, "offset": 0, "gone": 42})
    with kind.load().update_schema() as update:
        update.delete_column("gone")
    assert kind.load().metadata.current_schema_id == 0
    evolving(kind, MORE)
    for rows in readers(kind):
        assert [row["c"] for row in rows] == [None] * 3
