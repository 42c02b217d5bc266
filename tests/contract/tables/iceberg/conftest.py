"""An Iceberg table in a catalog on SQLite."""

from __future__ import annotations

import pytest

from tests.support.tables.table_kinds import Iceberg


@pytest.fixture
def kind(tmp_path) -> Iceberg:
    return Iceberg(tmp_path)
