"""On three brokers, the very one that matters most at a point of the protocol dies there, or falls asleep.

The query is held at the point, the broker is struck, and the query let go. Whether it waits or stops by name, every
row is there once at the end; the struck broker comes back only after the query's input is drained.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_eos.protocol.names import ledger_name
from tests.support.judges.kafka_view import KafkaView
from tests.support.kills.scene import Scene, in_batch_2, topics_of
from tests.support.queries.data_paths import also_by
from tests.support.servers.healed_brokers import heal
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.chaos

REQUEST_MS, TIMEOUT_MS = 6_000, 12_000
PAUSE_S = 16.0  # longer than both

Aim = Callable[[KafkaView, Scene, str], int]


def coordinator_of_a_task(view: KafkaView, scene: Scene, query_id: str) -> int:
    """Of a transaction that is open."""
    return _home(view, next(iter(view.open_transactions(query_id))))


def coordinator_of_the_ledger(view: KafkaView, scene: Scene, query_id: str) -> int:
    return _home(view, ledger_name("spark-eos", query_id))


def coordinator_of_the_group(view: KafkaView, scene: Scene, query_id: str) -> int:
    """The leader of the partition that the group's name falls to."""
    offsets = view.admin.list_topics("__consumer_offsets", timeout=TIMEOUT).topics["__consumer_offsets"].partitions
    return offsets[_java_hash(scene.group) % len(offsets)].leader


def leader_of_the_output(view: KafkaView, scene: Scene, query_id: str) -> int:
    return view.admin.list_topics(scene.output, timeout=TIMEOUT).topics[scene.output].partitions[0].leader


def _java_hash(text: str) -> int:
    """Java's String.hashCode, made positive as Kafka does it."""
    code = 0
    for character in text:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return code & 0x7FFFFFFF


def _home(view: KafkaView, name: str) -> int:
    """The broker that lists a transactional id among its own."""
    listed = view.kafka_python.list_transactions()
    (home,) = [broker for broker, own in listed.items() if name in {t.transactional_id for t in own}]
    return int(home)


@also_by("transform", "mirror")
@pytest.mark.parametrize(
    ("aim", "point"),
    [
        (coordinator_of_a_task, "prepare.wrote"),
        (coordinator_of_the_ledger, "commit.verified"),
        (coordinator_of_a_task, "commit.between"),
        (coordinator_of_the_group, "commit.verified"),
        (leader_of_the_output, "prepare.wrote"),
    ],
)
def test_a_broker_dies_where_it_matters_most(aim: Aim, point, brokers, view_of_three, way, spark, tmp_path):
    """Killed for good, as far as the query is concerned: the other two go on with it."""
    scene = Scene(view_of_three, topics_of(brokers), tmp_path, way=way)
    scene.strike(
        spark,
        in_batch_2(point),
        lambda started: brokers.kill(aim(view_of_three, scene, started.id)),
        heals=lambda: heal(brokers),
    )


@also_by("copy", "transform", "mirror")
def test_all_brokers_are_killed_and_come_back(brokers, view_of_three, way, spark, tmp_path):
    """Between decision and EndTxn: decision and rows are on disk, and the transactions as open as they were."""
    scene = Scene(view_of_three, topics_of(brokers), tmp_path, way=way)

    def happens(started):
        for i in range(brokers.size):
            brokers.kill(i)
        for i in range(brokers.size):
            brokers.start(i, wait=False)
        brokers.wait_ready()

    scene.strike(spark, in_batch_2("commit.decided"), happens, heals=lambda: heal(brokers))


@also_by("copy", "mirror")
@pytest.mark.parametrize(
    ("aim", "point"),
    [
        (leader_of_the_output, "prepare.wrote"),
        (coordinator_of_the_ledger, "commit.verified"),
        (coordinator_of_a_task, "commit.decided"),
    ],
)
def test_a_broker_sleeps_longer_than_requests_and_transactions_live(
    aim: Aim, point, brokers, view_of_three, way, spark, tmp_path
):
    """Its connections stay open and nobody answers; when it wakes up it still believes to lead."""
    scene = Scene(
        view_of_three,
        topics_of(brokers),
        tmp_path,
        way=way,
        kafka={"socket.timeout.ms": str(REQUEST_MS)},
        sink={"transaction.timeout.ms": str(TIMEOUT_MS)},
    )
    asleep: list[int] = []

    def happens(started):
        asleep.append(aim(view_of_three, scene, started.id))
        brokers.pause(*asleep)

    scene.strike(
        spark,
        in_batch_2(point),
        happens,
        lasts=PAUSE_S,
        passes=lambda: brokers.resume(*asleep),
        heals=lambda: heal(brokers),
    )
