"""Connections that are kept for their next use."""

from dataclasses import dataclass

from spark_eos.kafka import kept
from spark_eos.kafka.kept import Kept
from spark_eos.options import KafkaProperties

ONE, OTHER = (KafkaProperties({"bootstrap.servers": f"127.0.0.1:{port}"}) for port in (1, 2))


@dataclass
class Connection:
    node: int
    idle: bool = True
    closed: bool = False

    def close(self) -> None:
        self.closed = True


def test_one_is_used_again_for_its_cluster_and_broker_only():
    own, given = Kept(Connection), Connection(7)
    own.give_back(ONE, given)
    assert own.take(OTHER, 7) is own.take(ONE, 8) is None
    assert own.take(ONE, 7) is given
    assert own.take(ONE, 7) is None


def test_one_that_waits_for_an_answer_is_closed():
    """Its next user would take that answer for his own. So is a second one to the same broker."""
    own, waiting, first, second = Kept(Connection), Connection(7, idle=False), Connection(7), Connection(7)
    for connection in (waiting, first, second):
        own.give_back(ONE, connection)
    assert (waiting.closed, first.closed, second.closed) == (True, False, True)
    own.close()
    assert first.closed


def test_those_that_were_used_longest_ago_make_room():
    own, connections = Kept(Connection), [Connection(node) for node in range(kept._MOST + 2)]
    for connection in connections:
        own.give_back(ONE, connection)
    assert [connection.node for connection in connections if connection.closed] == [0, 1]
