"""Which rows the source gives, once and in order. The reader is called as Spark does, without Spark."""

from __future__ import annotations

import time

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.net.client import broker_client
from spark_eos.source import raw
from spark_eos.source.fetching import Fetching
from spark_eos.source.raw import read_raw
from tests.support.judges.consumer_rows import by_consumer
from tests.support.queries.source_calls import rows, run, topics, until_stable, values
from tests.support.waiting import PROGRAM_S, TIMEOUT, wait_for


def test_ranges_of_aborted_and_control_records_end(reader, topic, transactions, monkeypatch):
    """With a limit of 1, most ranges hold nothing but one control record or one aborted record."""
    name = topic()
    for i in range(3):
        transactions.commit(name, f"c{i}")
        transactions.abort(name, f"x{i}", f"y{i}")
    until_stable(reader, name, 15)
    monkeypatch.setattr(raw, "_SHORT_STALL_S", PROGRAM_S)
    began = time.monotonic()
    batches, end = run(reader(name, maxOffsetsPerTrigger=1))
    assert values(batches) == ["c0", "c1", "c2"]
    assert topics(end) == {name: {"0": 15}}
    assert time.monotonic() - began < TIMEOUT


def test_compacted_topics_have_gaps_that_are_no_loss(reader, topic, write, admin, kafka):
    """Offsets that compaction took are simply not there; a range may begin and end among them."""
    name = topic(
        1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="100"
    )
    for i in range(60):
        write(name, f"v{i}", key=b"same" if i % 10 else f"k{i}".encode())
    source = reader(name)

    def compacted() -> bool:
        write(name, "roll", key=b"roll")  # an active segment is never compacted
        return len(rows(source, {name: {"0": 0}}, {name: {"0": 60}})) < 30

    wait_for(compacted, "the compaction")
    got = rows(source, {name: {"0": 0}}, {name: {"0": 60}})
    offsets = [row["offset"] for row in got]
    assert offsets == sorted(set(offsets))
    assert {row["value"].decode() for row in got} >= {f"v{i}" for i in range(0, 60, 10)}
    gap = next(i for i in range(60) if i not in offsets)
    assert rows(source, {name: {"0": gap}}, {name: {"0": gap + 1}}) == []

    def same_as_by_a_consumer() -> bool:
        range_ = OffsetRange(name, 0, 0, 60)
        own = [row for b in read_raw(Fetching(broker_client(kafka)), range_) for row in b.to_pylist()]
        return own == by_consumer(kafka, range_).to_pylist() != []

    wait_for(same_as_by_a_consumer, "the same rows in both ways")  # the broker may compact between the two
