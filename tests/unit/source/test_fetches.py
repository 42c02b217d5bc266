"""Which broker serves the rows of a range, and for how long a fetch without rows is repeated: brokers give answers one
after the other, by a clock of their own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.fetch import FetchResponse
from spark_eos.source import nearest_replica, raw
from spark_eos.source.fetching import Fetching
from spark_eos.source.nearest_replica import NearestReplica
from tests.support.judges.record_batches import encode, plain

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}
KAFKA, RACKED = KafkaProperties(SERVERS), KafkaProperties({**SERVERS, "client.rack": "here"})
LEADER, REPLICA = 1, 2
RANGE = OffsetRange("t", 0, 0, 100)
_RECORDS = encode(plain(0, *[b"row"] * RANGE.end))
ROWS = FetchResponse(0, len(_RECORDS), data=_RECORDS)
#: No rows, by a leader whose log ends there, or goes on.
EMPTY, SLOW = FetchResponse(0, 0, high_watermark=0), FetchResponse(0, 0, high_watermark=100)
OUT_OF_RANGE = FetchResponse(Code.OFFSET_OUT_OF_RANGE, 0)
FAILED = FetchResponse(Code.UNKNOWN_SERVER_ERROR, 0)
#: Longer than what a leader that lags behind is given.
THROTTLED = FetchResponse(0, 0, throttle_ms=6_000)
#: There is no leader for longer than what one that lags behind is given.
SILENT = FetchResponse(Code.LEADER_NOT_AVAILABLE, 0)
#: For longer, nothing may be read.
MOST_S = 1_000.0
#: The leader names the replica to whoever asks with a rack.
NAMED = FetchResponse(0, 0, preferred=REPLICA)


class GivenUp(Exception):
    """After so many seconds."""


class Connection:
    """To one of the brokers."""

    due, buffer = False, bytearray()

    def __init__(self, brokers: Brokers, node: int) -> None:
        self._brokers, self.node = brokers, node

    def send(self, *_: Any, rack: str, max_wait_ms: int, **__: Any) -> None:
        self._racked, self._wait_s = bool(rack), max_wait_ms / 1000

    def receive_one(self, timeout_s: float) -> FetchResponse:
        self._brokers.now_s += 0.01 if self.node == LEADER else 0.3
        assert self._brokers.now_s < MOST_S, "it goes on for ever"
        answer = NAMED if self.node == LEADER and self._racked else next(self._brokers.answers[self.node])
        if answer is SILENT:
            self._brokers.now_s += 8
            raise OSError("no leader")
        if answer is ROWS:
            assert timeout_s > self._wait_s == self._brokers.wait_s, "the broker may answer no sooner"
            self._brokers.served.append(self.node)
        return answer

    def close(self) -> None:
        """Nobody is there."""


class Brokers:
    """``answers`` of each, the last one for ever; ``served``: which of them have given rows; ``wait_s``: for how long
    each request lets a broker wait."""

    def __init__(self) -> None:
        self.now_s, self.wait_s, self.served = 0.0, 0.5, list[int]()
        self.answers: dict[int, Iterator[FetchResponse]] = {}

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def give(self, node: int, *answers: FetchResponse) -> None:
        self.answers[node] = chain(answers, repeat(answers[-1]))

    def read(self, kafka: KafkaProperties) -> float:
        """Read the range; for how long that took. Raises GivenUp."""
        began_s = self.now_s
        assert sum(rows.num_rows for rows in raw.read_raw(Fetching(BrokerClient(kafka)), RANGE)) == RANGE.end
        return self.now_s - began_s


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers()
    clock = SimpleNamespace(monotonic=lambda: found.now_s, sleep=found.sleep)
    for module in (raw, nearest_replica):
        monkeypatch.setattr(module, "system", clock)
    monkeypatch.setattr(nearest_replica, "_choices", {})
    monkeypatch.setattr(raw, "connect", lambda _, topic, partition, node: Connection(found, node or LEADER))
    monkeypatch.setattr(raw, "give_back", lambda *_: None)
    monkeypatch.setattr(raw, "begins_later", lambda *_: None)
    # It takes seconds to find out why a log ends early, while its leader may only lag behind: not before the end.
    monkeypatch.setattr(raw, "why_not", lambda *_: GivenUp(found.now_s))
    return found


def waited_s(brokers: Brokers, *answers: FetchResponse) -> float:
    """For how long the leader was asked until there were rows. Raises GivenUp."""
    brokers.now_s = 0
    brokers.give(LEADER, *answers)
    return brokers.read(KAFKA)


@pytest.mark.parametrize(
    ("before", "took_s"), [((), 0), ((THROTTLED,), 6), ((SILENT,), 8)], ids=["at once", "throttled", "silent"]
)
@pytest.mark.parametrize("answer", [EMPTY, OUT_OF_RANGE], ids=["empty", "out-of-range"])
def test_a_leader_that_lags_behind_gets_some_seconds(brokers, before, took_s, answer):
    """Then it is no leader that will have the rows. They count from its first answer, however long there was no leader,
    and from the end of a throttle: the broker has said when it goes on."""
    assert took_s < waited_s(brokers, *before, answer, ROWS) < took_s + 1
    with pytest.raises(GivenUp) as caught:
        waited_s(brokers, *before, answer)
    assert took_s + 4 < caught.value.args[0] < took_s + 6


@pytest.mark.parametrize("answer", [SLOW, FAILED], ids=["slow", "failed"])
def test_a_leader_whose_log_goes_on_gets_all_the_time(brokers, answer):
    """Its rows may be in remote storage: a broker answers without them when that takes longer than the request lets it
    wait, as in Java's consumer 500 ms by default, and with an error of no name when that fails."""
    assert 50 < waited_s(brokers, *repeat(answer, 110), ROWS) < 60
    assert 72 < waited_s(brokers, *repeat(THROTTLED, 12), answer, ROWS) < 73  # that time does not count
    with pytest.raises(GivenUp) as caught:
        waited_s(brokers, answer)
    assert 58 < caught.value.args[0] < 61


def test_a_request_lets_a_broker_wait_for_as_long_as_the_user_says(brokers):
    """And no answer is waited for less long than that."""
    brokers.wait_s = 40
    brokers.give(LEADER, ROWS)
    brokers.read(KafkaProperties({**SERVERS, "fetch.max.wait.ms": "40000"}))


@pytest.mark.parametrize(
    "answer",
    [OUT_OF_RANGE, FetchResponse(Code.NOT_LEADER_OR_FOLLOWER, 0), EMPTY],
    ids=["out of range", "no follower", "behind"],
)
def test_a_replica_that_is_of_no_use_is_left_for_the_leader(brokers, answer):
    """What is out of its range may be in the leader's: it is not data loss. Its high watermark follows the leader's; a
    reader waits for that a second, and no longer. After a minute, the leader may name it again."""
    brokers.give(LEADER, ROWS)
    brokers.give(REPLICA, answer)
    assert brokers.read(RACKED) + brokers.read(RACKED) < 3
    assert brokers.served == [LEADER, LEADER]
    assert NearestReplica(RACKED, "t", 0).rack == ""
    brokers.now_s += 60
    assert NearestReplica(RACKED, "t", 0).rack == "here"


def test_the_leader_is_asked_again_after_a_while(brokers):
    """There may be a nearer one by then."""
    brokers.give(REPLICA, ROWS)
    for after_s, node in ((0, None), (0, REPLICA), (299, REPLICA), (2, None)):
        brokers.now_s += after_s
        assert NearestReplica(RACKED, "t", 0).node == node
        if node is None:
            brokers.read(RACKED)
    assert brokers.served == [REPLICA, REPLICA]
