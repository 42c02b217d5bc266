"""Clusters in memory, behind the clients that the mirror gets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.models.memory_clusters import MemoryClusters


@pytest.fixture
def clusters() -> Iterator[MemoryClusters]:
    with MemoryClusters().installed() as made:
        yield made
