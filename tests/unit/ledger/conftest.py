"""The clock of what speaks to brokers."""

from __future__ import annotations

import pytest

from spark_eos.base import system


class Clock:
    """It goes on only while somebody waits, for however long."""

    now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(system, "monotonic", lambda: clock.now)
    monkeypatch.setattr(system, "sleep", clock.sleep)
    return clock
