"""Columns that a Delta table is given: what is in the commit, also on a store that loses replies or is late."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError, TableError
from spark_eos.pipelines.tables.delta import evolution
from spark_eos.pipelines.tables.delta.creation import known
from spark_eos.pipelines.tables.delta.table import Table, location_of
from spark_eos.pipelines.tables.delta.target import DeltaReference
from tests.support.servers.s3_stand_in import FINE, LATE, LOSE_REPLY, S3StandIn, s3_stand_in
from tests.support.tables.delta_files import QUERY, SCHEMA, add_columns, committed, micro_batch
from tests.support.waiting import TIMEOUT

WIDE = pa.schema([*SCHEMA, ("c", pa.string())])
FIRST = micro_batch(0, (0, 0, 3))


@pytest.fixture
def store():
    with s3_stand_in() as store:
        yield store


@pytest.fixture
def table(tmp_path) -> Table:
    return known(location_of(str(tmp_path / "a table"), HadoopSettings()), SCHEMA)


def actions(table: Table) -> list[dict]:
    """Of the newest version."""
    log = sorted(Path(table.location.uri, "_delta_log").glob("*.json"))
    return [json.loads(line) for line in log[-1].read_text().splitlines()]


def refusal(table: Table, given: pa.Schema) -> EosError:
    """Why the columns are not added. The table stays as it is."""
    before = actions(table)
    place = DeltaReference(table.location)
    with pytest.raises(EosError) as error:
        there = place.columns()
        assert there is not None
        add_columns(table, place.widened(there.schema, given))
    assert actions(table) == before
    return error.value


def test_the_commit_has_nothing_but_the_columns(table) -> None:
    """The query's own transactions stay, and so does what the table has else: comments, properties, protocol."""
    committed(table, FIRST)
    handle = DeltaTable(table.location.uri)
    handle.alter.set_table_properties({"delta.appendOnly": "true"})
    handle.alter.set_column_metadata("topic", {"comment": "where it comes from"})
    before, version = DeltaTable(table.location.uri), DeltaTable(table.location.uri).version()
    assert dict(add_columns(table, WIDE).columns).keys() == {*SCHEMA.names, "c"}
    done = actions(table)
    assert [next(iter(action)) for action in done] == ["commitInfo", "metaData"]
    after = DeltaTable(table.location.uri)
    assert after.transaction_version(QUERY) == 0 and after.version() == version + 1
    assert after.metadata().configuration == before.metadata().configuration
    assert after.protocol() == before.protocol()
    fields = json.loads(after.schema().to_json())["fields"]
    assert fields[:3] == json.loads(before.schema().to_json())["fields"]
    assert fields[3:] == [{"name": "c", "type": "string", "nullable": True, "metadata": {}}]


def test_columns_within_a_struct_keep_its_comments(tmp_path) -> None:
    """Those of the struct and of its fields."""
    inner = pa.field("a", pa.int32(), nullable=False, metadata={"comment": "inner"})
    before = pa.schema([pa.field("s", pa.struct([inner]), metadata={"comment": "outer"})])
    table = known(location_of(str(tmp_path / "t"), HadoopSettings()), before)
    add_columns(table, pa.schema([before.field("s").with_type(pa.struct([inner, ("b", pa.int8())]))]))
    (field,) = json.loads(DeltaTable(table.location.uri).schema().to_json())["fields"]
    assert field["metadata"] == {"comment": "outer"}
    assert [(one["name"], one["nullable"], one["metadata"]) for one in field["type"]["fields"]] == [
        ("a", False, {"comment": "inner"}),
        ("b", True, {}),
    ]


@pytest.mark.parametrize("versions", [0, 1, 2])
def test_a_table_that_was_recreated_meanwhile_stays_as_it_is(table, meanwhile, versions) -> None:
    """Its columns, its id and its rows, whether it is shorter than the one before, as long, or longer."""
    committed(table, FIRST)

    def recreated() -> None:
        shutil.rmtree(table.location.uri)
        DeltaTable.create(table.location.uri, SCHEMA)
        for _ in range(versions):
            write_deltalake(table.location.uri, pa.Table.from_pylist([{"offset": 1}], SCHEMA), mode="append")

    meanwhile("table.evolving", recreated)
    with pytest.raises(TableError) as error:
        add_columns(table, WIDE)
    assert error.value.entry == "EOS_OTHER_TABLE.recreated"
    after = DeltaTable(table.location.uri)
    assert pa.schema(after.schema().to_arrow()) == SCHEMA and str(after.metadata().id) != table.id
    assert after.to_pyarrow_table().num_rows == versions


@pytest.mark.parametrize("column", [pa.timestamp("us"), pa.struct([("at", pa.timestamp("ms"))])])
def test_a_column_that_would_change_the_protocol_is_refused(table, column) -> None:
    """Unless the table has that feature."""
    found = refusal(table, pa.schema([*SCHEMA, ("c", column)]))
    assert found.entry == "EOS_DELTA_TABLE_SETTINGS.columns" and "The column c" in found.message
    DeltaTable.create(table.location.uri, pa.schema([*SCHEMA, ("at", pa.timestamp("us"))]), mode="overwrite")
    other = known(table.location, pa.schema([*SCHEMA, ("at", pa.timestamp("us"))]))
    wide = pa.schema([*SCHEMA, ("at", pa.timestamp("us")), ("c", pa.timestamp("us"))])
    assert dict(add_columns(other, wide).columns).keys() == {*SCHEMA.names, "at", "c"}


def test_what_fails_before_the_commit_is_no_unknown_outcome(table, monkeypatch) -> None:
    """It would fail again, for a minute."""
    failed = [ValueError("a type that it does not know")]
    monkeypatch.setattr(evolution, "_changed", lambda *_: (_ for _ in ()).throw(failed.pop()))
    with pytest.raises(TableError) as error:
        add_columns(table, WIDE)
    assert error.value.condition == "EOS_DELTA_FAILED" and not error.value.restart_helps


def test_rules_that_came_meanwhile_are_kept(table) -> None:
    """As before a commit of rows."""
    DeltaTable(table.location.uri).alter.add_constraint({"few": '"offset" < 5'})
    assert refusal(table, WIDE).entry == "EOS_DELTA_TABLE_SETTINGS.rules"


def test_arrow_finds_no_null_in_a_column_that_older_files_lack(tmp_path) -> None:
    """A mistake of delta-rs's `to_pyarrow_dataset`, whoever has added the column, which docs/delta.md names: where a
    new version does not have it, this fails."""
    table = known(location_of(str(tmp_path / "t"), HadoopSettings()), SCHEMA)
    rows = pa.Table.from_pylist([{"topic": "t", "partition": 0, "offset": 0}], SCHEMA)
    write_deltalake(table.location.uri, rows, mode="append")
    add_columns(table, WIDE)
    dataset = DeltaTable(table.location.uri).to_pyarrow_dataset()
    assert dataset.to_table().column("c").to_pylist() == [None]
    assert dataset.to_table(filter=pc.field("c").is_null()).num_rows == 0


def versions(store: S3StandIn) -> int:
    return len([key for key in store.objects if key.startswith("t/_delta_log/") and key.endswith(".json")])


def test_columns_whose_reply_is_lost_are_added_once(store) -> None:
    """The client sends them again, and is told that the version is there."""
    table = known(store.location("t"), SCHEMA)
    lost: list[str] = []

    def once(key: str) -> str:
        if key.endswith("1.json") and not lost:
            lost.append(key)
            return LOSE_REPLY
        return FINE

    store.fault = once
    add_columns(table, WIDE)
    assert lost and versions(store) == 2
    assert [field.name for field in table.location.open().schema().fields] == WIDE.names


def test_columns_that_are_added_late_are_found(store) -> None:
    """After the query has given up, or by the try after it."""
    table = known(store.location("t"), SCHEMA)
    store.fault = lambda key: LATE if "_delta_log/" in key else FINE
    with pytest.raises(TableError) as error:
        add_columns(table, WIDE, patience_s=0.01)
    assert (
        error.value.entry == "EOS_TABLE_UNCLEAR" and "new columns" in error.value.message and error.value.restart_helps
    )
    assert "a-secret" not in str(error.value)
    store.fault = lambda key: FINE
    store.apply_late()
    assert versions(store) == 2
    add_columns(table, WIDE)
    assert versions(store) == 2


def test_a_late_request_does_not_replace_what_came_before_it(store) -> None:
    """The try after it had the version first."""
    table = known(store.location("t"), SCHEMA)
    late: list[str] = []

    def first(key: str) -> str:
        if "_delta_log/" not in key or len(late) > 2:  # with those that the client sends again
            return FINE
        late.append(key)
        return LATE

    store.fault = first
    add_columns(table, WIDE, patience_s=TIMEOUT)
    store.apply_late()
    assert versions(store) == 2
    assert [applied for key, applied in store.puts if key.startswith("t/_delta_log/")].count(True) == 2
