"""A ledger topic that is given partitions: a query's heads stay in one of them."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from spark_eos.errors import LedgerError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.ledger import KafkaLedger, ledger_partition
from spark_eos.protocol.head import Head
from spark_eos.protocol.head_codec import encode
from tests.support.judges.kafka_view import TIMEOUT
from tests.support.waiting import wait_for

PREFIX = "ledger-test"


@pytest.fixture
def ledger_topic(topic) -> str:
    return topic(1, cleanup_policy="compact")


def head(n: int) -> Head:
    return Head(f"run-{n}", n, (), 5)


def test_queries_are_spread_over_the_partitions():
    """Or else one query's open transaction would hide every head."""
    taken = {ledger_partition(str(uuid.UUID(int=i)), 8) for i in range(200)}
    assert taken == set(range(8))


def test_a_head_is_found_where_it_was_when_the_ledger_had_fewer_partitions(cluster, ledger_topic, view):
    """And the next one is written beside it, so that one partition has them all."""
    kafka = KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})
    query = next(q for q in map(str, range(1000)) if ledger_partition(q, 5) not in (0, ledger_partition(q, 1)))
    client = broker_client(kafka)
    KafkaLedger(client, ledger_topic, 1, PREFIX, query).take().publish(head(1))
    view.admin.create_partitions([NewPartitions(ledger_topic, 5)])[ledger_topic].result(TIMEOUT)
    wait_for(lambda: len(view.partitions(ledger_topic)) == 5, "the partitions")
    grown = KafkaLedger(client, ledger_topic, 5, PREFIX, query)
    assert grown.read() == head(1)
    grown.take().publish(head(2))
    again = KafkaLedger(client, ledger_topic, 5, PREFIX, query)
    assert again.read() == head(2)
    assert KafkaLedger(client, ledger_topic, 5, PREFIX, "a-new-query").read() is None


def test_heads_of_one_query_in_two_partitions_are_not_chosen_among(cluster, ledger_topic, view):
    """The older one would double what came after it."""
    kafka = KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})
    query = next(q for q in map(str, range(1000)) if ledger_partition(q, 3) == 2)
    view.admin.create_partitions([NewPartitions(ledger_topic, 3)])[ledger_topic].result(TIMEOUT)
    wait_for(lambda: len(view.partitions(ledger_topic)) == 3, "the partitions")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for partition in (0, 1):
        producer.produce(ledger_topic, encode(head(partition)), query, partition=partition)
    assert producer.flush(TIMEOUT) == 0
    with pytest.raises(LedgerError) as caught:
        KafkaLedger(broker_client(kafka), ledger_topic, 3, PREFIX, query).read()
    assert caught.value.condition == "EOS_LEDGER_AMBIGUOUS"


@pytest.mark.parametrize("taken", [False, True])
def test_what_was_read_of_a_ledger_that_is_lost_is_forgotten(taken, cluster, ledger_topic, view):
    """The topic is deleted and created anew, and as long as it was before: its end alone would not tell. A run asks at
    its begin, and whenever it takes the ledger, where it is an error: there may be a decision in the new one, or have
    been one in the old one, that this run does not know."""
    kafka = KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers})
    ledger, another = (KafkaLedger(broker_client(kafka), ledger_topic, 1, PREFIX, "ours") for _ in range(2))
    ledger.take().publish(head(1))
    assert ledger.read() == head(1)
    view.admin.delete_topics([ledger_topic])[ledger_topic].result(TIMEOUT)
    wait_for(lambda: ledger_topic not in view.admin.list_topics(timeout=TIMEOUT).topics, "the deletion")
    cluster.create_topic(ledger_topic, 1, cleanup_policy="compact")
    another.take().publish(head(7))
    assert ledger.read() == head(1)  # which may not be gone on from
    if taken:
        with pytest.raises(LedgerError) as caught:
            ledger.take()
        assert caught.value.condition == "EOS_LEDGER_TRUNCATED"
    else:
        ledger.check_topic()
    assert ledger.read() == head(7)
