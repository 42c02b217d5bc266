"""`spark_eos.copy`: each record once, as it was or as a function made it, and where it belongs."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from spark_eos.pipelines.copy import cores as spark_cores
from tests.support.queries.copies import copied, shouted
from tests.support.waiting import TIMEOUT

#: Of the record batch by which a broker ends a transaction in a partition.
MARKER_BYTES = 78


def has_active_session(spark) -> bool:
    """Whether this thread has one."""
    return spark._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession().isDefined()


def test_a_copy_is_what_the_source_holds(copy, transactions, write, view, spark):
    """Keys, values, headers, timestamps and partitions, in order, whatever is null or empty; not what was aborted. It
    is started in a thread without an active session, which then has none either."""
    query = copy(3)
    before = int(time.time() * 1000) - 60_000
    for p in range(3):
        write(query.source, b"plain", None, b"", partition=p, key=b"k%d" % p, timestamp=before + p)
        write(query.source, b"x", partition=p, key=b"", headers=[("a", b"1"), ("a", None), ("", b"")])
        transactions.commit(query.source, "committed", partition=p)
        transactions.abort(query.source, "aborted", partition=p)
        write(query.source, *(b"%d" % i for i in range(500)), partition=p)
    with ThreadPoolExecutor(1) as pool:
        assert not pool.submit(has_active_session, spark).result()
        pool.submit(query.run).result()
        assert not pool.submit(has_active_session, spark).result()
    assert len(query.rows()) == 3 * 505
    assert copied(query.rows()) == copied(view.rows(query.source))


def test_a_copy_in_many_micro_batches_and_runs_keeps_the_order(copy, write, view):
    """Ranges are cut within record batches, and what is left of a batch comes with the next one."""
    query = copy(2)
    query.reads = {"maxOffsetsPerTrigger": 70}
    for p in range(2):
        write(query.source, *(b"%d" % i for i in range(100)), partition=p)
    running = query.start()
    assert running.awaitTermination(TIMEOUT)
    said = [json.loads(progress["sources"][0]["latestOffset"]) for progress in running.recentProgress]
    assert [one["#planned"]["offsets"] for one in said if "#planned" in one and one["#planned"]["offsets"]] == [
        70,
        70,
        60,
    ]
    written = [one["#written"] for one in said if "#written" in one]
    assert [(one["batch"], one["rows"], one["bytes"] > 0) for one in written] == [
        (0, 0, False),
        (1, 70, True),
        (2, 70, True),
    ]
    write(query.source, *(b"%d" % i for i in range(100, 150)), partition=1)
    query.run()
    assert copied(query.rows()) == copied(view.rows(query.source))


def test_rows_and_bytes_that_were_written_are_told(copy, write, cluster, heard):
    """Of a range that ends within a record batch, to whoever counts them; the rows by a replay, too, which writes none.
    Bytes of a copy are those of the target's log."""
    query = copy(1)
    query.reads = {"maxOffsetsPerTrigger": 70}
    write(query.source, *(b"%03d" % i for i in range(100)), key=b"key")
    query.run()
    query.forget(2)
    query.run()
    told = [(event["batch"], event["rows"], event["bytes"], event["replayed"]) for event in heard(4)]
    log = cluster.broker(0).data / f"{query.target}-0" / "00000000000000000000.log"
    written = sum(size for _, _, size, _ in told)
    assert log.stat().st_size == written + 2 * MARKER_BYTES
    assert [(batch, rows, size > 0, again) for batch, rows, size, again in told] == [
        (0, 0, False, False),
        (1, 70, True, False),
        (2, 30, True, False),
        (2, 30, False, True),
    ]


def test_partitions_with_some_rows_share_tasks(copy, write, monkeypatch, heard):
    """So many transactions of 20 partitions with 600 rows: one for each core. Bytes of rows that a function has made
    are those of keys and values."""
    monkeypatch.setattr(spark_cores, "cores", lambda spark: 4)
    query = copy(20)
    for p in range(20):
        write(query.source, *(b"%03d" % i for i in range(600)), key=b"key", partition=p)
    query.run(shouted)
    _, commit = heard(2)
    assert (commit["tasks"], commit["transactions"], commit["rows"], commit["bytes"]) == (4, 4, 12_000, 12_000 * 6)
    values = {p: [row[1] for row in rows] for p, rows in copied(query.rows()).items()}
    assert values == {p: [b"%03d" % i for i in range(600)] for p in range(20)}


def test_a_transform_sees_the_rows_and_says_what_is_written(copy, write):
    """By columns, in order; a restart goes on."""
    query = copy(2)
    for p in range(2):
        write(query.source, *(b"%sa%d" % (b"-" * (i % 3 == 0), i) for i in range(100)), partition=p, key=b"k")
    query.run(shouted)
    first = query.rows()
    wanted = [b"A%d" % i for i in range(100) if i % 3]
    assert [row.value for row in first if row.partition == 1] == wanted
    assert {row.key for row in first} == {b"k"}
    write(query.source, b"more", b"-less", partition=1)
    query.run(shouted)
    assert query.values() == sorted([*wanted, *wanted, b"MORE"])


def test_a_transform_has_headers_and_timestamps_where_it_asks_for_them(copy, write, view):
    """By the source's option, as with rows; a function of this test's own is shipped with the query."""
    query = copy()
    query.reads = {"includeHeaders": True}
    before = int(time.time() * 1000) - 60_000
    write(query.source, b"a", headers=[("h", b"1")], timestamp=before)
    write(query.source, None, timestamp=before + 1)
    names = ["key", "value", "headers", "timestamp"]

    def same(batch: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches([batch]).select(names)

    query.run(same)
    assert copied(query.rows()) == copied(view.rows(query.source))
