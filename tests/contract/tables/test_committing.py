"""The commit of a micro-batch's files to tables of each kind: once, beside others, and into this table only."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.types import StringType

from spark_eos.errors import TableError
from spark_eos.pipelines.tables.commit import Outcome
from spark_eos.pipelines.tables.micro_batch import RangeBatch
from spark_eos.pipelines.tables.target import Target
from tests.support.judges.conditions import raises
from tests.support.tables.delta_files import FIRST, QUERY, SCHEMA, SECOND, THIRD, micro_batch
from tests.support.tables.table_kinds import (
    FOREIGN,
    Delta,
    Iceberg,
    TableKind,
    beside_others,
    committed,
    expected,
    files_of,
)

#: Hours after which files are too old to be committed.
MOST_HOURS = {"delta": 42, "iceberg": 6}


def refusal(kind: TableKind, target: Target, batch: RangeBatch) -> str:
    """Why it was refused. Nothing is committed."""
    before = kind.versions()
    with pytest.raises(TableError) as error:
        committed(target, batch)
    assert kind.versions() == before
    return error.value.entry


def test_micro_batches_are_in_the_table_once_however_often_they_are_committed(kind, target) -> None:
    """Also those without rows, and without a range."""
    for batch in (FIRST, SECOND, micro_batch(2), micro_batch(3, (0, 5, 5))):
        assert not committed(target, batch).again
        assert committed(target, batch).again
    assert kind.places() == expected(FIRST, SECOND)
    assert kind.place().remembered(QUERY).last == kind.last(QUERY) == 3
    assert kind.notes()[0] == {"batch": 0, "rows": 5, "ranges": {"t/0": [0, 3], "t/1": [0, 2]}}


def test_three_drivers_at_once_commit_each_micro_batch_once(kind, target) -> None:
    """While others append, and look after the table. Each driver hears that the table has it."""
    drivers, batches = 3, [micro_batch(n, (0, 2 * n, 2 * n + 2)) for n in range(8)]
    together, outcomes = threading.Barrier(drivers), list[bool]()

    def drive() -> None:
        for batch in batches:
            files = files_of(target, batch)
            together.wait()
            outcomes.append(target.commit(batch, files, 2).again)

    beside_others(kind, drive, drivers)
    assert Counter(outcomes) == {False: len(batches), True: len(batches) * (drivers - 1)}
    assert kind.places() == expected(*batches) + FOREIGN


def test_two_drivers_that_have_read_the_same_table_cannot_both_commit(kind, target, meanwhile) -> None:
    """The second one is refused, and then finds that the table has it."""
    committed(target, FIRST)
    meanwhile("table.asked", lambda: committed(target, SECOND))
    assert committed(target, SECOND) == Outcome(again=True, tries=2)
    assert kind.places() == expected(FIRST, SECOND)


def test_the_table_is_asked_again_after_an_error(kind, target, meanwhile) -> None:
    """Whatever failed: here, after the commit has landed."""

    def fail() -> None:
        raise OSError("the connection was closed")

    meanwhile("table.committed", fail)
    assert committed(target, FIRST) == Outcome(again=True, tries=2)
    assert kind.places() == expected(FIRST)


def test_other_offsets_gaps_and_old_checkpoints_are_refused(kind, target) -> None:
    """By number and digest: a copy of the checkpoint has gone on with other offsets, the checkpoint is old, or the
    table lacks a commit."""
    committed(target, FIRST)
    committed(target, SECOND)
    assert refusal(kind, target, micro_batch(1, (0, 3, 6))) == "EOS_TABLE_TWO_QUERIES"
    assert refusal(kind, target, FIRST) == "EOS_TABLE_CHECKPOINT_BEHIND"
    assert refusal(kind, target, micro_batch(3)) == "EOS_OTHER_TABLE.behind"
    with pytest.raises(TableError, match="only up to 1"):
        target.commit(THIRD, (), 0, is_there=True)


def test_queries_do_not_meet_in_a_table(kind, target) -> None:
    """Each has its own numbers."""
    other = micro_batch(0, (7, 0, 1), query="another")
    for batch in (FIRST, other, SECOND):
        assert not committed(target, batch).again
    assert kind.places() == expected(FIRST, SECOND, other)


# Other tables, other rules


def forgetful(kind: Delta) -> None:
    properties = {"delta.setTransactionRetentionDuration": "interval 1 day"}
    DeltaTable(str(kind.path)).alter.set_table_properties(properties, raise_if_not_exists=False)


def constrained(kind: Delta) -> None:
    DeltaTable(str(kind.path)).alter.add_constraint({"few": '"offset" < 1000'})


def tag_removed(kind: Iceberg) -> None:
    kind.load().manage_snapshots().remove_tag(f"eos-{QUERY}").commit()


def tag_put_back(kind: Iceberg) -> None:
    tag_removed(kind)
    table = kind.load()
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, f"eos-{QUERY}").commit()


def column_replaced(kind: Iceberg) -> None:
    with kind.load().update_schema() as update:
        update.delete_column("topic")
    with kind.load().update_schema() as update:
        update.add_column("topic", StringType())
        update.move_first("topic")


def repartitioned(kind: Iceberg) -> None:
    with kind.load().update_spec() as update:
        update.add_identity("partition")


CHANGES: list[tuple[str, Callable[[Any], object], str]] = [
    ("delta", Delta.recreate, "EOS_OTHER_TABLE.recreated"),
    ("delta", Delta.drop, "EOS_DELTA_NO_TABLE.path"),
    ("delta", Delta.add_column, "EOS_TABLE_DIFFERS"),
    ("delta", Delta.put_back, "EOS_OTHER_TABLE.restored"),
    ("delta", forgetful, "EOS_DELTA_TABLE_SETTINGS.forgets"),
    ("delta", constrained, "EOS_DELTA_TABLE_SETTINGS.rules"),
    ("iceberg", Iceberg.recreate, "EOS_OTHER_TABLE.recreated"),
    ("iceberg", Iceberg.drop, "EOS_ICEBERG_NO_TABLE"),
    ("iceberg", Iceberg.add_column, "EOS_TABLE_DIFFERS"),
    ("iceberg", Iceberg.put_back, "EOS_OTHER_TABLE.restored"),
    ("iceberg", tag_removed, "EOS_ICEBERG_TAG.behind"),
    ("iceberg", tag_put_back, "EOS_ICEBERG_TAG.behind"),
    ("iceberg", column_replaced, "EOS_TABLE_DIFFERS"),
    ("iceberg", repartitioned, "EOS_TABLE_DIFFERS"),
]


@pytest.mark.parametrize(("kind", "change", "entry"), CHANGES, indirect=["kind"])
def test_a_change_after_the_table_was_asked_is_noticed(kind, target, meanwhile, change, entry) -> None:
    """The commit is refused, and the next look says why: no log gets a version that is of another table."""
    committed(target, FIRST)
    committed(target, SECOND)
    reached = meanwhile("table.asked", lambda: change(kind))
    with pytest.raises(TableError) as error:
        committed(target, THIRD)
    assert reached == ["table.asked"] and error.value.entry == entry
    assert kind.is_there() == ("NO_TABLE" not in entry)
    assert not kind.is_there() or not kind.places() & expected(THIRD)


def test_a_query_goes_on_after_a_restore_or_rollback_that_is_named(kind, target) -> None:
    """Each is to be named for itself."""
    committed(target, FIRST)
    committed(target, SECOND)
    goes_on = kind.place(**kind.put_back()).target(SCHEMA, create=False)
    assert not committed(goes_on, THIRD).again
    assert kind.places() == expected(FIRST, THIRD)
    kind.put_back()
    assert refusal(kind, goes_on, micro_batch(3)) == "EOS_OTHER_TABLE.restored"


# Files


def test_files_that_a_clean_up_may_remove_are_not_committed(kind, target) -> None:
    """Delta's may do it a week after they were written, and that of Iceberg's after a day: a quarter of that."""
    most, files = MOST_HOURS[kind.name], files_of(target, FIRST)
    young, old = (
        [replace(file, written_at_ms=file.written_at_ms - hours * 3_600_000) for file in files]
        for hours in (most - 1, most + 1)
    )
    with pytest.raises(TableError, match=rf"{most + 1}\.0 hours") as error:
        target.commit(FIRST, old, 5)
    assert error.value.condition == "EOS_TABLE_FILES_OLD" and error.value.restart_helps
    assert not target.commit(FIRST, young, 5).again


@pytest.mark.parametrize(
    ("point", "entry"),
    [
        (None, "EOS_TABLE_FILES_OLD.gone"),
        ("table.asked", "EOS_TABLE_FILES_LOST"),
        ("table.committed", "EOS_TABLE_FILES_LOST"),
    ],
)
def test_files_that_were_removed_stop_the_query(kind, target, meanwhile, point, entry) -> None:
    """Before anything is committed; or just after, where it was done meanwhile, and the oldest of them is looked for.
    Before, each has to be there: a local path may be another folder on each host."""
    files = [*files_of(target, FIRST), *files_of(target, SECOND)]
    removed = files[1] if point is None else files[0]
    path = Path(target.store().root, removed.path)
    if point is None:
        path.unlink()
    else:
        meanwhile(point, path.unlink)
    with raises(entry, removed.path) as error:
        target.commit(FIRST, files, 8)
    assert error.value.restart_helps == (point is None)
    assert kind.place().remembered(QUERY).last == (None if point is None else 0)
