"""A consumer group moves from the source of a mirror to its target, in mid-stream: no row lost, none twice."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.pipelines.mirror.entries import OffsetRun, partition_of, to_record
from spark_eos.pipelines.mirror.offsets import GroupMover
from tests.support.judges.conditions import raises
from tests.support.judges.kafka_view import COORDINATOR_MOVES, KafkaView
from tests.support.judges.kafka_view import write as put
from tests.support.queries.mirrors import Mirror
from tests.support.queries.source_calls import delete_before
from tests.support.queries.transactions import arrow_producers
from tests.support.waiting import TIMEOUT, wait_for


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

    def commit(self, view: KafkaView, topic: str, offsets: Mapping[int, int]) -> None:
        """Without reading."""
        consumer = Consumer({"bootstrap.servers": view.bootstrap_servers, "group.id": self.name})
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

        def committed() -> bool:
            try:
                consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() not in COORDINATOR_MOVES:
                    raise
                return False
            return True

        try:
            wait_for(committed, f"the coordinator of group {self.name}")
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


@pytest.fixture
def idle(mirror, topic, write, view, there) -> Callable[..., tuple[Mirror, str, Group]]:
    """A mirror of two partitions, the second of which has lost so many rows before the mirror began, and has none now;
    a group that has read them. In the target's second partition are three rows of somebody else."""

    def begun(expired: int) -> tuple[Mirror, str, Group]:
        name = topic(2, retention_ms=-1)
        write(name, b"0", b"1", partition=0)
        if expired:
            write(name, *(b"expired" for _ in range(expired)), partition=1)
            delete_before(view.admin, name, expired, 1)
        copies, group = mirror(name, prefix="moved."), Group(name)
        copies.run()
        put(there.bootstrap_servers, f"moved.{name}", [(1, "before")] * 3)
        group.commit(view, name, {0: 1, 1: expired})
        return copies, name, group

    return begun


@pytest.mark.parametrize("expired", [0, 5])
def test_a_partition_of_which_nothing_was_mirrored(expired, idle, write, there):
    """It has no row, by now or so far. Of what comes later, the group reads all, and nothing that was there before."""
    copies, name, group = idle(expired)
    assert mover(copies, group).move(apply=True).done
    assert there.group(group.name, f"moved.{name}") == {(f"moved.{name}", 0): 1, (f"moved.{name}", 1): 3}
    write(name, b"later", b"last", partition=1)
    copies.run()
    group.consume(there, f"moved.{name}", 3)
    assert sorted(group.read) == [b"1", b"last", b"later"]


def test_a_row_whose_entry_is_not_visible_yet(idle, there):
    """Of a transaction that is open, or that is committed while the map's partition has no marker yet: nobody knows
    whether the partition still begins at the target's end. It is refused, until that is known."""
    copies, name, group = idle(5)
    known = copies.entries()[0]
    source = replace(known.source, partition=1)
    key, value = to_record(replace(known, source=source, first=5, end=6, runs=(OffsetRun(5, 3, 1),)))
    with arrow_producers(copies.client.properties) as begin:
        producer = begin()
        producer.write(f"moved.{name}", 2, value=pa.array([b"row"]), partition=pa.array([1], pa.int32()))
        number = pa.array([partition_of(source, 9)], pa.int32())
        producer.write(copies.targets.map, 9, key=pa.array([key]), value=pa.array([value]), partition=number)
        producer.flush()
        refused(copies, group, "EOS_MIRROR_GROUP_REFUSED")
        assert there.group(group.name, f"moved.{name}") == {}
        there.end_transaction(producer.identity().id, commit=True)
    moved = mover(copies, group).move(apply=True, wait_s=TIMEOUT)
    assert {one.partition: one.target.offset for one in moved.offsets} == {0: 1, 1: 3}
