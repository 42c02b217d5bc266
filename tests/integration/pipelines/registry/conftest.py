"""Fixtures: one real registry for all tests of this folder, and a server before it that a test can make refuse."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from tests.support.servers.registry_front import Front, front
from tests.support.servers.schema_registry import SchemaRegistry


@pytest.fixture(scope="session")
def registry() -> Iterator[SchemaRegistry]:
    """Shared: leave it running, and use subjects of your own."""
    with SchemaRegistry() as running:
        yield running


@pytest.fixture
def before(registry: SchemaRegistry) -> Iterator[Front]:
    """A server before `registry`."""
    with front(registry.url) as running:
        yield running


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> str:
    """A subject that nobody else uses."""
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:40]
    return f"{test}-{uuid.uuid4().hex[:8]}-value"
