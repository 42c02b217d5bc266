"""The mistakes that protocols of this kind are known for, put back one at a time: the simulation must see each.

What each costs is the invariant that it breaks. Taking the transactional id without the attempt costs no row: the
broker aborts the attempt that was there first, its verdict is "lost", and the replay writes it again. All that is
broken is the rule that spares the query this stop.
"""

from __future__ import annotations

import random

import pytest

from spark_eos.protocol.ports import EndTxnAnswer

from . import cluster_mistakes, excused, invariants, ledger, ledger_mistakes, mistakes, operator, situations
from .breaking import Mistake, broken, see
from .codes import CONCURRENT, FENCED, INVALID_STATE
from .play import play
from .schedule import Extras, draw
from .situations import DECIDED, SIZES, Scene
from .world import Strike

TAKEN = 200


_OWN = f"{ledger.PREFIX}-{ledger.QUERY}-"
_END, _INIT, _ADD, _PRODUCE = (f"{request} {_OWN}" for request in ("end", "init", "add", "produce"))

_SECOND_ATTEMPT_IN_THE_MIDDLE: Scene = (
    (Strike.STAGE_RETRY, (0,), ("prepare.begun",)),
    (Strike.STALL, (10, 15, 20, 30), (f"{_ADD}1-1-0",)),
    (Strike.STALL, (15, 30, 40, 60), (f"{_INIT}1-1-0",)),
    (Strike.STALL, (100, 150, 200), ("prepare.flushed",)),
    (Strike.STALL, (1,), ("prepare.begun",)),
    (Strike.STALL, (1,), (f"{_PRODUCE}1-1-0",)),
    (Strike.STALL, (301,), (f"{_ADD}1-1-0", f"{_PRODUCE}1-1-0")),
)
_LEFT_OPEN: Scene = (
    (Strike.RESULT_LOST, SIZES, ("result ",)),
    (Strike.STAGE_RETRY, SIZES, ("prepare.", "may ")),
)
_SLOW_SECOND_ATTEMPT: Scene = (
    (Strike.SPECULATION, SIZES, ("may ", "prepare.prepared", "prepare.flushed")),
    (Strike.STALL, (15, 20, 30, 60), (_INIT,)),
)
_STOPPED_WHILE_ENDING: Scene = (
    (Strike.REQUEST_LOST, SIZES, (f"{_END}1-",)),
    (Strike.QUERY_STOPPED, SIZES, ("describe", f"{_END}1-")),
)
_SECOND_DRIVER: Scene = (
    (Strike.SECOND_DRIVER, SIZES, ("",)),
    (Strike.STALL, SIZES, ("list", "describe", _END)),
)
_LATE_END_OF_THE_LAST_DECISION: Scene = (
    (Strike.REQUEST_DOUBLED, (301,), (f"{_END}ledger",)),
    (Strike.STALL, (1,), (f"{_PRODUCE}ledger",)),
    (Strike.STALL, (301,), (f"{_ADD}ledger",)),
    (Strike.DRIVER_DIES, (2,), (f"offsets {_OWN}ledger",)),
)
_OTHER_QUERY: Scene = (
    (Strike.OTHER_QUERY, (301, 2_000, 15_001), ("commit.", "open.")),
    (Strike.DRIVER_DIES, SIZES, ("commit.decided", "commit.ended", f"{_END}1-")),
)
_STOPPED_COMMIT: Scene = (
    (Strike.QUERY_STOPPED, SIZES, ("commit.entered", "commit: fetch", "commit.taken")),
    (Strike.STALL, (7, 10, 15), ("commit: ",)),
    (Strike.STALL, (15, 20, 30, 60), (f"abort: {_END}1-",)),
)
_FAILED_APPEND: Scene = ((Strike.APPEND_FAILS, SIZES, (f"{_END}1-",)), (Strike.DRIVER_DIES, SIZES, ("commit.",)))
_ID_TAKEN_AGAIN: Scene = (
    (Strike.REQUEST_DOUBLED, (60, 301), (f"{_INIT}1-",)),
    (Strike.DRIVER_DIES, SIZES, ("commit.ended", "commit.cleaned", "commit log")),
)
_KILLED_WHEN_ENDED: Scene = ((Strike.DRIVER_DIES, SIZES, ("commit.ended",)),)
_KILLED_WHEN_DECIDED: Scene = ((Strike.DRIVER_DIES, SIZES, ("commit.decided", "commit.ended", "commit.cleaned")),)
_SOURCE_BACK: Scene = (
    (Strike.SOURCE_MISSING, (5_000,), ("commit.verified",)),
    (Strike.PAUSE, (15_001,), ("commit.cleaned",)),
    (Strike.QUERY_STOPPED, SIZES, ("commit log", "offset log", "prepare.")),
)
_LOOK_IN_VAIN: Scene = ((Strike.CUT, (70_000, 70_001), ("ahead: look back",)),)
_LEFTOVER_REFUSED: Scene = (*_LEFT_OPEN, (Strike.END_REFUSED, (3, 15, 301), (f"commit: {_END}1-",)))
_KILLED_WHEN_NOTED: Scene = ((Strike.DRIVER_DIES, SIZES, (f"{_PRODUCE}ledger", "commit: ledger ")),)
_SECOND_LOST: Scene = (
    (Strike.DRIVER_DIES, SIZES, (f"{_END}1-1-",)),
    (Strike.PAUSE, (70_000,), ("ledger ", "open.")),
)
_SLOW_SWEEP: Scene = (
    (Strike.STALL, (15_001,), ("sweep: list",)),
    (Strike.STALL, (1,), ("commit.decided",)),
    (Strike.STALL, (15_001,), ("commit.decided",)),
)
_ROWS_TAKEN: tuple[Scene, ...] = tuple(
    scene
    for strike in (Strike.ABORTED_IN_PLACE, Strike.RETENTION_OF_OPEN)
    for scene in (
        ((Strike.DRIVER_DIES, SIZES, ("commit.decided",)), (strike, SIZES, ("task: ledger ", "open.taken"))),
        ((Strike.STALL, (70_000, 400_001), ("commit.entered",)), (strike, SIZES, ("commit: ledger ",))),
        ((Strike.STALL, (70_000, 400_001), ("commit.decided",)), (strike, SIZES, ("commit: describe",))),
    )
)
_ABORTED_IN_PLACE: Scene = (
    (Strike.ABORTED_IN_PLACE, SIZES, ("prepare.prepared", "commit.entered", "commit.decided", f"commit: {_END}1")),
)
_ABORTED_AND_KILLED: Scene = (*_ABORTED_IN_PLACE, (Strike.DRIVER_DIES, SIZES, ("commit.ended", "commit log")))
_ENDED_LATE: Scene = (
    (Strike.STALL, (70_000, 400_001), ("commit: end eos-q-1",)),
    (Strike.ABORTED_IN_PLACE, SIZES, ("commit: end eos-q-1", "")),
)
_FENCED_AND_NOT_ENDED: Scene = (
    (Strike.TIMEOUT_SLOW, (70_000,), ("commit.",)),
    (Strike.ABORTED_IN_PLACE, (3, 60, 2_000), ("commit.decided", "commit.verified")),
    (Strike.PAUSE, (70_000,), ("commit.decided",)),
)
_LEFT_BEHIND: Scene = (
    (Strike.SECOND_DRIVER, SIZES, ("prepare.", "task: ")),
    (Strike.STALL, SIZES, ("task: ledger ", "open.")),
    (Strike.DRIVER_DIES, SIZES, ("commit.decided", "commit: ledger ")),
    (Strike.DRIVER_DIES, SIZES, ("commit.decided",)),
)
_STALE_COORDINATOR: Scene = (
    (Strike.DRIVER_DIES, SIZES, ("commit.decided", "commit.ended")),
    (Strike.COORDINATOR_STALE, SIZES, (f"task: {_END}1-",)),
)
_TAIL_OF_A_DECISION: Scene = (
    (Strike.DRIVER_DIES, SIZES, ("commit.decided",)),
    (Strike.OUTPUT_CUT, (0, 2, 14, 16), ("task: ledger ",)),
)


_BEHIND_ANOTHER: Scene = (
    (Strike.STALL, (1,), ("commit log",)),
    (Strike.STALL, (1,), ("commit log",)),
    (Strike.OUTPUT_CUT, (7, 21, 9, 23, 11, 25), ("prepare.begun",)),
    (Strike.DRIVER_DIES, SIZES, ("commit.decided",)),
)
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
_HALF_LOST: Scene = (
    (Strike.DRIVER_DIES, SIZES, ("end eos-q-1-1-", "end eos-q-1-0-")),
    (Strike.PAUSE, (70_000,), ("ledger ", "open.")),
)
_ABORTED_BY_HAND: Scene = (
    (Strike.OPERATOR_ABORTS, SIZES, ("commit.entered", "commit.taken", "commit: describe")),
    (Strike.STALL, SIZES, ("operator: ",)),
)

MISTAKES = (
    Mistake(mistakes.reuse_of_an_epoch, (invariants.NOT_DOUBLED, invariants.ONE_TRANSACTION), (_LEFT_OPEN,)),
    Mistake(
        mistakes.ended_by_version_4,
        (invariants.TRUE_VERDICTS, invariants.NOT_DOUBLED, invariants.TRUE_STOPS, operator.NOTHING_HELD),
        situations.OPENED_ONCE_MORE,
        seed=80,
    ),
    Mistake(mistakes.describe_without_own_epoch, (invariants.NOT_LOST,), (_SECOND_ATTEMPT_IN_THE_MIDDLE,)),
    Mistake(mistakes.versions_mixed, (invariants.TRUE_VERDICTS,), (_KILLED_WHEN_ENDED,)),
    Mistake(
        mistakes.decision_without_taking,
        (
            invariants.OWN_GENERATION,
            invariants.ONE_DECISION,
            invariants.NOT_DOUBLED,
            invariants.NEVER_ABORTED,
            invariants.OFFSETS,
        ),
        seed=13,
    ),
    Mistake(mistakes.abort_after_the_decision, (invariants.NEVER_ABORTED,), (_STOPPED_WHILE_ENDING,), seed=14),
    Mistake(mistakes.commit_inside_the_task, (invariants.DECIDED,)),
    Mistake(mistakes.id_without_the_attempt, (invariants.LEFT_ALONE,), (_SLOW_SECOND_ATTEMPT,), seed=20),
    Mistake(
        mistakes.read_that_does_not_wait,
        (
            invariants.OWN_GENERATION,
            invariants.ONE_DECISION,
            invariants.NOT_REWRITTEN,
            invariants.NOT_DOUBLED,
            invariants.OFFSETS,
            invariants.NOTES_GO_ALONG,
        ),
        (_OTHER_QUERY,),
    ),
    Mistake(
        mistakes.answered(CONCURRENT, EndTxnAnswer.DONE),
        (invariants.TRUE_VERDICTS, invariants.NOT_LOST, invariants.TRUE_STOPS),
        (_FAILED_APPEND,),
        name="51 taken for committed",
        seed=7,
    ),
    Mistake(mistakes.taken_for_lost(FENCED), (invariants.TRUE_VERDICTS,), (_ID_TAKEN_AGAIN,), name="90 taken for lost"),
    Mistake(
        mistakes.taken_for_lost(INVALID_STATE),
        (invariants.TRUE_VERDICTS,),
        (_STALE_COORDINATOR,),
        name="48 taken for lost",
    ),
    Mistake(mistakes.clean_up_before_publishing, (invariants.NEVER_ABORTED,), (_SECOND_DRIVER,), seed=133),
    Mistake(mistakes.ledger_producer_kept, (invariants.OFFSETS,), (_LATE_END_OF_THE_LAST_DECISION,), seed=7),
    Mistake(mistakes.abort_without_closing, (invariants.NEVER_ABORTED,), (_STOPPED_COMMIT,), seed=16),
    Mistake(mistakes.clean_up_of_any_generation, (invariants.NEVER_ABORTED,), (situations.SLOW_CLEANER,), seed=53),
    Mistake(mistakes.digest_of_the_version_at_hand, (invariants.TRUE_STOPS,), (_KILLED_WHEN_DECIDED,)),
    Mistake(mistakes.partitioner_of_the_version_at_hand, (invariants.SAME_PARTITION,), (_KILLED_WHEN_DECIDED,)),
    Mistake(mistakes.offsets_with_new_batches_only, (invariants.OFFSETS,), (_KILLED_WHEN_DECIDED,)),
    Mistake(mistakes.clean_up_that_raises, (invariants.TRUE_STOPS,), (_LEFTOVER_REFUSED,), seed=44),
    Mistake(mistakes.look_of_another_run_heard, (invariants.TRUE_STOPS,), (_LOOK_IN_VAIN,), seed=58),
    Mistake(mistakes.left_out_for_good, (invariants.OFFSETS,), (_SOURCE_BACK,)),
    Mistake(
        mistakes.records_of_a_decision_that_is_published_again, (invariants.NOTES_GO_ALONG,), (_KILLED_WHEN_DECIDED,)
    ),
    Mistake(mistakes.notes_forgotten_by_the_next_decision, (invariants.EXTRAS_GO_ALONG,), (_KILLED_WHEN_DECIDED,)),
    Mistake(mistakes.extra_dropped, (invariants.EXTRAS_GO_ALONG, invariants.TRUE_STOPS), (_KILLED_WHEN_DECIDED,)),
    Mistake(mistakes.extra_of_the_decision_before, (invariants.EXTRAS_GO_ALONG,), (_KILLED_WHEN_DECIDED,)),
    Mistake(mistakes.extras_of_transactions_swapped, (invariants.EXTRAS_GO_ALONG,), (_SECOND_LOST,)),
    Mistake(mistakes.extra_compared_as_bytes, (invariants.TRUE_STOPS,), (_KILLED_WHEN_DECIDED,)),
    Mistake(
        mistakes.extra_not_compared,
        (invariants.NOT_LOST, invariants.NOT_DOUBLED, invariants.OFFSETS),
        (_KILLED_WHEN_DECIDED,),
        Extras(losses=1.0),
        seed=99,
    ),
    Mistake(mistakes.extra_before_its_decision, (invariants.EXTRAS_GO_ALONG,), (_KILLED_WHEN_DECIDED,)),
    Mistake(mistakes.notes_in_a_transaction_of_their_own, (invariants.NOTES_GO_ALONG,), (_KILLED_WHEN_NOTED,)),
    Mistake(
        mistakes.repair_by_whatever_the_replay_wrote, (invariants.NOT_LOST, invariants.NOT_DOUBLED), (_SECOND_LOST,)
    ),
    Mistake(
        mistakes.repair_by_the_ranges_of_spark,
        (invariants.NOT_LOST, invariants.NOT_DOUBLED, invariants.EXTRAS_GO_ALONG),
        (_SECOND_LOST,),
        seed=11,
    ),
    Mistake(
        mistakes.sweep_that_asks_before_it_looks,
        (invariants.NEVER_ABORTED, invariants.TRUE_STOPS),
        (_SLOW_SWEEP,),
        seed=110,
    ),
    Mistake(mistakes.end_txn_believed, (invariants.NOT_LOST,), _ROWS_TAKEN),
    Mistake(mistakes.nobody_looks_back, (invariants.NOT_LOST,), (_ABORTED_IN_PLACE,)),
    Mistake(mistakes.only_the_next_commit_looks_back, (invariants.NOT_LOST,), (_ABORTED_IN_PLACE,)),
    Mistake(mistakes.starts_do_not_look_back, (invariants.NOT_LOST,), (_ABORTED_AND_KILLED,)),
    Mistake(mistakes.late_end_believed, (invariants.NOT_LOST,), (_ENDED_LATE,)),
    Mistake(mistakes.lost_while_it_is_open, (invariants.TRUE_VERDICTS,), (_FENCED_AND_NOT_ENDED,), seed=336),
    Mistake(mistakes.fresh_by_the_tasks_clock, (invariants.NOT_LOST,), _ROWS_TAKEN, seed=9),
    Mistake(mistakes.new_checkpoint_unsettled, (invariants.TRUE_STOPS,), (_LEFT_BEHIND,), seed=73),
)

#: What a read that is not true may break first; the last but one where a start takes it for a loss of the ledger.
_UNTRUE = (
    invariants.OWN_GENERATION,
    invariants.ONE_DECISION,
    invariants.NOT_REWRITTEN,
    invariants.NOT_DOUBLED,
    invariants.NEVER_ABORTED,
    invariants.TRUE_STOPS,
    operator.NOTHING_HELD,
)

_WRITTEN_AGAIN = (invariants.NOT_DOUBLED, invariants.NEVER_ABORTED)
_ROWS = (invariants.NOT_LOST, invariants.NOT_DOUBLED, invariants.OFFSETS)

#: Of whoever reads and writes the ledger.
OF_THE_LEDGER = (
    Mistake(ledger_mistakes.half_a_search_is_kept, _UNTRUE, situations.LEDGER_HELD, seed=135),
    Mistake(ledger_mistakes.whatever_end_is_told, (*_UNTRUE, invariants.OFFSETS), situations.LEADER_STALE, seed=15),
    Mistake(ledger_mistakes.published_on_whatever_was_read, _UNTRUE, situations.LEADER_STALE, seed=294),
    Mistake(ledger_mistakes.the_end_by_fetch, _UNTRUE, situations.LEADER_BEHIND),
    Mistake(ledger_mistakes.only_the_present_partition, _UNTRUE, situations.LEDGER_GROWN, seed=28),
    Mistake(ledger_mistakes.only_the_partitions_known, _UNTRUE, situations.GROWN_WHILE_IT_BEGINS, seed=25),
    Mistake(ledger_mistakes.a_new_ledger_for_the_first_micro_batch, _UNTRUE, situations.LEDGER_LOST),
    Mistake(ledger_mistakes.taken_as_the_ledger_that_was_read, _UNTRUE, situations.LEDGER_REPLACED, seed=1065),
    Mistake(ledger_mistakes.taken_as_the_coordinator_knows_it, _UNTRUE, situations.LEDGER_REPLACED, seed=1065),
    Mistake(ledger_mistakes.traces_of_the_first_run_only, _UNTRUE, situations.LEDGER_LOST, seed=427),
    Mistake(
        ledger_mistakes.complete_before_it_is_committed,
        (invariants.TRUE_VERDICTS, invariants.NEVER_ABORTED, invariants.NOT_LOST),
        situations.BATCH_WRITES,
    ),
    Mistake(ledger_mistakes.offsets_as_well_as_it_goes, (invariants.OFFSETS,), situations.OFFSETS_REFUSED, seed=12),
    Mistake(
        ledger_mistakes.begin_at_whichever_micro_batch, (invariants.NOT_DOUBLED,), extras=Extras(begins=1.0), seed=430
    ),
    Mistake(
        ledger_mistakes.end_without_a_head_believed,
        (invariants.NOT_LOST,),
        extras=Extras(begins=1.0, aborts=1.0),
        seed=55,
    ),
    Mistake(
        ledger_mistakes.nobody_looks_back,
        (invariants.NOT_LOST,),
        extras=Extras(begins=1.0, aborts=1.0),
        name="nobody looks back at the end",
        seed=23,
    ),
    Mistake(ledger_mistakes.newest_head_believed, _WRITTEN_AGAIN, extras=Extras(cuts=1.0), seed=18),
    Mistake(ledger_mistakes.own_id_not_asked, _WRITTEN_AGAIN, extras=Extras(cuts=1.0), seed=18),
    Mistake(ledger_mistakes.head_believed_at_the_end, (invariants.TRUE_STOPS,), extras=Extras(cuts=1.0), seed=141),
)


#: Where a query loses files, moves to another topic, or is not alone.
OF_THE_QUERY = (
    Mistake(mistakes.replays_not_compared, _ROWS, extras=Extras(losses=1.0)),
    Mistake(mistakes.behind_taken_for_done, (*_ROWS, "goes on"), extras=Extras(losses=1.0), seed=83),
    Mistake(
        mistakes.digested_without_the_topic,
        (invariants.ONE_TOPIC, invariants.TRUE_STOPS),
        (_HALF_LOST,),
        Extras(moves=1.0),
        seed=23,
    ),
    Mistake(
        mistakes.topics_of_the_last_micro_batch,
        (invariants.TOPICS_KNOWN,),
        (((Strike.DRIVER_DIES, SIZES, ("commit log",)),),),
        Extras(moves=1.0),
    ),
    Mistake(mistakes.names_known_by_their_prefix, (invariants.NEIGHBOURS,), extras=Extras(others=1.0)),
    Mistake(mistakes.kept_without_the_query, (invariants.NEIGHBOURS,), extras=Extras(others=1.0)),
    Mistake(
        mistakes.unverified_starts_in_memory_alone,
        (invariants.NOT_LOST,),
        extras=Extras(others=1.0, aborts=1.0),
        seed=138,
    ),
    Mistake(mistakes.operator_aborts_without_closing, (invariants.NEVER_ABORTED,), (_ABORTED_BY_HAND,), seed=44),
)

#: Where brokers change versions, and topics are deleted or lose records.
OF_THE_CLUSTER = (
    Mistake(
        cluster_mistakes.abort_one_epoch_on_believed,
        (invariants.TRUE_VERDICTS, invariants.NOT_DOUBLED),
        situations.OPENED_ONCE_MORE,
        seed=340,
    ),
    Mistake(
        cluster_mistakes.open_once_more_taken_for_broken, (invariants.TRUE_STOPS,), situations.OPENED_ONCE_MORE, seed=61
    ),
    Mistake(
        cluster_mistakes.ended_by_the_version_at_hand,
        (invariants.TRUE_VERDICTS, invariants.NOT_DOUBLED, invariants.TRUE_STOPS),
        situations.FEATURE_CHANGED,
        seed=632,
    ),
    Mistake(
        cluster_mistakes.handed_over_wherever_it_begins,
        (invariants.NOT_LOST, operator.NOTHING_HELD),
        situations.ABORTED_WHILE_IT_IS_WRITTEN,
        seed=11,
    ),
    Mistake(cluster_mistakes.ends_not_compared, (excused.WHOLE,), (_TAIL_OF_A_DECISION,)),
    Mistake(
        cluster_mistakes.whatever_begins_elsewhere_is_broken, (invariants.NEVER_ABORTED,), (_BEHIND_ANOTHER,), seed=99
    ),
    Mistake(
        cluster_mistakes.topics_known_by_name,
        (invariants.NOT_LOST,),
        (((Strike.TOPIC_DELETED, SIZES, ("prepare.prepared", "commit.verified", "commit.decided")),),),
    ),
    Mistake(cluster_mistakes.asked_for_ever, ("goes on", operator.NOTHING_HELD), None, Extras(topics=1.0), seed=201),
    Mistake(cluster_mistakes.gone_taken_for_lost, (invariants.TRUE_VERDICTS,), (_FORGOTTEN,)),
    Mistake(
        cluster_mistakes.missing_since_the_first_time,
        (invariants.NOT_LOST, invariants.TRUE_STOPS),
        (_STARTED_TWICE,),
        seed=39,
    ),
)


@pytest.mark.parametrize("mistake", (*MISTAKES, *OF_THE_LEDGER, *OF_THE_QUERY, *OF_THE_CLUSTER), ids=str)
def test_the_mistake_is_seen(mistake: Mistake) -> None:
    """With the mistake put back, some schedule breaks the invariant that stands against it."""
    see(mistake, lambda chance: draw(chance, mistake.scenes, mistake.extras), play)


def test_rows_that_somebody_takes_are_never_lost_silently() -> None:
    """By abort in one partition, at any age of the transaction; or by retention, out of one that is a minute old, or
    whose run is dead."""
    for seed in range(TAKEN):
        schedule = draw(random.Random(seed), (*_ROWS_TAKEN, _ENDED_LATE, _ABORTED_IN_PLACE, _ABORTED_AND_KILLED))
        assert broken(play, schedule) is None, f"seed {seed}"
