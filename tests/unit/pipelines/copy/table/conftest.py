"""The topic that a query to a table reads, when it starts."""

from __future__ import annotations

import pytest

from spark_eos.kafka.admin import topics
from spark_eos.pipelines.copy import sample
from spark_eos.pipelines.copy.transforming import Chunk


@pytest.fixture
def topic(monkeypatch) -> list[Chunk]:
    """The sample that it has: none, unless a test puts some there."""
    chunks: list[Chunk] = []
    monkeypatch.setattr(sample, "sample", lambda *_: iter(chunks))
    monkeypatch.setattr(topics, "cluster_id", lambda client: "c")
    return chunks
