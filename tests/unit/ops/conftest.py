"""The cluster whose topics commands look up."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import pytest

from spark_eos.kafka.admin import topics
from spark_eos.kafka.admin.topics import Topic
from spark_eos.ops import query_states


@dataclass
class Topics:
    """Those of a cluster with this ``id``; each partition has the offsets from ``begin`` to ``end``, and with ``error``
    a leader that is away."""

    id: str = "c"
    there: dict[str, Topic] = field(default_factory=dict)
    begin: int = 0
    end: int = 100
    error: Exception | None = None

    def described(self, client: object, names: Iterable[str], **_: object) -> dict[str, Topic]:
        return {name: self.there[name] for name in names if name in self.there}

    def offsets(self, asked: dict[str, Collection[int]], at: int) -> dict[str, dict[int, int]]:
        if self.error is not None:
            raise self.error
        return {topic: dict.fromkeys(partitions, at) for topic, partitions in asked.items()}


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Topics:
    kafka = Topics()
    for module in (query_states, topics):
        monkeypatch.setattr(module, "cluster_id", lambda client: kafka.id)
    monkeypatch.setattr(query_states, "describe_topics", kafka.described)
    monkeypatch.setattr(query_states, "begin_offsets", lambda client, asked: kafka.offsets(asked, kafka.begin))
    monkeypatch.setattr(query_states, "end_offsets", lambda client, asked, *_: kafka.offsets(asked, kafka.end))
    return kafka
