"""What a client knows of its cluster, when brokers come, go, fall silent or are of another kind."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest

from spark_eos.base import system
from spark_eos.errors import ConnectionFailed, KafkaError
from spark_eos.kafka.admin.topics import end_offsets, topic_partitions
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net import client as module
from spark_eos.kafka.net import handshake
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.net.metadata import METADATA as REQUEST
from spark_eos.kafka.net.metadata import about_topics
from spark_eos.kafka.net.schema import Api
from tests.support.servers.fake_broker import SPOKEN, FakeBroker
from tests.support.servers.unused_hosts import dropped, nobody
from tests.support.waiting import TIMEOUT, wait_for

METADATA = 3


@pytest.fixture
def brokers() -> Iterator[Callable[..., list[FakeBroker]]]:
    """``brokers(count)``: a cluster of so many, numbered from 0."""
    cluster: dict[int, FakeBroker] = {}
    made: list[FakeBroker] = []

    def make(count: int = 1, **how: object) -> list[FakeBroker]:
        new = [FakeBroker(len(made) + i, cluster, **how) for i in range(count)]
        made.extend(new)
        return new

    yield make
    for broker in made:
        broker.close()


def client_of(*servers: FakeBroker, **more: str) -> BrokerClient:
    addresses = ",".join(f"127.0.0.1:{broker.port}" for broker in servers)
    return BrokerClient(KafkaProperties({"bootstrap.servers": addresses, **more}))


class Clock:
    """The client's: it goes on while the client sleeps, however long anything else takes."""

    def __init__(self) -> None:
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(system, "monotonic", lambda: made.now)
    monkeypatch.setattr(system, "sleep", made.sleep)
    return made


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[module.Address]:
    """Where the client has begun to connect to."""
    begun: list[module.Address] = []
    right = module.open_socket

    def open_socket(config: module.ClientConfig, address: module.Address, timeout_s: float) -> socket.socket:
        begun.append(address)
        return right(config, address, timeout_s)

    monkeypatch.setattr(module, "open_socket", open_socket)
    return begun


def test_one_address_leads_to_all_brokers(brokers, monkeypatch):
    """And a question goes over a connection that is there."""
    monkeypatch.setattr(module, "_FIRST_TRY_S", TIMEOUT)
    first, _, _ = brokers(3)
    client = client_of(first)
    assert sorted(client.brokers()) == [0, 1, 2]
    before = first.connections
    for _ in range(5):
        client.brokers()
    assert first.connections <= before + 1


def test_a_broker_that_joins_later_is_known_when_it_is_needed(brokers):
    """As the leader of a partition that has moved there."""
    (first,) = brokers(1)
    client = client_of(first)
    first.topics = {"t": [0]}
    assert client.leader("t", 0) == 0
    (second,) = brokers(1)
    first.topics = {"t": [1]}
    client.forget_leader("t", 0)
    assert client.leader("t", 0) == 1
    client.connect(1).close()
    wait_for(lambda: second.connections == 1, "the connection")


def test_a_broker_that_was_only_heard_of_is_looked_for(brokers, monkeypatch):
    """A number without an address asks the cluster, not more than once a second."""
    monkeypatch.setattr(module, "_REFRESH_S", 0.0)
    (first,) = brokers(1)
    client = client_of(first)
    client.brokers()
    brokers(1)
    client.connect(1).close()
    with pytest.raises(OSError, match="broker 7 is not known"):
        client.connect(7)


def test_a_silent_broker_is_left_for_another(brokers, clock, monkeypatch):
    """Within one short try, and asked after the others from then on."""
    first, second = brokers(2)
    client = client_of(first, second)
    client.brokers()
    client._last = 0
    first.fate = "silent"
    asked, ask = list[int](), client._ask

    def soon(each: dict[int, object], request: object, left_s: float) -> object:
        """The silent one's try is over even sooner, and another one has all its time."""
        asked.extend(each)
        assert left_s <= module._FIRST_TRY_S
        return ask(each, request, 0.2 if 0 in each else TIMEOUT)

    monkeypatch.setattr(client, "_ask", soon)
    for _ in range(6):
        assert sorted(client.brokers()) == [0, 1]
    assert asked == [0] + 6 * [1]


@pytest.mark.parametrize("known", [(), (1,), (1, 2)], ids=["none", "one", "both"])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)], ids=["first", "last"])
def test_a_host_that_drops_packets_takes_nobody_elses_time(brokers, known, order, clock, monkeypatch):
    """Whether the others have a connection already, and wherever it comes among them: all others answer each time,
    before its time is over, which is no more than there is."""
    gone, second, _ = brokers(3)
    client = client_of(second)
    hole, answered, took = ("hole", 9092), set[int](), []
    right, answer = module.open_socket, module._answer

    def open_socket(config: module.ClientConfig, address: module.Address, timeout_s: float) -> socket.socket:
        if address != hole:
            return right(config, address, timeout_s)
        took.append(timeout_s)
        wait_for(lambda: answered == {1, 2}, "the others' answers")
        clock.now += timeout_s
        raise TimeoutError("timed out")

    def noted(connection: module.Connection[None], *more: object) -> object:
        found = answer(connection, *more)
        answered.update([connection.node] if found is not None else [])
        return found

    gone.advertised = hole
    client.brokers()
    client._reached = True
    client.ask_each(dict.fromkeys(known, about_topics([])), REQUEST)
    monkeypatch.setattr(module, "open_socket", open_socket)
    monkeypatch.setattr(module, "_answer", noted)
    monkeypatch.setattr(module, "_CONNECT_S", TIMEOUT)
    for _ in range(2):
        answered.clear()
        found = client.ask_each(dict.fromkeys(order, about_topics([])), REQUEST, TIMEOUT)
        assert {node for node, answer in found.items() if answer is not None} == {1, 2}
    assert took == [TIMEOUT]


def test_a_connect_that_has_failed_is_not_tried_again_at_once(brokers, opened, clock):
    """For as long as it took; what the broker led or coordinated is looked up anew, and another address is another
    broker."""
    gone, second = brokers(2)
    client = client_of(second)
    for broker in (gone, second):
        broker.topics, broker.coordinators = {"t": [0] * 4}, {"a": 0}
    with dropped() as hole:
        gone.advertised = hole
        client.brokers()
        client._reached, client._last = True, 1
        assert set(client.leaders([("t", p) for p in range(4)])[0].values()) == {0}
        assert client.coordinator("a", TIMEOUT) == (0, None)
        for broker in (gone, second):
            broker.topics, broker.coordinators = {"t": [1] * 4}, {"a": 1}
        for _ in range(9):
            with pytest.raises(OSError):
                client.connect(0, 0.5)
        assert opened.count(hole) == 1
        assert set(client.leaders([("t", p) for p in range(4)])[0].values()) == {1}
        assert client.coordinator("a", TIMEOUT) == (1, None)
    gone.advertised = None
    client.brokers()
    client.connect(0).close()


def test_a_broker_that_takes_connections_and_does_not_answer_counts_as_gone(brokers, opened, clock):
    """As one whose process was stopped."""
    first, second = brokers(2)
    client = client_of(first)
    client.brokers()
    client._reached = True
    second.fate = "silent"
    for _ in range(9):
        assert client.ask(1, REQUEST, about_topics([]), 0.5) is None
    assert opened.count(("127.0.0.1", second.port)) == 1


def test_time_that_is_over_says_nothing_of_the_broker(brokers):
    """The next request, which has some, is answered, and its leader is still known."""
    (first,) = brokers(1)
    first.topics = {"t": [0]}
    client = client_of(first)
    assert client.leaders([("t", 0)])[0] == {("t", 0): 0}
    client.close()
    asked = first.asked.count(METADATA)
    with pytest.raises(TimeoutError):
        client.connect(0, -1.0)
    client.connect(0, 5.0).close()
    assert client.leaders([("t", 0)])[0] == {("t", 0): 0}
    assert first.asked.count(METADATA) == asked


def test_a_broker_that_is_silent_is_asked_again_whether_it_is_too_old(brokers):
    """As it may be one that just restarts, as another version."""
    first = brokers(1, spoken=SPOKEN | {26: (0, 3)})[0]
    old = brokers(1, spoken=SPOKEN | {26: (0, 2)})[0]
    client = client_of(first)
    old.fate = "closes"
    threading.Timer(0.1, lambda: setattr(old, "fate", "works")).start()
    assert client.brokers_without(Api("EndTxn", 26, 3, 4)) == [1]


def test_a_broker_that_stays_silent_stops_nobody(brokers, caplog, monkeypatch):
    """It is named in the log, as a query starts while one of its brokers is down; and one that is too old is found
    beside it."""
    first, second = brokers(2, spoken=SPOKEN | {26: (0, 3)})
    brokers(1, spoken=SPOKEN | {26: (0, 2)})
    client = client_of(first)
    client.brokers()
    second.fate = "closes"
    monkeypatch.setattr(module, "ANY_BROKER_S", 0.3)
    assert client.brokers_without(Api("EndTxn", 26, 3, 4)) == [2]
    assert "brokers 1 do not answer" in caplog.text and "EndTxn" in caplog.text


def test_what_is_left_of_a_round_that_cannot_be_asked_is_closed(brokers):
    """Where one broker does not speak the request, after others were asked."""
    first = brokers(1)[0]
    brokers(1, spoken={18: (0, 4)})
    client = client_of(first)
    client.brokers()
    assert client.has(1, Api("ApiVersions", 18, 0, 4))
    with pytest.raises(KafkaError, match="Metadata") as caught:
        client.ask_each(dict.fromkeys((0, 1), about_topics([])), REQUEST)
    client.close()
    wait_for(lambda: sum(broker.held for broker in first.cluster.values()) == 0, lambda: f"the end of all {caught}")


def test_all_addresses_of_a_name_are_tried(brokers, monkeypatch):
    """Also where packets to the first ones are dropped: no one of them takes all of the time."""
    monkeypatch.setattr(handshake, "_LEAST_TRY_S", 0.05)
    (first,) = brokers(1)
    resolve = socket.getaddrinfo
    with dropped() as hole:
        ports = [hole[1]] * 3 + [first.port]
        monkeypatch.setattr(
            system,
            "getaddrinfo",
            lambda _, __, *more: [found for p in ports for found in resolve("127.0.0.1", p, *more)],
        )
        module.open_socket(client_of(first)._config, ("several.example", 9092), 0.8).close()
    wait_for(lambda: first.connections == 1, "the connection")


def test_a_broker_that_is_not_known_takes_no_more_time_than_there_is(brokers, clock):
    """To look for it belongs to the request, and that it is not found is no answer."""
    first, second = brokers(2)
    client = client_of(first)
    client.brokers()
    first.fate = second.fate = "closes"
    client._refreshed_at = -module._REFRESH_S
    began = clock.now
    assert client.ask(7, REQUEST, about_topics([]), 0.5) is None
    with pytest.raises(OSError):
        client.connect(7, 0.5)
    assert clock.now - began <= 1.0


def test_a_cluster_that_is_away_is_waited_for_as_long_as_was_said(brokers, monkeypatch):
    """Longer than one try takes: a restart of a broker does not end a query."""
    monkeypatch.setattr(module, "_FIRST_TRY_S", 0.05)
    (first,) = brokers(1)
    first.topics, client = {"t": [0]}, client_of(first)
    assert topic_partitions(client, ["t"]) == {"t": 1}
    first.fate = "silent"
    with pytest.raises(ConnectionFailed) as caught:
        end_offsets(client, {"t": [0]}, timeout_s=0.2)
    assert caught.value.parameters["waited_s"] >= 0.15
    threading.Timer(0.2, lambda: setattr(first, "fate", "works")).start()
    assert topic_partitions(client, ["t"], timeout_s=TIMEOUT) == {"t": 1}


def test_a_cluster_that_is_gone_is_an_error_with_its_reason(clock):
    """In the time that there was."""
    with nobody() as address, pytest.raises(ConnectionFailed, match="refused") as caught:
        BrokerClient(KafkaProperties({"bootstrap.servers": address})).metadata([], 0.5)
    assert caught.value.condition == "EOS_KAFKA_UNREACHABLE"
    assert caught.value.parameters["waited_s"] <= 0.5


@pytest.mark.parametrize(
    ("login", "who"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "pa55word"}, "user 'ann' by PLAIN"),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "ann", "sasl.password": "pa55word"}, "user 'ann'"),
        ({"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": " ", "sasl.password": "pa55word"}, "user ' '"),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": "principal=ann",
            },
            "user 'ann' by OAUTHBEARER",
        ),
    ],
)
@pytest.mark.parametrize("known", [False, True], ids=["at the start", "later"])
def test_a_client_that_is_not_let_in_is_told_as_whom(login, who, known, brokers):
    """A broker has answered: this is not silence, also where the password is changed while a query runs."""
    (first,) = brokers(1)
    first.mechanism = login["sasl.mechanism"]
    client = client_of(first, **{"security.protocol": "SASL_PLAINTEXT"}, **login)
    if known:
        client._brokers = {0: ("127.0.0.1", first.port)}
    first.believes = False
    with pytest.raises(ConnectionFailed, match=who) as caught:
        client.metadata([], 0.5)
    assert (caught.value.condition, caught.value.restart_helps) == ("EOS_UNAUTHENTICATED", False)
    assert "invalid credentials" in caught.value.message
    assert "pa55word" not in str(caught.value)


def test_a_broker_that_tells_its_versions_and_closes_may_expect_a_login(brokers, monkeypatch):
    """Which a client without one is told."""
    (first,) = brokers(1)
    monkeypatch.setattr(first, "_metadata", closed)
    _, failures = client_of(first)._ask({-1: about_topics([])}, REQUEST, TIMEOUT)
    assert "it may expect TLS or SASL (kafka.security.protocol)" in str(failures[-1])


def closed(_: object) -> None:
    raise ConnectionError


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.metadata([], 5),
        lambda client: client.coordinator("a", 5),
        lambda client: [client.ask(1, REQUEST, about_topics([])) for _ in range(50)],
        lambda client: start_often(BrokerClient(client.properties)),
    ],
    ids=["any broker", "coordinator", "one broker", "at the start"],
)
def test_a_login_that_is_refused_is_not_tried_again_and_again(call, brokers, clock):
    """Each broker is asked twice at the most, as the first token may have been too old: many lock the account. Nor is
    there anything to wait for."""
    cluster = brokers(2)
    client = client_that_was_let_in(*cluster)
    for broker in cluster:
        broker.believes, broker.said = False, []
    began = clock.now
    with suppress(ConnectionFailed):
        call(client)
    assert clock.now == began
    assert 1 <= max(len(broker.said) for broker in cluster) <= 2
    with pytest.raises(ConnectionFailed) as caught:
        client.coordinator("a", 5)
    assert caught.value.condition == "EOS_UNAUTHENTICATED"
    for broker in cluster:
        broker.believes = True
    client._failed.clear()
    assert sorted(client.brokers()) == [0, 1]


def client_that_was_let_in(*cluster: FakeBroker) -> BrokerClient:
    """Without a connection by now."""
    for broker in cluster:
        broker.mechanism = "PLAIN"
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    client = client_of(cluster[0], **login, **{"sasl.username": "ann", "sasl.password": "secret"})
    client.brokers()
    client.close()
    return client


def start_often(client: BrokerClient) -> None:
    for _ in range(50):
        with suppress(ConnectionFailed):
            client.metadata([])


def test_a_broker_that_is_away_is_waited_for_where_another_one_refuses_the_login(brokers, clock, monkeypatch):
    """It may know the user already."""
    first, second = brokers(2)
    client = client_that_was_let_in(first, second)
    first.believes, second.fate = False, "closes"

    def sleep(_: float) -> None:
        clock.sleep(1.0)
        second.fate = "works"

    monkeypatch.setattr(system, "sleep", sleep)
    assert sorted(client.brokers()) == [0, 1]


def test_the_only_broker_is_asked_again_with_a_new_token(brokers, tmp_path, monkeypatch):
    """As it may refuse an old one, and there is no other broker to hear of the new one."""
    (first,) = brokers(1)
    (tmp_path / "token").write_text("old")
    oauth = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri()}
    client = client_of(first, **{"security.protocol": "SASL_PLAINTEXT"}, **oauth)
    client.brokers()
    client.close()
    (tmp_path / "token").write_text("new")
    believes = property(lambda broker: b"Bearer new" in broker.said[-1])
    monkeypatch.setattr(FakeBroker, "believes", believes, raising=False)
    assert client.brokers() == [0]


@pytest.mark.parametrize(("where", "name"), [(system, "getaddrinfo"), (handshake, "conversation")])
def test_names_and_tokens_that_take_long_leave_time_for_the_broker(where, name, brokers, clock, monkeypatch):
    """As where the first name server is away, or the token server: its five seconds are not the broker's."""
    (first,) = brokers(1)
    right = getattr(where, name)

    def slowly(*asked: object) -> object:
        clock.now += 5
        return right(*asked)

    monkeypatch.setattr(where, name, slowly)
    unsecured = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=ann"}
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"} | unsecured
    assert client_of(first, **login).brokers() == [0]


def test_an_address_of_a_kind_that_the_machine_lacks_is_passed_over(brokers, monkeypatch):
    """And is no reason where another address has one: without IPv6, its socket cannot be made."""
    (first,) = brokers(1)
    resolve, make = system.getaddrinfo, system.socket

    def both(*asked: object) -> object:
        return [*resolve(*asked), (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", first.port, 0, 0))][::order]

    def lacking(family: int, *how: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError("Address family not supported by protocol")
        return make(family, *how)

    order = -1
    monkeypatch.setattr(system, "getaddrinfo", both)
    monkeypatch.setattr(system, "socket", lacking)
    assert client_of(first).brokers() == [0]
    order = 1
    first.close()
    with pytest.raises(ConnectionFailed, match="refused"):
        client_of(first).metadata([], 0.1)


def test_an_idle_connection_is_probed(brokers):
    """More often than a firewall forgets it."""
    (first,) = brokers(1)
    client = client_of(first)
    client.brokers()
    with client.connect(0) as broker:
        assert broker.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 180


@pytest.mark.parametrize("host", ["broker..local", "b" * 70])
def test_a_name_that_no_host_can_have_is_an_error_with_its_reason(host, clock):
    """Mistyped by the user, or a byte of an answer that was changed on its way."""
    with pytest.raises(ConnectionFailed, match=r"EOS_KAFKA_UNREACHABLE.*name of a host"):
        BrokerClient(KafkaProperties({"bootstrap.servers": f"{host}:9092"})).metadata(None, timeout_s=0.2)


def test_a_cluster_of_other_brokers_at_the_same_address(brokers):
    """Those that were known are gone: the address that the user gave still counts."""
    first, second = brokers(2)
    client = client_of(first)
    client.brokers()
    cluster = first.cluster
    cluster.clear()
    cluster[7] = first
    second.close()
    client._last = 1
    assert client.brokers() == [7]


def test_a_finalized_feature_is_told_as_it_is_now(brokers):
    """0 where the cluster has none of that name."""
    (first,) = brokers(1)
    client = client_of(first)
    assert client.feature("transaction.version") == 2
    first.features = {"transaction.version": 1}
    assert client.feature("transaction.version") == 1
    first.features = {}
    assert client.feature("transaction.version") == 0


def test_the_level_of_transactions_is_asked_again_after_a_while(brokers, monkeypatch):
    """Not for each transaction; and where nobody answers, the last one counts."""
    (first,) = brokers(1)
    client = client_of(first)
    assert client.transaction_version() == 2
    first.features = {}
    asked = first.connections
    assert client.transaction_version() == 2
    monkeypatch.setattr(module, "LEVEL_S", -1.0)
    assert client.transaction_version() == 0
    assert first.connections == asked, "each new connection is a login"
    broken, right = [True], first._api_versions
    monkeypatch.setattr(first, "_api_versions", lambda: closed(broken.pop()) if broken else right())
    assert client.transaction_version() == 0
    monkeypatch.setattr(client, "feature", unreachable)
    assert client.transaction_version() == 0
    new = client_of(first)
    monkeypatch.setattr(new, "feature", unreachable)
    with pytest.raises(ConnectionFailed):
        new.transaction_version()


def unreachable(_: str) -> None:
    raise ConnectionFailed("EOS_KAFKA_UNREACHABLE", "Nobody answers.", hint="")


def test_the_version_of_a_request_is_that_of_its_broker(brokers):
    """It is asked where it is not known, and again once it is forgotten. Newer ones that only it knows are not used."""
    (first,) = brokers(1, spoken=SPOKEN | {26: (0, 3)})
    client = client_of(first)
    client.brokers()
    plain = Api("EndTxn", 26, 3, 4)
    assert client.version(0, plain) == 3
    first.spoken[26] = (0, 5)
    assert client.version(0, plain) == 3
    client.forget_versions(0)
    assert client.version(0, plain) == 4
    assert client.has(0, plain)
    assert client.supports(26, 5) and not client.supports(26, 6) and not client.supports(27, 0)
    with pytest.raises(OSError, match="broker 7"):
        client.has(7, plain)


@pytest.mark.parametrize("spoken", [{}, {26: (0, 2)}, {26: (5, 9)}], ids=["unknown", "too old", "too new"])
def test_a_broker_that_does_not_speak_a_request_is_refused(spoken, brokers):
    """The error names broker, request and versions; nothing is sent in a version that one side does not know."""
    brokers(1, spoken=SPOKEN | spoken)
    client, plain = client_of(*brokers(1)), Api("EndTxn", 26, 3, 4)
    client.brokers()
    assert not client.has(0, plain)
    with pytest.raises(KafkaError, match="Broker 0 speaks EndTxn in versions") as caught:
        client.version(0, plain)
    assert caught.value.condition == "EOS_BROKER_UNSUITABLE"
    assert "Apache Kafka 3.6" in caught.value.hint


def test_coordinators_are_remembered_until_they_are_forgotten(brokers):
    """Unknown ones have the code that the broker gave."""
    first, _second = brokers(2)
    for broker in first.cluster.values():
        broker.coordinators = {"a": 0, "b": 1}
    client = client_of(first)
    assert client.coordinators(["a", "b", "c"], TIMEOUT) == ({0: ["a"], 1: ["b"]}, {"c": 15})
    assert (client.coordinator("a", TIMEOUT), client.coordinator("c", TIMEOUT)) == ((0, None), (None, 15))
    for broker in first.cluster.values():
        broker.coordinators = {"a": 1, "b": 1}
    assert client.coordinators(["a"], TIMEOUT) == ({0: ["a"]}, {})
    client.forget(["a"])
    assert client.coordinators(["a"], TIMEOUT) == ({1: ["a"]}, {})


def test_a_forgotten_leader_is_looked_up_at_any_broker(brokers):
    """One that has lost its controller may name the old leader for long."""
    lagging, *others = brokers(3)
    for broker in (lagging, *others):
        broker.topics = {"t": [0]}
    client = client_of(lagging)
    for _ in range(20):
        client.leader("t", 0)
        client.forget_leader("t", 0)
    assert all(3 in other.asked for other in others)


def test_no_more_than_a_limit_of_coordinators_is_remembered(brokers, monkeypatch):
    """Ids of batch writes are used once. All that are asked for at once are told, however many."""
    monkeypatch.setattr(module, "_COORDINATORS", 100)
    (first,) = brokers(1)
    names = [f"id-{i}" for i in range(300)]
    first.coordinators = dict.fromkeys(names, 0)
    client = client_of(first)
    assert client.coordinators(names, TIMEOUT) == ({0: names}, {})
    assert len(client._coordinators) <= 100
    before = len(first.asked)
    assert client.coordinators(names[-10:], TIMEOUT) == ({0: names[-10:]}, {})
    assert len(first.asked) == before


Call = tuple[Callable[[], object], Callable[[object], bool]]


def at_once(calls: list[Call], seconds: float) -> list[object]:
    """Each again and again, in a thread of its own. Returns what they raise but OSError, and what is not right."""
    wrong: list[object] = []
    until, interval = time.monotonic() + seconds, sys.getswitchinterval()

    def again(do: Callable[[], object], is_right: Callable[[object], bool]) -> None:
        while time.monotonic() < until:
            try:
                found = do()
            except OSError:
                continue
            except Exception as error:
                wrong.append(error)
                continue
            wrong.extend([] if is_right(found) else [found])

    threads = [threading.Thread(target=again, args=call) for call in calls]
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    return wrong


def test_what_other_threads_forget_is_asked_again(brokers, monkeypatch):
    """Leaders, coordinators, versions and brokers, at any moment: without a KeyError, and no topic is said to be
    missing."""
    monkeypatch.setattr(module, "LEVEL_S", 0.0)
    first, _ = brokers(2)
    places = [("t", p) for p in range(50)]
    for broker in first.cluster.values():
        broker.topics, broker.coordinators = {"t": [0] * 50}, {"a": 0, "b": 1}
    client = client_of(first)

    def forget() -> None:
        for place in places:
            client.forget_leader(*place)
        client.forget(["a", "b"])
        client.forget_versions(0)
        client._silent(1, OSError("silent"))

    calls: list[Call] = [
        (client.transaction_version, lambda found: found == 2),
        (lambda: client.supports(METADATA, 12), bool),
        (lambda: client.leaders(places)[1], lambda errors: 3 not in errors.values()),
        (lambda: client.coordinators(["a", "b"], TIMEOUT), lambda found: found == ({0: ["a"], 1: ["b"]}, {})),
        (lambda: client.version(0, Api("Metadata", METADATA, 12, 12)), lambda found: found == 12),
        (client.unreached, lambda _: True),
        (forget, lambda _: True),
    ]
    assert at_once(calls, 0.8) == []


def about(error: int, *partitions: int) -> SimpleNamespace:
    """What brokers say of topic t, whose partitions have no leader."""
    of = [SimpleNamespace(partition_index=number, leader_id=-1) for number in partitions]
    return SimpleNamespace(name="t", error_code=error, partitions=of)


@pytest.mark.parametrize(
    ("topics", "code"),
    [
        ([], Code.UNKNOWN_TOPIC_OR_PARTITION),
        ([about(29)], 29),
        ([about(0, 1)], Code.LEADER_NOT_AVAILABLE),
        ([about(5, 1)], Code.LEADER_NOT_AVAILABLE),
        ([about(0, 0)], Code.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_partition_without_a_leader_has_a_reason(topics, code, brokers, monkeypatch):
    """By what the brokers say of its topic."""
    client = client_of(*brokers(1))
    monkeypatch.setattr(client, "metadata", lambda *_: SimpleNamespace(topics=topics))
    assert client.leaders([("t", 1)]) == ({}, {("t", 1): code})


def test_no_more_than_a_few_clients_are_kept(brokers, monkeypatch):
    """Those that were used longest ago are closed, with their connections."""
    monkeypatch.setattr(module, "_FIRST_TRY_S", TIMEOUT)
    (first,) = brokers(1)
    server = f"127.0.0.1:{first.port}"
    made = []
    for i in range(9):
        made.append(broker_client(KafkaProperties({"bootstrap.servers": server, "client.id": str(i)})))
        made[-1].brokers()
    assert len(module._clients) == module._CLIENTS
    assert first.connections == len(made)
    wait_for(lambda: first.held == module._CLIENTS, lambda: f"the end of others: {first.held}")
    assert broker_client(made[-1].properties) is made[-1]
    assert broker_client(made[0].properties) is not made[0]
    module.close_all()
    assert not module._clients
    wait_for(lambda: first.held == 0, lambda: f"the end of all: {first.held}")
