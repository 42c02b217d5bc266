"""Fixtures of a copy's tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from spark_eos.base import metrics_events
from spark_eos.ops.metrics.hub import Event, Hub, Inbox
from tests.support.queries.copies import CopiedFrom
from tests.support.waiting import wait_for


@pytest.fixture
def copy(spark, view, topic, tmp_path) -> Iterator[Callable[..., CopiedFrom]]:
    """``copy(2)``: a query between two new topics of so many partitions."""
    yield lambda partitions=1: CopiedFrom(
        spark, view, tmp_path / uuid.uuid4().hex, topic(partitions), topic(partitions)
    )
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def heard(monkeypatch) -> Iterator[Callable[[int], list[Event]]]:
    """``heard(2)``: the commits that are told of, when there are so many."""
    told: list[Event] = []
    inbox = Inbox(Hub([SimpleNamespace(take=told.append)]))
    monkeypatch.setattr(metrics_events, "here", lambda: inbox.events)

    def commits(count: int) -> list[Event]:
        wait_for(lambda: len([e for e in told if e["event"] == "committed"]) == count, "what is told")
        return [event for event in told if event["event"] == "committed"]

    yield commits
    inbox.close()
