"""Senders that send again at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_eos.kafka.producer import partition_queue


@pytest.fixture(scope="package", autouse=True)
def no_pauses() -> Iterator[None]:
    """The brokers of these tests are models: there is nothing to wait for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_queue, "FIRST_WAIT_S", 0.0)
        patch.setattr(partition_queue, "LONGEST_WAIT_S", 0.0)
        yield
