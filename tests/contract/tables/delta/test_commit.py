"""The commit of a micro-batch's files to a table on a local disk: once, beside others, and into this table only."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import TableError
from spark_eos.pipelines.tables.delta import commit as commit_module
from spark_eos.pipelines.tables.delta.creation import known, retention_ms
from spark_eos.pipelines.tables.delta.table import Location, Table, location_of
from spark_eos.pipelines.tables.delta.target import DeltaReference
from tests.support.tables.delta_files import (
    FIRST,
    QUERY,
    SCHEMA,
    SECOND,
    committed,
    expected,
    files_in,
    micro_batch,
    read_by_deltalake,
    read_by_log,
    targeted,
)


@pytest.fixture
def table(tmp_path) -> Table:
    return known(location_of(str(tmp_path / "a table"), HadoopSettings()), SCHEMA)


def condition_of(table: Table, batch, **more) -> str:
    """Why it was refused. Nothing of it is in the table."""
    log = Path(table.location.uri, "_delta_log")
    before = sorted(log.glob("*.json"))
    with pytest.raises(TableError) as error:
        committed(table, batch, **more)
    assert sorted(log.glob("*.json")) == before
    return error.value.entry


def rows(table: Table) -> Counter:
    """By both readers, which agree."""
    found = read_by_deltalake(table.location)
    assert found == read_by_log(files_in(table.location.uri))
    return found


@pytest.mark.parametrize("each", [None, 3])
def test_the_log_is_summed_up_after_some_micro_batches(table, each) -> None:
    """As Delta does it by default, or as often as the table says. What it remembers of the query is in there: the log
    before may be removed."""
    if each is not None:
        table.location.open().alter.set_table_properties({"delta.checkpointInterval": str(each)})
    batches = [micro_batch(number, (0, number, number + 1)) for number in range(10)]
    for batch in batches:
        committed(table, batch)
    log = Path(table.location.uri) / "_delta_log"
    checkpoints = sorted(log.glob("*.checkpoint.parquet"))
    assert len(checkpoints) == (1 if each is None else 3)
    for file in log.glob("*.json"):
        if file.name.split(".")[0] <= checkpoints[-1].name.split(".")[0]:
            file.unlink()
    assert table.location.open().transaction_version(QUERY) == 9
    assert committed(table, batches[-1]).again
    assert read_by_deltalake(table.location) == expected(*batches)


@pytest.mark.parametrize("each", [None, 3])
def test_a_large_table_is_summed_up_less_often_unless_it_says_how_often(table, monkeypatch, each) -> None:
    """By what the last checkpoint has, up to a limit; versions of others count."""
    if each is not None:
        table.location.open().alter.set_table_properties({"delta.checkpointInterval": str(each)})
    for name, value in {"_EACH": 3, "_ACTIONS": 2, "_MOST": 8}.items():
        monkeypatch.setattr(commit_module, name, value)
    for number in range(27):
        committed(table, micro_batch(number, (0, number, number + 1)))
    names = (Path(table.location.uri) / "_delta_log").glob("*.checkpoint.parquet")
    versions = sorted(int(name.name.split(".")[0]) for name in names)
    assert versions == ([3, 9, 18, 27] if each is None else [*range(4, 29, 3)])
    assert read_by_deltalake(table.location).total() == 27


def test_a_log_that_cannot_be_summed_up_stops_nothing(table, monkeypatch, caplog) -> None:
    """It is said, and the next micro-batch goes on."""

    def fails(handle: DeltaTable) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(commit_module, "_EACH", 1)
    monkeypatch.setattr(DeltaTable, "create_checkpoint", fails)
    for batch in (FIRST, SECOND):
        assert not committed(table, batch).again
    assert rows(table) == expected(FIRST, SECOND)
    assert caplog.text.count("the disk is full") == 2


def test_a_table_that_cannot_be_asked_leaves_the_outcome_open(table, monkeypatch) -> None:
    """The error says that a restart helps, and has no secrets."""
    secret = Location(
        table.location.path, table.location.uri, type(table.location.options)({"aws_secret_key": "hush!"})
    )
    monkeypatch.setattr(Location, "open", lambda self: (_ for _ in ()).throw(OSError("refused: hush!")))
    with pytest.raises(TableError) as error:
        targeted(Table(secret, table.id, table.columns)).commit(FIRST, [], 0, patience_s=0.01)
    assert error.value.condition == "EOS_TABLE_UNCLEAR" and error.value.restart_helps
    assert "refused: ***" in str(error.value) and "hush" not in repr(secret)


# Other tables, other rules


OTHERS = [micro_batch(number, (0, number, number + 1), topic="u", query="another") for number in range(4)]


def filled_anew(table: Table, versions: int, *, removed: str) -> Table:
    """Another table at the same path, to which another query has committed so many micro-batches. ``removed``: the
    folder within the old table that was deleted before."""
    shutil.rmtree(Path(table.location.uri, removed))
    DeltaTable.create(table.location.uri, SCHEMA)  # a query would refuse a folder with files
    other = known(table.location, SCHEMA)
    for batch in OTHERS[:versions]:
        committed(other, batch)
    return other


def last_in(table: Table) -> int | None:
    """What a start of the query finds."""
    return DeltaReference(table.location).remembered(QUERY).last


@pytest.mark.parametrize("removed", ["_delta_log", ""])
@pytest.mark.parametrize("versions", [0, 1, 2])
def test_a_driver_that_wakes_up_in_front_of_another_table_leaves_nothing_there(
    table, meanwhile, removed, versions
) -> None:
    """Whether that is shorter than the old table, as long, or longer. Its own query goes on, and readers need no file
    that is gone."""
    committed(table, FIRST)
    meanwhile("table.asked", lambda: filled_anew(table, versions, removed=removed))
    with pytest.raises(TableError) as error:
        committed(table, SECOND)
    assert error.value.entry == "EOS_OTHER_TABLE.recreated" and not error.value.restart_helps
    assert ("was taken back" in error.value.message) == (versions == 1)
    other = known(table.location, SCHEMA)
    for batch in OTHERS[versions:3]:
        committed(other, batch)
    assert read_by_deltalake(table.location) == expected(*OTHERS[:3])
    if versions == 1:
        assert table.id in error.value.message and other.id in error.value.message
        assert refused_start(other)


def refused_start(table: Table) -> bool:
    """The query's next start, and a commit of it."""
    with pytest.raises(TableError) as error:
        last_in(table)
    assert error.value.entry == "EOS_OTHER_TABLE.landed" and table.id in error.value.message
    return condition_of(table, SECOND) == "EOS_OTHER_TABLE.landed"


def test_a_commit_that_was_rebased_on_another_table_is_taken_back(table, meanwhile) -> None:
    """As its second try may be, after somebody else's commit."""

    def beside_another_writer() -> None:
        write_deltalake(table.location.uri, pa.Table.from_pylist([], SCHEMA), mode="append")
        meanwhile("table.asked", lambda: filled_anew(table, 4, removed=""))

    committed(table, FIRST)
    meanwhile("table.asked", beside_another_writer)
    with pytest.raises(TableError) as error:
        committed(table, SECOND)
    assert error.value.entry == "EOS_OTHER_TABLE.recreated" and "became version 5 of" in error.value.message
    assert read_by_deltalake(table.location) == expected(*OTHERS)


def test_a_commit_that_has_landed_in_another_table_stays_if_others_have_committed_since(table, meanwhile) -> None:
    """Nothing of theirs is taken back. The query stops, and says where the rows are."""
    committed(table, FIRST)
    meanwhile("table.asked", lambda: filled_anew(table, 1, removed="_delta_log"))
    right = DeltaTable.restore

    def late(handle: DeltaTable, *target: object, **more: object) -> object:
        committed(known(table.location, SCHEMA), OTHERS[1])
        return right(handle, *target, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaTable, "restore", late)
        with pytest.raises(TableError) as error:
            committed(table, SECOND)
    assert error.value.entry == "EOS_OTHER_TABLE.landed" and f"eos-{QUERY}-1-" in error.value.hint
    assert rows(table) == expected(*OTHERS[:2], SECOND)
    assert refused_start(known(table.location, SCHEMA))


@pytest.mark.parametrize("dies", [False, True])
def test_a_driver_that_cannot_look_after_its_commit_stops_at_the_next_look(table, meanwhile, dies) -> None:
    """Its reply was lost, or it was killed: then the next start notices."""

    class Dead(BaseException):
        """The process was killed."""

    def asked() -> None:
        filled_anew(table, 1, removed="_delta_log")
        meanwhile("table.committed", failed)

    def failed() -> None:
        raise Dead if dies else OSError("the connection was closed")

    committed(table, FIRST)
    meanwhile("table.asked", asked)
    with pytest.raises(Dead if dies else TableError):
        committed(table, SECOND)
    assert refused_start(known(table.location, SCHEMA))
    assert rows(table) == expected(OTHERS[0], *([SECOND] if dies else []))


def test_a_query_whose_commits_have_no_note_of_their_table_goes_on(table, monkeypatch) -> None:
    """Those of versions before; from its next commit on, there is one."""
    right = commit_module.transactions_of
    monkeypatch.setattr(commit_module, "transactions_of", lambda *given: right(*given)[:2])
    committed(table, FIRST)
    monkeypatch.setattr(commit_module, "transactions_of", right)
    assert last_in(table) == 0 and not committed(table, SECOND).again and last_in(table) == 1
    assert DeltaTable(table.location.uri).transaction_version(f"{QUERY}#table") is not None


def test_a_restore_that_takes_nothing_of_the_query_is_no_reason_to_stop(table) -> None:
    """One before the query; and to its last commit, or a later version."""
    write_deltalake(table.location.uri, pa.Table.from_pylist([], SCHEMA), mode="append")
    DeltaTable(table.location.uri).restore(0)
    committed(table, FIRST)
    committed(table, OTHERS[0])
    for version in (3, 4):
        DeltaTable(table.location.uri).restore(version)
    assert not committed(table, SECOND).again
    DeltaTable(table.location.uri).restore(6)
    assert condition_of(table, micro_batch(2)) == "EOS_OTHER_TABLE.restored"


def test_a_restore_is_found_however_many_commits_come_while_it_is_looked_for(table, monkeypatch) -> None:
    """delta-rs would give the newest ones, under the numbers of those before."""
    committed(table, FIRST)
    DeltaTable(table.location.uri).restore(0)
    real = commit_module.remembered

    def beside_another_writer(*arguments):
        for _ in range(3):
            write_deltalake(table.location.uri, pa.Table.from_pylist([], SCHEMA), mode="append")
        return real(*arguments)

    monkeypatch.setattr(commit_module, "remembered", beside_another_writer)
    with pytest.raises(TableError) as error:
        committed(table, SECOND)
    assert error.value.entry == "EOS_OTHER_TABLE.restored"
    assert "version 2 of" in error.value.message
    committed(table, SECOND, after_restore=2)
    assert rows(table) == expected(SECOND)


def test_rows_that_others_delete_stay_deleted(table) -> None:
    """The query goes on beside that."""
    committed(table, FIRST)
    DeltaTable(table.location.uri).delete("offset = 0")
    committed(table, SECOND)
    gone = {record: count for record, count in expected(FIRST).items() if record[2] == 0}
    assert read_by_deltalake(table.location) == expected(FIRST, SECOND) - Counter(gone)


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
