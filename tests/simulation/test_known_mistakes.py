"""The mistakes that protocols of this kind are known for, put back one at a time: the simulation must see each.

What each costs is the invariant that it breaks. Taking the transactional id without the attempt costs no row: the
broker aborts the attempt that was there first, its verdict is "lost", and the replay writes it again. All that is
broken is the rule that spares the query this stop.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from spark_eos.errors import Unclear
from spark_eos.protocol import batch, run, sweep, verdicts
from spark_eos.protocol.head import NOBODY, Verdict, Written
from spark_eos.protocol.names import task_name
from spark_eos.protocol.ports import EndTxnAnswer, NotPublished

from . import invariants, ledger, spark
from .client import Producer
from .codes import CONCURRENT, FENCED, INVALID_STATE, OK
from .machine import SIZES, Scene, broken, draw
from .world import Reply, Strike

SEEDS = 2_000
"""How many schedules are tried before a mistake counts as unseen."""

Patch = Callable[[pytest.MonkeyPatch], None]


def _reuse_of_an_epoch(patch: pytest.MonkeyPatch) -> None:
    """Producers that live from batch to batch."""
    kept: dict[tuple[object, str], Producer] = {}

    class ConnectionPool(Producer):
        def init(self) -> None:
            before = kept.get((self._world, self.name))
            if before is None:
                super().init()
            else:
                self._pair, self._sequences = before._pair, before._sequences
            kept[self._world, self.name] = self

    patch.setattr(spark, "Producer", ConnectionPool)


def _version_4(patch: pytest.MonkeyPatch) -> None:
    made = ledger.SimulatedCoordinator.__init__
    patch.setattr(ledger.SimulatedCoordinator, "__init__", lambda self, *a: made(self, *a[:2], 4))


def _describe_without_own_epoch(patch: pytest.MonkeyPatch) -> None:
    """Whatever is Ongoing under the name is handed over."""

    def by_name(task: Any, own: Any, producer: Any, rows: list[int], by: Any) -> Written:
        described = own.coordinator.describe([producer.name]).get(producer.name)
        probe = described and own.coordinator.first_record(described.pair, described.places)
        if probe is None:
            raise Unclear("EOS_TRANSACTION_NOT_FOUND", "Nothing is open.", hint="Spark tries again.")
        return Written(task.attempt.partition, described.pair, len(rows), spark.digest(rows, by), probe)

    patch.setattr(spark, "_hand_over", by_name)


def _versions_mixed(patch: pytest.MonkeyPatch) -> None:
    """The driver commits by version 4, whoever settles after it by version 5 and believes its answer.

    With the answer confirmed by the data, as it is, mixing alone does no harm.
    """
    _taken_for_lost(INVALID_STATE)(patch)
    end = ledger.SimulatedCoordinator._end

    def mixed(self: Any, pair: Any, commit: bool) -> EndTxnAnswer:
        self.version = 4 if self._world.current.role == "commit" else 5
        return end(self, pair, commit)

    patch.setattr(ledger.SimulatedCoordinator, "_end", mixed)


def _decision_without_taking(patch: pytest.MonkeyPatch) -> None:
    """Each process writes to the ledger under a name of its own: nobody fences anybody."""

    def take(self: Any) -> Any:
        name = f"{self.transaction_name}-{self._world.current.name}-{self._world.step}"
        producer = Producer(self._world, self._cluster, name, ledger.LEDGER_TRANSACTION_MS)
        producer.init()
        return ledger.SimulatedTerm(self, producer)

    patch.setattr(ledger.SimulatedLedger, "take", take)


def _abort_after_the_decision(patch: pytest.MonkeyPatch) -> None:
    """What is not known to be committed is aborted, decided or not."""

    def clear(ports: Any, head: Any) -> Any:
        return verdicts.abort_all(ports, {d.pair for d in ports.coordinator.ongoing(before=head.generation)})

    patch.setattr(batch, "clear_earlier", clear)


def _commit_inside_the_task(patch: pytest.MonkeyPatch) -> None:
    hand_over = spark._hand_over

    def committing(task: Any, own: Any, producer: Any, *rest: Any) -> Any:
        written = hand_over(task, own, producer, *rest)
        producer.end(commit=True)
        return written

    patch.setattr(spark, "_hand_over", committing)


def _id_without_the_attempt(patch: pytest.MonkeyPatch) -> None:
    def plain(own: Any, task: Any) -> str:
        return task_name(ledger.PREFIX, ledger.QUERY, replace(task, attempt=0))

    patch.setattr(spark, "_free_name", plain)


def _read_that_does_not_wait(patch: pytest.MonkeyPatch) -> None:
    """The newest head below the last stable offset, whatever is open above it."""

    def read(self: Any) -> Any:
        log = self._cluster.log(ledger.LEDGER)
        self._world.call("fetch ledger", lambda: Reply(OK))
        value = ledger.committed(log, ledger.QUERY)
        return None if value is None else ledger.decode(value)

    patch.setattr(ledger.SimulatedLedger, "read", read)


def _answered(code: int, answer: EndTxnAnswer) -> Patch:
    def put_back(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(ledger._ANSWERS, code, answer)

    return put_back


def _taken_for_lost(code: int) -> Patch:
    """An answer that tells nothing is believed, before anybody else is asked."""

    def put_back(patch: pytest.MonkeyPatch) -> None:
        end, ask_coordinator = ledger.SimulatedCoordinator.end, verdicts._ask_coordinator
        told = threading.local()  # an actor is a thread

        def noting(self: Any, pairs: Any, *, commit: bool) -> Any:
            answers = end(self, pairs, commit=commit)
            told.lost = [pair for pair, answer in answers.items() if answer == "lost"]
            return {pair: EndTxnAnswer.SAYS_NOTHING if pair in told.lost else answers[pair] for pair in answers}

        def believing(ports: Any, open_ones: Any) -> Any:
            lost = {pair: Verdict.LOST for pair in open_ones if pair in told.lost}
            return lost or ask_coordinator(ports, open_ones)

        patch.setitem(ledger._ANSWERS, code, "lost")
        patch.setattr(ledger.SimulatedCoordinator, "end", noting)
        patch.setattr(verdicts, "_ask_coordinator", believing)

    return put_back


def _clean_up_before_publishing(patch: pytest.MonkeyPatch) -> None:
    """What was open when the run began to open is aborted, whether the run got through or not."""
    successor = run._successor

    def clearing(ports: Any, head: Any, *rest: Any) -> Any:
        decided = head.decision.pairs if head is not None and head.decision is not None else frozenset()
        verdicts.abort_all(ports, {d.pair for d in ports.coordinator.ongoing()} - decided)
        return successor(ports, head, *rest)

    patch.setattr(run, "_successor", clearing)


def _ledger_producer_kept(patch: pytest.MonkeyPatch) -> None:
    """A driver keeps its ledger producer, and with it the epoch, from one decision to the next."""
    kept: dict[tuple[object, str], Producer] = {}

    def take(self: Any) -> Any:
        key = self._world, self._world.current.name
        if key not in kept:
            kept[key] = Producer(self._world, self._cluster, self.transaction_name, ledger.LEDGER_TRANSACTION_MS)
            kept[key].init()
        return Keeping(self, kept[key])

    class Keeping(ledger.SimulatedTerm):
        def publish(self, *content: Any) -> None:
            self._producer._added.clear()
            try:
                super().publish(*content)
            except NotPublished:
                kept.pop((self._producer._world, self._producer._world.current.name), None)
                raise

    patch.setattr(ledger.SimulatedLedger, "take", take)


def _abort_without_closing(patch: pytest.MonkeyPatch) -> None:
    publish = ledger.SimulatedTerm.publish

    def publish_runs_only(self: Any, head: Any, *offsets: Any) -> None:
        if head.run != NOBODY:
            publish(self, head, *offsets)

    patch.setattr(ledger.SimulatedTerm, "publish", publish_runs_only)


def _clean_up_of_any_generation(patch: pytest.MonkeyPatch) -> None:
    ongoing = ledger.SimulatedCoordinator.ongoing
    patch.setattr(ledger.SimulatedCoordinator, "ongoing", lambda self, *, before=None, of=None: ongoing(self, of=of))


def _new_checkpoint_unsettled(patch: pytest.MonkeyPatch) -> None:
    """Who is behind takes what was decided for visible, as it nearly always is."""
    patch.setattr(run, "_settled", lambda ports, last: last.judged(dict.fromkeys(last.pairs, Verdict.COMMITTED)))


def _digest_of_the_version_at_hand(patch: pytest.MonkeyPatch) -> None:
    """A replay is digested as the version that is installed now digests a new micro-batch."""
    written_as = spark.assign

    def newest(*place: Any, digest_by: Any) -> Any:
        return replace(written_as(*place, digest_by=digest_by), digest_by=digest_by)

    patch.setattr(spark, "assign", newest)
    patch.setattr(batch, "check_versions", lambda *_: None)


def _partitioner_of_the_version_at_hand(patch: pytest.MonkeyPatch) -> None:
    """A run deals keys to partitions as its version does for a new query."""
    opened = spark._opened

    def own_partitioner(task: Any, own: Any) -> Any:
        return replace(opened(task, own), partitioner=task.driver.library.partitioner)

    patch.setattr(spark, "_opened", own_partitioner)


def _offsets_with_new_batches_only(patch: pytest.MonkeyPatch) -> None:
    """A group that is set at a replay waits for the next micro-batch, which may never come."""

    def of_new_ones(body: Any, last: Any) -> Any:
        return None if last is not None and last.batch == body.id else body.offsets

    patch.setattr(batch, "_offsets_to_give", of_new_ones)


def _sweep_that_asks_before_it_looks(patch: pytest.MonkeyPatch) -> None:
    """The head is read, then what is open is listed: by then, a later micro-batch may have it."""

    def once(ports: Any, run: str, batch: int) -> None:
        head = sweep._last_of(ports, run, batch)
        if head is not None:
            verdicts.abort_all(ports, {d.pair for d in ports.coordinator.ongoing(of=(head.generation, batch % 2))})

    patch.setattr(spark, "sweep", once)


def _end_txn_believed(patch: pytest.MonkeyPatch) -> None:
    """A transaction that the coordinator has committed is taken for visible."""
    for module in (batch, verdicts):
        patch.setattr(module, "look_at", lambda *_: ({}, None))
    patch.setattr(verdicts, "check_visible", lambda *_: None)


@dataclass(frozen=True)
class Mistake:
    """``breaks``: one of these is the first invariant to break. ``scenes``: where it shows, if it is rare."""

    name: str
    put_back: Patch
    breaks: tuple[str, ...]
    scenes: tuple[Scene, ...] | None = None


_OWN = f"{ledger.PREFIX}-{ledger.QUERY}-"
_END, _INIT, _ADD, _PRODUCE = (f"{request} {_OWN}" for request in ("end", "init", "add", "produce"))

_SECOND_ATTEMPT_IN_THE_MIDDLE: Scene = (
    (Strike.STAGE_RETRY, (0,), ("prepare.begun",)),
    (Strike.STALL, (10, 15, 20, 30), (f"{_ADD}1-0-0",)),
    (Strike.STALL, (15, 30, 40, 60), (f"{_INIT}1-0-0",)),
    (Strike.STALL, (100, 150, 200), ("prepare.flushed",)),
    (Strike.STALL, (1,), ("prepare.begun",)),
    (Strike.STALL, (1,), (f"{_PRODUCE}1-0-0",)),
    (Strike.STALL, (301,), (f"{_ADD}1-0-0", f"{_PRODUCE}1-0-0")),
)
_LEFT_OPEN: Scene = (
    (Strike.RESULT_LOST, SIZES, ("result ",)),
    (Strike.STAGE_RETRY, SIZES, ("prepare.", "may ")),
)
_PARTITION_ADDED_LATE: Scene = ((Strike.REQUEST_DOUBLED, (60, 301), (f"{_ADD}1-",)),)
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
    (Strike.DRIVER_DIES, (2,), (f"{_PRODUCE}ledger",)),
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
_SLOW_CLEANER: Scene = (
    (Strike.SECOND_DRIVER, SIZES, ("open.settled", "open.published", "task: list")),
    (Strike.STALL, SIZES, ("open.published", "task: list", "task: describe", f"task: {_END}1")),
    (Strike.STALL, SIZES, ("commit.decided", f"commit: {_END}2")),
)
_FAILED_APPEND: Scene = ((Strike.APPEND_FAILS, SIZES, (f"{_END}1-",)), (Strike.DRIVER_DIES, SIZES, ("commit.",)))
_ID_TAKEN_AGAIN: Scene = (
    (Strike.REQUEST_DOUBLED, (60, 301), (f"{_INIT}1-",)),
    (Strike.DRIVER_DIES, SIZES, ("commit.ended", "commit.cleaned", "commit log")),
)
_KILLED_WHEN_ENDED: Scene = ((Strike.DRIVER_DIES, SIZES, ("commit.ended",)),)
_KILLED_WHEN_DECIDED: Scene = ((Strike.DRIVER_DIES, SIZES, ("commit.decided", "commit.ended", "commit.cleaned")),)
_SECOND_LOST: Scene = (
    (Strike.DRIVER_DIES, SIZES, (f"{_END}1-1-",)),
    (Strike.PAUSE, (70_000,), ("fetch ledger", "open.")),
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
        ((Strike.DRIVER_DIES, SIZES, ("commit.decided",)), (strike, SIZES, ("task: fetch ledger", "open.taken"))),
        ((Strike.STALL, (70_000, 400_001), ("commit.entered",)), (strike, SIZES, ("commit: fetch ledger",))),
        ((Strike.STALL, (70_000, 400_001), ("commit.decided",)), (strike, SIZES, ("commit: describe",))),
    )
)
_LEFT_BEHIND: Scene = (
    (Strike.SECOND_DRIVER, SIZES, ("prepare.", "task: ")),
    (Strike.STALL, SIZES, ("task: fetch ledger", "open.")),
    (Strike.DRIVER_DIES, SIZES, ("commit.decided", "commit: fetch ledger")),
    (Strike.DRIVER_DIES, SIZES, ("commit.decided",)),
)
_STALE_COORDINATOR: Scene = (
    (Strike.DRIVER_DIES, SIZES, ("commit.decided", "commit.ended")),
    (Strike.COORDINATOR_STALE, SIZES, (f"task: {_END}1-",)),
)

MISTAKES = (
    Mistake("reuse of an epoch", _reuse_of_an_epoch, (invariants.NOT_DOUBLED,), (_LEFT_OPEN,)),
    Mistake(
        "EndTxn below version 5",
        _version_4,
        (invariants.ONE_TRANSACTION, invariants.NEVER_ABORTED),
        (_PARTITION_ADDED_LATE,),
    ),
    Mistake(
        "describe without own epoch",
        _describe_without_own_epoch,
        (invariants.NOT_LOST,),
        (_SECOND_ATTEMPT_IN_THE_MIDDLE,),
    ),
    Mistake("EndTxn versions mixed", _versions_mixed, (invariants.TRUE_VERDICTS,), (_KILLED_WHEN_ENDED,)),
    Mistake(
        "a decision without taking the ledger",
        _decision_without_taking,
        (invariants.OWN_GENERATION, invariants.ONE_DECISION, invariants.NOT_DOUBLED, invariants.NEVER_ABORTED),
    ),
    Mistake(
        "abort after the decision",
        _abort_after_the_decision,
        (invariants.NEVER_ABORTED,),
        (_STOPPED_WHILE_ENDING,),
    ),
    Mistake("commit inside the task", _commit_inside_the_task, (invariants.DECIDED,)),
    Mistake(
        "transactional id without the attempt",
        _id_without_the_attempt,
        (invariants.LEFT_ALONE,),
        (_SLOW_SECOND_ATTEMPT,),
    ),
    Mistake(
        "a head read that stops at another query's open transaction",
        _read_that_does_not_wait,
        (invariants.OWN_GENERATION, invariants.ONE_DECISION, invariants.NOT_REWRITTEN, invariants.NOT_DOUBLED),
        (_OTHER_QUERY,),
    ),
    Mistake(
        "51 taken for committed",
        _answered(CONCURRENT, EndTxnAnswer.DONE),
        (invariants.TRUE_VERDICTS, invariants.NOT_LOST),
        (_FAILED_APPEND,),
    ),
    Mistake("90 taken for lost", _taken_for_lost(FENCED), (invariants.TRUE_VERDICTS,), (_ID_TAKEN_AGAIN,)),
    Mistake("48 taken for lost", _taken_for_lost(INVALID_STATE), (invariants.TRUE_VERDICTS,), (_STALE_COORDINATOR,)),
    Mistake(
        "clean-up by a look-up older than the last publication",
        _clean_up_before_publishing,
        (invariants.NEVER_ABORTED,),
        (_SECOND_DRIVER,),
    ),
    Mistake(
        "a retry of the ledger's own EndTxn under the same epoch",
        _ledger_producer_kept,
        (invariants.OFFSETS,),
        (_LATE_END_OF_THE_LAST_DECISION,),
    ),
    Mistake(
        "an abort that does not close the run",
        _abort_without_closing,
        (invariants.NEVER_ABORTED,),
        (_STOPPED_COMMIT,),
    ),
    Mistake(
        "a clean-up that does not ask for the generation",
        _clean_up_of_any_generation,
        (invariants.NEVER_ABORTED,),
        (_SLOW_CLEANER,),
    ),
    Mistake(
        "a replay digested by the version at hand",
        _digest_of_the_version_at_hand,
        (invariants.TRUE_STOPS,),
        (_KILLED_WHEN_DECIDED,),
    ),
    Mistake(
        "a partitioner of the version at hand",
        _partitioner_of_the_version_at_hand,
        (invariants.SAME_PARTITION,),
        (_KILLED_WHEN_DECIDED,),
    ),
    Mistake(
        "offsets with new micro-batches only",
        _offsets_with_new_batches_only,
        (invariants.OFFSETS,),
        (_KILLED_WHEN_DECIDED,),
    ),
    Mistake(
        "a repair by whatever the replay wrote",
        lambda patch: patch.setattr(batch, "repairs", lambda *_: True),
        (invariants.NOT_LOST, invariants.NOT_DOUBLED),
        (_SECOND_LOST,),
    ),
    Mistake(
        "a sweep that asks before it looks",
        _sweep_that_asks_before_it_looks,
        (invariants.NEVER_ABORTED, invariants.TRUE_STOPS),
        (_SLOW_SWEEP,),
    ),
    Mistake("EndTxn's answer 0 believed", _end_txn_believed, (invariants.NOT_LOST,), _ROWS_TAKEN),
    Mistake(
        "a new checkpoint in place of a decision that is not settled",
        _new_checkpoint_unsettled,
        (invariants.TRUE_STOPS,),
        (_LEFT_BEHIND,),
    ),
)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_mistake_is_seen(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the mistake put back, some schedule breaks the invariant that stands against it."""
    mistake.put_back(monkeypatch)
    for seed in range(SEEDS):
        schedule = draw(random.Random(seed), mistake.scenes)
        invariant = broken(schedule)
        if invariant is not None:
            print(f"seed {seed}: {invariant}")
            assert invariant in mistake.breaks
            monkeypatch.undo()
            assert broken(schedule) is None
            return
    pytest.fail(f"no schedule of {SEEDS} sees it")
