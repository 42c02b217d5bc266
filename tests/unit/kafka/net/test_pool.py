"""Connections that are kept for their next use."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.pool import ConnectionPool

ONE, OTHER = (KafkaProperties({"bootstrap.servers": f"127.0.0.1:{port}"}) for port in (1, 2))


class Connection:
    """With both ends."""

    def __init__(self, node: int, *, idle: bool = True, due: bool = False) -> None:
        self.node, self.idle, self.due, self.closed = node, idle, due, False
        self._socket, self.broker = socket.socketpair()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self.closed = True
        self._socket.close()


def made(_socket: object, node: int, _client_id: str) -> Connection:
    return Connection(node)


def test_one_is_used_again_for_its_cluster_and_broker_only():
    """A connection that was given back is taken once, for the same cluster and broker."""
    own, given = ConnectionPool(made), Connection(7)
    own.give_back(ONE, given)
    assert own.take(OTHER, 7) is own.take(ONE, 8) is None
    assert own.take(ONE, 7) is given
    assert own.take(ONE, 7) is None


def test_one_that_waits_for_an_answer_is_closed():
    """Its next user would take that answer for his own. So is the older one of two to the same broker."""
    own, waiting, first, second = ConnectionPool(made), Connection(7, idle=False), Connection(7), Connection(7)
    for connection in (waiting, first, second):
        own.give_back(ONE, connection)
    assert (waiting.closed, first.closed, second.closed) == (True, True, False)
    own.close()
    assert second.closed


def test_one_whose_broker_wants_to_know_again_who_it_is():
    """It is closed, and a new one says it."""
    own, given = ConnectionPool(made), Connection(7, due=True)
    own.give_back(ONE, given)
    assert own.take(ONE, 7) is None and given.closed


def test_several_to_a_broker_where_they_are_wanted():
    """The pool holds so many connections to each broker, and closes the oldest."""
    own, connections = ConnectionPool(made, each=2), [Connection(7) for _ in range(3)]
    for connection in connections:
        own.give_back(ONE, connection)
    assert [connection.closed for connection in connections] == [True, False, False]
    assert [own.take(ONE, 7) for _ in range(3)] == [connections[2], connections[1], None]


def test_those_that_were_used_longest_ago_make_room():
    """The pool holds a bounded number of connections in all."""
    own, connections = ConnectionPool(made, each=2, most=3), [Connection(node) for node in (0, 0, 1, 2, 3)]
    for connection in connections:
        own.give_back(ONE, connection)
    assert [connection.closed for connection in connections] == [True, True, False, False, False]


def test_one_that_the_broker_has_closed_is_not_used():
    """As brokers do with connections on which nothing was asked for ten minutes."""
    own, stale, good = ConnectionPool(made, each=2), Connection(7), Connection(7)
    own.give_back(ONE, good)
    own.give_back(ONE, stale)
    stale.broker.close()
    assert own.take(ONE, 7) is good
    assert stale.closed


def test_what_has_cut_one_has_cut_those_to_the_same_broker():
    """As a firewall that has forgotten them: nothing tells so but the silence."""
    own, lost, alike, other = ConnectionPool(made, each=2), Connection(7), Connection(7), Connection(8)
    for connection in (alike, other):
        own.give_back(ONE, connection)
    own.lost(ONE, lost)
    assert (lost.closed, alike.closed, other.closed) == (True, True, False)


def test_what_has_cut_one_has_cut_those_of_other_pools():
    """Else each kind of request would wait for its own silence, one after the other, before it finds out."""
    own, another, lost, alike, elsewhere = *(ConnectionPool(made) for _ in range(2)), *(Connection(7) for _ in range(3))
    another.give_back(ONE, alike)
    another.give_back(OTHER, elsewhere)
    own.lost(ONE, lost)
    assert (lost.closed, alike.closed, elsewhere.closed) == (True, True, False)


def test_a_broker_that_cannot_be_reached_is_an_error():
    """A failed connection is raised to the caller."""

    def connect(node: int, seconds: float | None) -> None:
        raise OSError(f"broker {node} is away")

    client = SimpleNamespace(properties=ONE, connect=connect)
    with pytest.raises(OSError, match="broker 7 is away"):
        ConnectionPool(made).connect(client, 7)
