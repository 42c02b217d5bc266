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
from tests.support.waiting import TIMEOUT, wait_for

PAIR = Pair("eos-q-1-0-0", 1000, 3)
PLACE, HELD = (PAIR, Probe("out", 0, 5)), (PAIR, Probe("out", 1, 6))
DECISION = Decision(7, 0, 1, 1, 1, None, (Written(0, PAIR, 1, 1, PLACE[1]),))
NOTHING, DONE = CommitReport(0, True), CommitReport(1, False, decision=DECISION)
MISSING = ProtocolStop("EOS_ROWS_MISSING", "Rows are missing.", hint="Write them.")


def missing(places):
    raise MISSING


@pytest.fixture
def idle(monkeypatch):
    """A session without a ledger. Its sweeps, so many seconds after one another (``sweeps_after_s(…)``), find what is
    in ``finds``; ``sweeps`` counts them. ``look`` says which starts are blocked; ``looked``: at which starts it has
    looked, and ``how``. ``noted``: what is missing, by run."""
    state = SimpleNamespace(sweeps=0, finds=[], looked=[], how={}, noted=[], look=lambda places: {})

    def sweep(ports, run, batch):
        assert (run, batch) == ("r", 7)
        state.sweeps += 1
        found = state.finds.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    def verify(ports, places, **how):
        blocked = state.look(places)
        state.looked.append(dict(places))
        state.how = how
        return blocked

    fakes = {
        "AHEAD_DELAY_S": 0,
        "take_ahead": lambda ports, run: f"the ledger for {run}",
        "sweep": sweep,
        "verify_visible": verify,
        "with_missing_marked": lambda ports, run, error: state.noted.append((run, error)) or error,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(module, name, fake)
    state.sweeps_after_s = lambda *seconds: monkeypatch.setattr(module, "SWEEPS_AFTER_S", seconds)
    state.sweeps_after_s(TIMEOUT)  # none within a test that does not ask for it
    state.session = Session(None, None, None)
    return state


def sweepers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "eos sweep"]


def wait_until_swept() -> None:
    wait_for(lambda: not sweepers(), "the end of the sweeps")


@pytest.mark.parametrize(
    ("finds", "sweeps"),
    [
        pytest.param([(), (), ()], 2, id="nothing twice"),
        pytest.param(["a", (), ()], 3, id="something, then nothing"),
        pytest.param([None], 1, id="another run's ledger"),
    ],
)
def test_an_idle_driver_looks_until_two_looks_in_a_row_find_nothing(idle, finds, sweeps):
    """Its looks are few, whatever they find."""
    idle.sweeps_after_s(0, 0, 0)
    idle.finds = list(finds)
    idle.session.start_background_work("r", 7, NOTHING)
    wait_until_swept()
    assert idle.sweeps == sweeps
    assert idle.session.stop_background_work("r") == "the ledger for r"


def test_what_never_expires_is_looked_for_until_nothing_is_left(idle):
    """However often that is, and also after a look that failed."""
    idle.sweeps_after_s(0)
    failed = ConnectionFailed("EOS_KAFKA_UNREACHABLE", "No answer.", hint="Wait.")
    idle.finds = ["a", (), failed, (), "b", (), (), ()]
    idle.session = Session(None, None, None, two_phase=True)
    idle.session.start_background_work("r", 7, NOTHING)
    wait_until_swept()
    assert idle.sweeps == 7


def test_a_commit_ends_the_wait(idle):
    """Nothing of a driver's own uses its connections beside a commit."""
    idle.session.start_background_work("r", 7, NOTHING)
    assert sweepers()
    assert idle.session.stop_background_work("r") == "the ledger for r"
    assert not sweepers()
    assert idle.sweeps == 0


def test_the_ledger_that_was_taken_ahead_is_for_its_own_run_alone(idle):
    """Another run of the query takes it itself; then that of the first one is the older one."""
    idle.session.start_background_work("r", 7, NOTHING)
    assert idle.session.stop_background_work("later") is None
    assert idle.session.stop_background_work("r") is None


def test_a_commit_does_not_wait_for_its_own_look(idle):
    """It is begun, and goes on when the commit has returned; the next commit waits for the answer."""
    goes_on = threading.Event()
    idle.look = lambda places: {} if goes_on.wait(TIMEOUT) else pytest.fail("it was waited for")
    idle.session.start_background_work("r", 7, DONE)
    assert idle.looked == []
    goes_on.set()
    assert idle.session.stop_background_work("r") == "the ledger for r"
    assert idle.session.verified("r") == Verified(DECISION, {})
    assert idle.looked == [{PLACE: 7}]
    assert idle.session.verified("r") is None


def test_what_a_look_finds_is_raised_by_the_next_commit(idle):
    """And noted in the ledger by whoever has found it, as there may be no next commit. An abort does not hear of it."""
    idle.look = missing
    idle.session.start_background_work("r", 7, DONE)
    idle.session.stop_background_work()
    assert idle.noted == [("r", MISSING)]
    with pytest.raises(ProtocolStop, match="EOS_ROWS_MISSING"):
        idle.session.verified("r")


def test_what_a_look_of_another_run_could_not_see_stops_nobody(idle):
    """Leaders that did not answer then may do so now, and the start of the newer run has looked itself. What that look
    has seen counts as ever."""
    idle.session.start_background_work("r", 7, CommitReport(1, False, decision=DECISION, unverified={HELD: 6}))
    idle.session.stop_background_work()
    assert idle.session.verified("later") == Verified(DECISION, {})
    idle.look = missing
    idle.session.start_background_work("r", 7, DONE)
    idle.session.stop_background_work()
    assert idle.session.stop_background_work("later") is None
    assert idle.session.verified("later") is None
    idle.look = lambda places: {}
    idle.session.start_background_work("later", 8, NOTHING)
    idle.session.stop_background_work("later")
    assert idle.looked[-1] == {PLACE: 7}


def test_what_could_not_be_looked_at_is_looked_at_again(idle):
    """While there is nothing to commit, and with the next commit; also what that has been left by another process."""
    idle.look = lambda places: {HELD: 6} if HELD in places else {}
    idle.sweeps_after_s(0)
    idle.finds = [()]
    idle.session.start_background_work("r", 7, CommitReport(1, False, decision=DECISION, unverified={HELD: 6}))
    wait_until_swept()
    assert idle.looked == [{HELD: 6, PLACE: 7}, {HELD: 6}]
    idle.session.stop_background_work("r")
    assert idle.session.verified("r") == Verified(DECISION, {HELD: 6})
    idle.sweeps_after_s()
    idle.session.start_background_work("r", 8, NOTHING)
    idle.session.stop_background_work("r")
    assert idle.looked[-1] == {HELD: 6}


@pytest.mark.parametrize("waits", [True, False])
def test_a_write_that_no_commit_follows_waits_for_the_answer(idle, waits):
    """A batch write also for transactions of others."""
    idle.session.verify_now("r", DONE, wait_for_others=waits)
    assert (idle.looked, idle.how) == ([{PLACE: 7}], {"wait_for_others": waits})


def test_a_write_that_no_commit_follows_raises_what_is_found(idle):
    """Before it returns, and once: a later commit of this process is another run's, which looks for itself."""
    idle.look = missing
    with pytest.raises(ProtocolStop, match="EOS_ROWS_MISSING"):
        idle.session.verify_now("r", DONE, wait_for_others=False)
    assert idle.session.verified("r") is None
