"""Fixtures of the source's tests: what its driver's side asks of brokers, and a consumer group."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.kafka.admin.groups import ConsumerGroup
from spark_eos.ledger import own_topics
from spark_eos.source import reader, watch

REQUESTS = ("begin_offsets", "describe_topics", "ends_and_epochs", "leaders_of", "offsets_and_epochs_at", "topic_names")


@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """``asks(cluster)``: the driver's side asks this model instead of brokers, as far as it has methods for that, and
    goes by its clock ``now``, in seconds, which only sleep moves on."""

    def install(cluster: Any) -> None:
        def sleep(seconds: float) -> None:
            cluster.now += seconds

        clock = SimpleNamespace(monotonic=lambda: cluster.now, sleep=sleep)
        monkeypatch.setattr(watch, "time", clock)
        monkeypatch.setattr(reader, "system", clock)
        monkeypatch.setattr(own_topics, "own_topics", lambda *_: {})
        for name in REQUESTS:
            if hasattr(cluster, name):
                monkeypatch.setattr(watch, name, lambda *given, name=name, **more: getattr(cluster, name)(*given))
        if hasattr(cluster, "look"):
            monkeypatch.setattr(reader, "look_at", lambda *_: cluster.look)

    return install


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A consumer group: its active ``members``, and the offsets that are ``committed``, by topic and partition."""
    state = SimpleNamespace(members=[], committed={})
    monkeypatch.setattr(ConsumerGroup, "active_members", lambda *_, **__: state.members)
    monkeypatch.setattr(ConsumerGroup, "committed", lambda *_: state.committed)
    return state
