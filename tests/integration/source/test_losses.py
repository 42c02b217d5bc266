"""Topics that are created anew or compacted under a query."""

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
from tests.support.queries.source_calls import anew, fresh, rows, run
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def look_often(monkeypatch):
    """Topics are looked at every time, not every five seconds."""
    monkeypatch.setattr(watch, "_TOPICS_S", 0.0)


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
