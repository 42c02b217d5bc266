"""Columns that a Delta table is given: what is in the commit, also on a store that loses replies or is late."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from spark_eos.errors import EosError, TableError
from spark_eos.pipelines.tables.delta import evolution
from tests.support.judges.conditions import raises
from tests.support.servers.s3_stand_in import FINE, LATE, LOSE_REPLY, S3StandIn, first_try
from tests.support.tables.delta_files import QUERY, SCHEMA, micro_batch
from tests.support.tables.table_kinds import Delta, committed
from tests.support.waiting import TIMEOUT

WIDE = pa.schema([*SCHEMA, ("c", pa.string())])
FIRST = micro_batch(0, (0, 0, 3))


def actions(kind: Delta) -> list[dict]:
    """Of the newest version."""
    log = sorted((kind.path / "_delta_log").glob("*.json"))
    return [json.loads(line) for line in log[-1].read_text().splitlines()]


def refusal(kind: Delta, given: pa.Schema) -> EosError:
    """Why the columns are not added. The table stays as it is."""
    before, place, target = actions(kind), kind.place(), kind.target()
    with pytest.raises(EosError) as error:
        target.evolved(place.widened(target.layout.schema, given))
    assert actions(kind) == before
    return error.value


def test_the_commit_has_nothing_but_the_columns(kind, target) -> None:
    """The query's own transactions stay, and so does what the table has else: comments, properties, protocol."""
    committed(target, FIRST)
    handle = DeltaTable(str(kind.path))
    handle.alter.set_table_properties({"delta.appendOnly": "true"})
    handle.alter.set_column_metadata("topic", {"comment": "where it comes from"})
    before = DeltaTable(str(kind.path))
    assert target.evolved(WIDE).layout.schema.names == [*SCHEMA.names, "c"]
    assert [next(iter(action)) for action in actions(kind)] == ["commitInfo", "metaData"]
    after = DeltaTable(str(kind.path))
    assert kind.last(QUERY) == 0 and after.version() == before.version() + 1
    assert after.metadata().configuration == before.metadata().configuration
    assert after.protocol() == before.protocol()
    fields = json.loads(after.schema().to_json())["fields"]
    assert fields[:3] == json.loads(before.schema().to_json())["fields"]
    assert fields[3:] == [{"name": "c", "type": "string", "nullable": True, "metadata": {}}]


def test_columns_within_a_struct_keep_its_comments(kind) -> None:
    """Those of the struct and of its fields."""
    inner = pa.field("a", pa.int32(), nullable=False, metadata={"comment": "inner"})
    before = pa.schema([pa.field("s", pa.struct([inner]), metadata={"comment": "outer"})])
    kind.target(before).evolved(pa.schema([before.field("s").with_type(pa.struct([inner, ("b", pa.int8())]))]))
    (field,) = json.loads(DeltaTable(str(kind.path)).schema().to_json())["fields"]
    assert field["metadata"] == {"comment": "outer"}
    assert [(one["name"], one["nullable"], one["metadata"]) for one in field["type"]["fields"]] == [
        ("a", False, {"comment": "inner"}),
        ("b", True, {}),
    ]


@pytest.mark.parametrize("versions", [0, 1, 2])
def test_a_table_that_was_recreated_meanwhile_stays_as_it_is(kind, target, meanwhile, versions) -> None:
    """Its columns, its id and its rows, whether it is shorter than the one before, as long, or longer."""
    committed(target, FIRST)

    def recreated() -> None:
        kind.recreate()
        for number in range(versions):
            kind.append({"offset": number})

    meanwhile("table.evolving", recreated)
    with raises("EOS_OTHER_TABLE.recreated"):
        target.evolved(WIDE)
    after = kind.target()
    assert after.layout.schema == SCHEMA and after.table.id != target.table.id and len(kind.rows()) == versions


@pytest.mark.parametrize("column", [pa.timestamp("us"), pa.struct([("at", pa.timestamp("ms"))])])
def test_a_column_that_would_change_the_protocol_is_refused(kind, target, column) -> None:
    """Unless the table has that feature."""
    found = refusal(kind, pa.schema([*SCHEMA, ("c", column)]))
    assert found.entry == "EOS_DELTA_TABLE_SETTINGS.columns" and "The column c" in found.message
    kind.drop()
    there = pa.schema([*SCHEMA, ("at", pa.timestamp("us"))])
    wide = pa.schema([*there, ("c", pa.timestamp("us"))])
    assert kind.target(there).evolved(wide).layout.schema == wide


def test_what_fails_before_the_commit_is_no_unknown_outcome(target, monkeypatch) -> None:
    """It would fail again, for a minute."""
    failed = [ValueError("a type that it does not know")]
    monkeypatch.setattr(evolution, "_changed", lambda *_: (_ for _ in ()).throw(failed.pop()))
    with pytest.raises(TableError) as error:
        target.evolved(WIDE)
    assert error.value.condition == "EOS_DELTA_FAILED" and not error.value.restart_helps


def test_rules_that_came_meanwhile_are_kept(kind, target) -> None:
    """As before a commit of rows."""
    DeltaTable(str(kind.path)).alter.add_constraint({"few": '"offset" < 5'})
    with raises("EOS_DELTA_TABLE_SETTINGS.rules"):
        target.evolved(WIDE)


def test_arrow_finds_no_null_in_a_column_that_older_files_lack(kind, target) -> None:
    """A mistake of delta-rs's `to_pyarrow_dataset`, whoever has added the column, which docs/delta.md names: where a
    new version does not have it, this fails."""
    kind.append({"topic": "t", "partition": 0, "offset": 0})
    target.evolved(WIDE)
    dataset = DeltaTable(str(kind.path)).to_pyarrow_dataset()
    assert dataset.to_table().column("c").to_pylist() == [None]
    assert dataset.to_table(filter=pc.field("c").is_null()).num_rows == 0


def versions(store: S3StandIn) -> int:
    return len([key for key in store.objects if key.startswith("t/_delta_log/") and key.endswith(".json")])


def test_columns_whose_reply_is_lost_are_added_once(store, in_store) -> None:
    """The client sends them again, and is told that the version is there."""
    store.fault = first_try(LOSE_REPLY)
    assert in_store.evolved(WIDE, patience_s=TIMEOUT).layout.schema == WIDE
    assert [applied for key, applied in store.puts if key == f"t/_delta_log/{1:020d}.json"] == [True, False]
    assert versions(store) == 2


def test_columns_that_are_added_late_are_found(store, in_store) -> None:
    """After the query has given up, or by the try after it."""
    store.fault = lambda key: LATE if "_delta_log/" in key else FINE
    with pytest.raises(TableError) as error:
        in_store.evolved(WIDE, patience_s=0.01)
    assert (
        error.value.entry == "EOS_TABLE_UNCLEAR" and "new columns" in error.value.message and error.value.restart_helps
    )
    assert "a-secret" not in str(error.value)
    store.fault = lambda key: FINE
    store.apply_late()
    assert versions(store) == 2
    in_store.evolved(WIDE, patience_s=TIMEOUT)
    assert versions(store) == 2
