"""Topic → Delta table → topic by the jobs, of tables that Spark and delta-rs write: each record and change once."""

from __future__ import annotations

import time

from deltalake import DeltaTable

from tests.support.tables.delta import ToDelta, ToKafka, forget_the_last_commit, history, rows_of

ALL = 'SELECT key, value, headers, timestamp, \\"partition\\" FROM input'
#: The hint spreads the rows over tasks anew: they arrive in any order.
MERGE = (
    "SELECT /*+ REPARTITION(3) */ string(key) AS k, string(value) AS v, topic, partition, offset, "
    "value IS NULL AS deleted FROM input"
)
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
    """The last row of each key is merged and tombstones delete, in a micro-batch that is replayed, too; the changes of
    both come in order."""
    write(job.topic, *(f"a{n}" for n in range(20)), "a", key="a")
    write(job.topic, "b", partition=1, key="b")
    write(job.topic, "c", None, key="c")
    assert job.run(MERGE, target=FEED) is None
    forget_the_last_commit(job.checkpoint)
    write(job.topic, None, "a again", key="a")
    write(job.topic, None, partition=1, key="b")
    assert job.run(MERGE, target=FEED) is None
    assert back.run(CHANGES, source=", readChangeFeed: true, startingVersion: 0") is None
    changes = {key: [change[1:] for change in found] for key, found in history(view, back.topic).items()}
    assert changes == {
        b"a": [("insert", "a"), ("update_preimage", "a"), ("update_postimage", "a again")],
        b"b": [("insert", "b"), ("delete", "b")],
    }
    assert rows_of(back.table) == [("a", "a again")]
