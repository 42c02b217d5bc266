"""Replays of a copy: what was lost is read again by the decision, and nothing else."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewPartitions

from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.copies import CopiedFrom, shouted
from tests.support.queries.sink_queries import ended_by
from tests.support.queries.source_calls import Writer, delete_before
from tests.support.spark.session_faults import armed
from tests.support.waiting import wait_for

ROWS = 600  # of a partition: more than what shares a task


def feed(write, query: CopiedFrom, partitions: int, rows: int = ROWS) -> list[bytes]:
    """Rows for each partition, in two record batches; all of them."""
    for p in range(partitions):
        for half in (range(rows // 2), range(rows // 2, rows)):
            write(query.source, *(b"%d.%03d" % (p, i) for i in half), partition=p)
    return [b"%d.%03d" % (p, i) for p in range(partitions) for i in range(rows)]


def lose(query: CopiedFrom, count: int, folder, transform=None) -> str:
    """Run a query whose micro-batch 1 loses this many of its decided transactions; the error's text."""
    with armed(query.spark, "commit.decided=hold@2", folder / "faults") as fault:
        started = query.start(transform)
        fault.wait()
        for name in sorted(query.view.open_transactions(started.id))[:count]:
            query.view.end_transaction(name, commit=False)
        fault.release()
        return ended_by(started, "EOS_TRANSACTION_LOST")


def test_what_was_lost_is_written_again_and_nothing_else(copy, write, view, tmp_path):
    """From the ranges of the lost transactions."""
    query = copy(3)
    wanted = feed(write, query, 3)
    lose(query, 1, tmp_path)
    wait_for(lambda: not view.held(query.target), "the markers")
    assert len(view.rows(query.target)) == 2 * ROWS
    before = len(view.rows(query.target, committed=False))
    query.run()
    assert query.values() == wanted
    assert len(view.rows(query.target, committed=False)) == before + ROWS


def test_a_lost_transaction_of_several_partitions_is_written_again(copy, write, view, tmp_path):
    """Few rows, whose ranges share one task and go through a function: each partition has its own again, in order."""
    query = copy(3)
    wanted = feed(write, query, 3, rows=100)
    lose(query, 1, tmp_path, shouted)
    assert query.rows() == []
    before = len(view.rows(query.target, committed=False))
    assert before == len(wanted), "one transaction has all"
    query.run(shouted)
    seen = [(row.partition, row.value) for row in query.rows()]
    for p in range(3):
        assert [value for partition, value in seen if partition == p] == wanted[100 * p : 100 * (p + 1)]
    assert len(view.rows(query.target, committed=False)) == 2 * before


@pytest.mark.chaos
def test_a_repair_from_a_source_that_has_changed_stops(copy, write, view, tmp_path):
    """Records were deleted meanwhile, and data loss is none to this query: nobody can write what was lost."""
    query = copy(2)
    feed(write, query, 2)
    lose(query, 2, tmp_path)
    delete_before(view.admin, query.source, ROWS // 2)
    query.stopped_by("EOS_SOURCE_DATA_LOSS")
    query.reads = {"failOnDataLoss": False}
    query.stopped_by("EOS_REPAIR_SOURCE_CHANGED")
    assert query.rows() == []


def test_a_repair_by_another_function_of_the_same_name_stops(copy, write, tmp_path):
    """Its rows are as many, but other ones."""
    query = copy()
    feed(write, query, 1)
    wanted = lambda batch: batch.select(["key", "value"])  # noqa: E731
    lose(query, 1, tmp_path, wanted)
    other = lambda batch: batch.select(["value", "value"]).rename_columns(["key", "value"])  # noqa: E731
    query.stopped_by("EOS_REPAIR_SOURCE_CHANGED", other)
    assert query.rows() == []
    query.run(wanted)
    assert len(query.rows()) == ROWS


def test_a_copy_to_fewer_partitions_stops_before_anything_is_read(copy, cluster, write, view):
    """Also where a partition is added while the query is not running; when the target has it, it goes on."""
    query = copy(1)
    write(query.source, b"a")
    query.run()
    add_a_partition(view, query.source)
    Writer(cluster, transactional=False).put(query.source, b"b", partition=1)
    assert f"{query.target}, which has 1" in query.stopped_by("EOS_TARGET_PARTITIONS")
    assert query.values() == [b"a"]
    add_a_partition(view, query.target)
    query.run()
    assert query.values() == [b"a", b"b"]


def add_a_partition(view: KafkaView, topic: str) -> None:
    """The second one."""
    for future in view.admin.create_partitions([NewPartitions(topic, 2)]).values():
        future.result()
    wait_for(lambda: len(view.partitions(topic)) == 2, "the partition")
