"""A host that is gone, whose packets are dropped: what has found that out once does not wait for it again."""

from __future__ import annotations

import pyarrow as pa

from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer

from .faults import Schedule
from .play import Stage, staged
from .scenarios import TIMEOUT_MS

GONE, THERE = 1, 2
#: More than one connect to such a host may take, and less than two.
ONE_CONNECT_S = 15.0
AWAY_S = 1000.0


def named(stage: Stage, node: int, count: int) -> list[str]:
    """Transactional ids that this broker coordinates."""
    names = (f"tx-{i}" for i in range(1000))
    return [name for name in names if stage.cluster.coordinator(name) == node][:count]


def written(stage: Stage, name: str) -> ArrowProducer:
    """A producer that has written one row to each partition."""
    producer = ArrowProducer(broker_client(stage.scene.kafka), name, TIMEOUT_MS)
    producer.init()
    rows = {"value": pa.array([b"a", b"b", b"c"]), "partition": pa.array([0, 1, 2], pa.int32())}
    producer.write(stage.scene.topic, stage.scene.partitions, **rows)
    producer.flush()
    return producer


def test_partitions_of_a_leader_that_is_gone_wait_for_it_together() -> None:
    """Another one leads them by then, and the first connect that fails makes the sender look for it."""
    with staged(Schedule(1)) as stage:
        client = broker_client(stage.scene.kafka)
        places = [(stage.scene.topic, p) for p in range(stage.scene.partitions)]
        written(stage, named(stage, THERE, 2)[1]).close()
        for place in places:
            stage.cluster.partitions[place].elect(GONE, forgetful=False)
            client.forget_leader(*place)
        assert set(client.leaders(places)[0].values()) == {GONE}
        client.close()
        stage.cluster.nodes[GONE].unplug(AWAY_S)
        stage.cluster.move_leaders(places)
        began = stage.world.now
        written(stage, named(stage, THERE, 1)[0]).close()
        assert stage.world.now - began < ONE_CONNECT_S
