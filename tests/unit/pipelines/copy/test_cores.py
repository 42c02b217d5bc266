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


@pytest.mark.parametrize(
    ("session", "found"),
    [
        (Session(4, "local[*]"), 4),
        (Session(2, "local[2,4]"), 2),
        (Session(1, "local"), 1),
        (Session(2, executor_instances="8", executor_cores="4"), 32),
        (Session(2, executor_instances="2"), 2),
        (Session(12, executor_instances="8"), 12),
        (Session(0, "local[4]"), 1),
        (Session(2), None),
        (Session(2, "local-cluster[2,4,1024]"), None),
        (Session(2, "spark://h:7077", cores_max="16"), 16),
        (Session(64, "spark://h:7077"), 64),
        (Session(8, dynamicAllocation_enabled=" True"), None),
        (Session(8, dynamicAllocation_enabled="false"), 8),
        (Session(8, executor_instances="many"), None),
        (object(), None),
    ],
    ids=[
        "local",
        "two of this machine",
        "one of this machine",
        "before they come",
        "before two come",
        "some have come",
        "what makes no sense",
        "none has come",
        "none of a small cluster has come",
        "at most so many come",
        "all have come",
        "dynamic",
        "not dynamic",
        "not a number",
        "Connect",
    ],
)
def test_those_that_are_there_or_asked_for(session, found):
    """Executors come some time after the session; Spark says 2 until then. With dynamic allocation they go again."""
    assert cores(session) == found


def test_those_that_are_there_now():
    """Where executors come and go, work is for these, and for a few where they have yet to come."""
    dynamic = [Session(there, dynamicAllocation_enabled="true") for there in (2, 160)]
    assert [cores_now(session, 8) for session in (*dynamic, object())] == [8, 160, 8]
