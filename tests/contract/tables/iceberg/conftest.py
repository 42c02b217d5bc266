"""A table in a REST catalog that loses, delays and repeats requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers.rest_catalog import CatalogServer, RestIceberg, serving


@pytest.fixture
def kind(tmp_path) -> RestIceberg:
    return RestIceberg(tmp_path)


@pytest.fixture
def server(kind: RestIceberg) -> Iterator[CatalogServer]:
    with serving(kind.server) as server:
        yield server


@pytest.fixture
def target(server, kind: RestIceberg):
    return kind.target()
