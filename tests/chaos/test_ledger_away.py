"""The ledger cannot be written when a micro-batch is to be decided: nothing is, until it can."""

from __future__ import annotations

import time

import pytest

from spark_eos.ledger.ledger import WRITE_S
from spark_eos.ledger.log import READ_S
from tests.support.judges.kafka_view import KafkaView
from tests.support.kills.scene import Scene, in_batch_2, topics_of
from tests.support.queries.data_paths import also_by
from tests.support.servers.healed_brokers import BROKERS, heal
from tests.support.waiting import TIMEOUT, wait_for

pytestmark = pytest.mark.chaos


STOPS = "EOS_LEDGER_NOT_WRITABLE"
#: A query that has waited in vain to write tries to read as well, to close its run; after that it ends.
ENDS_WITHIN_S = WRITE_S + READ_S + 120.0


def leader_and_others(view: KafkaView, topic: str) -> tuple[int, list[int]]:
    """The leader is -1 where there is none."""
    (partition,) = view.admin.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions.values()
    return partition.leader, [replica for replica in partition.replicas if replica != partition.leader]


@also_by("transform", "mirror")
@pytest.mark.parametrize(
    ("lasts", "sees"),
    [(8.0, "waits"), (25.0, "waits"), (38.0, "waits"), (None, STOPS)],  # and a broker takes seconds to start
    ids=["8-s", "25-s", "40-s", "for-good"],
)
def test_a_ledger_without_a_leader_at_the_decision(lasts, sees, brokers, view_of_three, way, spark, tmp_path):
    """The query waits for one for as long as the ledger's writes do, not less; then it stops by name, and goes on when
    the leader is back."""
    topic = topics_of(brokers)
    ledger = topic(1, cleanup_policy="compact", min_insync_replicas=1, replication=1)
    scene = Scene(view_of_three, topic, tmp_path, way=way, sink={"ledger.topic": ledger})
    leader, _ = leader_and_others(view_of_three, ledger)
    moments: list[float] = []

    def note():
        moments.append(time.monotonic())

    def bring_back():
        if lasts is not None:
            brokers.start(leader, wait=False)
            wait_for(lambda: leader_and_others(view_of_three, ledger)[0] == leader, "the ledger's leader")
            note()

    def ended():
        note()
        heal(brokers)

    def dies(_):
        brokers.kill(leader)
        note()

    course = scene.strike(
        spark,
        in_batch_2("commit.verified"),
        dies,
        lasts=lasts or 0.0,
        passes=bring_back,
        before_restart=ended,
        heals=lambda: heal(brokers),
    )
    away = moments[1] - moments[0]
    print(f"{away:.1f} s without a leader, or until the query had stopped")
    too_late = away >= WRITE_S  # also where a slow machine took as long to start the broker
    assert course.sees == sees or (too_late and course.sees == STOPS)
    assert away >= (WRITE_S if lasts is None else lasts)
    assert away < ENDS_WITHIN_S


@also_by("transform", "mirror")
@pytest.mark.parametrize("lasts", [8.0, None], ids=["8-s", "for-good"])
def test_a_ledger_below_its_replicas_in_sync_at_the_decision(lasts, brokers, view_of_three, way, spark, tmp_path):
    """Its leader refuses the decision, whose transaction may expire before the replica is back. For good, the query
    stops by name, and goes on when the replica is back."""
    topic = topics_of(brokers)
    ledger = topic(1, cleanup_policy="compact", min_insync_replicas=BROKERS, replication=BROKERS)
    scene = Scene(view_of_three, topic, tmp_path, way=way, sink={"ledger.topic": ledger})
    _, (victim, *_) = leader_and_others(view_of_three, ledger)
    course = scene.strike(
        spark,
        in_batch_2("commit.verified"),
        lambda started: brokers.kill(victim),
        lasts=lasts or 0.0,
        passes=lambda: None if lasts is None else brokers.start(victim, wait=False),
        before_restart=lambda: heal(brokers),
        heals=lambda: heal(brokers),
    )
    assert course.sees == STOPS or (course.sees == "waits" and lasts is not None)
