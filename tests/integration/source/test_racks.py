"""Reading from the nearest replica: three brokers, each in a rack of its own and behind a proxy that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client, close_all
from spark_eos.source import nearest_replica, raw
from spark_eos.source.fetching import Fetching
from spark_eos.source.task import read_range
from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import write
from tests.support.servers.proxy import Proxy
from tests.support.waiting import TIMEOUT, wait_for

BROKERS = 3
ROWS, SIZE = 300, 10_000
NEAREST = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
CONFIG = {"broker.rack": "rack-{broker}", "replica.selector.class": NEAREST}


@dataclass
class Racks:
    """``proxies``: of each broker. The topic's one partition is led by ``leader``, and all three have it."""

    cluster: DevCluster
    proxies: list[Proxy]
    topic: str

    @property
    def servers(self) -> str:
        return ",".join(proxy.address for proxy in self.proxies)

    @property
    def leader(self) -> int:
        client = broker_client(KafkaProperties({"bootstrap.servers": self.servers}))
        client.forget_leader(self.topic, 0)
        leader = client.leader(self.topic, 0)
        assert leader is not None
        return leader

    @property
    def follower(self) -> int:
        return next(i for i in range(BROKERS) if i != self.leader)

    def fetching(self, rack: str, **more: str) -> Fetching:
        properties = {"bootstrap.servers": self.servers, "client.rack": rack}
        return Fetching(
            broker_client(KafkaProperties(properties | {key.replace("__", "."): value for key, value in more.items()}))
        )

    def read(self, fetching: Fetching, start: int = 0, end: int = ROWS) -> list[int]:
        """The bytes of rows that each broker has sent for all rows, each of which came once."""
        before = [proxy.answered for proxy in self.proxies]
        batches = list(read_range(fetching, OffsetRange(self.topic, 0, start, end)))
        assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == list(range(start, end))
        return [proxy.answered - sent for proxy, sent in zip(self.proxies, before, strict=True)]


@pytest.fixture(scope="module")
def _racks() -> Iterator[Racks]:
    with ExitStack() as stack:
        proxies = [Proxy() for _ in range(BROKERS)]
        for proxy in proxies:
            stack.callback(proxy.close)
        ports = [proxy.port for proxy in proxies]
        cluster = stack.enter_context(DevCluster(brokers=BROKERS, config=CONFIG, proxies=ports))
        for i, proxy in enumerate(proxies):
            proxy.upstream = cluster.broker(i).proxied_port
        cluster.create_topic("racks", 1)
        write(cluster.bootstrap_servers, "racks", [(0, f"{i:05d}".ljust(SIZE, "x")) for i in range(ROWS)])
        yield Racks(cluster, proxies, "racks")


@pytest.fixture
def racks(_racks: Racks, monkeypatch: pytest.MonkeyPatch) -> Iterator[Racks]:
    """Nothing is known of nearest replicas yet; every proxy lets everything through. No replica is left because the
    machine is busy."""
    for limit in ("_REPLICA_SILENCE_S", "_REPLICA_BEHIND_S"):
        monkeypatch.setattr(raw, limit, TIMEOUT)
    nearest_replica._choices.clear()
    yield _racks
    for proxy in _racks.proxies:
        proxy.restore()
    close_all()


def most(sent: list[int], others: float = 20_000) -> int:
    """The one broker that has sent the rows; the ``others`` have said hardly anything, less than so many bytes."""
    best = max(range(BROKERS), key=sent.__getitem__)
    assert sent[best] > ROWS * SIZE
    assert sum(sent) - sent[best] < others
    return best


def test_rows_come_from_the_replica_in_the_readers_rack(racks, monkeypatch):
    """From whichever it is; and a second read does not ask the leader again. The property may name a variable of the
    executor's environment."""
    for broker in range(BROKERS):
        assert most(racks.read(racks.fetching(f"rack-{broker}"))) == broker
    again = racks.read(racks.fetching(f"rack-{racks.follower}"))
    assert most(again) == racks.follower
    assert again[racks.leader] == 0
    monkeypatch.setenv("AZ_OF_THIS_TEST", f"{racks.follower}")
    assert most(racks.read(racks.fetching("rack-${env:AZ_OF_THIS_TEST}"))) == racks.follower


@pytest.mark.parametrize("rack", ["another", "${env:NO_SUCH_VARIABLE}"])
def test_without_a_replica_in_the_rack_the_leader_is_read(racks, rack):
    """As without the property."""
    assert most(racks.read(racks.fetching(rack))) == racks.leader


@contextmanager
def cut(proxy: Proxy) -> Iterator[None]:
    proxy.cut()
    yield
    proxy.restore()


@contextmanager
def silent(proxy: Proxy) -> Iterator[None]:
    proxy.lose(answers=True)
    yield
    proxy.restore()


@pytest.mark.parametrize("fault", [cut, silent])
def test_a_replica_that_is_gone_is_left_for_the_leader(racks, monkeypatch, fault: Callable):
    """In the middle of a range, and before the next one; when it is back, it is read again after a while."""
    monkeypatch.setattr(raw, "_REPLICA_SILENCE_S", 0.5)
    monkeypatch.setattr(nearest_replica, "_AWAY_S", 1.0)
    follower, fetching = racks.follower, racks.fetching(f"rack-{racks.follower}")
    batches = read_range(fetching, OffsetRange(racks.topic, 0, 0, ROWS))
    offsets = next(batches)["offset"].to_pylist()
    with fault(racks.proxies[follower]):
        for batch in batches:
            offsets += batch["offset"].to_pylist()
        assert offsets == list(range(ROWS))
        # What was on its way when the replica fell silent may still be counted.
        assert most(racks.read(fetching), ROWS * SIZE / 10) == racks.leader
    wait_for(lambda: racks.read(fetching)[follower] > ROWS * SIZE, "the nearest replica to be read again")
