"""One start of a query: what it plans, the stage that writes it, commit and abort, and what it does after a stop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_eos.errors import EosError, ProtocolStop, TopicError
from spark_eos.protocol.abort import SWEEPS_AFTER_S, abort, clear_late, sweep
from spark_eos.protocol.commit import CommitReport, commit, complete, take_ahead
from spark_eos.protocol.head import TransactionStarts
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.task import MicroBatch, TaskReport
from spark_eos.protocol.verify import Verified, starts_of, verify_last, verify_visible, with_missing_marked

from .ledger import QUERY
from .operator import abort_broken, abort_undecided
from .plan import Deal
from .processes import Ahead, Application, Process
from .stage import NAMED, Stage
from .world import Actor, Killed, Violation

if TYPE_CHECKING:
    from .spark import Query

#: The one micro-batch of a batch write.
BATCH = 0

#: For so long the driver does not look again at how many partitions the ledger has.
FACTS_MS = 30_000

#: Errors that no start with this checkpoint, or of this batch write, gets rid of.
_FINAL = (
    "EOS_OUTCOME_GONE",
    "EOS_ROWS_MISSING",
    "EOS_LEDGER_HEAD_LOST",
    "EOS_LEDGER_HEAD_MISSING",
    "EOS_LEDGER_TRUNCATED",
    "EOS_QUERY_RETIRED",
    "EOS_REPLAY_DIVERGED",
)

#: When the abort of a batch write looks once more.
_LATER_MS = (1_000, 2_000)


class Stopped(Exception):
    """Spark itself ends the query: a failed stage, a second writer in the checkpoint, query.stop()."""


class Driver:
    """One start of the query. ``run`` is Spark's run id; ``planned``: what it reads in each micro-batch, and ``anew``:
    those that no start before it has planned; ``planned_ms``: when the newest one was. ``done``: the last one that it
    has noted as committed. ``began_ms``: when it was started."""

    def __init__(self, query: Query, number: int, application: Application) -> None:
        self.query, self.world, self.application = query, query.world, application
        self.run = f"r{number}" if query.id == QUERY else f"{query.id}/r{number}"
        self.tasks = query.plan.tasks[number % len(query.plan.tasks)]
        self.library = query.plan.libraries[number % len(query.plan.libraries)]
        self.group = query.plan.groups[number % len(query.plan.groups)]
        self.two_phase = query.plan.two_phase[number % len(query.plan.two_phase)]
        self.deal = query.plan.deals[number % len(query.plan.deals)]
        self.topic = query.put_back.get(query.checkpoint.next) or query.plan.topic_of(number)
        self.begin_at = query.begin_at
        self.anew: set[int] = set()
        self.alive, self.interrupted, self.resting = True, False, -1
        self.ledger_partitions = self._looked = 0
        self.dealt: dict[int, tuple[int, Deal]] = {}
        self.planned: dict[int, tuple[int, int]] = {}
        self.planned_ms, self.began_ms = 0, query.world.now
        self.done: int | None = None
        self.stage: Stage | None = None
        self.actor: Actor | None = None
        self.background: Actor | None = None
        self.calls: list[Actor] = []

    def drive(self) -> None:
        try:
            self._check_topic()
            self._write_job() if self.query.plan.runs else self._run()
            why = "done"
        except Stopped as stopped:
            why = str(stopped)
        except EosError as error:
            why = error.condition
            self.query.stopped(error, self)
            self._heed(error)
        self.alive = False
        self.query.ended(why, self.application.name)

    def _check_topic(self) -> None:
        """As the library does before a query starts."""
        topic = self.topic
        if topic in self.query.cluster.leaders.deleted:
            raise TopicError("EOS_TOPIC_MISSING", f"There is no topic {topic}.", hint="Create it.")

    def _heed(self, error: EosError) -> None:
        if error.condition == "EOS_REPAIR_NEEDS_SAME_TASKS":
            self._deal_as_before(max(self.query.offsets))
        if error.condition == "EOS_REPAIR_BY_OTHER_TASKS":
            self.query.forced[error.parameters["batch"]] = self.dealing(error.parameters["batch"])
        if error.condition == "EOS_REPAIR_SOURCE_CHANGED":
            self._puts_topic_back(error.parameters["batch"])
        if error.condition == "EOS_TOPIC_MISSING":
            self.query.create(self.topic)
        if error.condition == "EOS_OUTCOME_UNCLEAR":
            self.query.end_hanging()
            abort_undecided(self.world, self.query.cluster, self.query.id)
        if error.condition == "EOS_DECISION_BROKEN":
            abort_broken(self.world, self.query.cluster, self.query.id, error)
        if error.condition == "EOS_CHECKPOINT_AHEAD":
            self.query.checkpoint.go_back(error.parameters["last_batch"])
        behind = (
            error.condition == "EOS_CHECKPOINT_BEHIND" and error.parameters["decided"] > self.query.checkpoint.newest
        )
        if behind or (error.condition in _FINAL and not self._mended(error)):
            self.query.over = True

    def _mended(self, error: EosError) -> bool:
        """Whether somebody can do what the hint says, and does."""
        query = self.query
        if error.condition == "EOS_REPLAY_DIVERGED":
            return self._puts_topic_back(error.parameters["batch"])
        begin = error.parameters["batch"] if error.condition == "EOS_LEDGER_HEAD_MISSING" else None
        if begin is None or not query.plan.sets_begin or query.lost_files or begin not in self.anew:
            return False
        query.begin_at = begin
        return True

    def _puts_topic_back(self, batch: int) -> bool:
        """Where the decision's rows went, if they are to go elsewhere now."""
        query = self.query
        decided_by = query.decider(batch)
        topic = next((driver.topic for driver in query.drivers if driver.run == decided_by), self.topic)
        query.put_back[batch] = topic
        return topic != self.topic

    def _deal_as_before(self, batch: int) -> None:
        """The user puts back what the run had that made the decision."""
        query = self.query
        run = query.decider(batch)
        before = next(driver for driver in query.drivers if driver.run == run)
        query.forced[batch] = before.dealing(batch)

    def ports(self, process: Process) -> Ports:
        clocks = self.query.plan.clocks
        ahead_ms = clocks.tasks if process in self.application.tasks else clocks.driver
        known = self.query.id, self.ledger_partitions, self.group
        return process.ports(self.world, self.query.cluster, known, ahead_ms)

    def dealing(self, batch: int) -> tuple[int, Deal]:
        """To how many tasks, and how, this run deals a micro-batch's rows."""
        return self.dealt.get(batch) or self.query.forced.get(batch) or (self.tasks, self.deal)

    @property
    def may_commit(self) -> bool:
        """Also when it is dead, if a process of it goes on."""
        return self.alive or any(not call.killed and not call.done for call in self.calls)

    @property
    def is_at_the_first(self) -> bool:
        """Whether it may still write micro-batch 0, also where another start has noted it as committed meanwhile."""
        return self.may_commit and self.done is None and (not self.planned or 0 in self.planned)

    def die(self, with_commit: bool) -> None:
        self.alive = False
        assert self.actor is not None
        self.world.kill(self.actor)
        if self.calls and with_commit:
            self.world.kill(self.calls[-1])
        if self.background is not None and with_commit:
            self.world.kill(self.background)
        if self.stage is not None:
            self.stage.end()
        self.query.ended("died")

    def _run(self) -> None:
        query = self.query
        if query.checkpoint.torn:
            query.checkpoint.torn = False
            raise Stopped("EOS_CHECKPOINT_DAMAGED")
        if query.checkpoint.headless:
            query.over = True  # only a backup helps
            raise Stopped("EOS_CHECKPOINT_DAMAGED")
        batch, newest = query.checkpoint.next, query.checkpoint.newest
        while batch < len(query.plan.rows):
            self._plan_batch(batch, newest)
            reports = self._run_stage(batch)
            process = self._commit(batch, reports)
            self.world.point("commit log")
            if batch in query.committed:
                raise Stopped("commit log written by another")
            query.committed.add(batch)
            self.done = batch
            query.logged(self.group, self.planned[batch][1])
            self._idle(batch, process)
            batch += 1
        self._look()
        done = self.done
        self._in_process(Process(), "end", lambda own: verify_last(own, done))
        query.looked_at = True

    def _write_job(self) -> None:
        """One run of a batch write. All that the one before has left is in the ledger."""
        self.query.offsets[BATCH] = self.planned[BATCH] = (0, self.query.plan.rows[BATCH])
        self._look()
        reports = self._run_stage(BATCH)
        self._commit(BATCH, reports)
        self.query.committed.add(BATCH)
        self.query.ends += 1

    def _idle(self, batch: int, process: Process) -> None:
        """Nothing to read for a while; in the process that commits, what is left open is looked for."""
        if not self.query.plan.idle_ms:
            return
        self.resting = batch
        sweeper = self.world.spawn(f"sweep {self.run} b{batch}", "sweep", lambda: self._sweep(batch, process))
        process.sweepers[self.query.id] = sweeper
        self.world.wait(lambda: self.interrupted, self.query.plan.idle_ms)
        self.query.rested()
        self.resting = -1
        if self.interrupted:
            raise Stopped("query.stop()")

    def _sweep(self, batch: int, process: Process) -> None:
        own = self.ports(process)
        taking = process.ahead.get(self.query.id)
        self.world.wait(lambda: taking is None or taking.actor.done)
        for seconds in SWEEPS_AFTER_S:
            self.world.wait(lambda: self.resting != batch, 1000 * seconds)
            if self.resting != batch:
                return
            with contextlib.suppress(EosError):
                sweep(own, self.run, batch)

    def _plan_batch(self, batch: int, newest: int) -> None:
        """The offset log is written before the micro-batch runs; a replay finds it."""
        offsets = self.query.offsets
        self._look()
        if batch != newest:
            self.world.point("offset log")
            if batch in offsets:
                raise Stopped("offset log written by another")
            offsets[batch] = self.query.checkpoint.planned(batch)
            self.anew.add(batch)
        self.planned[batch] = offsets[batch]

    def _look(self) -> None:
        if not self.ledger_partitions or self.world.now - self._looked > FACTS_MS:
            self.ledger_partitions, self._looked = self.query.cluster.ledger_partitions, self.world.now

    def _run_stage(self, batch: int) -> tuple[TaskReport, ...]:
        self.planned_ms = self.world.now
        self.dealt[batch] = tasks, _ = self.dealing(batch)
        self.stage = stage = Stage(self, batch, tasks)
        stage.begin()
        self.world.wait(lambda: stage.over or self.interrupted)
        if stage.failure is None and not self.interrupted:
            return tuple(stage.reports[p] for p in range(tasks))
        stage.end()
        self._abort(batch, self.run if stage.reports else None)
        raise stage.failure or Stopped("query.stop()")

    def _commit(self, batch: int, reports: tuple[TaskReport, ...]) -> Process:
        """The process that has done it."""
        offsets = {"source": {"0": self.planned[batch][1]}} if self.group else None
        body = MicroBatch(
            self.run,
            batch,
            reports,
            offsets,
            group=self.group,
            two_phase=self.two_phase,
            kind=self.query.plan.kind_of(batch),
            planned_ms=self.planned_ms,
        )
        process = self.application.process(self.application.calls)
        try:
            before = self._taken_ahead(process)
            if before is not None and before.error is not None:
                raise before.error
            done: list[CommitReport] = []
            self._in_process(process, "commit", lambda own: done.append(self._commit_all(own, body, before)))
            if not self.query.plan.runs:
                waiting = {} if before is None else before.waiting
                self._go_on(process, done[0], {**waiting, **done[0].unverified})
        except BaseException as error:
            if not isinstance(error, Killed):
                self._abort(batch, self.run)
            raise
        return process

    def _commit_all(self, own: Ports, body: MicroBatch, before: Ahead | None) -> CommitReport:
        report = commit(own, body, before and before.term, before and Verified(before.decision, before.waiting))
        if self.query.plan.runs:
            verify_visible(own, {**report.unverified, **starts_of(report.decision)}, wait_for_others=True)
            complete(own, self.run)
        return report

    def _go_on(self, process: Process, report: CommitReport, waiting: TransactionStarts) -> None:
        """In the process that commits, while the next micro-batch runs: look back, and take the ledger ahead; a commit
        without it takes the ledger itself."""

        def run() -> None:
            own = self.ports(process)
            try:
                taking.waiting = verify_visible(own, {**waiting, **starts_of(report.decision)})
            except ProtocolStop as error:
                taking.error = with_missing_marked(own, self.run, error)
                return
            with contextlib.suppress(EosError):
                taking.term = take_ahead(own, self.run)

        self.background = self.world.spawn(f"ahead {self.run}", "ahead", run)
        process.ahead[self.query.id] = taking = Ahead(self.run, self.background, report.decision)

    def _taken_ahead(self, process: Process, *, to_abort: bool = False) -> Ahead | None:
        """What goes on in the process is ended; what it was, if it was for this run. ``to_abort``: it stays there, but
        for the ledger."""
        ahead, sweeper = process.ahead.pop(self.query.id, None), process.sweepers.pop(self.query.id, None)
        for actor in (ahead and ahead.actor, sweeper):
            if actor is not None:
                self.world.wait(lambda actor=actor: actor.done or self.interrupted)
        if to_abort and ahead is not None:
            process.ahead[self.query.id] = ahead
            ahead.term = None
        if self.interrupted:
            raise Stopped("query.stop()")
        return ahead if ahead is not None and self._is_own(ahead) else None

    def _is_own(self, ahead: Ahead) -> bool:
        """What a look for another run has found is nothing that this one stops by: its own start has looked."""
        return ahead.run == self.run

    def _abort(self, batch: int, run: str | None) -> None:
        """Nobody hears what it raises. ``run``: None where no task has said whose it is."""
        self.interrupted = False
        process = self.application.process(self.application.calls)
        try:
            self._taken_ahead(process, to_abort=True)
            self._in_process(process, "abort", lambda own: self._abort_run(own, batch, run))
        except (EosError, Stopped):
            return

    def _abort_run(self, own: Ports, batch: int, run: str | None) -> None:
        """What ``spark_eos.sink.writer`` does, or ``batch_writer``, which knows its run."""
        if self.query.plan.runs:
            abort(own, self.run, batch)
            for ms in _LATER_MS:
                self.world.sleep(ms)
                abort(own, self.run, batch)
                clear_late(own)
            return
        if run is None:
            head = own.ledger.read()
            run = head.run if head is not None and head.driver == self.application.name else None
        if run is not None:
            abort(own, run, batch)

    def _in_process(self, process: Process, role: str, body: Callable[[Ports], object]) -> None:
        """It goes on when the driver no longer waits for it."""
        outcome: list[EosError | None] = []

        def run() -> None:
            try:
                body(self.ports(process))
                outcome.append(None)
            except EosError as error:
                self.query.found(error)
                outcome.append(error)
            except Violation:
                raise
            except Exception as error:
                raise Violation(NAMED, f"{role} ended with {error!r}") from error

        process.user = call = self.world.spawn(f"{role} {self.run}", role, run)
        self.calls.append(call)
        self.world.wait(lambda: bool(outcome) or self.interrupted or call.killed)
        if self.interrupted:
            raise Stopped("query.stop()")
        if not outcome:
            raise Stopped(f"the process of {role} died")
        if outcome[0] is not None:
            raise outcome[0]
