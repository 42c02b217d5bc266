"""Fixtures of the direct way's tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.support.direct_queries import Direct


@pytest.fixture
def direct(spark, view, topic, tmp_path) -> Iterator[Callable[..., Direct]]:
    """``direct(2)``: a query between two new topics of so many partitions."""
    yield lambda partitions=1: Direct(spark, view, tmp_path / uuid.uuid4().hex, topic(partitions), topic(partitions))
    for query in spark.streams.active:
        query.stop()
