"""Topics that are deleted, created anew, cut or expired, under a query that may lose data and one that may not."""

from __future__ import annotations

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import DataLossError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.source import watch
from spark_eos.source.fetching import Fetching
from spark_eos.source.raw import read_raw
from tests.support.judges.consumer_rows import by_consumer
from tests.support.queries.source_calls import (
    anew,
    delete_before,
    fresh,
    rows,
    run,
    topics,
    until_ends,
    until_more,
    values,
)
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    """Topics are looked at every time, not every five seconds."""
    monkeypatch.setattr(watch, "_TOPICS_S", 0.0)


# Offsets that the log does not have


def test_records_deleted_before_they_were_read(reader, topic, write, admin):
    """On the driver, before any task."""
    name = topic(2)
    write(name, *"abcdef", partition=1)
    source = reader(name)
    _, at = run(source)
    write(name, *"ghi", partition=1)
    delete_before(admin, name, 8, partition=1)
    source = fresh(source)
    end = source.latestOffset(at, source.getDefaultReadLimit())
    with pytest.raises(DataLossError) as caught:
        source.partitions(at, end)
    assert caught.value.condition == "EOS_SOURCE_DATA_LOSS"
    expected = {"topic": name, "partition": 1, "expected": 6, "found": 8}
    assert caught.value.parameters.items() >= expected.items()


def test_records_that_expire_between_planning_and_reading(reader, topic, write, admin, stalls_soon):
    """The task stops and starts nowhere else; of a query that may lose data it reads what is left, or nothing."""
    name = topic()
    write(name, *"abcdef")
    source, lossy = reader(name), reader(name, failOnDataLoss=False)
    ((strict,), (part,)) = (of.partitions({name: {"0": 0}}, {name: {"0": 6}}) for of in (source, lossy))
    delete_before(admin, name, 4)
    with pytest.raises(DataLossError) as caught:
        list(source.read(strict))
    assert (caught.value.parameters["expected"], caught.value.parameters["found"]) == (0, 4)
    assert [row["value"] for batch in lossy.read(part) for row in batch.to_pylist()] == [b"e", b"f"]
    delete_before(admin, name, 6)
    assert list(lossy.read(part)) == []


# Topics that are not the same any more, and queries that may lose data


def test_a_topic_created_anew_that_has_outgrown_the_query(reader, topic, write, admin, cluster):
    """Its offsets look as if nothing had happened; its id does not. In a running query, and in the next run."""
    name = topic()
    write(name, *"abc")
    source = reader(name)
    _, at = run(source)
    anew(admin, cluster, name)
    write(name, *"vwxyz")
    for reading in (source, fresh(source)):
        with pytest.raises(DataLossError, match="was recreated") as caught:
            wait_for(
                lambda reading=reading: reading.latestOffset(at, reading.getDefaultReadLimit()) is None,
                "a reader that has noticed",
            )
        parameters = caught.value.parameters
        assert (parameters["topic"], parameters["partition"], parameters["expected"]) == (name, 0, 3)
        assert parameters["found"] == 5


def test_a_query_that_may_lose_data_reads_the_new_topic_from_its_beginning(
    reader, topic, write, admin, cluster, caplog
):
    """What it had not read of the old one is lost, is said once, and is counted."""
    name = topic()
    write(name, *"abc")
    source = reader(name, failOnDataLoss=False)
    _, at = run(source)
    anew(admin, cluster, name)
    write(name, *"vwxyz")
    until_ends(fresh(source), name, 5)
    until_more(source, at)
    batches, end = run(source, at)
    assert values(batches) == list("vwxyz")
    assert topics(end) == {name: {"0": 5}}
    assert "was recreated" in caplog.text
    assert source.reportLatestOffset()["#losses"] == 1
    # The same micro-batch again, in another run: by what the offset log holds.
    assert values([rows(fresh(source), at, end)]) == list("vwxyz")


def test_compacted_topics_have_gaps_that_are_no_loss(reader, topic, write, admin, cluster):
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

    kafka = KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})
    wait_for(same_as_by_a_consumer, "the same rows in both ways")  # the broker may compact between the two
