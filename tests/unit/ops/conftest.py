"""What tests of metrics share."""

from __future__ import annotations

import pytest

from spark_eos.checkpoint.settings import HadoopSettings
from tests.support.models.counted_events import FakeSession


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> FakeSession:
    monkeypatch.setattr("spark_eos.checkpoint.settings.HadoopSettings.from_session", lambda spark: HadoopSettings())
    return FakeSession()
