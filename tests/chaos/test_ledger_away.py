"""The ledger cannot be written when a micro-batch is to be decided: nothing is, until it can."""

from __future__ import annotations

import pytest

from tests.support.healing import BROKERS, heal
from tests.support.kafka_view import KafkaView
from tests.support.scene import Scene, topics_of
from tests.support.ways import also_by

pytestmark = pytest.mark.chaos


def leader_and_others(view: KafkaView, topic: str) -> tuple[int, list[int]]:
    (partition,) = view.admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
    return partition.leader, [replica for replica in partition.replicas if replica != partition.leader]


@also_by("transform", "mirror")
@pytest.mark.parametrize(
    ("replicas", "needed", "lasts"),
    [(1, 1, 8.0), (1, 1, 25.0), (1, 1, None), (BROKERS, BROKERS, 8.0), (BROKERS, BROKERS, None)],
    ids=["no-leader-for-8-s", "no-leader-for-25-s", "no-leader", "below-min-isr-for-8-s", "below-min-isr"],
)
def test_a_ledger_that_is_away_at_the_decision(replicas, needed, lasts, brokers, view_of_three, way, spark, tmp_path):
    """For a while, or until the query has stopped by name. Then it goes on."""
    topic = topics_of(brokers)
    ledger = topic(1, replication=replicas, cleanup_policy="compact", min_insync_replicas=needed)
    scene = Scene(view_of_three, topic, tmp_path, way=way, sink={"ledger.topic": ledger})
    leader, others = leader_and_others(view_of_three, ledger)
    victim = leader if replicas == 1 else others[0]

    def bring_back():
        if lasts is not None:
            brokers.start(victim, wait=False)

    course = scene.strike(
        spark,
        "commit.verified=hold@3",
        lambda started: brokers.kill(victim),
        lasts=lasts or 0.0,
        passes=bring_back,
        before_restart=lambda: heal(brokers),
        heals=lambda: heal(brokers),
    )
    if lasts is None:
        assert course.sees != "waits"
