"""How many cores a session has, as far as it says so."""

from __future__ import annotations

import pytest

from spark_eos.pipelines.copy.cores import cores, cores_now


class Session:
    """With these settings, and so many cores of executors that have come."""

    def __init__(self, there: int, master: str = "yarn", **settings: str) -> None:
        self.defaultParallelism = there
        self._settings = {"master": master, **settings}

    @property
    def sparkContext(self):
        return self

    def getConf(self):
        return self

    def getAll(self):
        return [(f"spark.{name.replace('_', '.')}", text) for name, text in self._settings.items()]


CASES = {
    "local": (Session(4, "local[*]"), 4),
    "two of this machine": (Session(2, "local[2,4]"), 2),
    "one of this machine": (Session(1, "local"), 1),
    "before they come": (Session(2, executor_instances="8", executor_cores="4"), 32),
    "before two come": (Session(2, executor_instances="2"), 2),
    "some have come": (Session(12, executor_instances="8"), 12),
    "what makes no sense": (Session(0, "local[4]"), 1),
    "none has come": (Session(2), None),
    "none of a small cluster has come": (Session(2, "local-cluster[2,4,1024]"), None),
    "at most so many come": (Session(2, "spark://h:7077", cores_max="16"), 16),
    "all have come": (Session(64, "spark://h:7077"), 64),
    "dynamic": (Session(8, dynamicAllocation_enabled=" True"), None),
    "not dynamic": (Session(8, dynamicAllocation_enabled="false"), 8),
    "not a number": (Session(8, executor_instances="many"), None),
    "Connect": (object(), None),
}


@pytest.mark.parametrize(("session", "found"), CASES.values(), ids=CASES)
def test_those_that_are_there_or_asked_for(session, found):
    """Executors come some time after the session; Spark says 2 until then. With dynamic allocation they go again."""
    assert cores(session) == found


def test_those_that_are_there_now():
    """Where executors come and go, work is for these, and for a few where they have yet to come."""
    dynamic = [Session(there, dynamicAllocation_enabled="true") for there in (2, 160)]
    assert [cores_now(session, 8) for session in (*dynamic, object())] == [8, 160, 8]
