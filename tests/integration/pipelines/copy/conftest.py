"""Fixtures of a copy's tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.support.queries.copies import CopiedFrom


@pytest.fixture
def copy(spark, view, topic, tmp_path) -> Iterator[Callable[..., CopiedFrom]]:
    """``copy(2)``: a query between two new topics of so many partitions."""
    yield lambda partitions=1: CopiedFrom(
        spark, view, tmp_path / uuid.uuid4().hex, topic(partitions), topic(partitions)
    )
    for query in spark.streams.active:
        query.stop()
