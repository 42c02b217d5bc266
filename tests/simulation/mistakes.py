"""The mistakes that protocols of this kind are known for, as patches that put them back."""

from __future__ import annotations

import re
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest

from spark_eos.errors import ProtocolStop, Unclear
from spark_eos.kafka.transactions import FENCING_END, PLAIN_END
from spark_eos.ledger.group_offsets import LeftOut
from spark_eos.pipelines.copy.ranges import CopiedRanges
from spark_eos.protocol import abort as abort_module
from spark_eos.protocol import age as age_module
from spark_eos.protocol import commit as commit_module
from spark_eos.protocol import end as end_module
from spark_eos.protocol import open as open_module
from spark_eos.protocol.extra import next_extra
from spark_eos.protocol.head import NOBODY, Decision, Head, Verdict, Written, is_waiting
from spark_eos.protocol.names import task_name
from spark_eos.protocol.ports import EndTxnAnswer, NotPublished, Ports
from spark_eos.protocol.task import Assignment, Work, assign

from . import driver, ledger, ledger_log, operator
from . import task as tasks
from .breaking import Patch, instead_of
from .client import Producer
from .codes import INVALID_STATE, OK
from .faults import Strike
from .ledger_mistakes import newest_head_believed, nobody_looks_back, published_on_whatever_was_read
from .plan import QUERY, TOPIC, digest
from .processes import Process
from .world import Reply


def reuse_of_an_epoch(patch: pytest.MonkeyPatch) -> None:
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

    patch.setattr(tasks, "Producer", ConnectionPool)


@instead_of(ledger.SimulatedCoordinator, "_end")
def ended_by_version_4(end: Any, self: Any, pair: Any, _: int, commit: bool) -> EndTxnAnswer:
    """What is to be ended by EndTxn of version 5 is ended by the one before."""
    return end(self, pair, PLAIN_END, commit)


@instead_of(tasks, "_hand_over")
def describe_without_own_epoch(_: Any, task: Any, own: Any, producer: Any, rows: list[int], by: Any) -> Written:
    """Whatever is Ongoing under the name is handed over."""
    described = own.coordinator.describe([producer.name]).get(producer.name)
    probe = described and own.coordinator.first_record(described.pair, described.places)
    if probe is None:
        raise Unclear("EOS_TRANSACTION_NOT_FOUND", "Nothing is open.", hint="Spark tries again.")
    return Written(task.attempt.partition, described.pair, len(rows), tasks.digest(rows, by, task.driver.topic), probe)


def answered(code: int, answer: EndTxnAnswer) -> Patch:
    """An answer of EndTxn is taken for another one."""
    return lambda patch: patch.setitem(ledger.ANSWERS, code, answer)


def taken_for_lost(code: int) -> Patch:
    """An answer that tells nothing is believed, before anybody else is asked."""

    def put_back(patch: pytest.MonkeyPatch) -> None:
        end, judge = ledger.SimulatedCoordinator.end, end_module._verdict
        told: ContextVar[list[Any]] = ContextVar("told")  # an actor is a greenlet, with a context of its own

        def noting(self: Any, pairs: Any, *, commit: bool) -> Any:
            answers = end(self, pairs, commit=commit)
            lost = [pair for pair, answer in answers.items() if answer == "lost"]
            told.set(lost)
            return {pair: EndTxnAnswer.INCONCLUSIVE if pair in lost else answers[pair] for pair in answers}

        def believing(ports: Any, w: Any, *more: Any) -> Any:
            return Verdict.LOST if w.pair in told.get() else judge(ports, w, *more)

        patch.setitem(ledger.ANSWERS, code, "lost")
        patch.setattr(ledger.SimulatedCoordinator, "end", noting)
        patch.setattr(end_module, "_verdict", believing)

    return put_back


@instead_of(ledger.SimulatedCoordinator, "_end", taken_for_lost(INVALID_STATE))
def versions_mixed(end: Any, self: Any, pair: Any, _: int, commit: bool) -> EndTxnAnswer:
    """The driver commits by version 4, whoever settles after it by version 5 and believes its answer.

    With the answer confirmed by the data, as it is, mixing alone does no harm.
    """
    return end(self, pair, PLAIN_END if self._world.current.role == "commit" else FENCING_END, commit)


@instead_of(ledger.SimulatedLedger, "take")
def decision_without_taking(_: Any, self: Any) -> ledger.SimulatedTerm:
    """Each process writes to the ledger under a name of its own: nobody fences anybody."""
    name = f"{self.name}-{self._world.current.name}-{self._world.step}"
    producer = Producer(self._world, self._cluster, name, ledger.LEDGER_TRANSACTION_MS)
    producer.init()
    return ledger.SimulatedTerm(self, producer)


@instead_of(abort_module, "clear_earlier")
def abort_after_the_decision(_: Any, ports: Any, head: Any, **__: Any) -> Any:
    """What is not known to be committed is aborted, decided or not."""
    return abort_module.abort_all(ports, {d.pair for d in ports.coordinator.ongoing(before=head.generation)})


@instead_of(tasks, "_hand_over")
def commit_inside_the_task(hand_over: Any, task: Any, own: Any, producer: Any, *rest: Any) -> Written:
    """Nobody waits for the decision."""
    written = hand_over(task, own, producer, *rest)
    producer.end(commit=True)
    return written


@instead_of(commit_module, "repairs")
def repair_by_whatever_the_replay_wrote(*_: Any) -> bool:
    """The rows of what was lost are not compared."""
    return True


@instead_of(commit_module, "repairs")
def _repairs_any_ranges(repairs: Any, last: Any, written: Any) -> bool:
    return last.extra is not None or repairs(last, written)


@instead_of(tasks, "_ranges_of", _repairs_any_ranges)
def repair_by_the_ranges_of_spark(_: Any, head: Any, task: Any, given: Any) -> Any:
    """Tasks of a replay that have the number of a lost one write what they are given now."""
    return given.ranges if assign(head, task.batch, task.attempt.partition, 0).name is not None else ()


@instead_of(tasks, "_free_name")
def id_without_the_attempt(_: Any, own: Any, head: Any, task: Any, query: str) -> str:
    """All attempts of a task have one transactional id."""
    return task_name(ledger.PREFIX, query, replace(task, attempt=0))


@instead_of(ledger_log.SimulatedLog, "_end", published_on_whatever_was_read, newest_head_believed)
def read_that_does_not_wait(_: Any, self: Any, place: Any) -> Reply:
    """The newest head below the last stable offset, whatever is open above it, and whatever others know of it."""
    return Reply(OK, self._cluster.leaders.stable(place, self._cluster.log(place)))


@instead_of(open_module, "_next_head")
def clean_up_before_publishing(successor: Any, ports: Any, head: Any, *rest: Any) -> Any:
    """What was open when the run began to open is aborted, whether the run got through or not."""
    decided = head.decision.pairs if head is not None and head.decision is not None else frozenset()
    abort_module.abort_all(ports, {d.pair for d in ports.coordinator.ongoing()} - decided)
    return successor(ports, head, *rest)


def ledger_producer_kept(patch: pytest.MonkeyPatch) -> None:
    """A driver keeps its ledger producer, and with it the epoch, from one decision to the next."""
    kept: dict[tuple[object, str], Producer] = {}

    def take(self: Any) -> Any:
        key = self._world, self._world.current.name
        if key not in kept:
            producer = Producer(self._world, self._cluster, self.name, ledger.LEDGER_TRANSACTION_MS)
            producer.init()
            kept[key] = producer
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


@instead_of(ledger.SimulatedTerm, "publish")
def notes_in_a_transaction_of_their_own(
    publish: Any, self: Any, head: Any, offsets: Any = None, records: Any = None
) -> None:
    """The notes are committed before the decision that they belong to."""
    if records is not None:
        own = Producer(self._ledger._world, self._ledger._cluster, "notes", ledger.LEDGER_TRANSACTION_MS)
        own.init()
        for record in records.records:
            own.produce((records.topic, records.partition), record)
        own.end(commit=True)
    publish(self, head, offsets)


def records_of_a_decision_that_is_published_again(patch: pytest.MonkeyPatch) -> None:
    """A replay writes them once more."""
    patch.setattr(commit_module, "_records_to_write", lambda batch, _: batch.kind and batch.kind.records)


def notes_forgotten_by_the_next_decision(patch: pytest.MonkeyPatch) -> None:
    """The head knows of the last micro-batch's notes only."""
    patch.setattr(commit_module, "next_extra", lambda kind, last, *of: next_extra(kind, None, *of))


@instead_of(Decision, "judged")
def extra_dropped(judged: Any, self: Any, verdicts: Any) -> Decision:
    """Whoever writes verdicts into a decision leaves its extra out."""
    return replace(judged(self, verdicts), extra=None)


@instead_of(commit_module, "_new_decision")
def extras_of_transactions_swapped(decided: Any, batch: Any, head: Any) -> Decision:
    """Each transaction of a decision gets what another one was read from."""
    decision = decided(batch, head)
    extras = [w.extra for w in decision.written]
    turned = zip(decision.written, extras[1:] + extras[:1], strict=True)
    return replace(decision, written=tuple(replace(w, extra=extra) for w, extra in turned))


@instead_of(CopiedRanges, "compare")
def extra_compared_as_bytes(_: Any, self: Any, last: Any, reports: Any) -> None:
    """A replay whose ranges are dealt to tasks in another way is taken for another one."""
    if last.extra.body != self.body(None, reports):
        raise CopiedRanges.diverged(last, ["extra"])


def extra_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A replay of other ranges is taken for what was decided."""
    patch.setattr(CopiedRanges, "compare", lambda *_: None)


@instead_of(commit_module, "next_extra")
def extra_of_the_decision_before(next_extra: Any, kind: Any, last: Any, *of: Any) -> Any:
    """A decision is published with the extra of the one before it, where there is one."""
    return next_extra(kind, last, *of) if last is None else last.extra


@instead_of(ledger.SimulatedTerm, "publish")
def extra_before_its_decision(publish: Any, self: Any, head: Any, *content: Any) -> None:
    """The extra is published ahead of its decision, with the one that is still the last."""
    last = self.read()
    is_new = last is not None and last.decision is not None and last.decision.batch != head.decision.batch
    if is_new:
        early = replace(last, decision=replace(last.decision, extra=head.decision.extra))
        publish(self, early)
        self = self._ledger.take()
    publish(self, head, *content)


@instead_of(ledger.SimulatedTerm, "publish")
def abort_without_closing(publish: Any, self: Any, head: Any, *content: Any) -> None:
    """A run that is over may still decide."""
    if head.run != NOBODY:
        publish(self, head, *content)


@instead_of(ledger.SimulatedCoordinator, "ongoing")
def clean_up_of_any_generation(ongoing: Any, self: Any, *, before: Any = None, **more: Any) -> Any:
    """Later ones, too."""
    return ongoing(self, **more)


@instead_of(ledger.SimulatedCoordinator, "ongoing")
def clean_up_of_transactions_alone(ongoing: Any, self: Any, *, empty: bool = False, **more: Any) -> Any:
    """Ids under which nothing is open yet are left to those that have them."""
    return ongoing(self, **more)


@instead_of(open_module, "_settled")
def new_checkpoint_unsettled(_: Any, ports: Any, last: Decision) -> Decision:
    """Who is behind takes what was decided for visible, as it nearly always is."""
    return last.judged(dict.fromkeys(last.pairs, Verdict.COMMITTED))


def _versions_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit_module, "check_versions", lambda *_: None)


@instead_of(tasks, "assign", _versions_not_compared)
def digest_of_the_version_at_hand(assign: Any, *place: Any, digest_by: Any, **more: Any) -> Assignment:
    """A replay is digested as the version that is installed now digests a new micro-batch."""
    return replace(assign(*place, digest_by=digest_by, **more), digest_by=digest_by)


@instead_of(tasks, "_opened")
def partitioner_of_the_version_at_hand(opened: Any, task: Any, own: Any) -> Head:
    """A run deals keys to partitions as its version does for a new query."""
    return replace(opened(task, own), partitioner=task.driver.library.partitioner)


@instead_of(commit_module, "_offsets_to_give")
def offsets_with_new_batches_only(_: Any, body: Any, last: Any) -> Any:
    """A group that is set at a replay waits for the next micro-batch, which may never come."""
    return None if last is not None and last.batch == body.id else body.offsets


def clean_up_that_raises(patch: pytest.MonkeyPatch) -> None:
    """What is left open and cannot be aborted stops whoever has tried."""
    patch.setattr(abort_module, "only_logged", lambda *_: nullcontext())


def look_of_another_run_heard(patch: pytest.MonkeyPatch) -> None:
    """A commit stops by what a look of this process could not see, for whichever run that was."""
    patch.setattr(driver.Driver, "_is_own", lambda self, ahead: ahead.error is not None or ahead.run == self.run)


@instead_of(LeftOut, "without_them")
def left_out_for_good(without_them: Any, self: Any, offsets: Any, run: str) -> Any:
    """What one run has left out of the group's offsets, no later run in the same process gives to the group."""
    return without_them(self, offsets, "")


def nobody_sweeps(patch: pytest.MonkeyPatch) -> None:
    """What is left open when a query has nothing to do is left to its timeout."""
    patch.setattr(driver, "sweep", lambda *_: None)


@instead_of(driver, "sweep")
def sweep_that_asks_before_it_looks(_: Any, ports: Any, run: str, batch: int) -> None:
    """The head is read, then what is open is listed: by then, a later micro-batch may have it."""
    head = abort_module._last_of(ports, run, batch)
    if head is not None:
        ongoing = ports.coordinator.ongoing(generation_and_slot=(head.generation, batch % 2))
        abort_module.abort_all(ports, {description.pair for description in ongoing})


def end_txn_believed(patch: pytest.MonkeyPatch) -> None:
    """A transaction that the coordinator has committed is taken for visible."""
    for module in (age_module, end_module):
        patch.setattr(module, "find_held", lambda *_: ({}, []))
    patch.setattr(end_module, "check_visible", lambda *_, **__: None)
    nobody_looks_back(patch)


def only_the_next_commit_looks_back(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the last micro-batch of a run, which no commit follows."""
    patch.setattr(driver, "verify_last", lambda *_: None)


@instead_of(open_module, "head_with_verdicts")
def starts_do_not_look_back(_: Any, ports: Any, head: Head, verdicts: Any, **__: Any) -> Head:
    """A start takes it for granted that the process which has committed the last decision has looked at it."""
    return replace(head, decision=None if head.decision is None else head.decision.judged(verdicts))


@instead_of(ledger.SimulatedTerm, "publish")
def unverified_starts_in_memory_alone(publish: Any, self: Any, head: Head, *content: Any) -> None:
    """A head knows of its own decision only: whoever ends the query does not know where others kept readers from what
    was committed before."""
    publish(self, replace(head, unverified={}), *content)


def late_end_believed(patch: pytest.MonkeyPatch) -> None:
    """What was fresh when its end was sent is taken for whole however late that was answered."""
    patch.setattr(end_module, "check_visible", lambda *_, **__: None)
    nobody_looks_back(patch)


@instead_of(end_module, "fate_by_log")
def lost_while_it_is_open(fate_by_log: Any, ports: Any, w: Any, **_: Any) -> Any:
    """A transaction whose first record is aborted is lost, though an operator may have done that in one partition."""
    return fate_by_log(ports, w)


def fresh_by_the_tasks_clock(patch: pytest.MonkeyPatch) -> None:
    """A transaction is as old as the clock of its task makes it."""
    patch.setattr(commit_module, "earliest_begin_ms", lambda now, began, started: began)
    nobody_looks_back(patch)


def topics_of_the_last_micro_batch(patch: pytest.MonkeyPatch) -> None:
    """A head names the topics of its own decision, or those that its run begins with, and forgets all others."""
    patch.setattr(Head, "with_topics", lambda own, topics: replace(own, topics=tuple(sorted(topics))))


def replays_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A micro-batch of a number that is decided is taken for the one that was."""
    patch.setattr(commit_module, "compare", lambda *_: None)


def behind_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    """Micro-batches before the last decision are counted, and passed."""

    def unless_behind(module: Any, name: str, otherwise: Any) -> None:
        step = getattr(module, name)

        def passing(*given: Any, **more: Any) -> Any:
            try:
                return step(*given, **more)
            except ProtocolStop as stop:
                if stop.condition != "EOS_CHECKPOINT_BEHIND":
                    raise
                return otherwise(*given)

        patch.setattr(module, name, passing)

    unless_behind(open_module, "_checked", lambda ports, head, start: head)
    unless_behind(tasks, "assign", lambda *_: Assignment(Work.COUNT, None))
    unless_behind(commit_module, "_next_decision", lambda own, batch, head, term: head.decision)


def digested_without_the_topic(patch: pytest.MonkeyPatch) -> None:
    """The same rows for another topic are the same rows."""
    patch.setattr(tasks, "digest", lambda rows, by, topic: digest(rows, by, TOPIC))


@instead_of(ledger, "is_task_name")
def names_known_by_their_prefix(
    _: Any, prefix: str, query: str, name: str, *, before: Any = None, generation_and_slot: Any = None
) -> bool:
    """What begins as the query's transactional ids do, and ends as those of a task, is taken for its own."""
    match = re.fullmatch(r".*-(\d+)-\d+-([01])(?:-\d+)?(?:-r\d+)?", name)
    if match is None:
        return False
    generation, slot = int(match[1]), int(match[2])
    return generation_and_slot in (None, (generation, slot)) and (before is None or generation < before)


def kept_without_the_query(patch: pytest.MonkeyPatch) -> None:
    """A process has one reader of the ledger, whichever query it works for."""
    patch.setattr(Process, "key_of", lambda self, known: (QUERY, known[1], None))


def operator_aborts_without_closing(patch: pytest.MonkeyPatch) -> None:
    """What is undecided when the ledger is read may be decided when it is aborted."""

    def unfenced(own: Ports, query: str) -> None:
        head = own.ledger.read()
        decision = head.decision if head is not None else None
        found = {d.pair for d in own.coordinator.ongoing() if not is_waiting(decision, d.pair.id)}
        abort_module.abort_all(own, found)

    patch.setitem(operator.STEPS, Strike.OPERATOR_ABORTS, unfenced)
