"""What leaders tell of the end of an open transaction: the same as its producer, until an unclean election takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from spark_eos.errors import Unclear
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.ledger.coordinator import TransactionCoordinator
from spark_eos.ledger.lookup import RecordLookup
from spark_eos.protocol.head import Pair
from spark_eos.protocol.task import check_ends
from spark_eos.tools.devcluster import DevCluster
from tests.support.kills.scene import topics_of
from tests.support.queries.transactions import arrow_producers
from tests.support.servers.healed_brokers import BROKERS, heal
from tests.support.waiting import wait_for

pytestmark = pytest.mark.chaos

ROWS = 500


@pytest.fixture
def kafka(brokers: DevCluster) -> KafkaProperties:
    return KafkaProperties({"bootstrap.servers": brokers.bootstrap_servers})


@pytest.fixture
def producer(kafka: KafkaProperties) -> Iterator[Callable[..., ArrowProducer]]:
    with arrow_producers(kafka) as begin:
        yield begin


def write(producer: ArrowProducer, topic: str, rows: int) -> None:
    producer.write(topic, 1, value=pa.array([b"x" * 100] * rows))
    producer.flush()


def last(kafka: KafkaProperties, pair: Pair, topic: str) -> int | None:
    """By the leader, as soon as there is one."""
    coordinator = TransactionCoordinator(broker_client(kafka), "unclean", "q")
    (probe,) = wait_for(lambda: coordinator.begins(pair, [(topic, 0)]), "the leader")
    return probe.last


def test_leaders_know_where_a_transaction_ends(brokers, kafka, producer):
    """Each of them, also after it has died and read its log anew."""
    topic = topics_of(brokers)()
    ours = producer(batch__size=2_000)
    write(ours, topic, ROWS)
    assert ours.lasts() == {(topic, 0): ROWS - 1}
    for _ in range(BROKERS):
        brokers.kill(broker_client(kafka).leader(topic, 0))
        broker_client(kafka).forget_leader(topic, 0)
        assert last(kafka, ours.identity(), topic) == ROWS - 1
        heal(brokers)


def test_an_unclean_election_takes_the_end_of_a_transaction(brokers, kafka, producer):
    """Where it begins does not tell; how many rows the new leader has does."""
    topic = topics_of(brokers)(1, replication=2, min_insync_replicas=1, unclean_leader_election_enable="true")
    place, ours = (topic, 0), producer()
    write(ours, topic, 3)
    (partition,) = broker_client(kafka).metadata([topic]).topics[0].partitions
    leader = partition.leader_id
    (follower,) = set(partition.replica_nodes) - {leader}
    try:
        brokers.kill(follower)
        write(ours, topic, 2)
        assert ours.lasts() == {place: 4}
        brokers.kill(leader)
        brokers.start(follower)
        broker_client(kafka).forget_leader(topic, 0)
        assert last(kafka, ours.identity(), topic) == 2
        coordinator = TransactionCoordinator(broker_client(kafka), "unclean", "q")
        found = coordinator.begins(ours.identity(), [place])
        assert found is not None and found[0].offset == ours.firsts()[place]
        with pytest.raises(Unclear, match="ends with 2 there, as after an unclean leader election"):
            check_ends(ours.identity(), ours.lasts(), found)
        state = RecordLookup(broker_client(kafka)).partition(topic, 0)
        assert state is not None
        assert list(state.lasts.values()) == [2]
    finally:
        heal(brokers)
