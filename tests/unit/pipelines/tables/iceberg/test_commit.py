"""The commit of a micro-batch's files to an Iceberg table: once, beside others, and into this table only."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.types import LongType, StringType

from spark_eos.base import failpoints, system
from spark_eos.errors import TableError
from spark_eos.pipelines.tables.files import Attempt, DataFile, FileWriter
from spark_eos.pipelines.tables.iceberg import memory, snapshots
from spark_eos.pipelines.tables.iceberg.target import IcebergTarget
from spark_eos.pipelines.tables.micro_batch import MicroBatch
from spark_eos.pipelines.tables.target import Outcome
from tests.support.tables.delta_files import QUERY, SCHEMA, micro_batch, records
from tests.support.tables.table_kinds import Iceberg
from tests.support.waiting import TIMEOUT

FIRST = micro_batch(0, (0, 0, 3), (1, 0, 2))
SECOND = micro_batch(1, (0, 3, 5))
THIRD = micro_batch(2, (0, 5, 6))
TAG = f"eos-{QUERY}"


@pytest.fixture
def kind(tmp_path) -> Iceberg:
    return Iceberg(tmp_path)


@pytest.fixture
def target(kind) -> IcebergTarget:
    return targeted(kind)


def targeted(kind: Iceberg, **more: str) -> IcebergTarget:
    found = kind.place(**more).target(SCHEMA, create=True)
    assert isinstance(found, IcebergTarget)
    return found


def files_of(target: IcebergTarget, batch: MicroBatch) -> tuple[DataFile, ...]:
    """The micro-batch's rows, written as by a task."""
    rows = [dict(zip(SCHEMA.names, record, strict=True)) for record in records(batch)]
    with FileWriter(target.store(), target.layout, Attempt("q", batch.number, 0, 0)) as writer:
        writer.write(pa.RecordBatch.from_pylist(rows, target.layout.schema))
        return writer.close()


def committed(target: IcebergTarget, batch: MicroBatch, *, is_there: bool = False) -> Outcome:
    """The outcome for a micro-batch whose files were written just now."""
    files = () if is_there else files_of(target, batch)
    return target.commit(batch, files, len(records(batch)), is_there=is_there, patience_s=TIMEOUT)


def refusal(target: IcebergTarget, batch: MicroBatch, kind: Iceberg) -> str:
    """Why it was refused. Nothing of it is in the table."""
    before = kind.places()
    with pytest.raises(TableError) as error:
        committed(target, batch)
    assert kind.places() == before
    return error.value.entry


def expected(*batches: MicroBatch) -> Counter[tuple[int, int]]:
    return Counter((p, offset) for batch in batches for _, p, offset in records(batch))


def test_micro_batches_are_in_the_table_once_however_often_they_are_committed(kind, target) -> None:
    """Also those without rows, and without a range."""
    batches = [FIRST, SECOND, micro_batch(2), micro_batch(3, (0, 5, 5))]
    for batch in batches:
        assert not committed(target, batch).again
        assert committed(target, batch).again
    assert kind.places() == expected(FIRST, SECOND)
    assert target.last(QUERY) == 3
    first = kind.load().metadata.snapshots[0].summary
    assert first is not None and first["spark-eos.rows"] == "5" and first["spark-eos.batch"] == "0"
    assert json.loads(str(first["spark-eos.ranges"])) == {"t/0": [0, 3], "t/1": [0, 2]}


def test_a_summary_has_the_end_offsets_of_all_partitions(kind, target) -> None:
    """Of those, too, that its micro-batch has not read, as the snapshots of earlier ones may have expired."""
    for batch in (FIRST, SECOND, micro_batch(2), micro_batch(3, (2, 7, 8))):
        committed(target, batch)
        kind.tidy()
    table = kind.load()
    tagged = table.snapshot_by_id(table.refs()[TAG].snapshot_id)
    assert tagged is not None and tagged.summary is not None
    assert json.loads(str(tagged.summary["spark-eos.ranges"])) == {"t/0": [5, 5], "t/1": [2, 2], "t/2": [7, 8]}


def beside_others(kind: Iceberg, drive: Callable[[], None], drivers: int) -> None:
    """Let so many drivers work at once, while others append the rows `FOREIGN` and expire snapshots."""

    def disturb() -> None:
        for _, n in FOREIGN:
            kind.append({"topic": "foreign", "partition": 9, "offset": n})
            kind.tidy()

    threads = [threading.Thread(target=work) for work in (*[drive] * drivers, disturb)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


#: Partition and offset of the rows of `beside_others`, each once.
FOREIGN = Counter([(9, 0), (9, 1), (9, 2)])


def test_three_drivers_at_once_commit_each_micro_batch_once(kind, target) -> None:
    """While others append and expire snapshots. Each driver hears that the table has it."""
    drivers, batches = 3, [micro_batch(n, (0, 2 * n, 2 * n + 2)) for n in range(6)]
    together, outcomes = threading.Barrier(drivers), list[bool]()

    def drive() -> None:
        for batch in batches:
            files = files_of(target, batch)
            together.wait()
            outcomes.append(target.commit(batch, files, 2, is_there=False).again)

    beside_others(kind, drive, drivers)
    assert Counter(outcomes) == {False: len(batches), True: len(batches) * (drivers - 1)}
    assert kind.places() == expected(*batches) + FOREIGN


def test_two_drivers_that_have_read_the_same_table_cannot_both_commit(kind, target, monkeypatch) -> None:
    """Whatever pyiceberg does by itself: the second one is refused, and then finds that the table has it."""
    committed(target, FIRST)
    reached: list[str] = []

    def other_first(point: str) -> None:
        reached.append(point)
        if reached == ["table.asked"]:
            assert not committed(target, SECOND).again

    monkeypatch.setattr(failpoints, "reach", other_first)
    assert committed(target, SECOND) == Outcome(again=True, tries=2)
    assert kind.places() == expected(FIRST, SECOND)


def lost_before(right: Callable[..., Any], *arguments: Any) -> None:
    raise CommitStateUnknownException("504")


def lost_after(right: Callable[..., Any], *arguments: Any) -> None:
    right(*arguments)
    raise CommitStateUnknownException("504")


def sent_again(right: Callable[..., Any], *arguments: Any) -> None:
    """As by a proxy: the second one is refused, as the first one was done."""
    right(*arguments)
    right(*arguments)


@pytest.mark.parametrize(("fault", "again"), [(lost_before, False), (lost_after, True), (sent_again, True)])
def test_a_commit_of_an_unknown_outcome_is_looked_for(kind, target, monkeypatch, fault, again) -> None:
    """And tried again only if the table does not have it."""
    committed(target, FIRST)
    right, faults = SqlCatalog.commit_table, [fault]
    monkeypatch.setattr(
        SqlCatalog, "commit_table", lambda *arguments: (faults.pop() if faults else plain)(right, *arguments)
    )
    assert committed(target, SECOND) == Outcome(again=again, tries=2)
    assert kind.places() == expected(FIRST, SECOND)


def plain(right: Callable[..., Any], *arguments: Any) -> Any:
    return right(*arguments)


def test_a_request_that_is_done_late_is_refused(kind, target, monkeypatch) -> None:
    """The one that was tried again was done before it; others have committed since."""
    committed(target, FIRST)
    right, late = SqlCatalog.commit_table, []

    def commit_table(*arguments: Any) -> Any:
        if not late:
            late.append(arguments)
            raise CommitStateUnknownException("504")
        return right(*arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)
    assert committed(target, SECOND) == Outcome(again=False, tries=2)
    with pytest.raises(CommitFailedException):
        right(*late[0])
    assert kind.places() == expected(FIRST, SECOND)


def test_an_outcome_that_stays_unknown_stops_the_query(kind, target, monkeypatch) -> None:
    """Without what is secret in the catalog's properties."""
    named = targeted(kind, **{"catalog.password": "rosebud"})

    def fails(*_: Any) -> None:
        raise OSError("no answer with rosebud from postgresql://user:swordfish@host/db")

    monkeypatch.setattr(SqlCatalog, "commit_table", fails)
    with pytest.raises(TableError) as error:
        named.commit(FIRST, files_of(named, FIRST), 5, is_there=False, patience_s=0.1)
    assert error.value.condition == "EOS_TABLE_UNCLEAR" and error.value.restart_helps
    assert "no answer with ***" in error.value.message
    assert kind.places() == Counter()


def test_other_offsets_gaps_and_old_checkpoints_are_refused(kind, target) -> None:
    """By number and digest."""
    committed(target, FIRST)
    committed(target, SECOND)
    assert refusal(target, micro_batch(1, (0, 3, 6)), kind) == "EOS_TABLE_TWO_QUERIES"
    assert refusal(target, FIRST, kind) == "EOS_TABLE_CHECKPOINT_BEHIND"
    assert refusal(target, micro_batch(3), kind) == "EOS_OTHER_TABLE.behind"
    with pytest.raises(TableError, match="only 1"):
        committed(target, THIRD, is_there=True)


def test_what_the_table_remembers_outlives_snapshots(kind, target) -> None:
    """Also where the table lets tags expire at once."""
    committed(target, FIRST)
    with kind.load().transaction() as transaction:
        transaction.set_properties({"history.expire.max-ref-age-ms": "1"})
    kind.append({"topic": "foreign", "partition": 9, "offset": 0})
    kind.append({"topic": "foreign", "partition": 9, "offset": 1})
    kind.tidy()
    assert len(kind.load().metadata.snapshots) == 2
    assert kind.load().refs()[TAG].max_ref_age_ms == (1 << 63) - 1
    assert committed(target, FIRST).again
    assert not committed(target, SECOND).again
    assert kind.places() == expected(FIRST, SECOND) + Counter({(9, 0): 1, (9, 1): 1})


def rolled_back(table: Table) -> None:
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()


def tag_removed(table: Table) -> None:
    table.manage_snapshots().remove_tag(TAG).commit()


def tag_put_back(table: Table) -> None:
    table.manage_snapshots().remove_tag(TAG).commit()
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, TAG).commit()


def recreated(table: Table) -> None:
    table.catalog.drop_table(table.name())
    table.catalog.create_table(table.name(), table.schema())


def dropped(table: Table) -> None:
    table.catalog.drop_table(table.name())


def column_added(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("more", LongType())


def column_replaced(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("topic")
    with table.update_schema() as update:
        update.add_column("topic", StringType())
        update.move_first("topic")


def repartitioned(table: Table) -> None:
    with table.update_spec() as update:
        update.add_identity("partition")


@pytest.mark.parametrize(
    ("change", "entry"),
    [
        (rolled_back, "EOS_OTHER_TABLE.restored"),
        (tag_removed, "EOS_ICEBERG_TAG.behind"),
        (tag_put_back, "EOS_ICEBERG_TAG.behind"),
        (recreated, "EOS_OTHER_TABLE.recreated"),
        (dropped, "EOS_ICEBERG_NO_TABLE"),
        (column_added, "EOS_TABLE_DIFFERS"),
        (column_replaced, "EOS_TABLE_DIFFERS"),
        (repartitioned, "EOS_TABLE_DIFFERS"),
    ],
)
def test_a_table_that_is_another_one_by_now_stops_the_query(kind, target, change, entry) -> None:
    """Before anything is committed."""
    committed(target, FIRST)
    committed(target, SECOND)
    change(kind.load())
    with pytest.raises(TableError) as error:
        committed(target, THIRD)
    assert error.value.entry == entry


@pytest.mark.parametrize("change", [column_added, repartitioned, rolled_back, tag_put_back, recreated, dropped])
def test_a_change_after_the_table_was_asked_is_noticed(kind, target, monkeypatch, change) -> None:
    """The commit is refused, and the next look says why."""
    committed(target, FIRST)
    committed(target, SECOND)
    reached: list[str] = []

    def meanwhile(point: str) -> None:
        reached.append(point)
        if reached == ["table.asked"]:
            change(kind.load())

    monkeypatch.setattr(failpoints, "reach", meanwhile)
    with pytest.raises(TableError) as error:
        committed(target, THIRD)
    assert reached == ["table.asked"] and error.value.condition != "EOS_TABLE_UNCLEAR"


def test_a_query_goes_on_after_a_rollback_that_is_named(kind, target) -> None:
    """By the snapshot that it has removed: each rollback is to be named for itself."""
    committed(target, FIRST)
    committed(target, SECOND)
    gone = kind.load().refs()[TAG].snapshot_id
    rolled_back(kind.load())
    goes_on = targeted(kind, afterRollback=str(gone))
    assert not committed(goes_on, THIRD).again
    assert kind.places() == expected(FIRST, THIRD)
    rolled_back(kind.load())
    assert refusal(goes_on, micro_batch(3), kind) == "EOS_OTHER_TABLE.restored"


def test_files_that_a_clean_up_may_remove_are_not_committed(kind, target, monkeypatch) -> None:
    """Nor those that it has removed; one that it removes meanwhile is named."""
    old = files_of(target, FIRST)
    now = system.time_of_day()
    monkeypatch.setattr(system, "time_of_day", lambda: now + 7 * 3600)
    with pytest.raises(TableError, match=r"7\.0 hours"):
        target.commit(FIRST, old, 5, is_there=False)
    monkeypatch.setattr(system, "time_of_day", lambda: now)
    path = Path(target.store().root, old[0].path)
    reached: list[str] = []

    def remove(point: str) -> None:
        reached.append(point)
        if point == "table.committed":
            path.unlink()

    monkeypatch.setattr(failpoints, "reach", remove)
    with pytest.raises(TableError) as error:
        target.commit(FIRST, old, 5, is_there=False)
    assert error.value.entry == "EOS_TABLE_FILES_LOST"
    written = files_of(target, SECOND)
    Path(target.store().root, written[0].path).unlink()
    with pytest.raises(TableError) as error:
        target.commit(SECOND, written, 2, is_there=False)
    assert error.value.entry == "EOS_TABLE_FILES_OLD.gone"


def test_pyiceberg_makes_the_updates_that_are_known_here(kind, target) -> None:
    """What is private in it still does what `spark_eos.pipelines.tables.iceberg.snapshots` takes it for: this fails
    where a new version does not."""
    table = kind.load()
    id_, updates = snapshots.stage(table, [], memory.summary_of(FIRST, 5, {}, "an id"))
    assert [update.action for update in updates] == ["add-snapshot", "set-snapshot-ref"]
    added, moved = updates
    assert (added.snapshot.snapshot_id, added.snapshot.parent_snapshot_id) == (id_, None)
    assert (moved.ref_name, moved.snapshot_id, moved.type) == ("main", id_, "branch")
    assert kind.load().metadata == table.metadata
    # To stage a snapshot changes nothing in what was read of the table, which is not copied for it.
    committed(target, FIRST)
    table = kind.load()
    before = table.metadata.model_dump_json()
    snapshots.stage(table, [], memory.summary_of(SECOND, 2, {}, "an id"))
    assert table.metadata.model_dump_json() == before


def test_small_manifests_are_merged_as_the_table_says(kind, target) -> None:
    """Beside rows that others append and delete. A table that is created says so."""
    with kind.load().transaction() as transaction:
        assert transaction.table_metadata.properties["commit.manifest-merge.enabled"] == "true"
        transaction.set_properties({"commit.manifest.min-count-to-merge": "4"})
    batches = [micro_batch(n, (0, n, n + 1), (1, n, n + 1)) for n in range(12)]
    counts = []
    for batch in batches:
        committed(target, batch)
        if batch.number == 5:
            kind.append({"topic": "foreign", "partition": 9, "offset": 9})
            kind.load().delete("partition = 1 and offset = 2")
        snapshot = kind.load().current_snapshot()
        assert snapshot is not None
        counts.append(len(snapshot.manifests(kind.load().io)))
    assert max(counts) <= 6 and counts.count(1) > 1
    assert kind.places() == expected(*batches) - Counter([(1, 2)]) + Counter([(9, 9)])
    with kind.load().transaction() as transaction:
        transaction.set_properties({"commit.manifest-merge.enabled": "false"})
    for number in range(12, 18):
        committed(target, micro_batch(number))
        committed(target, micro_batch(number))
    assert committed(target, micro_batch(17)).again


@pytest.mark.parametrize("deletes", ["true", "false"])
def test_old_metadata_is_deleted_as_the_table_says(kind, target, deletes) -> None:
    """All that it no longer names, and nothing else."""
    with kind.load().transaction() as transaction:
        transaction.set_properties(
            {"write.metadata.delete-after-commit.enabled": deletes, "write.metadata.previous-versions-max": "3"}
        )
    batches = [micro_batch(n, (0, n, n + 1)) for n in range(8)]
    for batch in batches:
        committed(target, batch)
    table = kind.load()
    named = {*(entry.metadata_file for entry in table.metadata.metadata_log), table.metadata_location}
    there = {f"file://{file}" for file in kind.folder.rglob("*.metadata.json")}
    assert len(named) == 4 and (there == named if deletes == "true" else there > named)
    assert kind.places() == expected(*batches)


def test_another_pyiceberg_is_not_trusted(kind, target, monkeypatch) -> None:
    """One that would change more than branch and tag."""
    right = _FastAppendFiles._commit
    monkeypatch.setattr(_FastAppendFiles, "_commit", lambda self: ((right(self)[0] * 2), ()))
    with pytest.raises(TableError) as error:
        committed(target, FIRST)
    assert error.value.condition == "EOS_ICEBERG_LIBRARY" and not kind.load().metadata.snapshots
