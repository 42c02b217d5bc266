"""Spark, as far as a sink can tell: checkpoint, drivers, stages, tasks, and the order in which it calls the sink.

What is modelled: the offset log before and the commit log after a micro-batch, and their check against a second
writer; a stage with failed, lost and speculative attempts and a second stage attempt; the output commit coordinator,
whose denial nobody tells the writer; commit and abort in processes of their own; a driver that dies, is stopped, or
runs beside another one; attempts that nobody waits for any more and that live on; replays with another number of
tasks, rows dealt to them in another way, or another version of the library. Who starts the query again after a stop
does so at once, and does what the error's hint says.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from spark_eos.errors import EosError, KafkaError
from spark_eos.protocol.batch import abort, commit, take_ahead
from spark_eos.protocol.head import CONSISTENT_RANDOM, DIGEST_BITS, NEWEST_DIGEST, Digest, Head, Written
from spark_eos.protocol.micro_batch import MicroBatch
from spark_eos.protocol.names import TaskId, task_name
from spark_eos.protocol.ports import Ports, State, Term
from spark_eos.protocol.run import open_run
from spark_eos.protocol.sweep import SWEEPS_AFTER_S, sweep
from spark_eos.protocol.task import Assignment, TaskReport, assign, check_held, check_owner

from .client import LIBRDKAFKAS, OURS, Producer, Refused
from .coordinator import Cluster
from .ledger import PREFIX, QUERY, SimulatedCoordinator, ports
from .partition_log import Place
from .world import Actor, Fault, Killed, Strike, Violation, World

TRANSACTION_MS = 60_000
OPEN_MS = 3_000
RESTART_MS = (1_000, 5_000, 20_000, 60_000)
TASK_FAILURES = 3
NAMED = "every stop is a named one"
TOPIC = "out"
TOPIC_PARTITIONS = 2


@dataclass(frozen=True)
class Library:
    """A version of the library, by what it does with new micro-batches and new queries."""

    digest_by: Digest = NEWEST_DIGEST
    partitioner: str = CONSISTENT_RANDOM


FIRST, LATER = Library(Digest.CRC32C), Library(Digest.MIXED, "murmur2_random")


class Deal(Enum):
    """How a deterministic plan deals rows to tasks."""

    TURNS = "in turn"
    BACKWARDS = "in turn, from the last task on"
    RUNS = "in runs"


@dataclass(frozen=True)
class Plan:
    """The query: rows of each micro-batch; tasks, version of the library, the group that gets the offsets, and how rows
    are dealt to tasks, by the number of the start, in turn.

    ``lingering``: attempts that nobody waits for any more live on. ``idle_ms``: for how long there is nothing to do
    after each micro-batch.
    """

    rows: tuple[int, ...]
    tasks: tuple[int, ...]
    lingering: bool = False
    libraries: tuple[Library, ...] = (Library(),)
    groups: tuple[str | None, ...] = ("group",)
    deals: tuple[Deal, ...] = (Deal.TURNS,)
    idle_ms: int = 0
    timeout_ms: int = TRANSACTION_MS


def place_of(row: int, partitioner: str) -> Place:
    return TOPIC, (row // 2 + (partitioner == CONSISTENT_RANDOM)) % TOPIC_PARTITIONS


def rows_of(start: int, end: int, tasks: int, partition: int, deal: Deal) -> list[int]:
    """What a deterministic plan gives to one of so many tasks."""
    if deal is Deal.RUNS:
        return [row for row in range(start, end) if (row - start) * tasks // (end - start) == partition]
    if deal is Deal.BACKWARDS:
        partition = tasks - 1 - partition
    return [row for row in range(start, end) if row % tasks == partition]


def digest(rows: list[int], by: Digest) -> int:
    factor = {Digest.CRC32C: 0x9E3779B97F4A7C15, Digest.MIXED: 0xBF58476D1CE4E5B9}[by]
    return sum(pow(row + 1, 3) * factor for row in rows) % (1 << DIGEST_BITS)


class Stopped(Exception):
    """Spark itself ends the query: a failed stage, a second writer in the checkpoint, query.stop()."""


class Query:
    """The checkpoint, and whoever starts the query on it. ``stops``: how its drivers ended."""

    def __init__(self, world: World, cluster: Cluster, plan: Plan) -> None:
        self.world, self.cluster, self.plan = world, cluster, plan
        self.offsets: dict[int, tuple[int, int]] = {}
        self.committed: set[int] = set()
        self.forced: dict[int, tuple[int, Deal]] = {}
        self.drivers: list[Driver] = []
        self.stops: list[str] = []
        self.over = self.stage_retried = False
        self.stopped: Callable[[EosError], None] = lambda error: None
        self.rested: Callable[[], None] = lambda: None
        self.decider: Callable[[int], str] = lambda batch: ""
        self.logged: Callable[[str | None, int], None] = lambda group, end: None
        for strike, handler in {
            Strike.SECOND_DRIVER: self._second_driver,
            Strike.QUERY_STOPPED: self._stop,
            Strike.DRIVER_DIES: self._driver_dies,
            Strike.JVM_DIES: self._driver_dies,
            Strike.SPECULATION: self._speculate,
            Strike.STAGE_RETRY: self._retry_stage,
            Strike.RESULT_LOST: self._lose_result,
        }.items():
            world.handlers[strike] = handler

    @property
    def done(self) -> bool:
        return self.over or len(self.committed) == len(self.plan.rows)

    def start(self, application: str | None = None) -> None:
        """By default in a Spark application of its own."""
        if not self.done:
            driver = Driver(self, len(self.drivers), application or f"application {len(self.drivers)}")
            self.drivers.append(driver)
            driver.actor = self.world.spawn(f"driver {driver.run}", "driver", driver.drive)

    def ended(self, why: str, application: str | None = None) -> None:
        """Somebody starts it again, in the same application if that lives, unless another driver is at it."""
        self.stops.append(why)
        if not self.done and not self.running():
            ms = RESTART_MS[min(len(self.stops), len(RESTART_MS)) - 1]
            self.world.at(ms, lambda: self.start(application))

    def running(self) -> list[Driver]:
        return [driver for driver in self.drivers if driver.alive]

    # Faults

    def _second_driver(self, actor: Actor, fault: Fault) -> bool:
        if len(self.running()) != 1 or self.done:
            return False
        self.start()
        return True

    def _stop(self, actor: Actor, fault: Fault) -> bool:
        running = self.running()
        if not running:
            return False
        running[fault.size % len(running)].interrupted = True
        return True

    def _driver_dies(self, actor: Actor, fault: Fault) -> bool:
        running = self.running()
        if not running:
            return False
        running[fault.size % len(running)].die(with_commit=fault.strike is Strike.DRIVER_DIES)
        return True

    def _stages(self) -> list[Stage]:
        return [d.stage for d in self.running() if d.stage is not None and not d.stage.over]

    def _speculate(self, actor: Actor, fault: Fault) -> bool:
        stages = self._stages()
        if not stages:
            return False
        stage = stages[fault.size % len(stages)]
        open_ones = [p for p in range(stage.tasks) if p not in stage.reports]
        stage.launch(open_ones[fault.size % len(open_ones)])
        return True

    def _retry_stage(self, actor: Actor, fault: Fault) -> bool:
        stages = self._stages()
        if not stages:
            return False
        stages[fault.size % len(stages)].retry()
        self.stage_retried = True
        return True

    def _lose_result(self, actor: Actor, fault: Fault) -> bool:
        actor.killed = True
        return True


class Driver:
    """One start of the query. ``run`` is Spark's run id."""

    def __init__(self, query: Query, number: int, application: str) -> None:
        self.query, self.world, self.application = query, query.world, application
        self.run = f"r{number}"
        self.tasks = query.plan.tasks[number % len(query.plan.tasks)]
        self.library = query.plan.libraries[number % len(query.plan.libraries)]
        self.group = query.plan.groups[number % len(query.plan.groups)]
        self.deal = query.plan.deals[number % len(query.plan.deals)]
        self.alive, self.interrupted, self.resting = True, False, -1
        self.dealt: dict[int, tuple[int, Deal]] = {}
        self.stage: Stage | None = None
        self.actor: Actor | None = None
        self.process: Actor | None = None
        self.background: Actor | None = None
        self.ahead: Term | None = None

    def drive(self) -> None:
        try:
            self._run()
            why = "done"
        except Stopped as stopped:
            why = str(stopped)
        except EosError as error:
            why = error.condition
            self.query.stopped(error)
            self._heed(error)
        self.alive = False
        self.query.ended(why, self.application)

    def _heed(self, error: EosError) -> None:
        if error.condition == "EOS_REPAIR_NEEDS_SAME_TASKS":
            self._deal_as_before(max(self.query.offsets))
        if error.condition == "EOS_REPAIR_BY_OTHER_TASKS":
            self.query.forced[error.parameters["batch"]] = self.dealing(error.parameters["batch"])
        if error.condition == "EOS_DECISION_BROKEN":
            self.query.cluster.init(error.parameters["transactional_id"], TRANSACTION_MS, "operator")
        if error.condition in ("EOS_OUTCOME_GONE", "EOS_ROWS_MISSING"):
            self.query.over = True

    def _deal_as_before(self, batch: int) -> None:
        """The user puts back what the run had that made the decision."""
        query = self.query
        run = query.decider(batch)
        before = next(driver for driver in query.drivers if driver.run == run)
        query.forced[batch] = before.dealing(batch)

    def dealing(self, batch: int) -> tuple[int, Deal]:
        """To how many tasks, and how, this run deals a micro-batch's rows."""
        return self.dealt.get(batch) or self.query.forced.get(batch) or (self.tasks, self.deal)

    def die(self, with_commit: bool) -> None:
        self.alive = False
        assert self.actor is not None
        self.world.kill(self.actor)
        if self.process is not None and with_commit:
            self.world.kill(self.process)
        if self.background is not None and with_commit:
            self.world.kill(self.background)
        if self.stage is not None:
            self.stage.end()
        self.query.ended("died")

    def _run(self) -> None:
        query = self.query
        newest = max(query.offsets, default=-1)
        batch = newest + 1 if newest in query.committed or newest < 0 else newest
        while batch < len(query.plan.rows):
            self._plan_batch(batch, newest)
            reports = self._run_stage(batch)
            self._commit(batch, reports)
            self.world.point("commit log")
            if batch in query.committed:
                raise Stopped("commit log written by another")
            query.committed.add(batch)
            query.logged(self.group, query.offsets[batch][1])
            self._idle(batch)
            batch += 1

    def _idle(self, batch: int) -> None:
        """Nothing to read for a while; in the process that commits, what is left open is looked for."""
        if not self.query.plan.idle_ms:
            return
        self.resting = batch
        self.world.spawn(f"sweep {self.run} b{batch}", "sweep", lambda: self._sweep(batch))
        self.world.wait(lambda: self.interrupted, self.query.plan.idle_ms)
        self.query.rested()
        self.resting = -1
        if self.interrupted:
            raise Stopped("query.stop()")

    def _sweep(self, batch: int) -> None:
        own = ports(self.world, self.query.cluster)
        for seconds in SWEEPS_AFTER_S:
            self.world.wait(lambda: self.resting != batch, 1000 * seconds)
            if self.resting != batch:
                return
            with contextlib.suppress(EosError):
                sweep(own, self.run, batch)

    def _plan_batch(self, batch: int, newest: int) -> None:
        """The offset log is written before the micro-batch runs; a replay finds it."""
        offsets = self.query.offsets
        if batch == newest:
            return
        self.world.point("offset log")
        if batch in offsets:
            raise Stopped("offset log written by another")
        start = offsets[batch - 1][1] if batch else 0
        offsets[batch] = (start, start + self.query.plan.rows[batch])

    def _run_stage(self, batch: int) -> tuple[TaskReport, ...]:
        self.dealt[batch] = tasks, _ = self.dealing(batch)
        self.stage = stage = Stage(self, batch, tasks)
        stage.begin()
        self.world.wait(lambda: stage.over or self.interrupted)
        if stage.failure is None and not self.interrupted:
            return tuple(stage.reports[p] for p in range(tasks))
        stage.end()
        self._abort(batch, self.run if stage.reports else None)
        raise stage.failure or Stopped("query.stop()")

    def _commit(self, batch: int, reports: tuple[TaskReport, ...]) -> None:
        offsets = {"source": {"0": self.query.offsets[batch][1]}} if self.group else None
        body = MicroBatch(self.run, batch, reports, offsets, group=self.group)
        try:
            ahead = self._taken_ahead()
            self._in_process("commit", lambda own: commit(own, body, ahead))
            self._take_ahead()
        except BaseException as error:
            if not isinstance(error, Killed):
                self._abort(batch, self.run)
            raise

    def _take_ahead(self) -> None:
        """In the process that commits, while the next micro-batch runs; a commit without it takes the ledger itself."""

        def run() -> None:
            with contextlib.suppress(EosError):
                self.ahead = take_ahead(ports(self.world, self.query.cluster, self.group), self.run)

        self.background = self.world.spawn(f"ahead {self.run}", "ahead", run)

    def _taken_ahead(self) -> Term | None:
        background, self.background = self.background, None
        if background is not None:
            self.world.wait(lambda: background.done or self.interrupted)
        if self.interrupted:
            raise Stopped("query.stop()")
        term, self.ahead = self.ahead, None
        return term

    def _abort(self, batch: int, run: str | None) -> None:
        """Nobody hears what it raises. ``run``: None where no task has said whose it is."""
        self.interrupted = False
        try:
            self._in_process("abort", lambda own: self._abort_run(own, batch, run))
        except (EosError, Stopped):
            return

    def _abort_run(self, own: Ports, batch: int, run: str | None) -> None:
        """What ``spark_eos.sink.writer`` does."""
        if run is None:
            head = own.ledger.read()
            run = head.run if head is not None and head.driver == self.application else None
        if run is not None:
            abort(own, run, batch)

    def _in_process(self, role: str, body: Callable[[Ports], object]) -> None:
        """In a process of its own, which goes on when the driver no longer waits for it."""
        outcome: list[EosError | None] = []

        def run() -> None:
            try:
                body(ports(self.world, self.query.cluster, self.group))
                outcome.append(None)
            except EosError as error:
                outcome.append(error)
            except Violation:
                raise
            except Exception as error:
                raise Violation(NAMED, f"{role} ended with {error!r}") from error

        self.process = process = self.world.spawn(f"{role} {self.run}", role, run)
        self.world.wait(lambda: bool(outcome) or self.interrupted or process.killed)
        if self.interrupted:
            raise Stopped("query.stop()")
        if not outcome:
            raise Stopped(f"the process of {role} died")
        if outcome[0] is not None:
            raise outcome[0]


@dataclass(eq=False)
class Attempt:
    """One attempt of a task. ``number`` counts within the stage attempt, as Spark counts."""

    partition: int
    stage_attempt: int
    number: int
    actor: Actor | None = None


@dataclass(eq=False)
class Stage:
    """The one stage of a micro-batch, with the output commit coordinator's part for it."""

    driver: Driver
    batch: int
    tasks: int
    reports: dict[int, TaskReport] = field(default_factory=dict)
    over: bool = False
    failure: EosError | None = None
    attempt: int = 0
    _running: list[Attempt] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _failures: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _authorised: dict[int, Attempt] = field(default_factory=dict)

    def begin(self) -> None:
        for partition in range(self.tasks):
            self.launch(partition)

    def launch(self, partition: int) -> None:
        attempt = Attempt(partition, self.attempt, self._numbers[partition])
        self._numbers[partition] += 1
        self._running.append(attempt)
        name = f"task {self.driver.run} b{self.batch} p{partition}.{attempt.stage_attempt}.{attempt.number}"
        attempt.actor = self.driver.world.spawn(name, "task", lambda: self._body(attempt))

    def retry(self) -> None:
        """The stage is submitted again for what is missing; attempt numbers begin anew, old attempts go on."""
        self.attempt += 1
        self._numbers.clear()
        for partition in range(self.tasks):
            if partition not in self.reports:
                self.launch(partition)

    def end(self) -> None:
        self.over = True
        if not self.driver.query.plan.lingering:
            self._kill(self._running)

    def _kill(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            if attempt.actor is not None and attempt.actor is not self.driver.world.current:
                self.driver.world.kill(attempt.actor)

    def _body(self, attempt: Attempt) -> None:
        world = self.driver.world
        try:
            report = run_task(Task(self.driver, self.batch, self.tasks, attempt))
            world.point(f"may {attempt.actor.name} commit?" if attempt.actor else "")
            if self._may_commit(attempt):
                world.point(f"result of partition {attempt.partition}")
                self._succeeded(attempt, report)
            else:
                self._gone(attempt)
        except EosError as error:
            self._failed(attempt, error)
        except Killed:
            self._gone(attempt)
            raise
        except Violation:
            raise
        except Exception as error:
            raise Violation(NAMED, f"a task ended with {error!r}") from error

    def _may_commit(self, attempt: Attempt) -> bool:
        """The output commit coordinator: one attempt of a partition, until it is known to have failed."""
        if self.over:
            return False
        return self._authorised.setdefault(attempt.partition, attempt) is attempt

    def _succeeded(self, attempt: Attempt, report: TaskReport) -> None:
        self._running.remove(attempt)
        if self.over or attempt.partition in self.reports:
            return
        self.reports[attempt.partition] = report
        if not self.driver.query.plan.lingering:
            self._kill([a for a in self._running if a.partition == attempt.partition])
        self.over = len(self.reports) == self.tasks

    def _failed(self, attempt: Attempt, error: EosError) -> None:
        self._failures[attempt.partition] += 1
        if self._failures[attempt.partition] >= TASK_FAILURES and not self.over:
            self.failure = error
            self.over = True
        self._gone(attempt)

    def _gone(self, attempt: Attempt) -> None:
        """It ended without a result: tried again, unless somebody else is at it."""
        self._running.remove(attempt)
        if self._authorised.get(attempt.partition) is attempt:
            del self._authorised[attempt.partition]
        others = any(a.partition == attempt.partition for a in self._running)
        if not self.over and self.driver.alive and attempt.partition not in self.reports and not others:
            self.launch(attempt.partition)


@dataclass(frozen=True)
class Task:
    driver: Driver
    batch: int
    tasks: int
    attempt: Attempt

    @property
    def rows(self) -> list[int]:
        start, end = self.driver.query.offsets[self.batch]
        return rows_of(start, end, self.tasks, self.attempt.partition, self.driver.dealing(self.batch)[1])


def run_task(task: Task) -> TaskReport:
    """What ``spark_eos.sink.task`` does, with a simulated producer."""
    world, cluster = task.driver.world, task.driver.query.cluster
    own = ports(world, cluster)
    head = _opened(task, own)
    library, rows = task.driver.library, task.rows
    assignment = assign(head, task.batch, task.attempt.partition, task.attempt.number, digest_by=library.digest_by)
    if assignment.name is None:
        return _report(task, assignment, rows)
    version = LIBRDKAFKAS if task.attempt.partition % 2 else OURS  # by librdkafka go rows with headers, say
    producer = Producer(world, cluster, _free_name(own, assignment.name), task.driver.query.plan.timeout_ms, version)
    producer.init()
    if not rows:
        return _report(task, assignment, rows)
    try:
        return _write(task, own, assignment, producer, rows)
    except BaseException:
        producer.abort()
        raise


def _free_name(own: Ports, task: TaskId) -> str:
    while True:
        name = task_name(PREFIX, QUERY, task)
        described = own.coordinator.describe([name]).get(name)
        if described is None or described.state is not State.ONGOING:
            return name
        task = replace(task, attempt=task.attempt + 1)


def _opened(task: Task, own: Ports) -> Head:
    for _ in _while(task.driver.world, OPEN_MS * task.attempt.partition):
        head = own.ledger.read()
        if head is not None and head.run == task.driver.run:
            return head
        if task.attempt.partition == 0:
            break
    driver = task.driver
    return open_run(
        own,
        driver.run,
        task.batch,
        endtxn_version=5,
        begin_here=False,
        driver=driver.application,
        prefix=PREFIX,
        partitioner=driver.library.partitioner,
    )


def _report(task: Task, assignment: Assignment, rows: list[int]) -> TaskReport:
    """Of a task that has written nothing."""
    by = assignment.digest_by
    return TaskReport(assignment.work, task.attempt.partition, len(rows), digest(rows, by), digest_by=by)


def _while(world: World, ms: int) -> Iterator[None]:
    deadline, wait = world.now + ms, 10
    yield
    while world.now + wait < deadline:
        world.sleep(wait)
        yield
        wait *= 3


def _write(task: Task, own: Ports, assignment: Assignment, producer: Producer, rows: list[int]) -> TaskReport:
    began_ms = task.driver.world.now
    own.reach("prepare.begun")
    try:
        for row in rows:
            producer.produce(place_of(row, assignment.partitioner), (task.batch, row))
    except Refused as refused:
        raise KafkaError("EOS_DELIVERY_FAILED", f"{refused}", hint="Nothing of the batch is visible.") from None
    own.reach("prepare.flushed")
    check_owner(own.ledger.read(), task.driver.run, task.batch, assignment.work)
    by = assignment.digest_by
    written = _hand_over(task, own, producer, rows, by)
    own.reach("prepare.prepared")
    return replace(
        _report(task, assignment, rows),
        written=written,
        began_ms=began_ms,
        timeout_ms=task.driver.query.plan.timeout_ms,
    )


def _hand_over(task: Task, own: Ports, producer: Producer, rows: list[int], by: Digest) -> Written:
    assert isinstance(own.coordinator, SimulatedCoordinator)
    described = own.coordinator.describe([producer.name]).get(producer.name)
    check_held(producer.pair, described)
    assert described is not None
    for _ in task.driver.world.retrying():
        probe = own.coordinator.first_record(producer.pair, described.places)
        if probe is not None:
            return Written(task.attempt.partition, producer.pair, len(rows), digest(rows, by), probe)
    raise KafkaError("EOS_TRANSACTION_NOT_FOUND", "No leader knows the transaction.", hint="Spark tries again.")
