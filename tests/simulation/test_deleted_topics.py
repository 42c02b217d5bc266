"""Output topics that are deleted, and created anew: what was in them is gone with them, and nothing else is, or is
missing in silence. Nor is what brokers that have just started have not heard of."""

from __future__ import annotations

from typing import Any

import pytest

from spark_eos.ledger.lookup import Absences
from spark_eos.protocol import end as end_module
from spark_eos.protocol.ports import Visibility

from . import invariants, operator
from .coordinator import Cluster
from .plan import Plan
from .play import play
from .schedule import Extras, Schedule
from .situations import DECIDED, SIZES, Scene
from .test_known_mistakes import Mistake, see
from .world import Fault, Strike

ALWAYS = Extras(topics=1.0)
#: By what the modelled deletion leaves: the topic is created anew at once.
AT_ONCE = 60

_FORGOTTEN: Scene = (
    (Strike.DRIVER_DIES, SIZES, (*DECIDED, "commit.ended")),
    (Strike.TOPIC_DELETED, SIZES, ("task: ledger ",)),
    (Strike.WEEK_PASSES, SIZES, ("task: ledger ", "open.taken")),
)
_STARTED_TWICE: Scene = (
    (Strike.TOPICS_UNKNOWN, (3, 15, 60), ("ahead: look back",)),
    (Strike.ABORTED_IN_PLACE, SIZES, ("prepare.prepared", "commit.entered", "commit.decided")),
    (Strike.PAUSE, (70_000,), ("commit.ended",)),
    (Strike.TOPICS_UNKNOWN, (3, 15, 60), ("ahead: look back",)),
)


def _missing_since_the_first_time(patch: pytest.MonkeyPatch) -> None:
    """A place is as long missing as it was for the first time, whatever was answered since."""

    def is_gone(self: Any, place: Any, now: float, **_: bool) -> bool:
        since, _ = self._spans.setdefault(place, (now, now))
        return now - since > self._least

    patch.setattr(Absences, "is_gone", is_gone)
    patch.setattr(Absences, "is_there", lambda *_: None)


def _asked_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A leader that names no producer has not answered, whatever its log says."""

    def state_of(ports: Any, topic: str, partition: int, *_: Any) -> Any:
        for _ in ports.retrying():
            state = ports.data.partition(topic, partition)
            if state is not None:
                return state
        raise end_module._silent(topic, partition)

    patch.setattr(end_module, "_state_of", state_of)


def _known_by_name(patch: pytest.MonkeyPatch) -> None:
    """A topic is the same one whenever it has the same name."""
    patch.setattr(Cluster, "topic_id", lambda self, topic: topic)


def _gone_taken_for(found: Visibility) -> Any:
    """Where the log does not have the place any more, one outcome is as likely as the other."""

    def put_back(patch: pytest.MonkeyPatch) -> None:
        by_log = end_module.fate_by_log
        told = lambda *of, **more: found if (fate := by_log(*of, **more)) is Visibility.EXPIRED else fate  # noqa: E731
        patch.setattr(end_module, "fate_by_log", told)

    return put_back


MISTAKES = (
    Mistake(
        _known_by_name,
        (invariants.NOT_LOST,),
        (((Strike.TOPIC_DELETED, SIZES, ("prepare.prepared", "commit.verified", "commit.decided")),),),
    ),
    Mistake(_asked_for_ever, ("goes on", operator.NOTHING_HELD), None, ALWAYS, seed=201),
    Mistake(
        _gone_taken_for(Visibility.ABORTED),
        (invariants.TRUE_VERDICTS,),
        (_FORGOTTEN,),
        name="what is gone is taken for lost",
    ),
    Mistake(_missing_since_the_first_time, (invariants.NOT_LOST, invariants.TRUE_STOPS), (_STARTED_TWICE,)),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_the_mistake_is_seen(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mistake put back, some schedule breaks an invariant that stands against it; without, it breaks none."""
    see(mistake, monkeypatch)


def _stops(at: str, *, two_phase: bool) -> list[str]:
    """How a query ends, each time, whose topic is deleted at this point of its first micro-batch, and whose driver dies
    then."""
    faults = Fault(0, Strike.DRIVER_DIES, 0, at), Fault(0, Strike.TOPIC_DELETED, AT_ONCE, at)
    return play(Schedule(Plan(rows=(4, 3), tasks=(2,), two_phase=(two_phase,)), faults)).query.stops


@pytest.mark.parametrize("two_phase", [False, True])
def test_a_topic_that_is_created_anew(two_phase: bool) -> None:
    """What is not decided is written again. What is decided and open is aborted as the error says, then written again;
    what was committed is gone, and nobody had seen it."""
    assert _stops("commit.entered", two_phase=two_phase) == ["died", "done"]
    assert _stops("commit.decided", two_phase=two_phase) == ["died", "EOS_DECISION_BROKEN", "done"]
    assert _stops("commit.ended", two_phase=two_phase) == ["died", "EOS_ROWS_MISSING"]


@pytest.mark.parametrize(
    ("at", "stops"),
    [
        ("prepare.prepared", ["EOS_TRANSACTION_BROKEN", "done"]),
        ("commit.verified", ["EOS_ROWS_MISSING"]),
        ("commit.decided", ["EOS_ROWS_MISSING"]),
    ],
)
def test_a_topic_that_is_created_anew_while_the_driver_lives(at: str, stops: list[str]) -> None:
    """Coordinators commit by the topic's name."""
    schedule = Schedule(Plan(rows=(4, 3), tasks=(2,)), (Fault(0, Strike.TOPIC_DELETED, AT_ONCE, at),))
    assert play(schedule).query.stops == stops
