"""How long a fetch without rows is repeated: a broker gives answers one after the other, by a clock of its own."""

from __future__ import annotations

from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.fetch import FetchResponse
from spark_eos.source import raw
from spark_eos.source.fetching import Fetching

KAFKA = KafkaProperties({"bootstrap.servers": "127.0.0.1:1"})
#: No rows, by a leader whose log ends there, or goes on.
EMPTY, SLOW, ROWS = (
    FetchResponse(0, 0, high_watermark=0),
    FetchResponse(0, 0, high_watermark=100),
    FetchResponse(0, 100),
)
OUT_OF_RANGE = FetchResponse(Code.OFFSET_OUT_OF_RANGE, 0)
FAILED = FetchResponse(Code.UNKNOWN_SERVER_ERROR, 0)
#: Longer than what a leader that lags behind is given.
THROTTLED = FetchResponse(0, 0, throttle_ms=6_000)


#: There is no leader for longer than what one that lags behind is given.
SILENT = FetchResponse(Code.LEADER_NOT_AVAILABLE, 0)


class GivenUp(Exception):
    pass


class Broker:
    """Gives these answers, the last one for ever."""

    node = 1
    due = False
    buffer = bytearray()

    def __init__(self, answers: list[FetchResponse]) -> None:
        self._answers = chain(answers, repeat(answers[-1]))

    def receive_one(self, timeout_s: float) -> FetchResponse:
        self.timeout_s = timeout_s
        raw.system.sleep(0.01)
        answer = next(self._answers)
        if answer is SILENT:
            raw.system.sleep(8)
            raise OSError("no leader")
        return answer

    def send(self, *_: Any, **asked: Any) -> None:
        self.max_wait_ms = asked["max_wait_ms"]

    def close(self) -> None:
        pass


def waited(
    monkeypatch: pytest.MonkeyPatch, *answers: FetchResponse, kafka: KafkaProperties = KAFKA, wait_ms: int = 500
) -> float:
    """For how long it was asked, in seconds, until there were rows. Raises GivenUp. ``wait_ms``: for how long each
    request lets the broker wait."""
    now, asked = [0.0], list[float]()
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))

    def given_up(*_: Any) -> GivenUp:
        asked.append(now[0])
        return GivenUp(now[0])

    monkeypatch.setattr(raw, "system", clock)
    broker = Broker(list(answers))
    monkeypatch.setattr(raw, "connect", lambda *_: broker)
    wait = BrokerClient(kafka).fetch_wait_ms
    client: Any = SimpleNamespace(properties=kafka, silence_s=30.0, fetch_wait_ms=wait, forget_leader=lambda *_: None)
    monkeypatch.setattr(raw, "begins_later", lambda *_: None)
    monkeypatch.setattr(raw, "why_not", given_up)
    monkeypatch.setattr(raw, "is_supported_by_id", lambda _: False)
    monkeypatch.setattr(raw._Fetches, "_reading", lambda self, read, answer: SimpleNamespace(next_offset=100))
    raw._Fetches(Fetching(client), OffsetRange("t", 0, 0, 100), 1 << 20).next(lambda answer: answer)  # type: ignore
    assert broker.max_wait_ms == wait_ms
    assert broker.timeout_s > wait_ms / 1000, "the broker may answer no sooner"
    assert not asked, "it takes seconds to find out why a log ends early, while its leader may only lag behind"
    return now[0]


@pytest.mark.parametrize(
    ("before", "took_s"), [((), 0), ((THROTTLED,), 6), ((SILENT,), 8)], ids=["at once", "throttled", "silent"]
)
@pytest.mark.parametrize("answer", [EMPTY, OUT_OF_RANGE], ids=["empty", "out-of-range"])
def test_a_leader_that_lags_behind_gets_some_seconds(before, took_s, answer, monkeypatch):
    """Then it is no leader that will have the rows. They count from its first answer, however long there was no leader,
    and from the end of a throttle: the broker has said when it goes on."""
    assert took_s < waited(monkeypatch, *before, answer, ROWS) < took_s + 1
    with pytest.raises(GivenUp) as caught:
        waited(monkeypatch, *before, answer)
    assert took_s + 4 < caught.value.args[0] < took_s + 6


@pytest.mark.parametrize("answer", [SLOW, FAILED], ids=["slow", "failed"])
def test_a_leader_whose_log_goes_on_gets_all_the_time(answer, monkeypatch):
    """Its rows may be in remote storage: a broker answers without them when that takes longer than the request lets it
    wait, as in Java's consumer 500 ms by default, and with an error of no name when that fails."""
    assert 50 < waited(monkeypatch, *repeat(answer, 110), ROWS) < 60
    with pytest.raises(GivenUp) as caught:
        waited(monkeypatch, answer)
    assert 58 < caught.value.args[0] < 61
    patient = KafkaProperties({"bootstrap.servers": "127.0.0.1:1", "fetch.max.wait.ms": "40000"})
    waited(monkeypatch, ROWS, kafka=patient, wait_ms=40_000)
