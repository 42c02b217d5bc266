"""A consumer group moves from the source of a mirror to its target, in mid-stream: no row lost, none twice."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.pipelines.mirror.offsets import GroupMover
from tests.support.judges.conditions import raises
from tests.support.judges.kafka_view import KafkaView
from tests.support.queries.mirrors import Mirror
from tests.support.waiting import wait_for


class Group:
    """Plain consumers of one group, one after the other."""

    def __init__(self, topic: str) -> None:
        self.name = f"group-of-{topic}-{uuid.uuid4().hex[:6]}"
        self.read: list[bytes] = []

    def consume(self, view: KafkaView, topic: str, count: int) -> None:
        """So many rows, then commit and leave."""
        consumer = self.join(view, topic)
        wanted = len(self.read) + count

        def there() -> bool:
            found = consumer.consume(wanted - len(self.read), 0.1)
            self.read += [message.value() for message in found if message.error() is None]
            return len(self.read) == wanted

        try:
            wait_for(there, lambda: f"{wanted} rows, {len(self.read)} are there")
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()

    def join(self, view: KafkaView, topic: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": view.bootstrap_servers,
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([topic])
        return consumer


def client_of(view: KafkaView) -> BrokerClient:
    return broker_client(KafkaProperties({"bootstrap.servers": view.bootstrap_servers}))


def mover(mirror: Mirror, group: Group) -> GroupMover:
    return GroupMover(group.name, client_of(mirror.here), client_of(mirror.there), mirror.targets.map)


@pytest.fixture
def feed(write, transactions) -> Callable[[str], list[bytes]]:
    """Writes rows to two partitions of a topic, with gaps between their offsets; their values."""

    def more(topic: str) -> list[bytes]:
        values = [uuid.uuid4().bytes for _ in range(80)]
        for p in range(2):
            own = values[p::2]
            transactions.abort(topic, "aborted", partition=p)
            write(topic, *own[:20], partition=p)
            transactions.commit(topic, *own[20:], partition=p)
        return values

    return more


@pytest.fixture
def fed(mirror, topic, feed) -> tuple[Mirror, str, list[bytes]]:
    """A mirror that has seen a topic, by two starts; the topic's name and values."""
    name, values = topic(2, retention_ms=-1), []
    copies = mirror(name, prefix="moved.")
    for _ in range(2):
        values += feed(name)
        copies.run()
    return copies, name, values


def test_a_group_moves_in_mid_stream(fed, feed, there, view):
    """It has read a part at the source, and goes on at the target; the mirror goes on, too."""
    copies, name, values = fed
    group = Group(name)
    group.consume(view, name, 93)
    values += feed(name)
    dry = mover(copies, group).move()
    assert not dry.done
    assert there.group(group.name, f"moved.{name}") == {}
    done = mover(copies, group).move(apply=True, delete=True)
    assert done.offsets == dry.offsets
    assert view.group(group.name, name) == {}
    copies.run()
    group.consume(there, f"moved.{name}", len(values) - 93)
    assert sorted(group.read) == sorted(values)


def refused(mirror: Mirror, group: Group, condition: str, **more: object) -> None:
    with raises(condition):
        mover(mirror, group).move(apply=True, **more)


def test_a_group_with_members(fed, there, view):
    """On either side: what they commit later would be lost. One that nobody knows has nothing to move."""
    copies, name, _ = fed
    refused(copies, Group(name), "EOS_GROUP_UNSUITABLE")
    group = Group(name)
    group.consume(view, name, 10)
    for side, topic in ((view, name), (there, f"moved.{name}")):
        consumer = group.join(side, topic)
        wait_for(lambda: consumer.poll(0.1) is not None or consumer.assignment(), "its partitions")  # noqa: B023
        try:
            refused(copies, group, "EOS_GROUP_ACTIVE")
        finally:
            consumer.close()
    assert there.group(group.name, f"moved.{name}") == {}


def test_other_topics_of_a_group(fed, topic, write, there, view):
    """They stay with the group at the source, also where what was moved is deleted there."""
    copies, name, _ = fed
    group, other = Group(name), topic(1)
    group.consume(view, name, 10)
    write(other, b"row")
    group.consume(view, other, 1)
    moved = [p for _, p in view.group(group.name, name)]
    assert mover(copies, group).move(apply=True, delete=True).not_mirrored == (other,)
    assert there.group(group.name, f"moved.{name}").keys() == {(f"moved.{name}", p) for p in moved}
    assert view.group(group.name, name) == {}
    assert view.group(group.name, other) == {(other, 0): 1}
