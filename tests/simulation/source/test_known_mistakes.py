"""The mistakes that a source can make with its offsets, put back one at a time: the simulation must see each."""

from __future__ import annotations

import pytest

from tests.simulation.breaking import Mistake, see

from . import judge, mistakes
from .cluster import Event
from .play import play
from .schedule import Scene, draw

_ANY = range(240)
_LOST, _DOUBLED = (judge.NOT_LOST,), (judge.NOT_DOUBLED,)
#: What a loss of rows may break first.
_SILENT = (judge.NOT_LOST, judge.TRUE_LOSSES)
_MIXED_UP = (judge.NOT_LOST, judge.NOT_DOUBLED, judge.TRUE_LOSSES)

_CUTS = Scene(((Event.CUT, range(12, 40), _ANY), (Event.CUT, range(12, 60), _ANY)), fail=False)
_LAGS = Scene(((Event.ELECT, range(10, 50), range(5, 240, 3)),) * 3, fail=False)
_RECREATED = Scene(
    ((Event.RECREATE, range(12, 40), _ANY),) * 2,
    (("startingOffsets", "earliest"), ("maxOffsetsPerTrigger", "2"), ("minOffsetsPerTrigger", "1")),
    fail=False,
)
_CUT_UNDER_A_TASK = Scene(
    (
        (Event.OPEN, range(5, 30), _ANY),
        (Event.CUT, range(12, 40), _ANY),
        (Event.OPEN, range(12, 40), _ANY),
    ),
    fail=False,
)
_OF_THE_FIRST_LOG = range(0, 240, 60)
_COMPACTED = Scene(
    (
        (Event.ELECT, range(6, 12), _OF_THE_FIRST_LOG),
        (Event.WRITE, range(8, 16), range(0, 240, 20)),
        (Event.ELECT, range(18, 20), _OF_THE_FIRST_LOG),
        (Event.WRITE, range(20, 30), range(0, 240, 20)),
        (Event.COMPACT, range(22, 50), range(0, 240, 20)),
    ),
    (("startingOffsets", "earliest"),),
)
_CUT_AND_LAGGING = Scene(
    ((Event.CUT, range(12, 40), _ANY), (Event.ELECT, range(12, 50), range(5, 240, 3))) * 2, fail=False
)
_GROUP_AT_AN_ELECTION = Scene(
    (
        (Event.ELECT, range(4, 7), _OF_THE_FIRST_LOG),
        (Event.WRITE, range(5, 8), _OF_THE_FIRST_LOG),
        (Event.STALE, range(6, 9), _ANY),
    ),
    (("startingOffsets", "group"), ("kafka.group.id", "g")),
    fail=False,
)
_RECREATED_IN_A_PLAN = Scene(((Event.RECREATE, range(8, 30), _ANY),) * 2)
_KILLED_AT_ONCE = Scene(
    ((Event.WRITE, range(2, 5), _ANY), (Event.WRITE, range(4, 6), _ANY), (Event.CRASH, range(7, 10), _ANY)),
    (("startingOffsets", "latest"),),
)
_HIDDEN_IN_A_REPLAY = Scene(
    ((Event.CRASH, range(14, 22), _ANY), (Event.HIDE, range(14, 22), range(3, 240, 6))),
    (("startingOffsets", "earliest"),),
    fail=False,
)


MISTAKES = (
    Mistake(mistakes.recreated_topic_goes_on, _MIXED_UP),
    Mistake(mistakes.recreated_topic_is_no_loss, _SILENT),
    Mistake(mistakes.caught_up_by_offsets_alone, _LOST, _RECREATED, seed=767),
    Mistake(mistakes.returned_topic_begins_at_0, _DOUBLED),
    Mistake(mistakes.left_topics_are_forgotten, _DOUBLED),
    Mistake(mistakes.gone_topics_are_no_loss, _LOST),
    Mistake(mistakes.shorter_log_begins_anew, _DOUBLED, _CUTS),
    Mistake(mistakes.lag_is_loss, (judge.TRUE_LOSSES, judge.NOT_DOUBLED), _LAGS),
    Mistake(mistakes.epochs_ignored, _LOST, _CUTS),
    Mistake(mistakes.diverged_log_is_read_at_once, _MIXED_UP, _CUTS),
    Mistake(mistakes.newcomers_begin_at_the_end, _LOST),
    Mistake(mistakes.newcomers_are_read_at_once, _MIXED_UP),
    Mistake(mistakes.first_micro_batch_reads, _LOST, _KILLED_AT_ONCE),
    Mistake(mistakes.pinned_end_moves, (judge.PINNED,)),
    Mistake(mistakes.limit_that_skips, _LOST),
    Mistake(mistakes.limit_goes_past_the_end, _MIXED_UP),
    Mistake(mistakes.expired_rows_are_skipped, _LOST),
    Mistake(mistakes.first_position_has_no_ids, _MIXED_UP),
    Mistake(mistakes.read_by_name, _MIXED_UP, _RECREATED_IN_A_PLAN),
    Mistake(mistakes.last_look_left_out, _MIXED_UP, _RECREATED_IN_A_PLAN),
    Mistake(mistakes.one_look_is_enough, (judge.TRUE_LOSSES,)),
    Mistake(mistakes.hidden_is_gone, _SILENT, _HIDDEN_IN_A_REPLAY),
    Mistake(mistakes.ids_are_not_noted, _MIXED_UP),
    Mistake(mistakes.silence_is_another_log, (judge.TRUE_LOSSES,), _COMPACTED, seed=275),
    Mistake(mistakes.early_end_is_a_later_begin, (judge.TRUE_LOSSES,), _CUT_UNDER_A_TASK, seed=517),
    Mistake(mistakes.one_short_look_is_enough, _MIXED_UP, _CUT_AND_LAGGING),
    Mistake(mistakes.metadata_alone_tells_the_leader, (judge.TRUE_LOSSES,), _GROUP_AT_AN_ELECTION, seed=1956),
    Mistake(mistakes.stable_end_ignored, (judge.NOT_LOST, judge.PINNED)),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_the_mistake_is_seen(mistake: Mistake) -> None:
    """With the mistake put back, some schedule breaks an invariant that stands against it; without, it breaks none."""
    see(mistake, lambda chance: draw(chance, mistake.scenes), play)
