"""How many cores a session has, as far as it says so."""

from __future__ import annotations

import pytest

from spark_eos.spark.cores import cores


class Session:
    """With these settings, and so many cores of executors that have come."""

    def __init__(self, there: int, **settings: str) -> None:
        self.defaultParallelism = there
        self._settings = settings

    @property
    def sparkContext(self):
        return self

    def getConf(self):
        return self

    def getAll(self):
        return [(f"spark.{name.replace('_', '.')}", text) for name, text in self._settings.items()]


@pytest.mark.parametrize(
    ("session", "found"),
    [
        (Session(4), 4),
        (Session(2, executor_instances="8", executor_cores="4"), 32),
        (Session(12, executor_instances="8"), 12),
        (Session(0), 1),
        (Session(2, dynamicAllocation_enabled=" True"), None),
        (Session(2, dynamicAllocation_enabled="false"), 2),
        (Session(2, executor_instances="many"), None),
        (object(), None),
    ],
    ids=["local", "before they come", "some have come", "none", "dynamic", "not dynamic", "not a number", "Connect"],
)
def test_those_that_are_there_or_asked_for(session, found):
    """Executors come some time after the session, and with dynamic allocation they go again."""
    assert cores(session) == found
