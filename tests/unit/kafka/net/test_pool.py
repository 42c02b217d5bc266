"""Connections that are kept for their next use."""

from __future__ import annotations

import socket

from spark_eos.kafka.net import sessions
from spark_eos.kafka.net.pool import ConnectionPool


class Connection:
    """With both ends. A pool keeps one to each broker."""

    kept_each, kept_in_all = 1, 16

    def __init__(self, node: int, *, idle: bool = True, due: bool = False) -> None:
        self.node, self.idle, self.due, self.closed = node, idle, due, False
        self._socket, self.broker = socket.socketpair()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self.closed = True
        self._socket.close()


class Another(Connection):
    """For other requests. A pool keeps two to each broker, and three in all."""

    kept_each, kept_in_all = 2, 3


def test_one_is_used_again_for_its_requests_and_its_broker_only():
    """A connection that was given back is taken once, as one of its class, to the same broker."""
    own, given = ConnectionPool(), Connection(7)
    own.give_back(given)
    assert own.take(Another, 7) is own.take(Connection, 8) is None
    assert own.take(Connection, 7) is given
    assert own.take(Connection, 7) is None


def test_one_that_waits_for_an_answer_is_closed():
    """Its next user would take that answer for his own. So is the older one of two to the same broker."""
    own, waiting, first, second = ConnectionPool(), Connection(7, idle=False), Connection(7), Connection(7)
    for connection in (waiting, first, second):
        own.give_back(connection)
    assert (waiting.closed, first.closed, second.closed) == (True, True, False)
    own.close()
    assert second.closed


def test_one_whose_broker_wants_to_know_again_who_it_is():
    """It is closed, and a new one says it."""
    own, given = ConnectionPool(), Connection(7, due=True)
    own.give_back(given)
    assert own.take(Connection, 7) is None and given.closed


def test_several_to_a_broker_where_they_are_wanted():
    """The pool holds so many connections to each broker, and closes the oldest."""
    own, connections = ConnectionPool(), [Another(7) for _ in range(3)]
    for connection in connections:
        own.give_back(connection)
    assert [connection.closed for connection in connections] == [True, False, False]
    assert [own.take(Another, 7) for _ in range(3)] == [connections[2], connections[1], None]


def test_those_that_were_used_longest_ago_make_room():
    """The pool holds a bounded number of connections of a class; those of another one do not count."""
    own, other, connections = ConnectionPool(), Connection(0), [Another(node) for node in (0, 0, 1, 2, 3)]
    for connection in (other, *connections):
        own.give_back(connection)
    assert [connection.closed for connection in connections] == [True, True, False, False, False]
    assert not other.closed


def test_one_that_the_broker_has_closed_is_not_used():
    """As brokers do with connections on which nothing was asked for ten minutes."""
    own, stale, good = ConnectionPool(), Another(7), Another(7)
    own.give_back(good)
    own.give_back(stale)
    stale.broker.close()
    assert own.take(Another, 7) is good
    assert stale.closed


def test_what_has_cut_one_has_cut_those_to_the_same_broker():
    """As a firewall that has forgotten them: nothing tells so but the silence, and each kind of request would wait for
    its own."""
    own, lost, alike, another, other = ConnectionPool(), Another(7), Another(7), Connection(7), Another(8)
    for connection in (alike, another, other):
        own.give_back(connection)
    own.lost(lost)
    assert (lost.closed, alike.closed, another.closed, other.closed) == (True, True, True, False)


def test_a_fork_leaves_its_parents_connections_alone(monkeypatch):
    """It neither uses nor closes them: TLS would tell the broker of the end."""
    own, of_parent = ConnectionPool(), Another(7)
    own.give_back(of_parent)
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert own.take(Another, 7) is None
    own.lost(Another(7))
    assert not of_parent.closed


def test_a_session_that_a_broker_limits_is_replaced_before_its_end(clock):
    """One without a limit never is."""
    limited, without = socket.socketpair()
    with limited, without:
        sessions.begin(limited, clock.now, 1)
        sessions.begin(without, clock.now, 0)
        assert not sessions.is_due(limited)
        clock.now += 0.9 * 0.001
        assert sessions.is_due(limited)
        clock.now += 1e9
        assert not sessions.is_due(without)
