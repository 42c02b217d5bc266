"""What a client knows of its cluster, when brokers come, go, fall silent or are of another kind."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from spark_eos.base import system
from spark_eos.errors import ConnectionFailed, KafkaError
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net import client as module
from spark_eos.kafka.net import handshake
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.kafka.net.metadata import METADATA as REQUEST
from spark_eos.kafka.net.metadata import about_topics
from spark_eos.kafka.net.schema import Api
from tests.support.servers.fake_broker import SPOKEN, FakeBroker
from tests.support.servers.unused_hosts import nobody
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


def test_one_address_leads_to_all_brokers(brokers, long_tries):
    """And a question goes over a connection that is there."""
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


def test_a_broker_that_was_only_heard_of_is_looked_for(brokers, clock):
    """A number without an address asks the cluster, not more than once a second."""
    (first,) = brokers(1)
    client = client_of(first)
    client.brokers()
    brokers(1)
    with pytest.raises(OSError, match="broker 1 is not known"):
        client.connect(1)
    clock.now += 1.0
    client.connect(1).close()
    clock.now += 1.0
    with pytest.raises(OSError, match="broker 7 is not known"):
        client.connect(7)


@pytest.mark.parametrize("known", [(), (1,), (1, 2)], ids=["none", "one", "both"])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)], ids=["first", "last"])
def test_a_host_that_drops_packets_takes_nobody_elses_time(brokers, known, order, clock, monkeypatch):
    """Whether the others have a connection already, and wherever it comes among them: all others answer each time,
    before its time is over, which is that of a connect."""
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
    client.ask(1, REQUEST, about_topics([]))
    client.close()
    client.ask_each(dict.fromkeys(known, about_topics([])), REQUEST)
    monkeypatch.setattr(module, "open_socket", open_socket)
    monkeypatch.setattr(module, "_answer", noted)
    for _ in range(2):
        answered.clear()
        found = client.ask_each(dict.fromkeys(order, about_topics([])), REQUEST, TIMEOUT)
        assert {node for node, answer in found.items() if answer is not None} == {1, 2}
    assert took == [10.0]


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


def test_a_broker_that_stays_silent_stops_nobody(brokers, caplog, clock):
    """It is named in the log, as a query starts while one of its brokers is down; and one that is too old is found
    beside it."""
    first, second = brokers(2, spoken=SPOKEN | {26: (0, 3)})
    brokers(1, spoken=SPOKEN | {26: (0, 2)})
    client = client_of(first)
    client.brokers()
    second.fate = "closes"
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


def test_a_cluster_that_is_gone_is_an_error_with_its_reason(clock):
    """In the time that there was."""
    with nobody() as address, pytest.raises(ConnectionFailed, match="refused") as caught:
        BrokerClient(KafkaProperties({"bootstrap.servers": address})).metadata([], 0.5)
    assert caught.value.condition == "EOS_KAFKA_UNREACHABLE"
    assert caught.value.parameters["waited_s"] <= 0.5


PASSWORD = {"sasl.username": "ann", "sasl.password": "pa55word"}
UNSECURED = {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=ann"}


@pytest.mark.parametrize(
    ("mechanism", "login", "who", "later"),
    [
        ("PLAIN", PASSWORD, "user 'ann' by PLAIN", False),
        ("PLAIN", PASSWORD, "user 'ann' by PLAIN", True),
        ("SCRAM-SHA-256", PASSWORD, "user 'ann'", False),
        ("SCRAM-SHA-512", PASSWORD | {"sasl.username": " "}, "user ' '", False),
        ("OAUTHBEARER", UNSECURED, "user 'ann' by OAUTHBEARER", False),
    ],
)
def test_a_client_that_is_not_let_in_is_told_as_whom(mechanism, login, who, later, brokers):
    """A broker has answered: this is not silence, also where the password is changed while a query runs."""
    (first,) = brokers(1)
    first.mechanism = mechanism
    client = client_of(first, **{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}, **login)
    if later:
        client.brokers()
        client.close()
    first.believes = False
    with pytest.raises(ConnectionFailed, match=who) as caught:
        client.metadata([], 0.5)
    assert (caught.value.condition, caught.value.restart_helps) == ("EOS_UNAUTHENTICATED", False)
    assert "invalid credentials" in caught.value.message
    assert "pa55word" not in str(caught.value)


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
    clock.now += 5.0
    assert sorted(client.brokers()) == [0, 1]


def client_that_was_let_in(*cluster: FakeBroker) -> BrokerClient:
    """Without a connection by now."""
    for broker in cluster:
        broker.mechanism = "PLAIN"
    client = client_of(cluster[0], **{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, **PASSWORD)
    client.brokers()
    client.close()
    return client


def start_often(client: BrokerClient) -> None:
    for _ in range(50):
        with suppress(ConnectionFailed):
            client.metadata([])


def test_a_broker_that_is_away_is_waited_for_where_another_one_refuses_the_login(brokers, clock):
    """It may know the user already."""
    first, second = brokers(2)
    client = client_that_was_let_in(first, second)
    first.believes, second.fate = False, "closes"
    clock.meanwhile = lambda: setattr(second, "fate", "works")
    assert sorted(client.brokers()) == [0, 1]


def test_the_only_broker_is_asked_again_with_a_new_token(brokers, tmp_path):
    """As it may refuse an old one, and there is no other broker to hear of the new one."""
    (first,) = brokers(1)
    (tmp_path / "token").write_text("old")
    oauth = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri()}
    client = client_of(first, **{"security.protocol": "SASL_PLAINTEXT"}, **oauth)
    client.brokers()
    client.close()
    (tmp_path / "token").write_text("new")
    first.believes = lambda said: b"Bearer new" in said
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
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    assert client_of(first, **login, **UNSECURED).brokers() == [0]


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
    cluster = first.cluster
    del cluster[0]
    client = client_of(first)
    assert client.brokers() == [1]
    second.close()
    cluster[7] = first
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


def test_the_level_of_transactions_is_asked_again_after_a_while(brokers, clock):
    """Not for each transaction; and where nobody answers, the last one counts."""
    (first,) = brokers(1)
    client = client_of(first)
    assert client.transaction_version() == 2
    first.features = {}
    asked = first.connections
    clock.now += module.LEVEL_S
    assert client.transaction_version() == 2
    clock.now += 0.1
    assert client.transaction_version() == 0
    assert first.connections == asked, "each new connection is a login"
    first.features, first.fate = {"transaction.version": 1}, "closes"
    clock.now += module.LEVEL_S + 0.1
    assert client.transaction_version() == 0
    with pytest.raises(ConnectionFailed):
        client_of(first).transaction_version()
    clock.meanwhile = lambda: setattr(first, "fate", "works")
    assert client.transaction_version() == 1


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


def test_no_more_than_a_limit_of_coordinators_is_remembered(brokers, long_tries):
    """Ids of batch writes are used once. All that are asked for at once are told, however many."""
    (first,) = brokers(1)
    names = [f"id-{i}" for i in range(20_001)]
    first.coordinators = dict.fromkeys(names, 0)
    client = client_of(first)
    assert client.coordinators(names, TIMEOUT) == ({0: names}, {})
    before = len(first.asked)
    assert client.coordinators(names[1:], TIMEOUT) == ({0: names[1:]}, {})
    assert len(first.asked) == before
    assert client.coordinators(names[:1], TIMEOUT) == ({0: names[:1]}, {})
    assert len(first.asked) > before


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


def test_what_other_threads_forget_is_asked_again(brokers):
    """Leaders, coordinators, versions and brokers, at any moment: without a KeyError, and no topic is said to be
    missing."""
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
        client.connect(1, 1e-9)  # for which there is no time

    calls: list[Call] = [
        (lambda: client.feature("transaction.version"), lambda found: found == 2),
        (lambda: client.supports(METADATA, 12), bool),
        (lambda: client.leaders(places)[1], lambda errors: 3 not in errors.values()),
        (lambda: client.coordinators(["a", "b"], TIMEOUT), lambda found: found == ({0: ["a"], 1: ["b"]}, {})),
        (lambda: client.version(0, Api("Metadata", METADATA, 12, 12)), lambda found: found == 12),
        (client.unreached, lambda _: True),
        (forget, lambda _: True),
    ]
    assert at_once(calls, 0.8) == []


@pytest.mark.parametrize(
    ("partitions", "error", "code"),
    [
        ([-1, -1], None, Code.UNKNOWN_TOPIC_OR_PARTITION),
        ([-1, -1], 29, 29),
        ([-1, -1], 0, Code.LEADER_NOT_AVAILABLE),
        ([-1, -1], 5, Code.LEADER_NOT_AVAILABLE),
        ([-1], 0, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_partition_without_a_leader_has_a_reason(partitions, error, code, brokers):
    """By what the brokers say of its topic."""
    (first,) = brokers(1)
    first.topics, first.refused = {"t": partitions}, {"t": error}
    assert client_of(first).leaders([("t", 1)]) == ({}, {("t", 1): code})


def test_no_more_than_a_few_clients_are_kept(brokers, long_tries):
    """Those that were used longest ago are closed, with their connections."""
    (first,) = brokers(1)
    server = f"127.0.0.1:{first.port}"
    made = []
    for i in range(9):
        made.append(broker_client(KafkaProperties({"bootstrap.servers": server, "client.id": str(i)})))
        made[-1].brokers()
    assert first.connections == len(made)
    wait_for(lambda: first.held == 8, lambda: f"the end of others: {first.held}")
    assert broker_client(made[-1].properties) is made[-1]
    assert broker_client(made[0].properties) is not made[0]
    module.close_all()
    wait_for(lambda: first.held == 0, lambda: f"the end of all: {first.held}")
    assert broker_client(made[-1].properties) is not made[-1]
