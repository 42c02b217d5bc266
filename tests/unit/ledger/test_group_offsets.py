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
from tests.support.waiting import TIMEOUT


def test_what_one_run_leaves_out_the_next_one_gives(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """In the same process, once the topic is there again; as the warning says."""
    there: set[str] = {"kept"}
    given: list[set[str]] = []

    def ask(client: object, own: object, group: str, offsets: dict[str, object], *_: object) -> int:
        if not offsets.keys() <= there:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        given.append({*offsets})
        return OK

    monkeypatch.setattr(group_offsets, "txn_offset_commit", ask)
    monkeypatch.setattr(group_offsets, "_UNKNOWN_S", 0.0)
    monkeypatch.setattr(
        group_offsets, "describe_topics", lambda *_, **__: {name: SimpleNamespace(partitions=1) for name in there}
    )
    offsets = GroupOffsets(BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"})), "g")
    for run in ("r1", "r1", "r2"):
        offsets.send(Pair("ledger", 1, 0), 5, {"kept": {"0": 1}, "gone": {"0": 2}}, run, 1.0)
        if len(given) == 1:
            there.add("gone")
    assert given == [{"kept"}, {"kept"}, {"kept", "gone"}]
    assert caplog.text.count("does not get the offsets of gone") == 1


@pytest.mark.parametrize(
    ("error", "after_s"), [(Code.UNKNOWN_TOPIC_OR_PARTITION, TIMEOUT), (Code.COORDINATOR_LOAD_IN_PROGRESS, 0.0)]
)
def test_a_coordinator_that_has_just_started_is_asked_again(
    error: int, after_s: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """It may not know a topic that is there, or its groups: nothing is left out for that."""
    answers = iter([error, error, OK])
    given: list[dict[str, object]] = []

    def ask(client: object, own: object, group: str, offsets: dict[str, object], *_: object) -> int:
        given.append(offsets)
        return next(answers)

    monkeypatch.setattr(group_offsets, "txn_offset_commit", ask)
    monkeypatch.setattr(group_offsets, "_UNKNOWN_S", after_s)
    monkeypatch.setattr(group_offsets, "describe_topics", lambda *_, **__: {})  # of a broker that does not know either
    offsets = GroupOffsets(BrokerClient(KafkaProperties({"bootstrap.servers": "none:1"})), "g")
    offsets.send(Pair("ledger", 1, 0), 5, {"t": {"0": 1}}, "r", TIMEOUT)
    assert given == [{"t": {0: 1}}] * 3 and not caplog.text
