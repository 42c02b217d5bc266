"""A topic that loses its newest records and is longer again before the query looks: by an unclean leader election.

What is written anew has offsets that were read already. The query stops by name, and goes on at a clean change of the
leader, whatever reads: the source, and copies, of which mirrors are some.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from spark_eos.errors import DataLossError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.options.parse import stream_options
from spark_eos.source.reader import EosKafkaStreamReader
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import KafkaView
from tests.support.kills.scene import topics_of
from tests.support.queries.copies import CopiedFrom
from tests.support.queries.source_calls import Writer, fresh, rows, run, topics, values
from tests.support.servers.healed_brokers import heal
from tests.support.waiting import wait_for

pytestmark = pytest.mark.chaos

KEPT, LOST, NEW = 60, 40, 80


class Unlucky:
    """A topic of one partition, on two of three brokers, that may lose records."""

    def __init__(self, brokers: DevCluster) -> None:
        self.brokers, self.kafka = brokers, KafkaProperties({"bootstrap.servers": brokers.bootstrap_servers})
        self.topic = topics_of(brokers)(1, replication=2, min_insync_replicas=1, unclean_leader_election_enable="true")
        self.written = 0

    def write(self, count: int) -> list[str]:
        """So many records; their values."""
        found = [f"{self.written + i}" for i in range(count)]
        self.written += count
        Writer(self.brokers, transactional=False).put(self.topic, *found)
        return found

    def replicas(self) -> tuple[int, int]:
        """Leader and follower."""
        (partition,) = broker_client(self.kafka).metadata([self.topic]).topics[0].partitions
        (follower,) = set(partition.replica_nodes) - {partition.leader_id}
        return partition.leader_id, follower

    def keep(self) -> list[str]:
        """What both replicas have."""
        kept = self.write(KEPT)
        wait_for(lambda: len(self._in_sync()) == 2, "both replicas in sync")
        return kept

    def _in_sync(self) -> list[int]:
        (partition,) = broker_client(self.kafka).metadata([self.topic]).topics[0].partitions
        return list(partition.isr_nodes)

    def lose_and_grow(self, seen: Callable[[], None]) -> list[str]:
        """What the leader alone has is seen, and lost; what is written anew, with the same offsets and behind them."""
        leader, follower = self.replicas()
        self.brokers.kill(follower)
        self.write(LOST)
        seen()
        self.brokers.kill(leader)
        self.brokers.start(follower)
        broker_client(self.kafka).forget_leader(self.topic, 0)
        wait_for(lambda: self.replicas()[0] == follower, "the other replica leads")
        return self.write(NEW)


@pytest.fixture
def unlucky(brokers: DevCluster) -> Iterator[Unlucky]:
    yield Unlucky(brokers)
    heal(brokers)


def reader_of(unlucky: Unlucky, **options: str) -> EosKafkaStreamReader:
    given = {"kafka.bootstrap.servers": unlucky.brokers.bootstrap_servers, "subscribe": unlucky.topic}
    return EosKafkaStreamReader(stream_options({**given, "startingOffsets": "earliest", **options}))


@pytest.mark.parametrize("again", [True, False], ids=["started again", "running"])
def test_the_source_stops_and_goes_on_where_the_logs_part(again, unlucky):
    """Also where it reads in small pieces. What it goes on with is what nobody has read."""
    reader, at = reader_of(unlucky, maxOffsetsPerTrigger="7"), {}
    kept, read = unlucky.keep(), []

    def seen() -> None:
        batches, end = run(reader)
        read.extend(values(batches))
        at.update(end)

    new = unlucky.lose_and_grow(seen)
    assert read[:KEPT] == kept
    assert len(read) == KEPT + LOST
    assert at["#epochs"][unlucky.topic]["0"] >= 0
    reader = fresh(reader) if again else reader
    with pytest.raises(DataLossError) as caught:
        reader.latestOffset(at, reader.getDefaultReadLimit())
    assert caught.value.condition == "EOS_SOURCE_LOG_DIVERGED"
    assert (caught.value.parameters["expected"], caught.value.parameters["found"]) == (KEPT + LOST, KEPT)
    going = reader_of(unlucky, failOnDataLoss="false")
    first = going.latestOffset(at, going.getDefaultReadLimit())
    assert topics(first) == {unlucky.topic: {"0": KEPT}}
    assert rows(going, at, first) == []
    batches, _ = run(going, json.loads(json.dumps(first)))
    assert values(batches) == new
    strict = reader_of(unlucky)
    assert values(run(strict, json.loads(json.dumps(first)))[0]) == new  # once was enough


def test_a_task_notices_what_was_lost_after_its_micro_batch_was_planned(unlucky):
    """Whether the range begins before the loss or behind it, and however it is read: nothing of it is taken."""
    ends, kept = {}, unlucky.keep()
    readers = {
        "alone": reader_of(unlucky),
        "split": reader_of(unlucky, minPartitions="4"),
    }
    begin = {name: reader.initialOffset() for name, reader in readers.items()}

    def seen() -> None:
        for name, reader in readers.items():
            start = reader.latestOffset(begin[name], reader.getDefaultReadLimit())
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            ends[name] = start, end, reader.partitions(start, end)

    unlucky.lose_and_grow(seen)
    assert len(kept) == KEPT
    for name, (start, end, parts) in ends.items():
        with pytest.raises(DataLossError) as caught:
            [list(readers[name].read(part)) for part in parts]
        assert caught.value.condition == "EOS_SOURCE_LOG_DIVERGED", name
        with pytest.raises(DataLossError) as caught:
            fresh(readers[name]).partitions(start, end)
        assert caught.value.condition == "EOS_SOURCE_LOG_DIVERGED", name


def test_a_copy_stops(unlucky, view: KafkaView, topic, spark, tmp_path):
    """To another cluster, record by record as they are: its tasks hand record batches on."""
    target = topic(1)
    copy = CopiedFrom(spark, view, tmp_path, unlucky.topic, target)
    copy.reads = {"kafka.bootstrap.servers": unlucky.brokers.bootstrap_servers}
    unlucky.keep()
    unlucky.lose_and_grow(lambda: copy.run() and None)
    assert "EOS_SOURCE_LOG_DIVERGED" in copy.stopped_by("EOS_SOURCE_LOG_DIVERGED")
    copy.reads["failOnDataLoss"] = "false"
    copy.run()
    assert len(view.rows(target)) == KEPT + LOST + NEW
