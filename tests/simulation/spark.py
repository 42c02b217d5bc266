"""Spark, as far as a sink can tell: checkpoint, drivers, stages, tasks, and the order in which it calls the sink.

What is modelled: the offset log before and the commit log after a micro-batch, and their check against a second writer;
a stage with failed, lost and speculative attempts and a second stage attempt; the output commit coordinator, whose
denial nobody tells the writer, or none; commit and abort in processes of their own; a driver that dies, is stopped, or
runs beside another one; attempts that nobody waits for any more and that live on; replays with another number of tasks,
rows dealt to them in another way, or another version of the library. Who starts the query again after a stop does so at
once, and does what the error's hint says.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_eos.errors import EosError

from .checkpoint import Checkpoint
from .coordinator import Cluster
from .driver import Driver
from .plan import Deal, Plan
from .processes import Applications
from .stage import Stage
from .world import Actor, Fault, Handler, Strike, World

RESTART_MS = (1_000, 5_000, 20_000, 60_000)


class Query:
    """The checkpoint, and whoever starts the query on it, in one of these ``applications``. ``stops``: how its drivers
    ended. ``looked_at``: one of them was the last, and has looked back. ``put_back``: the topic of a micro-batch, as it
    was when that was decided. ``begin_at``: ``ledger.begin``."""

    def __init__(self, world: World, cluster: Cluster, plan: Plan, applications: Applications | None = None) -> None:
        self.world, self.cluster, self.plan, self.id = world, cluster, plan, plan.id
        self.checkpoint = Checkpoint(plan)
        self.offsets, self.committed = self.checkpoint.offsets, self.checkpoint.committed
        self.forced: dict[int, tuple[int, Deal]] = {}
        self.put_back: dict[int, str] = {}
        self.begin_at: int | None = None
        self.lost_files = self.looked_at = False
        self.applications = applications or Applications(world, plan.keeps)
        self.drivers: list[Driver] = []
        self.stops: list[str] = []
        self.ends = 0
        self.over = self.stage_retried = False
        cluster.ahead_ms = plan.clocks.brokers
        self.found: Callable[[EosError], None] = lambda error: None
        self.stopped: Callable[[EosError, Driver], None] = lambda error, driver: None
        self.rested: Callable[[], None] = lambda: None
        self.create: Callable[[str], None] = lambda topic: None
        self.end_hanging: Callable[[], None] = lambda: None
        self.decider: Callable[[int], str] = lambda batch: ""
        self.logged: Callable[[str | None, int], None] = lambda group, end: None
        self.handlers: dict[Strike, Handler] = {
            Strike.SECOND_DRIVER: self._second_driver,
            Strike.QUERY_STOPPED: self._stop,
            Strike.DRIVER_DIES: self._driver_dies,
            Strike.JVM_DIES: self._driver_dies,
            Strike.SPECULATION: self._speculate,
            Strike.STAGE_RETRY: self._retry_stage,
            Strike.RESULT_LOST: self._lose_result,
            Strike.CHECKPOINT_LOST: self._lose_files,
        }

    @property
    def done(self) -> bool:
        if self.plan.runs:
            return self.over or self.ends >= self.plan.runs
        return self.over or (self.checkpoint.next == len(self.plan.rows) and self.looked_at)

    def start(self, application: str | None = None) -> None:
        """By default in a Spark application of its own, or in the one that all queries share."""
        if not self.done:
            living = self.applications.one(application)
            driver = Driver(self, len(self.drivers), living)
            self.drivers.append(driver)
            living.drivers.append(driver)
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
        if running := self.running():
            running[fault.size % len(running)].interrupted = True
        return bool(running)

    def _driver_dies(self, actor: Actor, fault: Fault) -> bool:
        running = self.running()
        if not running:
            return False
        self._kill(running[fault.size % len(running)], with_commit=fault.strike is Strike.DRIVER_DIES)
        return True

    def _kill(self, one: Driver, with_commit: bool) -> None:
        """With whatever else is in its application."""
        one.application.gone = True
        for driver in one.application.drivers:
            if driver.alive:
                driver.die(with_commit)

    def _lose_files(self, actor: Actor, fault: Fault) -> bool:
        """What was in memory of whoever has written them goes, too."""
        running = self.running()
        if self.over or self.plan.runs or not running or not self.checkpoint.lose(fault.size):
            return False
        self.lost_files = True
        for driver in running:
            self._kill(driver, with_commit=True)
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
