"""A consumer group moves from the source of a mirror to its target, in mid-stream: no row lost, none twice."""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.pipelines.mirror.offsets import GroupMover
from tests.support.judges.kafka_view import KafkaView
from tests.support.waiting import wait_for


class Group:
    """Plain consumers of one group, one after the other."""

    def __init__(self, topic: str) -> None:
        self.name = f"group-of-{topic}-{uuid.uuid4().hex[:6]}"
        self.read: list[bytes] = []

    def consume(self, view: KafkaView, topic: str, count: int) -> None:
        """So many rows, then commit and leave."""
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


def test_a_group_moves_in_mid_stream(mirror, topic, write, transactions, there, view):
    """It has read a part at the source, and goes on at the target, as the mirror does; there are gaps between offsets,
    and several starts."""
    name, values = topic(2, retention_ms=-1), []
    copies = mirror(name, prefix="moved.")

    def feed() -> None:
        for p in range(2):
            own = [uuid.uuid4().bytes for _ in range(40)]
            transactions.abort(name, "aborted", partition=p)
            write(name, *own[:20], partition=p)
            transactions.commit(name, *own[20:], partition=p)
            values.extend(own)

    for _ in range(2):
        feed()
        copies.run()
    group = Group(name)
    group.consume(view, name, 93)
    feed()
    here = broker_client(KafkaProperties({"bootstrap.servers": view.bootstrap_servers}))
    mover = GroupMover(group.name, here, copies.client, copies.targets.map)
    dry = mover.move()
    assert not dry.done
    assert there.group(group.name, f"moved.{name}") == {}
    done = mover.move(apply=True, delete=True)
    assert done.offsets == dry.offsets
    assert view.group(group.name, name) == {}
    copies.run()
    group.consume(there, f"moved.{name}", len(values) - 93)
    assert sorted(group.read) == sorted(values)
