"""What a driver's process does for a query that has nothing to commit."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from spark_eos.errors import ConnectionFailed
from spark_eos.sink import session as module
from spark_eos.sink.session import Session

SECONDS = 10


@pytest.fixture
def idle(monkeypatch):
    """A session without a ledger, whose looks find what is in ``finds``; ``looks`` counts them."""
    state = SimpleNamespace(looks=0, finds=[], done=threading.Event())

    def sweep(ports, run, batch):
        assert (run, batch) == ("r", 7)
        state.looks += 1
        found = state.finds.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(module, "AHEAD_DELAY_S", 0)
    monkeypatch.setattr(module, "take_ahead", lambda ports, run: f"the ledger for {run}")
    monkeypatch.setattr(module, "sweep", sweep)
    state.session = Session(None, None)
    return state


@pytest.mark.parametrize(
    ("finds", "looks"),
    [
        pytest.param([(), (), ()], 2, id="nothing twice"),
        pytest.param(["a", (), ()], 3, id="something, then nothing"),
        pytest.param([None], 1, id="another run's ledger"),
    ],
)
def test_an_idle_driver_looks_until_two_looks_in_a_row_find_nothing(idle, monkeypatch, finds, looks):
    """Its looks are few, whatever they find."""
    monkeypatch.setattr(module, "SWEEPS_AFTER_S", (0, 0, 0))
    idle.finds = list(finds)
    idle.session.rest("r", 7)
    idle.session._sweeper.join(SECONDS)
    assert idle.looks == looks
    assert idle.session.resume("r") == "the ledger for r"


def test_what_never_expires_is_looked_for_until_nothing_is_left(idle, monkeypatch):
    """However often that is, and also after a look that failed."""
    monkeypatch.setattr(module, "SWEEPS_AFTER_S", (0,))
    failed = ConnectionFailed("EOS_COORDINATOR_UNREACHABLE", "No answer.", hint="Wait.")
    idle.finds = ["a", (), failed, (), "b", (), (), ()]
    idle.session = Session(None, None, two_phase=True)
    idle.session.rest("r", 7)
    idle.session._sweeper.join(SECONDS)
    assert idle.looks == 7


def test_a_commit_ends_the_wait(idle):
    """Nothing of a driver's own uses its connections beside a commit."""
    idle.session.rest("r", 7)
    sweeper = idle.session._sweeper
    assert idle.session.resume("r") == "the ledger for r"
    assert not sweeper.is_alive()
    assert idle.looks == 0
