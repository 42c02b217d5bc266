"""Mistakes of I/O, put into our code one at a time: the schedules must find each, and say what is broken."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from spark_eos.kafka.codes import Code
from tests.simulation.breaking import Patch, put_back

from . import mistakes
from .faults import Fault, Kind, Schedule, Turn, draw
from .play import broken
from .sockets import Line
from .two_phase import TwoPhase

#: How many schedules are tried before a mistake counts as unseen.
SEEDS = 300

PRODUCE, FETCH, INIT, ADD, END = 0, 1, 22, 24, 26
Draw = Callable[[random.Random], Schedule]


@dataclass(frozen=True)
class Mistake:
    """``draw``: schedules where it can show; ``says``: what the judge says of it. ``seed``: of schedules that have
    shown it lately, where few do."""

    put_in: Patch
    draw: Draw
    says: str
    play: str = "writes"
    seed: str = ""

    def __str__(self) -> str:
        return f"{self.put_in.__name__}, {self.play}"


def _struck(api: int, kind: Kind, *amounts: float, upto: int = 12, more: int = 1, **settings: Any) -> Draw:
    """Faults of this kind at requests of this API."""

    def draw(chance: random.Random) -> Schedule:
        faults = tuple(Fault(api, chance.randrange(upto), kind, chance.choice(amounts or (0.0,))) for _ in range(more))
        return Schedule(chance.randrange(1 << 20), faults, brokers=chance.choice((1, 2)), **settings)

    return draw


def _narrow(chance: random.Random) -> Schedule:
    lines = tuple((n, Line(room=chance.choice((7, 60, 200)))) for n in range(8))
    return Schedule(chance.randrange(1 << 20), lines=lines)


def _calm(chance: random.Random) -> Schedule:
    return Schedule(chance.randrange(1 << 20))


def _unmild(chance: random.Random) -> Schedule:
    """Where a topic may take less: a throttled answer changes nothing, and counts as harsh."""
    return Schedule(chance.randrange(1 << 20), (Fault(PRODUCE, 0, Kind.THROTTLED, 11.0),))


def _plain(chance: random.Random) -> Schedule:
    return Schedule(chance.randrange(1 << 20), level=chance.choice((0, 1)))


def _wrapping(chance: random.Random) -> Schedule:
    return Schedule(chance.randrange(1 << 20), strict=False)


def _late_and_lost(chance: random.Random) -> Schedule:
    late = Fault(END, 0, Kind.ANSWER_LATE, chance.choice((9.0, 22.0, 25.0)))
    refused = tuple(Fault(END, nth, Kind.LOST) for nth in range(3, 12))
    return Schedule(chance.randrange(1 << 20), (late, *refused), brokers=1)


def _repeated_and_refused(chance: random.Random) -> Schedule:
    first = chance.randrange(8)
    refused = tuple(Fault(PRODUCE, nth, Kind.CODE, 19) for nth in range(first + 1, first + 12) if chance.random() < 0.4)
    return Schedule(chance.randrange(1 << 20), (Fault(PRODUCE, first, Kind.REPEATED), *refused), brokers=1)


def _ends_unheard(chance: random.Random) -> Schedule:
    kind = chance.choice((Kind.SILENT, Kind.LOST, Kind.CODE))
    fault = Fault(END, chance.randrange(10), kind, 15.0, times=chance.choice((4, 9, 40)))
    turns = ((chance.randrange(40), Turn.DIES, 0.0),)
    return Schedule(chance.randrange(1 << 20), (fault,), turns=turns)


def _heads_unheard(chance: random.Random) -> Schedule:
    """Once the first micro-batch is decided, nobody hears of an end any more, and a driver dies."""
    fault = Fault(END, chance.randrange(6, 10), Kind.LOST, times=40)
    return Schedule(chance.randrange(1 << 20), (fault,), turns=((chance.randrange(40), Turn.DIES, 0.0),))


def _drawn(chance: random.Random) -> Schedule:
    return draw(chance.randrange(1 << 20))


def _asked_again(chance: random.Random) -> Schedule:
    fault = Fault(INIT, chance.randrange(3), Kind.CODE, chance.choice((14.0, 15.0, 51.0)))
    return Schedule(chance.randrange(1 << 20), (fault,), two_phase=TwoPhase(sleeps=(0.0, 70.0)))


def _stops_to_speak_it(chance: random.Random) -> Schedule:
    two_phase = TwoPhase(sleeps=(70.0, 0.0), mute=frozenset({1, 2}), granted=1)
    return Schedule(chance.randrange(1 << 20), two_phase=two_phase)


def _offered(chance: random.Random) -> Schedule:
    return Schedule(chance.randrange(1 << 20), two_phase=TwoPhase())


def _dies_and_stalls(chance: random.Random) -> Schedule:
    first = chance.randrange(20)
    turns = (first, Turn.DIES, 0.0), (first + chance.randrange(1, 30), Turn.STALLS, 70.0)
    return Schedule(chance.randrange(1 << 20), turns=turns, two_phase=TwoPhase())


MISTAKES = (
    Mistake(mistakes.number_not_checked, _repeated_and_refused, "that were acknowledged", seed="8"),
    Mistake(mistakes.late_answer_on_a_kept_connection, _late_and_lost, "told that it is committed"),
    Mistake(mistakes.partial_write_taken_for_whole, _narrow, "for no good reason", seed="0"),
    Mistake(mistakes.retry_with_a_new_sequence, _struck(PRODUCE, Kind.ANSWER_LOST), "partition", seed="5"),
    Mistake(
        mistakes.duplicate_taken_for_an_error,
        _struck(PRODUCE, Kind.ANSWER_LOST, says_duplicate=True),
        "for no good reason",
    ),
    Mistake(
        mistakes.taken_for_written(Code.OUT_OF_ORDER_SEQUENCE_NUMBER), _struck(PRODUCE, Kind.CODE, 19, 51), "partition"
    ),
    Mistake(mistakes.taken_for_written(Code.REQUEST_TIMED_OUT), _struck(PRODUCE, Kind.CODE, 7), "partition", seed="5"),
    Mistake(mistakes.taken_for_written(Code.INVALID_PRODUCER_EPOCH), _struck(PRODUCE, Kind.CODE, 47), "partition"),
    Mistake(
        mistakes.silence_taken_for_committed, _struck(END, Kind.SILENT, upto=3, more=9), "told that it is committed"
    ),
    Mistake(mistakes.sequence_wraps_too_early, _wrapping, "for no good reason"),
    Mistake(mistakes.not_leader_taken_for_final, _struck(PRODUCE, Kind.LEADER_MOVES), "for no good reason"),
    Mistake(mistakes.leader_asked_for_once, _struck(PRODUCE, Kind.LEADER_MOVES), "for no good reason"),
    Mistake(mistakes.leader_epoch_not_told, _struck(END, Kind.LEADER_MOVES, upto=3), "was read as"),
    Mistake(mistakes.coordinator_asked_for_once, _struck(END, Kind.COORDINATORS_MOVE, upto=3), "for no good reason"),
    Mistake(mistakes.aborted_index_ignored, _struck(PRODUCE, Kind.CODE, 87), "read as"),
    Mistake(mistakes.silence_without_end, _struck(END, Kind.SILENT, upto=3), "still goes on"),
    Mistake(mistakes.batch_before_its_addition, _plain, "for no good reason"),
    Mistake(
        mistakes.unanswered_addition_taken_for_done, _struck(ADD, Kind.LOST, upto=3, level=1), "for no good reason"
    ),
    Mistake(mistakes.end_by_another_version, _struck(END, Kind.ANSWER_LOST, upto=3, level=1), "for no good reason"),
    Mistake(mistakes.checksum_not_checked, _struck(FETCH, Kind.FLIPPED, upto=8), "were read"),
    Mistake(mistakes.error_of_a_flush_swallowed, _struck(PRODUCE, Kind.CODE, 87), "partition"),
    Mistake(mistakes.no_answer_taken_for_done, _ends_unheard, "partition", "query", "3"),
    Mistake(mistakes.decision_without_an_answer, _ends_unheard, "EOS_LEDGER_TRUNCATED", "query", "9"),
    Mistake(mistakes.aborted_heads_read, _heads_unheard, "the group is at", "query", "3"),
    Mistake(mistakes.aborted_rows_gathered, _struck(PRODUCE, Kind.CODE, 87), "together"),
    Mistake(mistakes.a_part_taken_for_all, _calm, "together"),
    Mistake(mistakes.memory_used_again, _calm, "for no good reason", "copies"),
    Mistake(mistakes.edges_passed_on, _calm, "partition", "copies"),
    Mistake(mistakes.aborted_rows_copied, _calm, "partition", "copies"),
    Mistake(mistakes.whole_batches_not_counted, _calm, "for no good reason", "copies"),
    Mistake(mistakes.halves_lost, _unmild, "partition", "copies"),
    Mistake(mistakes.plain_after_the_first_try, _asked_again, "has expired"),
    Mistake(mistakes.plain_after_the_first_try, _asked_again, "has expired", "copies"),
    Mistake(mistakes.version_given_up, _stops_to_speak_it, "has expired"),
    Mistake(mistakes.prepared_transaction_kept, _offered, "for no good reason"),
    Mistake(mistakes.forgotten_after_a_restart, _dies_and_stalls, "never expires was lost", "query", "1"),
    Mistake(mistakes.leftovers_left_to_their_timeout, _dies_and_stalls, "is held", "query", "0"),
    Mistake(mistakes.ledger_under_changing_names, _drawn, "too many rows", "query", "49"),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_schedules_find_it(mistake: Mistake) -> None:
    """No schedule of this kind breaks our code; with the mistake, one does."""
    chance = random.Random(mistake.seed or str(mistake))
    schedules = [mistake.draw(chance) for _ in range(SEEDS)]
    assert [broken(schedule, mistake.play) for schedule in schedules[:2]] == [None] * 2
    with put_back(mistake.put_in):
        seen = (broken(schedule, mistake.play) or "" for schedule in schedules)
        assert any(mistake.says in said for said in seen), f"{SEEDS} schedules do not see it"
