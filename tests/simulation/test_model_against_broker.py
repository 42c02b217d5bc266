"""The model of the transaction coordinator answers as a real one does: the same calls on both, in random order.

Answers that only say "not yet" are asked again on both sides. Left out: rotation of producer ids, which takes 32,766
epochs, and whatever needs a broker that fails.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from spark_eos.base.retry import retrying
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.requests.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from spark_eos.kafka.requests.describe_transactions import describe_transactions
from spark_eos.kafka.requests.end_txn import end_txns
from spark_eos.kafka.requests.init_producer_id import ask_init
from spark_eos.tools.devcluster import DevCluster
from tests.support.waiting import TIMEOUT

from .codes import CONCURRENT, LOADING, MOVED, NOT_AVAILABLE
from .coordinator import Cluster
from .partition_log import Place
from .world import Reply, World

IDS = ("a", "b")
SEQUENCES = 60
CALLS = 14
TIMEOUT_MS = 60_000
LOOK_S = 0.005
TRIES = round(TIMEOUT / LOOK_S)


@dataclass
class Broker:
    """The model's calls on a real broker. Transactional ids get ``prefix``."""

    client: BrokerClient
    prefix: str
    timeout_ms: int = TIMEOUT_MS

    def init(self, name: str) -> Reply:
        code, *pair = _answer(lambda: ask_init(self.client, self.prefix + name, self.timeout_ms))
        return Reply(code, tuple(pair))

    def add(self, name: str, producer_id: int, epoch: int, place: Place) -> Reply:
        values = {
            "transactional_id": self.prefix + name,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "topics": [{"name": place[0], "partitions": [place[1]]}],
        }

        def ask() -> Any:
            node, _ = self.client.coordinator(self.prefix + name, 10)
            return None if node is None else self.client.ask(node, ADD_PARTITIONS_TO_TXN, values)

        return Reply(_answer(ask).results[0].partitions[0].partition_error_code)

    def end(self, name: str, producer_id: int, epoch: int, commit: bool, version: int) -> Reply:
        who = self.prefix + name, producer_id, epoch
        return Reply(_answer(lambda: end_txns(self.client, [who], commit, version=version)[who[0]]))

    def describe(self, name: str) -> tuple[str, int, int]:
        state = describe_transactions(self.client, [self.prefix + name])[0]
        return state.transaction_state, state.producer_id, state.producer_epoch


def _answer(ask: Callable[[], Any]) -> Any:
    """Asked until somebody answers."""
    for _ in retrying(30):
        answer = ask()
        if answer is not None:
            return answer
    raise AssertionError("nobody answers")


@dataclass
class Both:
    """The same calls on both. Producer ids differ between the two: ``same`` has the broker's of each of the model's."""

    broker: Broker
    model: Cluster
    topic: str
    same: dict[int, int] = field(default_factory=dict)
    known: list[tuple[str, int, int]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def init(self, name: str) -> None:
        real = _settled(lambda: self.broker.init(name))
        modelled = _settled(lambda: self.model.init(name, self.broker.timeout_ms, "test"))
        self._compare(f"init {name}", real.code, modelled.code)
        (real_id, real_epoch), (model_id, model_epoch) = real.value, modelled.value
        self._compare(f"init {name}: epoch", real_epoch, model_epoch)
        assert self.same.setdefault(model_id, real_id) == real_id, self.told
        self.known.append((name, model_id, model_epoch))

    def add(self, name: str, model_id: int, epoch: int) -> None:
        real = _settled(lambda: self.broker.add(name, self.same[model_id], epoch, (self.topic, 0)))
        modelled = _settled(lambda: self.model.add(name, model_id, epoch, (self.topic, 0)))
        self._compare(f"add {name} {epoch}", real.code, modelled.code)

    def end(self, name: str, model_id: int, epoch: int, commit: bool, version: int) -> None:
        real = _settled(lambda: self.broker.end(name, self.same[model_id], epoch, commit, version))
        modelled = _settled(lambda: self.model.end(name, model_id, epoch, commit=commit, version=version, who="test"))
        self._compare(f"end {name} {epoch} commit={commit} v{version}", real.code, modelled.code)

    def describe(self, name: str) -> None:
        modelled: Any = self.model.describe(name).value
        for _ in range(TRIES):
            real = self.broker.describe(name)
            if not real[0].startswith("Prepare"):
                break
            time.sleep(LOOK_S)
        own = modelled.state.value, self.same[modelled.producer_id], modelled.epoch
        self._compare(f"describe {name}", real, own)

    def _compare(self, what: str, real: object, modelled: object) -> None:
        self.told.append(f"{what}: {real}")
        assert real == modelled, f"{self.told}, by the model {modelled}"


def _settled(ask: Callable[[], Reply]) -> Reply:
    """The answer, once it is one."""
    for _ in range(TRIES):
        reply = ask()
        if reply.code not in (CONCURRENT, LOADING, NOT_AVAILABLE, MOVED):
            break
        time.sleep(LOOK_S)
    return reply


@pytest.fixture(scope="module")
def connection(cluster: DevCluster) -> BrokerClient:
    return broker_client(KafkaProperties({"bootstrap.servers": cluster.bootstrap_servers}))


def test_random_calls_get_the_same_answers(connection: BrokerClient, topic: Callable[..., str]) -> None:
    """Producers that are fenced or not, both versions of EndTxn, transactions that are empty, open or ended."""
    place = topic()
    for seed in range(SEQUENCES):
        chance = random.Random(seed)
        both = Both(Broker(connection, f"{uuid.uuid4().hex[:8]}-"), Cluster(World((), 1)), place)
        for name in IDS:
            both.init(name)
        for _ in range(CALLS):
            _call(both, chance)


@pytest.mark.chaos
def test_a_time_out_answers_as_in_the_model(connection: BrokerClient, topic: Callable[..., str]) -> None:
    """The broker looks for old transactions every 10 s; what it aborts is fenced, and EndTxn says so."""
    world = World((), 1)
    both = Both(Broker(connection, f"{uuid.uuid4().hex[:8]}-", 1_000), Cluster(world), topic())
    for name in IDS:
        both.init(name)
        both.add(*both.known[-1])
    world.now += 60_000
    world.run()
    for _ in retrying(30):
        if all(both.broker.describe(name)[0] == "CompleteAbort" for name in IDS):
            break
    for known, version in zip(both.known, (5, 4), strict=True):
        both.describe(known[0])
        both.end(*known, commit=True, version=version)
        both.describe(known[0])


def _call(both: Both, chance: random.Random) -> None:
    name, model_id, epoch = chance.choice(both.known[-4:])
    what = chance.choice(("init", "add", "add", "end", "end", "end"))
    if what == "init":
        both.init(name)
    elif what == "add":
        both.add(name, model_id, epoch)
    else:
        both.end(name, model_id, epoch, chance.random() < 0.5, chance.choice((4, 5)))
    both.describe(name)
