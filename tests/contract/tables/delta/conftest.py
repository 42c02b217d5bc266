"""A Delta table on a local disk, and one in an object store that loses replies, or applies a request late."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_eos.pipelines.tables.delta.target import DeltaReference, DeltaTarget
from tests.support.servers.s3_stand_in import S3StandIn, s3_stand_in
from tests.support.tables.delta_files import SCHEMA
from tests.support.tables.table_kinds import Delta


@pytest.fixture
def kind(tmp_path) -> Delta:
    return Delta(tmp_path)


@pytest.fixture
def store() -> Iterator[S3StandIn]:
    with s3_stand_in() as store:
        yield store


@pytest.fixture
def in_store(store: S3StandIn) -> DeltaTarget:
    return DeltaReference(store.location("t")).target(SCHEMA, create=True)
