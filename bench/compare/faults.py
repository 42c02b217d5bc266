"""What strikes a contender while it copies: the same moments for all of them, by a seed, found from outside."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, OffsetSpec, PartitionMetadata

from bench.compare.contenders import PARTITIONS, Contender
from bench.compare.feeder import NAME
from bench.compare.scene import Scene
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.requests.list_transactions import ids_by_state

#: Of the transactions in the cell whose pause is longer.
SHORT_MS = 12_000
STOPPED_S = 1.5 * SHORT_MS / 1000
_KILLS = 2
_ANSWER_S = 10
_DOWN_S = 3.0
_UNCLEAN = "unclean.leader.election.enable"


@dataclass(frozen=True)
class Fault:
    """``strike``: what happens, while the contender is tended. ``timeout_ms``: of the contender's transactions, where
    the fault needs another one than its own. ``replicas``: of each partition of the input and the output; all but one
    of them have to have a row before it is acknowledged. ``on_transactions``: there is nothing to strike where a
    contender has none."""

    name: str
    label: str
    strike: Callable[[Scene], None]
    timeout_ms: int | None = None
    replicas: int = 3
    on_transactions: bool = False

    def strikes(self, contender: Contender) -> bool:
        """Whether it can happen to this one."""
        return contender.transactional or not self.on_transactions


def _killed(scene: Scene) -> None:
    for _ in range(_KILLS):
        scene.run_for(scene.chance.uniform(1.0, 4.0))
        if scene.has_failed:
            return
        scene.restart()


def _killed_before_commit(scene: Scene) -> None:
    """Rows are in the output that no committed reader sees; without transactions: new rows are there."""
    _killed_when(scene, IsolationLevel.READ_UNCOMMITTED, _is_open)


def _is_open(scene: Scene, written: int) -> bool:
    if not scene.contender.transactional:
        return True
    committed = _ends(scene, IsolationLevel.READ_COMMITTED)
    return committed is not None and written > committed


def _killed_after_commit(scene: Scene) -> None:
    """More rows can be seen by a committed reader than just before."""
    _killed_when(scene, IsolationLevel.READ_COMMITTED)


def _killed_when(
    scene: Scene, isolation: IsolationLevel, is_right: Callable[[Scene, int], bool] = lambda scene, end: True
) -> None:
    """When readers of this isolation see more, and the moment ``is_right``, which is given the new end."""

    for _ in range(_KILLS):
        scene.run_for(scene.chance.uniform(1.0, 2.0))
        begin: list[int] = []

        def has_come(begin: list[int] = begin) -> bool:
            end = _ends(scene, isolation)
            if end is None:
                return False
            if not begin:
                begin.append(end)
            return end > begin[0] and is_right(scene, end)

        if not scene.await_moment(has_come, f"{scene.output} has not grown in the right moment"):
            return
        scene.restart()


def _ends(scene: Scene, isolation: IsolationLevel) -> int | None:
    """The sum of the ends of the output's partitions: the last stable offsets, or the high watermarks. None without an
    answer."""
    latest = {TopicPartition(scene.output, p): OffsetSpec.latest() for p in range(PARTITIONS)}  # type: ignore[no-untyped-call]
    try:
        found = scene.admin.list_offsets(latest, isolation_level=isolation, request_timeout=_ANSWER_S)
        return sum(int(one.result(_ANSWER_S).offset) for one in found.values())
    except KafkaException:
        return None


def _stopped_for_long(scene: Scene) -> None:
    """The whole contender stands still while its transactions expire."""
    scene.run_for(scene.chance.uniform(1.0, 3.0))
    for instance in scene.instances:
        instance.signal(signal.SIGSTOP)
    time.sleep(STOPPED_S)
    with scene.recovering():
        for instance in scene.instances:
            instance.signal(signal.SIGCONT)


def _zombie(scene: Scene) -> None:
    """It is believed dead and started a second time; then the first one goes on."""
    scene.run_for(scene.chance.uniform(1.0, 3.0))
    (first,) = scene.instances
    first.signal(signal.SIGSTOP)
    scene.instances.remove(first)
    with scene.recovering():
        scene.start()
    scene.instances.append(first)
    first.signal(signal.SIGCONT)
    scene.run_for(5.0)


def _brokers_killed(scene: Scene) -> None:
    """One after the other, each started again after some seconds: leaders and coordinators move."""
    for victim in scene.chance.sample(range(scene.cluster.size), scene.cluster.size):
        if scene.has_failed:
            return
        scene.cluster.kill(victim)
        scene.run_for(_DOWN_S)
        with scene.recovering():
            scene.cluster.start(victim)


def _unclean_election(scene: Scene) -> None:
    """One of two replicas of the output's first partition dies, and the other one takes rows alone, and dies, too. The
    first one comes back, and leads; then the other one does, which alone has some partitions of the input."""
    change = ConfigResource(ConfigResource.Type.TOPIC, scene.output)
    change.add_incremental_config(ConfigEntry(_UNCLEAN, "true", incremental_operation=AlterConfigOpType.SET))
    for done in scene.admin.incremental_alter_configs([change]).values():
        done.result(_ANSWER_S)
    leader, follower = _two_replicas(scene)
    scene.cluster.kill(follower)
    if not scene.await_moment(lambda: _first_partition(scene).isrs == [leader], f"{scene.output} kept its replicas"):
        return
    scene.run_for(scene.chance.uniform(1.0, 3.0))
    scene.cluster.kill(leader)
    scene.cluster.start(follower)
    scene.await_moment(lambda: _first_partition(scene).leader == follower, f"{scene.output} had no unclean election")
    with scene.recovering():
        scene.cluster.start(leader)


def _two_replicas(scene: Scene) -> tuple[int, int]:
    """Leader and follower of the output's first partition: some contenders create it with as many replicas as
    brokers, of which one is left out then."""
    first = _first_partition(scene)
    leader, follower = first.leader, next(one for one in first.replicas if one != first.leader)
    if len(first.replicas) > 2:
        place = {"topic": scene.output, "partition": 0, "replicas": [leader, follower]}
        plan = scene.folder / "reassignment.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [place]}))
        servers = ("--bootstrap-server", scene.cluster.bootstrap_servers)
        command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        scene.cluster.java_tool(command, *servers, "--reassignment-json-file", str(plan), "--execute")
        two = {leader, follower}
        scene.await_moment(lambda: {*_first_partition(scene).replicas} == two, f"{scene.output} kept three replicas")
    return leader, follower


def _first_partition(scene: Scene) -> PartitionMetadata:
    return scene.admin.list_topics(scene.output, _ANSWER_S).topics[scene.output].partitions[0]


def _fenced(scene: Scene) -> None:
    """An operator fences the producers of the transactions that are open, which aborts these."""
    scene.run_for(scene.chance.uniform(1.0, 3.0))
    found: list[str] = []

    def open_ones() -> bool:
        found[:] = open_transactions(scene.cluster.bootstrap_servers)
        return bool(found)

    if not scene.await_moment(open_ones, f"{scene.contender.label} opened no transaction"):
        return
    with scene.recovering():
        fence(scene.cluster.bootstrap_servers, found)


def fence(servers: str, names: Iterable[str]) -> None:
    """Abort what is open under these transactional ids, whose producers can write no more."""
    for name in names:
        settings = {"bootstrap.servers": servers, "broker.address.family": "v4", "log_level": 0}
        Producer({**settings, "transactional.id": name}).init_transactions(_ANSWER_S)


def open_transactions(servers: str) -> list[str]:
    """The transactional ids of contenders that are in a transaction now."""
    client = broker_client(KafkaProperties({"bootstrap.servers": servers}))
    listed = ids_by_state(client, ".*", ["Ongoing"], only_matching=False) or ()
    return [name for name, _ in listed if not name.startswith(NAME)]


FAULTS = (
    Fault("kill", "kill -9 at random", _killed),
    Fault("kill-before", "kill -9 before a commit", _killed_before_commit),
    Fault("kill-after", "kill -9 after a commit", _killed_after_commit),
    Fault("stop", "stopped for longer than transactions live", _stopped_for_long, SHORT_MS),
    Fault("zombie", "believed dead, and started twice", _zombie),
    Fault("brokers", "each broker killed in turn", _brokers_killed),
    Fault("unclean", "an unclean election of its output", _unclean_election, replicas=2),
    Fault("fence", "an operator fences its producers", _fenced, on_transactions=True),
)
