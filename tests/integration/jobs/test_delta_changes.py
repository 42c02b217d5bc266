"""The change data feed of a table → topics: every change once, each key's in its order, with version and kind."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.tables.delta import ToDelta, ToKafka, forget_the_last_commit, history, rows_of

CHANGES = "SELECT k AS key, v AS value, _commit_version, _change_type FROM input"
MERGE = "SELECT string(key) AS k, string(value) AS v, topic, partition, offset, value IS NULL AS deleted FROM input"
FEED = ", merge: [k], delta.enableChangeDataFeed: true"


@pytest.mark.chaos
def test_changes_come_once_and_in_the_order_of_each_key(job: ToDelta, back: ToKafka, write, view):
    """Inserts, updates and deletes of several commits in one micro-batch, which is replayed; first the snapshot."""
    write(job.topic, "a0", key="a")
    write(job.topic, "b0", key="b")
    assert job.run(MERGE, target=FEED) is None
    assert back.run(CHANGES, source=", readChangeFeed: true") is None
    for n in range(1, 3):
        write(job.topic, f"a{n}", key="a")
        write(job.topic, None if n == 1 else "b again", key="b")
        assert job.run(MERGE, target=FEED) is None
    assert back.run(CHANGES, source=", readChangeFeed: true") is None
    forget_the_last_commit(back.checkpoint)
    assert back.run(CHANGES, source=", readChangeFeed: true") is None
    found = history(view, back.topic)
    kinds = {key: [(kind, value) for _, kind, value in changes] for key, changes in found.items()}
    assert kinds == {
        b"a": [
            ("insert", "a0"),
            ("update_preimage", "a0"), ("update_postimage", "a1"),
            ("update_preimage", "a1"), ("update_postimage", "a2"),
        ],
        b"b": [("insert", "b0"), ("delete", "b0"), ("insert", "b again")],
    }  # fmt: skip
    versions = {key: [version for version, _, _ in changes] for key, changes in found.items()}
    assert all(versions[key] == sorted(versions[key]) for key in versions)
    assert rows_of(back.table) == [("a", "a2"), ("b", "b again")]


@pytest.mark.chaos
def test_many_changes_of_many_keys_end_in_the_tables_state(job: ToDelta, back: ToKafka, view):
    """Overwrites, updates and deletes of the whole table, in one micro-batch: who takes the last change of each key has
    the table's rows, and every key's versions ascend."""
    back.sql("CREATE TABLE {t} (k STRING, v STRING) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    for n in range(4):
        back.sql(f"INSERT INTO {{t}} SELECT string(id), '{n}' FROM range({100 * n}, {100 * n + 100}, 1, 3)")
        back.sql(f"UPDATE {{t}} SET v = v || '+{n}' WHERE int(k) % 3 = {n % 3}")
        back.sql(f"DELETE FROM {{t}} WHERE int(k) % 7 = {n}")
        back.sql(f"INSERT OVERWRITE {{t}} SELECT /*+ REPARTITION(3) */ k, v || '.' FROM {{t}} WHERE int(k) % 11 <> {n}")
    source = ", readChangeFeed: true, startingVersion: 0"
    assert back.run(CHANGES, source=source) is None
    found = history(view, back.topic)
    columns = "_commit_version, _change_type, k, v"
    recorded = back.sql(f"SELECT {columns} FROM table_changes_by_path('{back.table}', 0)")
    assert Counter(recorded) == Counter(
        (version, kind, key.decode(), value) for key, changes in found.items() for version, kind, value in changes
    )
    assert all(
        [version for version, _, _ in changes] == sorted(version for version, _, _ in changes)
        for changes in found.values()
    )
    last = {key.decode(): changes[-1] for key, changes in found.items()}
    state = sorted((key, value) for key, (_, kind, value) in last.items() if kind != "delete")
    assert state == sorted(rows_of(back.table))


@pytest.mark.chaos
def test_changes_that_were_not_recorded_are_an_error(back: ToKafka):
    """A table without a feed, at the start; versions before it was turned on, when they are read."""
    back.sql("CREATE TABLE {t} (k STRING, v STRING) USING delta")
    back.sql("INSERT INTO {t} VALUES ('a', '1')")
    without = back.run(CHANGES, source=", readChangeFeed: true")
    assert without.condition == "EOS_DELTA_TABLE_SETTINGS" and "SET TBLPROPERTIES" in without.text
    back.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    too_early = back.run(CHANGES, source=", readChangeFeed: true, startingVersion: 0")
    assert too_early.condition == "EOS_DELTA_TABLE_SETTINGS"
    assert "version 0 of" in too_early.text
