"""The commit of a micro-batch's files to a table on a local disk: once, beside others, and into this table only."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from spark_eos.errors import TableError
from spark_eos.pipelines.tables.delta.creation import retention_ms
from spark_eos.pipelines.tables.delta.memory import transactions_of
from spark_eos.pipelines.tables.delta.table import StorageOptions
from spark_eos.pipelines.tables.delta.target import DeltaTarget
from tests.support.judges.conditions import raises
from tests.support.tables.delta_files import FIRST, QUERY, SCHEMA, SECOND, micro_batch, watched
from tests.support.tables.table_kinds import Delta, Places, committed, expected, rows_of


def condition_of(kind: Delta, target: DeltaTarget, batch) -> str:
    """Why it was refused. Nothing of it is in the table."""
    log = kind.path / "_delta_log"
    before = sorted(log.glob("*.json"))
    with pytest.raises(TableError) as error:
        committed(target, batch)
    assert sorted(log.glob("*.json")) == before
    return error.value.entry


def summed_up_each(target: DeltaTarget, versions: int) -> None:
    """By the table's property."""
    target.table.location.open().alter.set_table_properties({"delta.checkpointInterval": str(versions)})


def test_the_log_is_summed_up_after_some_micro_batches(kind, target) -> None:
    """As Delta does it by default. What it remembers of the query is in there: the log before may be removed."""
    batches = [micro_batch(number, (0, number, number + 1)) for number in range(10)]
    for batch in batches:
        committed(target, batch)
    log = kind.path / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    last = target.table.location.last_checkpoint()
    assert last["version"] == 10 and last["size"] >= len(batches)
    for file in log.glob("*.json"):
        if file.name.split(".")[0] <= checkpoint.name.split(".")[0]:
            file.unlink()
    assert kind.last(QUERY) == 9
    assert committed(target, batches[-1]).again
    assert kind.places() == expected(*batches)


@pytest.mark.parametrize(
    ("actions", "properties", "versions"),
    [
        (500, {}, range(10, 251, 10)),
        (25_999, {}, [10, 40, 70, 100, 130, 160, 190, 220, 250]),
        (30_000, {}, [10, 40, 70, 100, 130, 160, 190, 220, 250]),
        (31_000, {}, [10, 50, 90, 130, 170, 210, 250]),
        (1_000_000, {}, [10, 110, 210]),
        (1_000_000, {"delta.checkpointInterval": "3"}, range(3, 251, 3)),
    ],
)
def test_a_large_table_is_summed_up_less_often_unless_it_says_how_often(
    kind, target, actions, properties, versions
) -> None:
    """By what the last checkpoint has, up to a limit."""
    summed_up: list[int] = []

    def after(version: int) -> Any:
        def create_checkpoint() -> None:
            summed_up.append(version)
            last = kind.path / "_delta_log" / "_last_checkpoint"
            last.write_text(json.dumps({"version": version, "size": actions}))

        metadata = SimpleNamespace(configuration=properties)
        return SimpleNamespace(version=lambda: version, metadata=lambda: metadata, create_checkpoint=create_checkpoint)

    for number in range(250):
        target.files_commit(micro_batch(number), (), 0, False).tidy(after(number + 1))
    assert summed_up == [*versions]


def test_a_log_that_cannot_be_summed_up_stops_nothing(kind, target, caplog) -> None:
    """It is said, and the next micro-batch goes on."""

    class OnFullDisk(DeltaTable):
        def create_checkpoint(self) -> None:
            raise OSError("the disk is full")

    summed_up_each(target, 1)
    full = watched(target, lambda handle: OnFullDisk(handle.table_uri))
    for batch in (FIRST, SECOND):
        assert not committed(full, batch).again
    assert kind.places() == expected(FIRST, SECOND)
    assert caplog.text.count("the disk is full") == 2


def test_a_table_that_cannot_be_asked_leaves_the_outcome_open(target) -> None:
    """The error says that a restart helps, and has no secrets."""

    def refuse(handle: DeltaTable) -> DeltaTable:
        raise OSError("refused: hush!")

    secret = replace(target.table.location, options=StorageOptions({"aws_secret_key": "hush!"}))
    refusing = watched(replace(target, table=replace(target.table, location=secret)), refuse)
    with pytest.raises(TableError) as error:
        refusing.commit(FIRST, [], 0, patience_s=0.01)
    assert error.value.condition == "EOS_TABLE_UNCLEAR" and error.value.restart_helps
    assert "refused: ***" in str(error.value) and "hush" not in repr(secret)


# Other tables, other rules


OTHERS = [micro_batch(number, (9, number, number + 1), query="another") for number in range(4)]


def append_nothing(kind: Delta) -> None:
    """A version of another writer."""
    write_deltalake(str(kind.path), pa.Table.from_pylist([], SCHEMA), mode="append")


def filled_anew(kind: Delta, versions: int, *, removed: str) -> None:
    """Make another table at the same path, to which another query has committed so many micro-batches. ``removed``: the
    folder within the old table that was deleted before."""
    shutil.rmtree(kind.path / removed)
    DeltaTable.create(str(kind.path), SCHEMA)  # a query would refuse a folder with files
    for batch in OTHERS[:versions]:
        committed(kind.target(), batch)


def refused_start(kind: Delta) -> bool:
    """The query's next start, and a commit of it."""
    with pytest.raises(TableError) as error:
        kind.place().remembered(QUERY)
    target = kind.target()
    assert error.value.entry == "EOS_OTHER_TABLE.landed" and target.table.id in error.value.message
    return condition_of(kind, target, SECOND) == "EOS_OTHER_TABLE.landed"


@pytest.mark.parametrize("removed", ["_delta_log", ""])
@pytest.mark.parametrize("versions", [0, 1, 2])
def test_a_driver_that_wakes_up_in_front_of_another_table_leaves_nothing_there(
    kind, target, meanwhile, removed, versions
) -> None:
    """Whether that is shorter than the old table, as long, or longer. Its own query goes on, and readers need no file
    that is gone."""
    committed(target, FIRST)
    meanwhile("table.asked", lambda: filled_anew(kind, versions, removed=removed))
    with pytest.raises(TableError) as error:
        committed(target, SECOND)
    assert error.value.entry == "EOS_OTHER_TABLE.recreated" and not error.value.restart_helps
    assert ("was taken back" in error.value.message) == (versions == 1)
    other = kind.target()
    for batch in OTHERS[versions:3]:
        committed(other, batch)
    assert kind.places() == expected(*OTHERS[:3])
    if versions == 1:
        assert target.table.id in error.value.message and other.table.id in error.value.message
        assert refused_start(kind)


def test_a_commit_that_was_rebased_on_another_table_is_taken_back(kind, target, meanwhile) -> None:
    """As its second try may be, after somebody else's commit."""

    def beside_another_writer() -> None:
        append_nothing(kind)
        meanwhile("table.asked", lambda: filled_anew(kind, 4, removed=""))

    committed(target, FIRST)
    meanwhile("table.asked", beside_another_writer)
    with raises("EOS_OTHER_TABLE.recreated", "became version 5 of"):
        committed(target, SECOND)
    assert kind.places() == expected(*OTHERS)


def test_a_commit_that_has_landed_in_another_table_stays_if_others_have_committed_since(
    kind, target, meanwhile
) -> None:
    """Nothing of theirs is taken back. The query stops, and says where the rows are."""

    class LateRestored(DeltaTable):
        def restore(self, *version: Any, **more: Any) -> dict[str, Any]:
            committed(kind.target(), OTHERS[1])
            return super().restore(*version, **more)

    committed(target, FIRST)
    meanwhile("table.asked", lambda: filled_anew(kind, 1, removed="_delta_log"))
    with pytest.raises(TableError) as error:
        committed(watched(target, lambda handle: LateRestored(handle.table_uri)), SECOND)
    assert error.value.entry == "EOS_OTHER_TABLE.landed" and f"eos-{QUERY}-1-" in error.value.hint
    assert kind.places() == expected(*OTHERS[:2], SECOND)
    assert refused_start(kind)


@pytest.mark.parametrize("dies", [False, True])
def test_a_driver_that_cannot_look_after_its_commit_stops_at_the_next_look(kind, target, meanwhile, dies) -> None:
    """Its reply was lost, or it was killed: then the next start notices."""

    class Dead(BaseException):
        """The process was killed."""

    def asked() -> None:
        filled_anew(kind, 1, removed="_delta_log")
        meanwhile("table.committed", failed)

    def failed() -> None:
        raise Dead if dies else OSError("the connection was closed")

    committed(target, FIRST)
    meanwhile("table.asked", asked)
    with pytest.raises(Dead if dies else TableError):
        committed(target, SECOND)
    assert refused_start(kind)
    assert kind.places() == expected(OTHERS[0], *([SECOND] if dies else []))


def test_a_query_whose_commits_have_no_note_of_their_table_goes_on(kind, target) -> None:
    """Those of versions before; from its next commit on, there is one."""
    batch, digest, *_ = (Transaction(*named) for named in transactions_of(FIRST, 0, target.table.id))
    rows, before = rows_of(target.layout, FIRST), CommitProperties(app_transactions=[batch, digest])
    write_deltalake(str(kind.path), rows, mode="append", commit_properties=before)
    assert [kind.place().remembered(QUERY).last, committed(target, SECOND).again, kind.last(QUERY)] == [0, False, 1]
    assert kind.last(f"{QUERY}#table")


def test_a_restore_that_takes_nothing_of_the_query_is_no_reason_to_stop(kind, target) -> None:
    """One before the query; and to its last commit, or a later version."""
    append_nothing(kind)
    DeltaTable(str(kind.path)).restore(0)
    committed(target, FIRST)
    committed(target, OTHERS[0])
    for version in (3, 4):
        DeltaTable(str(kind.path)).restore(version)
    assert not committed(target, SECOND).again
    DeltaTable(str(kind.path)).restore(6)
    assert condition_of(kind, target, micro_batch(2)) == "EOS_OTHER_TABLE.restored"


def test_a_restore_is_found_however_many_commits_come_while_it_is_looked_for(kind, target) -> None:
    """delta-rs would give the newest ones, under the numbers of those before."""
    committed(target, FIRST)
    DeltaTable(str(kind.path)).restore(0)

    def beside_another_writer(handle: DeltaTable) -> DeltaTable:
        for _ in range(3):
            append_nothing(kind)
        return handle

    with raises("EOS_OTHER_TABLE.restored", "version 2 of"):
        committed(watched(target, beside_another_writer), SECOND)
    committed(replace(target, after_restore=2), SECOND)
    assert kind.places() == expected(SECOND)


def test_rows_that_others_delete_stay_deleted(kind, target) -> None:
    """The query goes on beside that."""
    committed(target, FIRST)
    DeltaTable(str(kind.path)).delete("offset = 0")
    committed(target, SECOND)
    assert kind.places() == expected(FIRST, SECOND) - Places([(0, 0), (1, 0)])


# Files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, 604_800_000),
        ("interval 1 week", 604_800_000),
        ("interval 2 days 3 hours", 2 * 86_400_000 + 3 * 3_600_000),
        ("INTERVAL 30 MINUTES", 1_800_000),
        ("interval 0 seconds", 0),
        ("for ever", 0),
        ("interval 1 month", 0),
    ],
)
def test_retention_is_read_as_delta_writes_it(text, expected) -> None:
    """What cannot be read lets no file through."""
    assert retention_ms(text) == expected
