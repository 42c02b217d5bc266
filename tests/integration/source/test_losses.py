"""Topics that are deleted, created anew, cut or expired, under a query that may lose data and one that may not."""

from __future__ import annotations

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import DataLossError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.source import watch
from spark_eos.source.fetching import Fetching
from spark_eos.source.range_math import Task
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
    until_topic_is_gone,
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


def test_a_topic_created_anew(reader, topic, write, admin, cluster):
    """It ends before the offset that the query has read already."""
    name = topic()
    write(name, *"abc")
    source = reader(name)
    _, at = run(source)
    admin.delete_topics([name])[name].result()
    with pytest.raises(DataLossError, match="the topic was deleted") as gone:
        wait_for(
            lambda: fresh(source).latestOffset(at, source.getDefaultReadLimit()) is None, "a reader that has noticed"
        )
    assert (gone.value.parameters["expected"], gone.value.parameters["found"]) == (3, None)
    cluster.create_topic(name)
    with pytest.raises(DataLossError) as caught:
        fresh(source).latestOffset(at, source.getDefaultReadLimit())
    assert (caught.value.parameters["expected"], caught.value.parameters["found"]) == (3, 0)


def test_a_replay_of_offsets_that_the_log_does_not_have(reader, topic, write):
    """The offset log promises rows up to 9, the topic ends at 3."""
    name = topic()
    write(name, *"abc")
    with pytest.raises(DataLossError) as caught:
        reader(name).partitions({name: {"0": 0}}, {name: {"0": 9}})
    assert (caught.value.parameters["expected"], caught.value.parameters["found"]) == (9, 3)


def test_a_topic_that_is_no_longer_subscribed_to(reader, topic):
    """What the query has not read of it would be dropped silently."""
    first, second = topic(), topic()
    _, at = run(reader(f"{first},{second}"))
    with pytest.raises(DataLossError, match=r"'subscribe'.* no longer includes it"):
        run(reader(first), at)


def test_a_micro_batch_with_rows_of_a_topic_that_is_no_longer_subscribed_to(reader, topic, write):
    """What was logged is read as it was logged; the next one finds what is missing."""
    first, second = topic(), topic()
    source = reader(f"{first},{second}")
    _, at = run(source)
    write(first, "a")
    write(second, *"xy")
    end = until_more(source, at)
    for fails in (True, False):
        assert sorted(values([rows(reader(first, failOnDataLoss=fails), at, end)])) == ["a", "x", "y"]
    with pytest.raises(DataLossError, match="no longer includes it"):
        run(reader(first), end)


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


def test_a_range_beyond_the_end_of_the_log(reader, topic, write, stalls_soon):
    """The task has read what there is and says so, after a bounded time; what may lose data ends there."""
    name = topic()
    write(name, *"abc")
    part = Task((OffsetRange(name, 0, 1, 9),))
    with pytest.raises(DataLossError, match=r"Expected offset 9 .* its log ends at 3\."):
        list(reader(name).read(part))
    read = [row["value"] for batch in reader(name, failOnDataLoss=False).read(part) for row in batch.to_pylist()]
    assert read == [b"b", b"c"]


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


def test_a_planned_micro_batch_of_a_topic_created_anew(reader, topic, write, admin, cluster):
    """The replay must not read the new topic's rows for the old one's."""
    name = topic()
    write(name, *"abc")
    source = reader(name)
    _, end = run(source)
    start = source.initialOffset()
    anew(admin, cluster, name)
    write(name, *"vwxyz")
    until_ends(fresh(source), name, 5)
    with pytest.raises(DataLossError, match="was recreated"):
        fresh(source).partitions(start, end)


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


def test_a_deleted_topic_of_a_query_that_may_lose_data(reader, topic, write, admin, cluster):
    """The others go on; where it was stays noted, should it be the cluster that has forgotten it for a while."""
    gone, stays = topic(), topic()
    write(gone, "a")
    write(stays, "b")
    source = reader(f"{gone},{stays}", failOnDataLoss=False)
    _, at = run(source)
    admin.delete_topics([gone])[gone].result()
    until_topic_is_gone(admin, gone)
    write(stays, "c")
    until_more(source, at)
    batches, end = run(source, at)
    assert values(batches) == ["c"]
    assert topics(end) == {stays: {"0": 2}}
    assert end["#left"] == {gone: {"id": at["#ids"][gone], "offsets": {"0": 1}, "epochs": {"0": 0}}}
    cluster.create_topic(gone)
    write(gone, *"xy")
    until_more(source, end)
    batches, end = run(fresh(source), end)
    assert values(batches) == ["x", "y"]
    assert "#left" not in end


def test_records_that_expired_under_a_query_that_may_lose_data(reader, topic, write, admin, caplog):
    """The query goes on at the first that is left."""
    name = topic(2)
    write(name, *"abcdef")
    write(name, "other", partition=1)
    source = reader(name, failOnDataLoss=False)
    source.initialOffset()
    delete_before(admin, name, 4)
    batches, _ = run(source)
    assert sorted(values(batches)) == ["e", "f", "other"]
    assert "offset 0 of" in caplog.text
    assert source.reportLatestOffset()["#losses"] == 1


def test_a_checkpoint_without_ids_goes_on_and_gets_them(reader, topic, write, admin, cluster):
    """As one of an earlier version, or of the built-in source. An idle start adds no micro-batch."""
    name = topic()
    write(name, *"abc")
    source = reader(name)
    at = {name: {"0": 3}}
    assert source.latestOffset(at, source.getDefaultReadLimit()) == at
    write(name, "d")
    until_more(source, at)
    batches, end = run(source, at)
    assert values(batches) == ["d"]
    assert end["#ids"] == source._watch.topics().ids


def test_a_leader_that_knows_less_for_a_moment_is_asked_again(reader, topic, write, monkeypatch):
    """No loss is concluded from one look."""
    name = topic()
    write(name, *"abc")
    source = reader(name, fetchOffset__retryIntervalMs=1)
    at = {name: {"0": 3}}
    real, looks = source._watch.high_watermarks, []

    def high_watermarks(partitions=None):
        looks.append(partitions)
        return {name: {0: 2}} if len(looks) == 1 else real(partitions)

    monkeypatch.setattr(source._watch, "high_watermarks", high_watermarks)
    monkeypatch.setattr(source._watch, "look", lambda: (source._watch.topics(), {name: {0: 2}}))
    monkeypatch.setattr(source._lag, "watch", lambda ends: None)
    assert source.latestOffset(at, source.getDefaultReadLimit()) == at
    assert len(looks) == 2


def test_available_now_of_a_topic_that_shrinks_meanwhile(reader, topic, write, admin, cluster):
    """The pinned end is not there any more: an error, not a task that waits."""
    name = topic()
    write(name, *"abcdef")
    source = reader(name)
    source.prepareForTriggerAvailableNow()
    start = source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
    anew(admin, cluster, name)
    write(name, *"xy")
    with pytest.raises(DataLossError, match="was recreated"):
        run(source, start)


def test_available_now_goes_on_with_the_topics_that_are_left(reader, topic, write, admin, cluster):
    """When it may lose data: it drains what was pinned of the others, and ends."""
    gone, stays = topic(), topic()
    write(gone, *"abc")
    write(stays, *"xyz")
    source = reader(f"{gone},{stays}", failOnDataLoss=False)
    source.prepareForTriggerAvailableNow()
    start = source.latestOffset(source.initialOffset(), source.getDefaultReadLimit())
    anew(admin, cluster, gone)
    write(gone, *"vw")
    write(stays, "later")
    batches, end = run(source, start)
    assert values(batches) == list("xyz")
    assert topics(end) == {gone: {"0": 0}, stays: {"0": 3}}


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
