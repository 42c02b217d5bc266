"""How long a client waits for brokers that are gone, silent or elsewhere than they say, by the clock of this world."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.admin.topics import end_offsets, topic_partitions
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.metadata import METADATA, about_topics
from spark_eos.kafka.requests.init_producer_id import init_producer_id

from .cluster import Broker
from .faults import Fault, Kind, Schedule
from .play import Stage, staged
from .sockets import Line, Socket

HERE, AWAY = 1, 2
NOTHING = about_topics([])
TOPIC, PLACES = "out", [("out", partition) for partition in range(3)]
#: Transactional ids.
COORDINATED_HERE, COORDINATED_AWAY = "b", "a"
#: More than answers take here, and less than any wait.
SOON_S = 0.1


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Two brokers without faults."""
    with staged(Schedule(1)) as stage:
        yield stage


@pytest.fixture
def here(stage: Stage) -> Broker:
    return stage.cluster.nodes[HERE]


@pytest.fixture
def away(stage: Stage) -> Broker:
    return stage.cluster.nodes[AWAY]


@pytest.fixture
def client(stage: Stage, here: Broker) -> BrokerClient:
    """Knows both brokers, and has reached the first one where it says that it is."""
    client = client_of(*here.place)
    client.brokers()
    assert client.ask(HERE, METADATA, NOTHING) is not None
    return client


def client_of(host: str, port: int) -> BrokerClient:
    return BrokerClient(KafkaProperties({"bootstrap.servers": f"{host}:{port}"}))


@contextlib.contextmanager
def lasting(stage: Stage, seconds: float, most_s: float | None = None) -> Iterator[None]:
    """So long, or somewhat longer: the block."""
    began = stage.world.now
    yield
    assert seconds <= stage.world.now - began <= (most_s or seconds + SOON_S)


def test_a_silent_broker_is_left_for_another(stage, client):
    """Within one short try, and asked after the others from then on."""
    client.brokers()
    first = int(stage.world.trace[-1].split()[1])  # who has answered last is asked first
    stage.cluster.nodes[first].silent = True
    for least_s in (2.0, 0.0, 0.0, 0.0, 0.0):
        with lasting(stage, least_s):
            assert sorted(client.brokers()) == [HERE, AWAY]


def test_a_connect_that_has_failed_is_not_tried_again_at_once(stage, client, away):
    """For as long as it took; what the broker led or coordinated is looked up anew, and another address is another
    broker."""
    stage.cluster.move_leaders([place for place in PLACES if stage.cluster.partitions[place].leader == HERE])
    assert set(client.leaders(PLACES)[0].values()) == {AWAY}
    assert client.coordinator(COORDINATED_AWAY, 1.0) == (AWAY, None)
    away.unplug(1000.0)
    stage.cluster.move_leaders(PLACES)
    stage.cluster.shift += 1
    for seconds in (0.5, 0.0, 0.5):
        with lasting(stage, seconds):
            for _ in range(9):
                with pytest.raises(OSError, match="timed out"):
                    client.connect(AWAY, 0.5)
        assert set(client.leaders(PLACES)[0].values()) == {HERE}
        assert client.coordinator(COORDINATED_AWAY, 1.0) == (HERE, None)
        stage.world.sleep(0.3)
    stage.world.sleep(0.5)
    with lasting(stage, 0.5):
        assert client.ask(AWAY, METADATA, NOTHING, 0.5) is None
    away.place = "another.example", 9092
    stage.world.hosts[away.place] = away
    client.brokers()
    client.connect(AWAY).close()


def test_a_broker_that_takes_connections_and_does_not_answer_counts_as_gone(stage, client, away):
    """As one whose process was stopped. The first response on a connection has a second at the least."""
    away.silent = True
    with lasting(stage, 1.0):
        for _ in range(9):
            assert client.ask(AWAY, METADATA, NOTHING, 0.5) is None


def test_a_broker_that_is_not_known_takes_no_more_time_than_there_is(stage, client, here, away):
    """To look for it belongs to the request, and that it is not found is no answer."""
    for broker in (here, away):
        broker.restart(1000.0)
    stage.world.sleep(1.0)
    with lasting(stage, 0.4, 1.0):
        assert client.ask(7, METADATA, NOTHING, 0.5) is None
        with pytest.raises(OSError, match="No answer from"):
            client.connect(7, 0.5)


def test_a_cluster_that_is_away_is_waited_for_as_long_as_was_said(stage, client, here, away):
    """Longer than one try takes: a restart of a broker does not end a query."""
    here.silent = away.silent = True
    with lasting(stage, 19.0, 21.0), pytest.raises(ConnectionFailed) as caught:
        end_offsets(client, {TOPIC: [0]}, timeout_s=20.0)
    assert 19.0 <= caught.value.parameters["waited_s"] <= 21.0
    for broker in (here, away):
        stage.world.at(20.0, setattr, broker, "silent", False)
    assert topic_partitions(client, [TOPIC], timeout_s=60.0) == {TOPIC: 3}


def test_all_addresses_of_a_name_are_tried(stage, here):
    """Also where packets to the first ones are dropped: no one of them takes all of the time, and each has a second."""
    holes = [(f"hole-{number}", 9092) for number in range(3)]
    stage.world.hosts |= dict.fromkeys(holes, Elsewhere(None))
    stage.world.names["several.example"] = [(socket.AF_INET, place) for place in (*holes, here.place)]
    client = client_of("several.example", 9092)
    with lasting(stage, 6.0):
        client.connect(-1, 8.0).close()
    with lasting(stage, 2.0), pytest.raises(OSError, match="timed out"):
        client.connect(-1, 2.0)


def test_an_address_of_a_kind_that_the_machine_lacks_is_passed_over(stage, here):
    """And is no reason where another address has one: without IPv6, its socket cannot be made."""
    both = [(socket.AF_INET6, ("::1", 9092)), (socket.AF_INET, here.place)]
    stage.world.names["both.example"] = both
    client = client_of("both.example", 9092)
    client.connect(-1).close()
    stage.world.names["both.example"] = both[::-1]
    here.restart(40.0)
    with pytest.raises(ConnectionRefusedError):
        client.connect(-1)


def test_a_broker_that_tells_its_versions_and_closes_may_expect_a_login():
    """Which a client without one is told."""
    with staged(Schedule(1, (Fault(METADATA.api, 0, Kind.LOST, times=99),))) as stage:
        client = client_of(*stage.cluster.nodes[HERE].place)
        expected = r"it may expect TLS or SASL \(kafka\.security\.protocol\)"
        with pytest.raises(ConnectionFailed, match=expected):
            client.metadata([], 1.0)


# What brokers advertise, where the user's address answers


USERS = "user.example", 9092


class Elsewhere:
    """Somebody who is at an address instead of the broker that advertises it: nobody, who refuses or drops what comes,
    or somebody who takes it and says nothing."""

    def __init__(self, answers: bool | None) -> None:
        self.answers = answers

    def accept(self, _: Socket) -> tuple[Elsewhere, Line]:
        return self, Line()

    def take(self, data: bytes) -> None: ...

    def gone(self) -> None: ...


def ask_offsets(client: BrokerClient) -> None:
    """As a source does."""
    end_offsets(client, {TOPIC: [0]}, timeout_s=60.0)


def init(client: BrokerClient) -> None:
    """As a sink does."""
    init_producer_id(client, COORDINATED_HERE, 60_000)


def connect(client: BrokerClient) -> None:
    """As a task does, which retries."""
    client.brokers()
    while True:
        with contextlib.suppress(OSError):
            client.connect(HERE).close()
        client.reach()


@pytest.mark.parametrize("answers", [False, None, True], ids=["refused", "dropped", "mute"])
@pytest.mark.parametrize("work", [ask_offsets, init, connect])
def test_an_address_that_nobody_can_reach_is_named(answers, work, stage, here, away):
    """With the broker's id, that the user's address answers, and before the retries are over."""
    hosts = stage.world.hosts
    hosts[USERS], hosts[here.place], hosts[away.place] = here, Elsewhere(answers), Elsewhere(answers)
    with lasting(stage, 5.0, 30.0), pytest.raises(ConnectionFailed, match="EOS_BROKER_UNREACHABLE") as caught:
        work(client_of(*USERS))
    text = caught.value.message
    assert f"broker {HERE} at {here.place[0]}:{here.place[1]} (" in text and "user.example:9092 answers" in text
    assert "advertised.listeners" in caught.value.hint and caught.value.restart_helps


def test_a_broker_that_is_away_is_waited_for(stage, here, away):
    """Where another one can be reached, a broker may be starting again; and it is named when the time is up."""
    stage.world.hosts[USERS], stage.world.hosts[here.place] = away, Elsewhere(False)
    client = client_of(*USERS)
    assert client.leader(*PLACES[0]) == HERE
    with lasting(stage, 50.0, 61.0), pytest.raises(ConnectionFailed, match="EOS_KAFKA_UNREACHABLE") as caught:
        ask_offsets(client)
    assert f"broker {HERE} at {here.place[0]}:{here.place[1]} (refused)" in caught.value.message


def test_a_cluster_that_is_away_is_waited_for_too(stage, here, away):
    """Nobody answers, neither at the user's address nor elsewhere: this is about no advertised address."""
    stage.world.hosts[USERS] = here
    client = client_of(*USERS)
    client.brokers()
    for broker in (here, away):
        broker.restart(40.0)
    for _ in range(9):
        with pytest.raises(OSError, match="refused"):
            client.connect(HERE)
        stage.world.sleep(2.0)
