"""Topic → Delta table → topic by the jobs, of tables that Spark and delta-rs write: each record and change once."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from deltalake import DeltaTable

from tests.support.tables.delta import ToDelta, ToKafka, forget_the_last_commit, history, rows_of

ALL = 'SELECT key, value, headers, timestamp, \\"partition\\" FROM input'
MERGE = "SELECT string(key) AS k, string(value) AS v, topic, partition, offset, value IS NULL AS deleted FROM input"
FEED = ", merge: [k], delta.enableChangeDataFeed: true"
CHANGES = "SELECT k AS key, v AS value, _commit_version, _change_type FROM input"


def everything(rows) -> list[tuple]:
    return sorted(((r.partition, r.key, r.value, r.timestamp, r.headers) for r in rows), key=repr)


def test_there_and_back_every_record_is_the_same(job: ToDelta, back: ToKafka, write, view):
    """Headers, tombstones, empty and missing keys, timestamps; with files that are compacted between the runs, and a
    micro-batch that is replayed on both ways."""
    minutes_ago = 1000 * int(time.time()) - 300_000 + 123
    for n in range(2):
        headers = [("n", str(n).encode()), ("n", b""), ("null", None)]
        write(job.topic, f"a{n}", None, b"", key=f"k{n}", headers=headers, timestamp=minutes_ago + n)
        write(job.topic, f"b{n}", partition=1, key=b"")
        write(job.topic, f"c{n}", partition=1)
        if n == 1:
            DeltaTable(str(job.table)).optimize.compact()
            forget_the_last_commit(job.checkpoint)
            forget_the_last_commit(back.checkpoint)
        assert job.run() is None
        assert back.run(ALL) is None
    assert everything(view.rows(back.topic)) == everything(view.rows(job.topic))


def test_keys_keep_their_history(job: ToDelta, back: ToKafka, write, view):
    """The last row of each key is merged, in a micro-batch that is replayed, too; the changes of both come in order."""
    write(job.topic, "a old", "a", key="a")
    write(job.topic, "b", key="b")
    assert job.run(MERGE, target=FEED) is None
    forget_the_last_commit(job.checkpoint)
    write(job.topic, None, "a again", key="a")
    write(job.topic, None, key="b")
    assert job.run(MERGE, target=FEED) is None
    assert back.run(CHANGES, source=", readChangeFeed: true, startingVersion: 0") is None
    changes = {key: [change[1:] for change in found] for key, found in history(view, back.topic).items()}
    assert changes == {
        b"a": [("insert", "a"), ("update_preimage", "a"), ("update_postimage", "a again")],
        b"b": [("insert", "b"), ("delete", "b")],
    }
    assert rows_of(back.table) == [("a", "a again")]


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
