"""Topics that rows go to are looked into once in a while."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spark_eos.kafka.admin.topics import Topic
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.sink import outputs

CLIENT = BrokerClient(KafkaProperties({"bootstrap.servers": "h:1"}))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """``now``, in seconds, and which topics were looked into."""
    found = SimpleNamespace(now=0.0, topics=[])
    monkeypatch.setattr(outputs, "_looked_at", {})
    monkeypatch.setattr(outputs, "time", SimpleNamespace(monotonic=lambda: found.now))
    monkeypatch.setattr(outputs, "check_for_rows", lambda _, topics, **__: found.topics.extend(topics))
    return found


def check(*names: str) -> None:
    outputs.check_not_reserved(
        CLIENT, {name: Topic(f"id of {name}", 1, internal=False) for name in names}, ledger="own"
    )


def test_a_topic_is_looked_into_once_in_half_a_minute(looks: SimpleNamespace):
    """And forgotten after that, as there may be many."""
    for looks.now in (0.0, 29.0, 31.0):
        check("a")
    assert looks.topics == ["a", "a"]
    looks.now = 70.0
    check("b")
    assert [name for _, name, _ in outputs._looked_at] == ["b"]


def test_threads_look_at_the_same_time(looks: SimpleNamespace):
    """As where several queries are started: one notes a topic while another one forgets some."""

    class Later(float):
        def __sub__(self, at: float) -> float:
            looks.now = float(self)
            check("of another")
            return looks.now - at

    check("a")
    looks.now = Later(31.0)
    check("a")
    assert looks.topics == ["a", "of another", "a"]
