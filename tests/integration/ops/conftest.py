"""Queries that are shown, replayed and taken over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.kills.scene import topics_of
from tests.support.queries.replaying import ROWS, Life
from tests.support.queries.sink_queries import Sink
from tests.support.queries.stopped_query import Left, left_open


def _lived(spark, cluster, view, folder: Path, capsys) -> Life:
    """A query that has copied three feeds, each in a micro-batch of its own, in one run."""
    source, out = (topics_of(cluster)() for _ in range(2))
    group = f"group-of-{out}"
    sink = Sink(cluster, folder / "query", topic=out, offsets__group__id=group)
    life = Life(spark, cluster, view, sink, source, out, group, capsys)
    for _ in range(3):
        life.feed()
    life.limit = ROWS + 1  # a feed and its marker
    life.run()
    life.limit = None
    assert life.counts() == life.expected(1, 1, 1)
    view.wait_for_markers(sink.id)
    return life


@pytest.fixture
def left(cluster, view, topic) -> Iterator[Left]:
    """A query that has stopped, and what it has left open."""
    with left_open(cluster, view, topic(1)) as left:
        yield left


@pytest.fixture
def life(spark, cluster, view, tmp_path, capsys) -> Iterator[Life]:
    yield _lived(spark, cluster, view, tmp_path, capsys)
    for query in spark.streams.active:
        query.stop()


@pytest.fixture(scope="module")
def _shared(spark, cluster, view, tmp_path_factory) -> Life:
    return _lived(spark, cluster, view, tmp_path_factory.mktemp("quiet"), None)


@pytest.fixture
def quiet(_shared, capsys) -> Life:
    """The same, shared by tests that leave it as it is."""
    return replace(_shared, capsys=capsys)
