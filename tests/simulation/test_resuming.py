"""`make simulate` in pieces: each goes on where the one before has stopped, by the same code only."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from . import __main__ as simulate
from .schedule import Extras, Schedule, draw
from .world import Strike, Violation


def passed(state: Path) -> int:
    return int(json.loads(state.read_text())["passed"])


def test_it_goes_on_where_it_has_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The number that is told counts all pieces, until the code is another one."""
    state = tmp_path / "state.json"
    for sofar in (4, 8):
        assert simulate.main(["--schedules", "4", "--state", str(state)]) == 0
        assert passed(state) == sofar
    assert "8 schedules have passed, 4 of them now" in capsys.readouterr().out
    state.write_text(json.dumps(json.loads(state.read_text()) | {"code": "another one"}))
    assert simulate.main(["--schedules", "1", "--state", str(state)]) == 0
    assert passed(state) == 1


def test_a_schedule_that_fails_is_the_first_one_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody gets past it by calling again."""
    state, played = tmp_path / "state.json", simulate.play
    schedules: list[Schedule] = []

    def failing(schedule: Schedule) -> object:
        schedules.append(schedule)
        if len(schedules) > 2:
            raise Violation("an invariant", "is broken")
        return played(schedule)

    monkeypatch.setattr(simulate, "play", failing)
    monkeypatch.setattr(simulate, "shrink", lambda schedule, invariant: schedule)
    for _ in range(2):
        assert simulate.main(["--schedules", "9", "--state", str(state)]) == 1
        assert passed(state) == 2
    assert schedules[2] == schedules[3]
    assert "seed 2: an invariant: is broken" in capsys.readouterr().out


def test_schedules_that_all_have_something(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they have besides is drawn last, so that they are otherwise as without it."""
    schedules: list[Schedule] = []
    monkeypatch.setattr(simulate, "play", schedules.append)
    assert simulate.main(["--schedules", "20", "--always", "cuts,outputs"]) == 0
    for seed, schedule in enumerate(schedules):
        plain = draw(random.Random(seed), extras=Extras())
        count = len(plain.faults)
        assert (schedule.plan, schedule.faults[:count]) == (plain.plan, plain.faults)
        assert {Strike.LEDGER_CUT, Strike.OUTPUT_CUT} <= {fault.strike for fault in schedule.faults[count:]}
