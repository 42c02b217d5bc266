"""Tries of a client that a busy machine does not end."""

from __future__ import annotations

import pytest

from spark_eos.kafka.net import client
from tests.support.waiting import TIMEOUT


@pytest.fixture
def long_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's first tries have all the time that a test has."""
    monkeypatch.setattr(client, "_FIRST_TRY_S", TIMEOUT)


@pytest.fixture
def one_try(long_tries: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client asks each broker once."""
    monkeypatch.setattr(client, "retrying", lambda _: [None])
