"""A clock that tests of clients set, and tries of a client that a busy machine does not end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_eos.base import system
from spark_eos.kafka.net import client
from tests.support.waiting import TIMEOUT


class Clock:
    """The monotonic clock: it goes on while our code sleeps, however long anything else takes; and what happens
    ``meanwhile``."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meanwhile: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all that speaks to brokers."""
    made = Clock()
    monkeypatch.setattr(system, "monotonic", lambda: made.now)
    monkeypatch.setattr(system, "sleep", made.sleep)
    return made


@pytest.fixture
def long_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's first tries have all the time that a test has."""
    monkeypatch.setattr(client, "_FIRST_TRY_S", TIMEOUT)


@pytest.fixture
def one_try(long_tries: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client asks each broker once."""
    monkeypatch.setattr(client, "retrying", lambda _: [None])
