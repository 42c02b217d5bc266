"""What a driver's process does for a query that has nothing to commit."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from spark_eos.errors import ConnectionFailed, ProtocolStop
from spark_eos.protocol.commit import CommitReport
from spark_eos.protocol.head import Decision, Pair, Probe, Written
from spark_eos.protocol.verify import Verified
from spark_eos.sink import session as module
from spark_eos.sink.session import Session
from tests.support.waiting import TIMEOUT

PAIR = Pair("eos-q-1-0-0", 1000, 3)
PLACE, HELD = (PAIR, Probe("out", 0, 5)), (PAIR, Probe("out", 1, 6))
DECISION = Decision(7, 0, 1, 1, 1, None, (Written(0, PAIR, 1, 1, PLACE[1]),))
NOTHING, DONE = CommitReport(0, True), CommitReport(1, False, decision=DECISION)
MISSING = ProtocolStop("EOS_ROWS_MISSING", "Rows are missing.", hint="Write them.")


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
    monkeypatch.setattr(module, "SWEEPS_AFTER_S", (TIMEOUT,))  # none within a test that does not ask for it
    monkeypatch.setattr(module, "take_ahead", lambda ports, run: f"the ledger for {run}")
    monkeypatch.setattr(module, "sweep", sweep)
    monkeypatch.setattr(module, "verify_visible", lambda ports, places, **_: state.look(places))
    monkeypatch.setattr(
        module, "with_missing_marked", lambda ports, run, error: state.noted.append((run, error)) or error
    )
    state.look, state.noted = lambda places: {}, []
    state.session = Session(None, None, None)
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
    idle.session.start_background_work("r", 7, NOTHING)
    idle.session._sweeper.join(TIMEOUT)
    assert idle.looks == looks
    assert idle.session.stop_background_work("r") == "the ledger for r"


def test_what_never_expires_is_looked_for_until_nothing_is_left(idle, monkeypatch):
    """However often that is, and also after a look that failed."""
    monkeypatch.setattr(module, "SWEEPS_AFTER_S", (0,))
    failed = ConnectionFailed("EOS_KAFKA_UNREACHABLE", "No answer.", hint="Wait.")
    idle.finds = ["a", (), failed, (), "b", (), (), ()]
    idle.session = Session(None, None, None, two_phase=True)
    idle.session.start_background_work("r", 7, NOTHING)
    idle.session._sweeper.join(TIMEOUT)
    assert idle.looks == 7


def test_a_commit_ends_the_wait(idle):
    """Nothing of a driver's own uses its connections beside a commit."""
    idle.session.start_background_work("r", 7, NOTHING)
    sweeper = idle.session._sweeper
    assert idle.session.stop_background_work("r") == "the ledger for r"
    assert not sweeper.is_alive()
    assert idle.looks == 0


def test_the_ledger_that_was_taken_ahead_is_for_its_own_run_alone(idle):
    """Another run of the query takes it itself; then that of the first one is the older one."""
    idle.session.start_background_work("r", 7, NOTHING)
    assert idle.session.stop_background_work("later") is None
    assert idle.session.stop_background_work("r") is None


def test_a_commit_does_not_wait_for_its_own_look(idle):
    """It is begun, and goes on when the commit has returned; the next commit waits for the answer."""
    goes_on, looked = threading.Event(), []

    def look(places):
        assert goes_on.wait(TIMEOUT)
        looked.append(dict(places))
        return {}

    idle.look = look
    idle.session.start_background_work("r", 7, DONE)
    assert looked == []
    goes_on.set()
    assert idle.session.stop_background_work("r") == "the ledger for r"
    assert idle.session.verified("r") == Verified(DECISION, {})
    assert looked == [{PLACE: 7}]
    assert idle.session.verified("r") is None


def test_what_a_look_finds_is_raised_by_the_next_commit(idle):
    """And noted in the ledger by whoever has found it, as there may be no next commit. An abort does not hear of it."""

    def look(places):
        raise MISSING

    idle.look = look
    idle.session.start_background_work("r", 7, DONE)
    idle.session.stop_background_work()
    assert idle.noted == [("r", MISSING)]
    with pytest.raises(ProtocolStop, match="EOS_ROWS_MISSING"):
        idle.session.verified("r")


def test_what_a_look_of_another_run_could_not_see_stops_nobody(idle):
    """Leaders that did not answer then may do so now, and the start of the newer run has looked itself. What that look
    has seen counts as ever."""

    def look(places):
        raise MISSING

    idle.session.start_background_work("r", 7, CommitReport(1, False, decision=DECISION, unverified={HELD: 6}))
    idle.session.stop_background_work()
    assert idle.session.verified("later") == Verified(DECISION, {})
    idle.look = look
    idle.session.start_background_work("r", 7, DONE)
    idle.session.stop_background_work()
    assert idle.session.stop_background_work("later") is None
    assert idle.session.verified("later") is None
    looks = []
    idle.look = lambda places: looks.append(places) or {}
    idle.session.start_background_work("later", 8, NOTHING)
    idle.session.stop_background_work("later")
    assert looks == [{PLACE: 7}]


def test_what_could_not_be_looked_at_is_looked_at_again(idle, monkeypatch):
    """While there is nothing to commit, and with the next commit; also what that has been left by another process."""
    looks = []

    def look(places):
        looks.append(dict(places))
        return {HELD: 6} if HELD in places else {}

    idle.look = look
    monkeypatch.setattr(module, "SWEEPS_AFTER_S", (0,))
    idle.finds = [()]
    idle.session.start_background_work("r", 7, CommitReport(1, False, decision=DECISION, unverified={HELD: 6}))
    idle.session._sweeper.join(TIMEOUT)
    assert looks == [{HELD: 6, PLACE: 7}, {HELD: 6}]
    idle.session.stop_background_work("r")
    assert idle.session.verified("r") == Verified(DECISION, {HELD: 6})
    monkeypatch.setattr(module, "SWEEPS_AFTER_S", ())
    idle.session.start_background_work("r", 8, NOTHING)
    idle.session.stop_background_work("r")
    assert looks[-1] == {HELD: 6}


@pytest.mark.parametrize("waits", [True, False])
def test_a_write_that_no_commit_follows_waits_for_the_answer(idle, monkeypatch, waits):
    """A batch write also for transactions of others."""
    asked = []
    monkeypatch.setattr(module, "verify_visible", lambda ports, places, **how: asked.append((dict(places), how)) or {})
    idle.session.verify_now("r", DONE, wait_for_others=waits)
    assert asked == [({PLACE: 7}, {"wait_for_others": waits})]


def test_a_write_that_no_commit_follows_raises_what_is_found(idle):
    """Before it returns, and once: a later commit of this process is another run's, which looks for itself."""

    def look(places):
        raise MISSING

    idle.look = look
    with pytest.raises(ProtocolStop, match="EOS_ROWS_MISSING"):
        idle.session.verify_now("r", DONE, wait_for_others=False)
    assert idle.session.verified("r") is None
