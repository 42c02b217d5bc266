"""What the log is told of something that is tried again for long."""

from __future__ import annotations

import logging

import pytest

from spark_eos.base.retry import Waiting


@pytest.fixture
def told(caplog):
    """What the log was told, with its level."""
    caplog.set_level(logging.INFO, "spark_eos")
    return lambda: [f"{record.levelname} {record.getMessage()}" for record in caplog.records]


def test_a_long_wait_is_told_once_and_its_end_once(clock, told):
    """However often it is tried; with the place and the reason of then."""
    waiting = Waiting("writing")
    for _ in range(40):
        waiting.note({"t-0": "NOT_ENOUGH_REPLICAS"})
        clock.now += 0.5
    assert told() == ["WARNING writing has waited for 10 s: t-0 (NOT_ENOUGH_REPLICAS)"]
    waiting.over("t-0")
    waiting.over("t-0")
    assert told()[1:] == ["WARNING writing goes on after 20 s: t-0"]


def test_a_short_wait_is_not_told(clock, told):
    """Leaders change all the time. A later wait has a time of its own."""
    waiting = Waiting("writing")
    for _ in range(3):
        waiting.note({"t-0": "NOT_LEADER_OR_FOLLOWER"})
        clock.now += 9.0
        waiting.over("t-0")
    assert told() == []


def test_many_places_are_told_together(clock, told):
    """A few by name; and one line, when the last of them is over."""
    waiting = Waiting("writing")
    places = {f"t-{p}": "NOT_ENOUGH_REPLICAS" for p in range(50)}
    waiting.note(places)
    clock.now += 10.0
    waiting.note(places)
    clock.now += 5.0
    for place in places:
        waiting.over(place)
    assert told() == [
        "WARNING writing has waited for 10 s: t-0, t-1, t-2 and 47 more (NOT_ENOUGH_REPLICAS)",
        "WARNING writing goes on after 15 s: t-49",
    ]
