"""Offsets that a group is given, and those of topics that the sink's cluster does not have."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_eos.kafka.codes import OK, Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ledger import group_offsets
from spark_eos.ledger.group_offsets import GroupOffsets
from spark_eos.protocol.head import Pair

LEDGER = Pair("ledger", 1, 0)


class Brokers:
    """``topics``: those that all brokers know, of one partition, once the coordinator of the group has answered with
    ``errors``. ``given``: offsets that it has committed."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.errors: list[int] = []
        self.given: list[dict[str, dict[int, int]]] = []

    def commit(self, client: object, own: object, group: str, offsets: dict[str, dict[int, int]], *_: object) -> int:
        if self.errors:
            return self.errors.pop(0)
        if not offsets.keys() <= self.topics:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        self.given.append(offsets)
        return OK

    def describe(self, *_: object, **__: object) -> dict[str, SimpleNamespace]:
        return {name: SimpleNamespace(partitions=1) for name in self.topics if not self.errors}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch, clock: object) -> Brokers:
    brokers = Brokers()
    monkeypatch.setattr(group_offsets, "txn_offset_commit", brokers.commit)
    monkeypatch.setattr(group_offsets, "describe_topics", brokers.describe)
    return brokers


@pytest.fixture
def offsets() -> GroupOffsets:
    return GroupOffsets(BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"})), "g")


def test_what_one_run_leaves_out_the_next_one_gives(brokers: Brokers, offsets: GroupOffsets, caplog):
    """In the same process, once the topic is there again; as the warning says."""
    brokers.topics = {"kept"}
    for run in ("r1", "r1", "r2"):
        offsets.send(LEDGER, 5, {"kept": {"0": 1}, "gone": {"0": 2}}, run, 10.0)
        brokers.topics = {"kept", "gone"}
    assert [given.keys() for given in brokers.given] == [{"kept"}, {"kept"}, {"kept", "gone"}]
    assert caplog.text.count("does not get the offsets of gone") == 1


@pytest.mark.parametrize(
    ("error", "times"), [(Code.UNKNOWN_TOPIC_OR_PARTITION, 10), (Code.COORDINATOR_LOAD_IN_PROGRESS, 20)]
)
def test_a_coordinator_that_has_just_started_is_asked_again(
    brokers: Brokers, offsets: GroupOffsets, caplog, error: int, times: int
):
    """For less than two seconds it may not know a topic that is there, and for longer not its groups: nothing is left
    out for that."""
    brokers.topics, brokers.errors = {"t"}, [error] * times
    offsets.send(LEDGER, 5, {"t": {"0": 1}}, "r", 10.0)
    assert (brokers.given, brokers.errors, caplog.text) == ([{"t": {0: 1}}], [], "")
