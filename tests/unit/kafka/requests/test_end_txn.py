"""EndTxn requests as coordinators get them, by kafka-python's own schema, and coordinators that do not answer."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kafka.protocol.producer.transaction import EndTxnRequest, EndTxnResponse

from spark_eos.kafka.net.pool import ConnectionPool
from spark_eos.kafka.requests.end_txn import EndConnection, end_own_txn, end_txns
from tests.support.waiting import TIMEOUT

VERSION = 5
#: Transactional id → what its coordinator answers, always or one after the other; "silent": nothing; "closes": nothing,
#: and the connection goes.
Answers = dict[str, int | str | list[int | str]]


def read(broker: socket.socket) -> EndTxnRequest | None:
    """The next request; None at the end."""
    size = broker.recv(4, socket.MSG_WAITALL)
    if len(size) < 4:
        return None
    data = broker.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL)
    return EndTxnRequest.decode(data, version=VERSION, header=True)


def answer(number: int, error: int) -> bytes:
    body = EndTxnResponse(throttle_time_ms=3, error_code=error, producer_id=9, producer_epoch=2)
    data = struct.pack(">i", number) + b"\x00" + body.encode(version=VERSION)
    return struct.pack(">i", len(data)) + data


class Brokers:
    """A client, and what stands behind it: coordinators by number, each connection with a thread of its own.

    ``most``: connections that can be had. ``deaf``: how many of the first do not answer. ``silent``: our ends of those
    on which an answer has not come. ``withheld``: why nobody says who coordinates, by id.
    """

    def __init__(self, homes: dict[str, int], answers: Answers) -> None:
        self.pool, self.silence_s = ConnectionPool(), 0.2
        self.asked: list[EndTxnRequest] = []
        self.connections: list[int] = []
        self.unreachable: set[int] = set()
        self.forgotten: list[str] = []
        self.withheld: dict[str, int] = {}
        self.most: int | None = None
        self.deaf = 0
        self.silent: set[socket.socket] = set()
        self._coordinators, self._answers = homes, answers
        self._threads: list[threading.Thread] = []

    def coordinators(self, ids: list[str], seconds: float) -> tuple[dict[int, list[str]], dict[str, int]]:
        found: dict[int, list[str]] = {}
        for name in ids:
            if name in self._coordinators:
                found.setdefault(self._coordinators[name], []).append(name)
        return found, {name: code for name, code in self.withheld.items() if name in ids}

    def forget(self, ids: list[str]) -> None:
        self.forgotten += ids

    def forget_versions(self, node: int) -> None:
        pass

    def connection(self, kind: type[EndConnection], node: int, seconds: float) -> EndConnection:
        return self.pool.take(kind, node) or kind(self._connect(node), node)

    def _connect(self, node: int) -> socket.socket:
        if node in self.unreachable or len(self.connections) == self.most:
            raise OSError("no connection")
        self.connections.append(node)
        ours, theirs = socket.socketpair()
        self._threads.append(threading.Thread(target=self._serve, args=[ours, theirs, len(self.connections)]))
        self._threads[-1].start()
        return ours

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _serve(self, client: socket.socket, broker: socket.socket, number: int) -> None:
        with broker:
            while (request := read(broker)) is not None:
                self.asked.append(request)
                if number <= self.deaf:
                    self.silent.add(client)
                    continue
                what = self._answers[request.transactional_id]
                what = what.pop(0) if isinstance(what, list) else what
                if what == "closes":
                    return
                if what == "silent":
                    self.silent.add(client)
                else:
                    broker.sendall(answer(request.header.correlation_id, what))


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Brokers]]:
    made: list[Brokers] = []

    def moved_at(self: EndConnection) -> float:
        """Only silence counts as such: a machine may be busy."""
        is_silent = any(self._socket in each.silent for each in made)
        return self.__dict__["moved"] if is_silent else time.monotonic()

    def move(self: EndConnection, at: float) -> None:
        self.__dict__["moved"] = at

    monkeypatch.setattr(EndConnection, "moved_at", property(moved_at, move), raising=False)

    def make(homes: dict[str, int], answers: Answers) -> Brokers:
        made.append(Brokers(homes, answers))
        return made[-1]

    yield make
    for each in made:
        each.pool.close()
        each.join()


@pytest.mark.parametrize("commit", [True, False])
def test_a_request(brokers, commit):
    """The bytes are those of EndTxn as kafka-python reads them, and the answer's code comes back."""
    client = brokers({"tränsaction": 1}, {"tränsaction": 0})
    assert end_txns(client, [("tränsaction", 1 << 40, 7)], commit, VERSION) == {"tränsaction": 0}
    (request,) = client.asked
    assert (request.header.request_api_key, request.header.request_api_version) == (26, VERSION)
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("tränsaction", 1 << 40, 7)
    assert request.committed is commit


def test_each_is_answered_by_itself(brokers):
    """Many on few connections, by several coordinators; those that nobody is the home of have no answer."""
    codes = {f"t{i}": i % 5 for i in range(500)}
    client = brokers({name: int(name[1:]) % 3 for name in codes}, codes)
    asked = [(name, 1, 1) for name in (*codes, "homeless")]
    assert end_txns(client, asked, True, VERSION) == {**codes, "homeless": None}
    assert sorted(set(client.connections)) == [0, 1, 2]
    assert len(client.connections) == 3 * 16
    assert end_txns(client, [(name, 1, 1) for name in codes], True, VERSION) == codes
    assert len(client.connections) == 3 * 16
    assert end_txns(client, [], True, VERSION) == {}


@pytest.mark.parametrize(("ends", "most", "connections"), [(5, None, 3), (50, 2, 2)], ids=["few", "no more to be had"])
def test_ends_of_one_coordinator_share_connections(brokers, ends, most, connections):
    """Several at once; all are asked for on those that can be had, as a broker may allow no more of them."""
    codes = {f"t{i}": 0 for i in range(ends)}
    client = brokers(dict.fromkeys(codes, 0), codes)
    client.most = most
    assert end_txns(client, [(name, 1, 1) for name in codes], True, VERSION) == codes
    assert client.connections == [0] * connections


@pytest.mark.parametrize("what", ["closes", "silent"])
def test_no_answer_hides_no_other_one(brokers, what):
    """What comes on other connections, and by other coordinators, still counts."""
    codes = {f"t{i}": 0 for i in range(20)} | {"t3": what}
    client = brokers(dict.fromkeys(codes, 0) | {"t4": 1, "t5": 2}, codes)
    client.unreachable.add(2)
    answers = end_txns(client, [(name, 1, 1) for name in codes], True, VERSION)
    silent = {name for name, code in answers.items() if code is None}
    assert {"t3", "t5"} <= silent
    assert len(silent) <= 4  # t3's connection had two others at most
    assert set(answers.values()) == {0, None}
    assert end_txns(client, [("t4", 1, 1), ("t6", 1, 1)], True, VERSION) == {"t4": 0, "t6": 0}


def test_an_answer_that_is_cut_off_makes_no_sense():
    """A short answer is an error of the connection, never an outcome."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = EndConnection(ours, 0)
        connection.queue([("a", 1, 1)], True, VERSION)
        connection.push()
        theirs.sendall(struct.pack(">i", 6) + answer(1, 0)[4:10])
        with pytest.raises(OSError, match="makes no sense"):
            connection.answers()


@pytest.mark.parametrize("final", [0, 48, 90])
def test_one_is_asked_for_until_the_answer_is_final(brokers, final):
    """Through a lost answer, a transition that is under way, and a coordinator that has moved."""
    client = brokers({"a": 0}, {"a": ["closes", 51, 16, final]})
    assert end_own_txn(client, ("a", 1, 1), True, TIMEOUT, VERSION) == final
    assert len(client.asked) == 4
    assert client.forgotten == ["a", "a"]


def test_nobody_knows_when_the_time_is_over(brokers):
    """An end without an answer is unknown, neither committed nor aborted."""
    assert end_own_txn(brokers({"a": 0}, {"a": "closes"}), ("a", 1, 1), True, 0.05, VERSION) is None


def test_connections_that_died_in_silence_cost_one_wait(brokers):
    """The first silence gives up all that were kept for this coordinator; the next try begins with a new one."""
    names = [f"t{i}" for i in range(32)]
    client = brokers(dict.fromkeys(names, 0), dict.fromkeys(names, 0))
    end_txns(client, [(name, 1, 1) for name in names], True, VERSION)
    assert len(client.connections) == 16
    client.deaf = 16
    assert end_own_txn(client, ("t0", 1, 1), True, TIMEOUT, VERSION) == 0
    assert len(client.connections) == 17
    assert len(client.asked) == len(names) + 2


def test_a_coordinator_that_may_not_be_looked_up_is_a_refusal(brokers):
    """So that nobody waits for an answer; other errors of the look-up may pass, and say nothing of the transaction."""
    client = brokers({}, {})
    client.withheld = {"a": 53, "b": 15}
    assert end_txns(client, [("a", 1, 1), ("b", 2, 1)], True, VERSION) == {"a": 53, "b": None}
    assert end_own_txn(client, ("a", 1, 1), True, 5.0, VERSION) == 53
