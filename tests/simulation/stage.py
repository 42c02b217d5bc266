"""The one stage of a micro-batch: attempts of its tasks, and which of them may commit."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_eos.errors import EosError
from spark_eos.protocol.task import TaskReport

from .task import Task, run_task
from .world import Actor, Killed, Violation

if TYPE_CHECKING:
    from .driver import Driver
    from .processes import Process

TASK_FAILURES = 3
NAMED = "every stop is a named one"


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
        application = self.driver.application
        process = application.process(application.tasks)
        attempt.actor = process.user = self.driver.world.spawn(name, "task", lambda: self._body(attempt, process))

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

    def _body(self, attempt: Attempt, process: Process) -> None:
        world = self.driver.world
        try:
            report = run_task(Task(self.driver, self.batch, self.tasks, attempt, process))
            world.point(f"may {attempt.actor.name} commit?" if attempt.actor else "")
            if self._may_commit(attempt):
                world.point(f"result of partition {attempt.partition}")
                self._succeeded(attempt, report)
            else:
                self._gone(attempt)
        except EosError as error:
            self.driver.query.found(error)
            self._failed(attempt, error)
        except Killed:
            self._gone(attempt)
            raise
        except Violation:
            raise
        except Exception as error:
            raise Violation(NAMED, f"a task ended with {error!r}") from error

    def _may_commit(self, attempt: Attempt) -> bool:
        """The output commit coordinator: one attempt of a partition, until it is known to have failed. There is none
        for an ingest, which has notes: each attempt may end well, and the first result counts."""
        if self.driver.query.plan.notes:
            return True
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
