"""`make simulate` in pieces: each goes on where the one before has stopped, by the same code only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from . import figures
from .campaign import Campaign, Failed, Played, Progress, fingerprint, read


def kept(state: Path) -> Progress:
    progress = read(state)
    assert progress is not None
    return progress


def test_it_goes_on_where_it_has_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The number that is told counts all pieces, until the code is another one; so do the figures that are kept."""
    state, campaign = tmp_path / "state.json", Campaign("a model", lambda seed: Played(seed, 1_000, {"a loss": 1}))
    for sofar, steps in ((4, 6), (8, 28)):
        assert campaign.main("simulate", "", ["--schedules", "4", "--state", str(state)]) == 0
        assert kept(state) == Progress(fingerprint(), 0, sofar, steps, 1_000 * sofar, {"a loss": sofar})
    assert "8 schedules of a model have passed, 4 of them now" in capsys.readouterr().out
    state.write_text(json.dumps(json.loads(state.read_text()) | {"code": "another one"}))
    assert campaign.main("simulate", "", ["--schedules", "1", "--state", str(state)]) == 0
    assert kept(state).passed == 1


def test_a_schedule_that_fails_is_the_first_one_next_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody gets past it by calling again."""
    state, seeds = tmp_path / "state.json", list[int]()

    def play(seed: int) -> Played:
        seeds.append(seed)
        if seed == 2:
            raise Failed("an invariant is broken")
        return Played(1, 1, {})

    for _ in range(2):
        assert Campaign("a model", play).main("simulate", "", ["--schedules", "9", "--state", str(state)]) == 1
        assert kept(state).passed == 2
    assert seeds == [0, 1, 2, 2]
    assert "seed 2: an invariant is broken" in capsys.readouterr().out


def test_the_page_has_the_figures() -> None:
    """As the last run has noted them."""
    notes = figures.noted_so_far()
    assert notes and f"{figures.BEGIN}\n\n{figures.table(notes)}\n\n{figures.END}" in figures.PAGE.read_text()
    for simulations in notes.values():
        assert all(one["found"] == one["planted"] > 0 for one in simulations.values())
