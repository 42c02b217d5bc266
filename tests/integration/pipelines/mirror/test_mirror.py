"""A mirror: topics of one cluster on another one, each row once, and where it was."""

from __future__ import annotations

from spark_eos.protocol.head_codec import decode
from tests.support.judges.conditions import raises
from tests.support.queries.mirrors import check_same, seen
from tests.support.queries.sink_queries import ended_by
from tests.support.spark.session_faults import armed
from tests.support.waiting import TIMEOUT


def feed(write, transactions, topic: str, partitions: int, rows: int = 600) -> None:
    """Rows of all kinds, transactions that were committed and aborted, and markers at the end."""
    for p in range(partitions):
        write(topic, b"plain", None, b"", partition=p, key=b"k%d" % p, timestamp=1_000 + p)
        write(topic, b"x", partition=p, key=b"", headers=[("a", b"1"), ("a", None), ("", b"")])
        transactions.commit(topic, "committed", "too", partition=p)
        transactions.abort(topic, "aborted", partition=p)
        write(topic, *(b"%d" % i for i in range(rows)), partition=p)
        transactions.commit(topic, "last", partition=p)


def test_topics_are_mirrored(mirror, topic, write, transactions, there):
    """Two topics to targets that are made; the same on both sides, and once more after a restart with more rows."""
    one, two = topic(2, retention_ms=-1), topic(1, retention_ms=-1)
    feed(write, transactions, one, 2)
    feed(write, transactions, two, 1, rows=5)
    copies = mirror(f"{one},{two}", prefix="copy.", first=True)
    copies.run()
    check_same(copies, one, two)
    assert len(there.partitions(f"copy.{one}")) == 2
    feed(write, transactions, one, 2, rows=7)
    copies.run()
    check_same(copies, one, two)
    assert len(seen(there, f"copy.{two}")) == 12


def test_ranges_without_a_row_are_in_the_map(mirror, topic, transactions, there, view):
    """A group that has read a topic of aborted rows and markers stands at an offset that is covered."""
    name = topic(1, retention_ms=-1)
    transactions.abort(name, "aborted")
    copies = mirror(name)
    query = copies.run()
    end = view.ends(name, committed=True)[name, 0]
    assert end == 2
    (entry,) = copies.entries()
    assert copies.map(name, {0: [end]}).get(entry.source.topic_id, 0).reaches(end)
    assert seen(there, name) == []
    assert not there.open_transactions(query)


def test_a_verdict_can_be_told_by_a_data_partition(mirror, topic, write, there, tmp_path):
    """The place that a decision notes is none of the map's, which compaction may take."""
    name = topic(1, retention_ms=-1)
    write(name, *(b"%d" % i for i in range(10)))
    copies = mirror(name, map=f"0-{name}")  # before all others by name
    with armed(copies.spark, "commit.decided=hold@2", tmp_path / "faults") as fault:
        query = copies.start()
        fault.wait()
        heads = [decode(row.value) for row in there.rows("__spark_eos_ledger") if row.key == query.id.encode()]
        fault.release()
        assert query.awaitTermination(TIMEOUT)
    assert {written.probe.topic for written in heads[-1].decision.written} == {name}


def test_what_was_lost_is_written_again(mirror, topic, write, view, there, tmp_path):
    """Decided transactions that were aborted: a repair takes their place, in the map, too."""
    name = topic(2, retention_ms=-1)
    for p in range(2):
        write(name, *(b"%d.%d" % (p, i) for i in range(600)), partition=p)
    copies = mirror(name)
    with armed(copies.spark, "commit.decided=hold@2", tmp_path / "faults") as fault:
        query = copies.start()
        fault.wait()
        there.end_transaction(min(there.open_transactions(query.id)), commit=False)
        fault.release()
        ended_by(query, "EOS_TRANSACTION_LOST")
    copies.run()
    check_same(copies, name)


def test_a_mirror_of_a_topic_to_itself(mirror, topic, view):
    """The same cluster, without a prefix; with one, the target is no source, by a pattern either."""
    copies = mirror(topic(1))
    copies.there = view
    with raises("EOS_OPTION_CONFLICT"):
        copies.start()
