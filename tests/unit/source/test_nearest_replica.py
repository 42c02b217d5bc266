"""Which broker serves the rows, where the leader has named a replica that is nearer: two brokers, by a clock of their
own."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.requests.fetch import FetchResponse
from spark_eos.source import nearest_replica, raw
from spark_eos.source.fetching import Fetching
from spark_eos.source.nearest_replica import NearestReplica

LEADER, REPLICA = 1, 2
KAFKA = KafkaProperties({"bootstrap.servers": "127.0.0.1:1", "client.rack": "here"})
NAMED, ROWS, EMPTY = FetchResponse(0, 0, preferred=REPLICA), FetchResponse(0, 100), FetchResponse(0, 0)


class Brokers:
    """The leader names the replica to whoever asks with a rack, and has all rows; the replica answers so. ``served``:
    which of them has given rows."""

    def __init__(self, patch: pytest.MonkeyPatch, answer: FetchResponse) -> None:
        self.now_s, self.served, self._answer = 0.0, list[int](), answer
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep)
        for module in (raw, nearest_replica):
            patch.setattr(module, "system", clock)
        patch.setattr(nearest_replica, "_choices", {})
        patch.setattr(raw, "connect", lambda _, topic, partition, node: self._connection(node or LEADER))
        patch.setattr(raw, "give_back", lambda *_: None)
        patch.setattr(raw, "is_supported_by_id", lambda _: False)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def _connection(self, node: int) -> Any:
        racks: list[str] = []

        def receive_one(timeout_s: float) -> FetchResponse:
            self.now_s += 0.3
            if node == REPLICA:
                return self._answer
            return NAMED if racks[-1] else ROWS

        send: Callable[..., None] = lambda *_, rack, **__: racks.append(rack)  # noqa: E731
        return SimpleNamespace(node=node, due=False, send=send, receive_one=receive_one, close=lambda: None)

    def read(self) -> None:
        client: Any = SimpleNamespace(
            properties=KAFKA, silence_s=30.0, fetch_wait_ms=500, forget_leader=lambda *_: None
        )
        fetches = raw._Fetches(Fetching(client), OffsetRange("t", 0, 0, 100), 1 << 20)

        def taken(_: FetchResponse) -> Any:
            self.served.append(fetches._connected.node)
            return SimpleNamespace(next_offset=100)

        fetches.next(taken)


@pytest.mark.parametrize(
    "answer",
    [FetchResponse(Code.OFFSET_OUT_OF_RANGE, 0), FetchResponse(Code.NOT_LEADER_OR_FOLLOWER, 0), EMPTY],
    ids=["out of range", "no follower", "behind"],
)
def test_a_replica_that_is_of_no_use_is_left_for_the_leader(monkeypatch, answer):
    """What is out of its range may be in the leader's: it is not data loss. Its high watermark follows the leader's; a
    reader waits for that a second, and no longer. After a minute, the leader may name it again."""
    brokers = Brokers(monkeypatch, answer)
    brokers.read()
    brokers.read()
    assert brokers.served == [LEADER, LEADER]
    assert brokers.now_s < 3
    assert NearestReplica(KAFKA, "t", 0).rack == ""
    brokers.now_s += 60
    assert NearestReplica(KAFKA, "t", 0).rack == "here"


def test_the_leader_is_asked_again_after_a_while(monkeypatch):
    """There may be a nearer one by then."""
    brokers = Brokers(monkeypatch, ROWS)
    for after_s, node in ((0, None), (0, REPLICA), (299, REPLICA), (2, None)):
        brokers.now_s += after_s
        assert NearestReplica(KAFKA, "t", 0).node == node
        if node is None:
            brokers.read()
    assert brokers.served == [REPLICA, REPLICA]
