"""`make simulate` in pieces: each goes on where the one before has stopped, by the same code only."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from . import __main__ as simulate
from . import figures
from .campaign import Campaign, files, loaded, read
from .play import Run
from .schedule import Schedule, draw
from .world import Violation


def main(*arguments: str) -> int:
    """As by the command line."""
    return simulate.PROTOCOL.main("simulate", "", arguments)


def passed(state: Path) -> int:
    return int(json.loads(state.read_text())["passed"])


def test_it_goes_on_where_it_has_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The number that is told counts all pieces, until the code is another one."""
    state = tmp_path / "state.json"
    for sofar in (4, 8):
        assert main("--schedules", "4", "--state", str(state)) == 0
        assert passed(state) == sofar
    assert "8 schedules of the protocol have passed, 4 of them now" in capsys.readouterr().out
    state.write_text(json.dumps(json.loads(state.read_text()) | {"code": "another one"}))
    assert main("--schedules", "1", "--state", str(state)) == 0
    assert passed(state) == 1


@pytest.mark.parametrize("campaign", [simulate.PROTOCOL, figures.SOURCE], ids=lambda campaign: campaign.what)
def test_whatever_a_schedule_loads_is_in_the_fingerprint(campaign: Campaign) -> None:
    """Else schedules would count as passed by code that has never run them."""
    module = "tests.simulation" if campaign is simulate.PROTOCOL else "tests.simulation.source"
    found = loaded(f"from {module}.__main__ import played\nfor seed in range(20): played(seed)")
    assert len(found) > 30
    assert found <= set(files(campaign.code))


def test_a_schedule_that_fails_is_the_first_one_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody gets past it by calling again."""
    state, played = tmp_path / "state.json", simulate.play
    schedules: list[Schedule] = []

    def failing(schedule: Schedule) -> Run:
        schedules.append(schedule)
        if len(schedules) > 2:
            raise Violation("an invariant", "is broken")
        return played(schedule)

    monkeypatch.setattr(simulate, "play", failing)
    monkeypatch.setattr(simulate, "smaller", lambda schedule: ())
    for _ in range(2):
        assert main("--schedules", "9", "--state", str(state)) == 1
        assert passed(state) == 2
    assert schedules[2] == schedules[3]
    assert "seed 2: an invariant: is broken" in capsys.readouterr().out


def test_what_schedules_amount_to(tmp_path: Path) -> None:
    """Pieces add up; faults are those that struck, of which a trace tells."""
    state = tmp_path / "state.json"
    for _ in range(2):
        assert main("--schedules", "10", "--state", str(state)) == 0
    progress = read(state)
    assert progress is not None and progress.passed == 20
    runs = [Run(draw(random.Random(seed)), traced=True) for seed in range(20)]
    for run in runs:
        run.play()
    struck = [line for run in runs for line in run.world.trace or () if " *** " in line]
    assert sum(progress.faults.values()) == len(struck) > 20
    assert all(any(kind in line for line in struck) for kind in progress.faults)
    assert progress.steps == sum(run.world.step for run in runs)


def test_the_page_has_the_figures() -> None:
    """As the last run has noted them."""
    notes = figures.noted_so_far()
    assert notes and f"{figures.BEGIN}\n\n{figures.table(notes)}\n\n{figures.END}" in figures.PAGE.read_text()
    for simulations in notes.values():
        assert all(one["found"] == one["planted"] > 0 for one in simulations.values())
