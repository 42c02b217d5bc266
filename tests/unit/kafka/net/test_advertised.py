"""Brokers that advertise an address which nobody can reach, the commonest mistake with Kafka in a container: an error
that names broker and address, in time."""

from __future__ import annotations

import contextlib
import ssl
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.admin.topics import end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net import client as module
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.requests import init_producer_id as init_producer_id_module
from spark_eos.kafka.requests.init_producer_id import init_producer_id
from tests.support.servers.certificates import Authority
from tests.support.servers.fake_broker import FakeBroker
from tests.support.servers.open_port import answering
from tests.support.servers.unused_hosts import Address, a_silent_host, dropped, nobody
from tests.support.waiting import TIMEOUT


@contextlib.contextmanager
def named(address: contextlib.AbstractContextManager[str]) -> Iterator[Address]:
    """Host and port of an address."""
    with address as text:
        host, _, port = text.rpartition(":")
        yield host, int(port)


def http() -> contextlib.AbstractContextManager[Address]:
    """Speaks another protocol."""
    return answering(
        lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * bool(connection.recv(9)))
    )


@contextlib.contextmanager
def encrypted() -> Iterator[Address]:
    """Speaks TLS, where the user's address does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        context.load_cert_chain(Authority().sign("127.0.0.1").write_pem(Path(folder, "own.pem")))
    with answering(lambda connection: context.wrap_socket(connection, server_side=True).close()) as address:
        yield address


PLACES = {
    "refused": lambda: named(nobody()),
    "unresolved": lambda: contextlib.nullcontext(("kafka-0.invalid", 9092)),  # of a container, outside of its network
    "dropped": dropped,
    "mute": lambda: named(a_silent_host()),
    "http": http,
    "encrypted": encrypted,
}


@pytest.fixture
def elsewhere(request) -> Iterator[Address]:
    """An address at which no broker can be reached."""
    with PLACES[request.param]() as address:
        yield address


@pytest.fixture
def cluster() -> Iterator[dict[int, FakeBroker]]:
    """Two brokers, of which the first leads and coordinates everything."""
    brokers: dict[int, FakeBroker] = {}
    made = [
        FakeBroker(number, brokers, {2: (0, 7), 3: (0, 12), 10: (0, 4), 18: (0, 4), 22: (0, 5)}) for number in (0, 1)
    ]
    for broker in made:
        broker.topics, broker.coordinators = {"t": [0]}, {"name": 0}
    yield brokers
    for broker in made:
        broker.close()


def properties(broker: FakeBroker) -> KafkaProperties:
    return KafkaProperties({"bootstrap.servers": f"127.0.0.1:{broker.port}"})


def ask_offsets(kafka: KafkaProperties) -> None:
    """As a source does."""
    end_offsets(broker_client(kafka), {"t": [0]}, timeout_s=TIMEOUT)


def init(kafka: KafkaProperties) -> None:
    """As a sink does."""
    init_producer_id(broker_client(kafka), "name", 60_000)


def connect(kafka: KafkaProperties) -> None:
    """As a task does, which retries."""
    client = BrokerClient(kafka)
    client.brokers()
    while True:
        with contextlib.suppress(OSError):
            client.connect(0).close()
            client.reach()
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("elsewhere", "work"),
    [*((place, ask_offsets) for place in PLACES), ("refused", init), ("mute", connect)],
    indirect=["elsewhere"],
)
@pytest.mark.parametrize("advertised_s", [0.2, pytest.param(5.0, marks=pytest.mark.chaos)])
def test_an_address_that_nobody_can_reach_is_named(cluster, elsewhere, work, advertised_s, monkeypatch):
    """With the broker's id, that the user's address answers, and before the retries are over."""
    monkeypatch.setattr(init_producer_id_module, "INIT_S", TIMEOUT)
    if advertised_s != module._ADVERTISED_S:
        monkeypatch.setattr(module, "_ADVERTISED_S", advertised_s)
        monkeypatch.setattr(module, "_PROBE_S", 0.1)
        monkeypatch.setattr(module, "_FIRST_TRY_S", 0.2)
    answers = BrokerClient._answers

    def patient(self: BrokerClient, node: int) -> bool:
        """The user's address has all its time, which it does not need."""
        with monkeypatch.context() as patch:
            if node < 0:
                patch.setattr(module, "_PROBE_S", TIMEOUT)
            return answers(self, node)

    monkeypatch.setattr(BrokerClient, "_answers", patient)
    first = cluster[0]
    first.advertised = cluster[1].advertised = elsewhere
    with pytest.raises(ConnectionFailed, match="EOS_BROKER_UNREACHABLE") as caught:
        work(properties(first))
    text = caught.value.message
    assert f"broker 0 at {elsewhere[0]}:{elsewhere[1]} (" in text and f"127.0.0.1:{first.port} answers" in text
    assert "advertised.listeners" in caught.value.hint and caught.value.restart_helps


def test_a_broker_that_is_away_is_waited_for(cluster, monkeypatch):
    """Where another one can be reached, a broker may be starting again; and it is named when the time is up."""
    leaders = BrokerClient.leaders
    monkeypatch.setattr(module, "_ADVERTISED_S", 0.1)
    monkeypatch.setattr(module, "_PROBE_S", TIMEOUT)
    # What the other one is asked has all its time.
    monkeypatch.setattr(BrokerClient, "_connect_s", lambda self, node: TIMEOUT)
    monkeypatch.setattr(BrokerClient, "leaders", lambda self, places, *_: leaders(self, places, TIMEOUT))
    with named(nobody()) as nowhere:
        cluster[0].advertised = nowhere
        assert broker_client(properties(cluster[1])).leader("t", 0) == 0
        with pytest.raises(ConnectionFailed, match="EOS_KAFKA_UNREACHABLE") as caught:
            end_offsets(broker_client(properties(cluster[1])), {"t": [0]}, timeout_s=0.5)
    assert f"broker 0 at 127.0.0.1:{nowhere[1]} (" in caught.value.message


def test_a_cluster_that_is_away_is_waited_for(cluster):
    """Nobody answers, neither at the user's address nor elsewhere: this is about no advertised address."""
    client = BrokerClient(properties(cluster[0]))
    client.brokers()
    for broker in list(cluster.values()):
        broker.close()
    client._unreached_since = 0.001
    with pytest.raises(OSError, match="refused"):
        client.connect(0)
