"""The ledger on a real broker: what is published is read, once and in order, whoever else writes beside it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions

from spark_eos.errors import LedgerError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.ledger import log as log_module
from spark_eos.ledger.ledger import KafkaLedger, ledger_partition
from spark_eos.protocol.head import Decision, Head, Pair, Probe, Written
from spark_eos.protocol.head_codec import encode
from spark_eos.protocol.ports import NotPublished
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import TIMEOUT, wait_for, write
from tests.support.queries.transactions import LIFE_MS

PREFIX = "ledger-test"


@pytest.fixture
def ledger_topic(topic) -> str:
    return topic(1, cleanup_policy="compact")


@pytest.fixture
def query() -> str:
    return str(uuid.uuid4())


@pytest.fixture
def ledger(kafka: KafkaProperties, ledger_topic: str, query: str) -> Callable[..., KafkaLedger]:
    """``ledger()``: the query's ledger as another process would open it."""

    def make(of: str = query, group: str | None = None, partitions: int = 1) -> KafkaLedger:
        return KafkaLedger(broker_client(kafka), ledger_topic, partitions, PREFIX, of, group)

    return make


def head(n: int, decision: Decision | None = None) -> Head:
    return Head(f"run-{n}", n, (), 5, decision)


def others(cluster: DevCluster, topic: str, count: int) -> None:
    """Heads of other queries."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 5})
    for i in range(count):
        producer.produce(topic, encode(head(i)), f"another-{i % 97}", partition=0)
        if i % 1000 == 0:  # so that there are many batches, as with many queries
            producer.flush(TIMEOUT)
    assert producer.flush(TIMEOUT) == 0


def count_fetches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets that are asked for from here on."""
    asked: list[int] = []
    real = log_module.fetch_once

    def fetch(client: BrokerClient, topic: str, partition: int, offset: int, max_bytes: int) -> Any:
        asked.append(offset)
        return real(client, topic, partition, offset, max_bytes)

    monkeypatch.setattr(log_module, "fetch_once", fetch)
    return asked


# Reading


def test_what_is_published_is_read_by_another_process(ledger):
    """The newest, by those who have read before and those who have not."""
    early = ledger()
    assert early.read() is None
    writer = ledger()
    for n in (1, 2, 3):
        writer.take().publish(head(n))
        assert early.read() == ledger().read() == head(n)


def test_a_head_is_searched_for_from_the_end(cluster, ledger, ledger_topic, view, monkeypatch):
    """Under thousands of other records, up to the first one; near the end, as for every query that runs, without a walk
    through the ledger. By key, to the letter. A look at a quiet ledger asks for its end only."""
    asked, writer = count_fetches(monkeypatch), ledger()
    writer.take().publish(head(1))
    others(cluster, ledger_topic, 5000)
    asked.clear()
    assert ledger().read() == head(1)
    assert min(asked) == 0
    writer.take().publish(head(2))
    wait_for(lambda: not view.held(ledger_topic), "the marker")  # else it may come after the first look
    others(cluster, ledger_topic, 10)
    asked.clear()
    reading = ledger()
    assert reading.read() == head(2)
    assert min(asked) > 4900
    asked.clear()
    assert reading.read() == head(2)
    assert asked == []
    assert ledger(reading._reader.query[:-1]).read() is None


def test_a_read_waits_while_another_querys_transaction_hides_our_head(cluster, ledger, ledger_topic, monkeypatch):
    """Below an open transaction nobody sees our newer head: the older one must not be taken for the newest."""
    writer, reading = ledger(), ledger()
    writer.take().publish(head(1))
    assert reading.read() == head(1)
    own = {"transactional.id": f"foreign-{uuid.uuid4()}", "transaction.timeout.ms": LIFE_MS}
    theirs = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 0, **own})
    theirs.init_transactions(TIMEOUT)
    theirs.begin_transaction()
    theirs.produce(ledger_topic, b"theirs", b"another-query", partition=0)
    assert theirs.flush(TIMEOUT) == 0
    term = writer.take()
    term.reader.follows = lambda *_: True  # a look at what others have written meanwhile would wait for them
    term.publish(head(2))
    asked = count_fetches(monkeypatch)
    found: list[Head | None] = []
    thread = threading.Thread(target=lambda: found.append(reading.read()))
    thread.start()
    wait_for(lambda: len(asked) >= 5, "several looks")
    assert found == []
    theirs.commit_transaction(TIMEOUT)
    thread.join(TIMEOUT)
    assert found == [head(2)]


def test_a_foreign_record_under_the_key_is_damage(cluster, ledger, ledger_topic, query):
    """Nothing may be concluded from it, least of all that nothing was decided."""
    ledger().take().publish(head(1))
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    producer.produce(ledger_topic, b"{}", query, partition=0)
    assert producer.flush(TIMEOUT) == 0
    with pytest.raises(LedgerError) as caught:
        ledger().read()
    assert caught.value.condition == "EOS_LEDGER_DAMAGED"


# Taking and publishing


def test_offsets_are_committed_with_the_head_or_not_at_all(cluster, ledger, topic, view, caplog):
    """By the transaction that decides; but for those of topics and partitions that the cluster does not have."""
    source, group = topic(2), f"group-{uuid.uuid4()}"
    write(cluster.bootstrap_servers, source, [(0, "a"), (1, "b")])
    ledger(group=group).take().publish(head(1), {source: {"0": 1, "1": 0, "7": 3, "10": 4}, "not-here": {"0": 9}})
    wait_for(lambda: view.group(group, source) == {(source, 0): 1, (source, 1): 0}, "the group's offsets")
    assert f"not-here, {source}-10, {source}-7: the sink's" in caplog.text
    fenced = ledger(group=group).take()
    living = ledger(group=group).take()
    living.read()
    living.publish(head(2), {source: {"1": 1}})
    with pytest.raises(NotPublished):
        fenced.publish(head(3), {source: {"0": 0, "1": 0}})
    wait_for(lambda: view.group(group, source) == {(source, 0): 1, (source, 1): 1}, "the group's offsets")
    assert ledger().read() == head(2)


def test_a_decision_on_very_many_transactions_fits(ledger):
    """More tasks than anybody has: the head is larger than a producer's usual limit, but it is compressed."""
    one = Written(7, Pair(f"spark-eos-{uuid.uuid4()}-3-7-1", 4711, 9), 10, 2**40, Probe("t", 1, 9))
    large = head(1, Decision(1, 0, 20_000, 1, 1, None, (one,) * 20_000))
    assert len(encode(large)) > 2_000_000
    ledger().take().publish(large)
    assert ledger().read() == large


# The topic


def test_a_ledger_that_is_given_partitions(cluster, ledger, ledger_topic, view):
    """A head is found where it was, and the next one is written beside it. Heads of one query in two partitions are not
    chosen among: the older one would double what came after it."""
    query = next(q for q in map(str, range(1000)) if ledger_partition(q, 5) == 2)
    ledger(query).take().publish(head(1))
    view.admin.create_partitions([NewPartitions(ledger_topic, 5)])[ledger_topic].result(TIMEOUT)
    wait_for(lambda: len(view.partitions(ledger_topic)) == 5, "the partitions")
    term = ledger(query, partitions=5).take()
    assert term.read() == head(1)
    term.publish(head(2))
    assert ledger(query, partitions=5).read() == head(2)
    assert ledger("a-new-query", partitions=5).read() is None
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    producer.produce(ledger_topic, encode(head(3)), query, partition=1)
    assert producer.flush(TIMEOUT) == 0
    with pytest.raises(LedgerError, match="EOS_LEDGER_AMBIGUOUS"):
        ledger(query, partitions=5).read()


def test_what_was_read_of_a_ledger_that_is_lost_is_forgotten(cluster, ledger, ledger_topic, view):
    """The topic is deleted and created anew, and as long as it was before: its end alone would not tell. A run asks at
    its begin, and whenever it takes the ledger, where it is an error: there may be a decision in the new one, or have
    been one in the old one, that this run does not know."""
    begins, takes, another = ledger(), ledger(), ledger()
    for read in (begins, takes):
        read.read()
        read.take().publish(head(1))
    assert begins.read() == takes.read() == head(1)
    view.admin.delete_topics([ledger_topic])[ledger_topic].result(TIMEOUT)
    wait_for(lambda: ledger_topic not in view.admin.list_topics(timeout=TIMEOUT).topics, "the deletion")
    cluster.create_topic(ledger_topic, 1, cleanup_policy="compact")
    for _ in range(2):
        another.take().publish(head(7))
    assert begins.read() == takes.read() == head(1)  # which may not be gone on from
    begins.check_topic()
    with pytest.raises(LedgerError, match="EOS_LEDGER_TRUNCATED"):
        takes.take()
    assert begins.read() == takes.read() == head(7)
