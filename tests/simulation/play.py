"""Schedules at work: run, told, shrunk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from spark_eos.protocol.end import VALID_MS
from spark_eos.protocol.head import Pair
from spark_eos.protocol.names import is_name_of
from spark_eos.protocol.ports import State

from .codes import ID_UNAUTHORIZED, SERVER_ERROR
from .coordinator import PREPARED, WEEK_MS, Cluster, NextAppend
from .invariants import Watch
from .ledger import PREFIX
from .neighbours import watch_neighbours
from .operator import Operator
from .partition_log import PartitionLog, Place
from .plan import OUTPUTS
from .processes import Applications
from .schedule import Extras, Schedule, draw
from .spark import Query
from .topics import Topics
from .world import Actor, Fault, Strike, Violation, World

#: No append to the coordinator's log takes longer: the broker gives it up.
APPEND_MS = 30_000
#: So many are told of a schedule that breaks an invariant.
LAST_STEPS = 60


@dataclass
class Run:
    """A schedule at work; what is left of it afterwards is for the curious."""

    schedule: Schedule
    traced: bool = False

    def __post_init__(self) -> None:
        schedule = self.schedule
        self.world = World(schedule.faults, schedule.quantum)
        self.cluster = Cluster(self.world, first_epoch=schedule.first_epoch, double_fence=schedule.double_fence)
        self.cluster.transaction_version = schedule.plan.transaction_version
        applications = Applications(self.world, schedule.plan.keeps, shared=True) if schedule.together else None
        self.queries = [Query(self.world, self.cluster, plan, applications) for plan in schedule.plans]
        self.query = self.queries[0]
        self.operator = Operator(self.world, self.cluster, [query.id for query in self.queries])
        self.watches = self.cluster.watches = [self._watch(query) for query in self.queries]
        self.watch = self.watches[0]
        if schedule.others:
            watch_neighbours(self.cluster, [query.id for query in self.queries])
        if self.traced:
            self.world.trace = []
        for strike, handler in {
            Strike.APPEND_SLOW: self._append,
            Strike.APPEND_FAILS: self._append,
            Strike.APPEND_FAILS_LATER: self._append,
            Strike.TIMEOUT_SLOW: self._timeout,
            Strike.TIMEOUT_FAILS: self._timeout,
            Strike.MARKERS_LATE: self._markers,
            Strike.MARKERS_TORN: self._markers,
            Strike.COORDINATOR_MOVES: self._move,
            Strike.COORDINATOR_STALE: self._stale,
            Strike.END_REFUSED: self._refuse_end,
            Strike.FEATURE_CHANGES: self._change_feature,
            Strike.WEEK_PASSES: self._week,
            Strike.RETENTION: self._retention,
            Strike.RETENTION_OF_OPEN: self._retention_of_open,
            Strike.ABORTED_IN_PLACE: self._abort_in_place,
        }.items():
            self.world.handlers[strike] = handler
        topics = Topics(self.world, self.cluster, self._is_past_the_first)
        self.world.handlers.update(topics.handlers)
        self.create = topics.create
        for query in self.queries:
            query.create, query.end_hanging = topics.create, self._end_what_holds
        for strike in self.query.handlers:
            self.world.handlers[strike] = self._strike_one
        self.world.handlers[Strike.CHECKPOINT_LOST] = self._lose_files

    def _watch(self, query: Query) -> Watch:
        watch = Watch(self.cluster, query)
        if not self.schedule.double_fence:  # a fence that failed in 4.0.0 looks like one that worked
            query.found, query.stopped = watch.found, watch.stopped
        query.logged = watch.logged
        query.decider = watch.decider
        return watch

    def play(self) -> None:
        """Raises Violation."""
        for query in self.queries:
            query.start()
        self.world.run()
        for query in self.queries:
            if not query.done:
                raise Violation("goes on", f"the query {query.id} ended with {query.stops[-3:]}")
            for topic in sorted(query.plan.outputs):
                self.create(topic)
        self._end_hanging()
        over = any(query.over for query in self.queries)
        if any(self.schedule.plan.two_phase) and not over and not any(w.ledger_lost or w.excused for w in self.watches):
            self.operator.conclude()
        for query, watch in zip(self.queries, self.watches, strict=True):
            watch.conclude(query)

    def _end_hanging(self) -> None:
        """An operator ends what is open once more in a partition, and nowhere else: what ``kafka-transactions.sh
        find-hanging`` names."""
        for place, log in self.cluster.logs.items():
            for producer_id in sorted(log.open) if place[0] in OUTPUTS else ():
                _, entry = self.cluster.owner(producer_id)
                epoch = log.producers[producer_id].epoch
                if entry is None or entry.state not in (State.ONGOING, *PREPARED) or entry.epoch != epoch:
                    log.mark(producer_id, epoch, commit=False)
                    self.cluster.marked(place, log)

    def _end_what_holds(self) -> None:
        """An operator ends what keeps readers from a query's rows: also what a query has left open that nobody starts
        again, by ``kafka-transactions.sh forceTerminateTransaction``, as no timeout ends it with two-phase commit."""
        self._end_hanging()
        ended = [query.id for query in self.queries if query.done]
        for name, slot in list(self.cluster._slots.items()):
            if slot.entry.state is State.ONGOING and any(is_name_of(PREFIX, id, name) for id in ended):
                self.cluster.init(name, VALID_MS, "an operator")

    def _strike_one(self, actor: Actor, fault: Fault) -> bool:
        """What strikes a query strikes the first one that it can, from a choice on."""
        first = self.world.step % len(self.queries)
        return any(query.handlers[fault.strike](actor, fault) for query in self.queries[first:] + self.queries[:first])

    def _lose_files(self, actor: Actor, fault: Fault) -> bool:
        """Not after a week and the loss of a ledger: nothing else may be left of micro-batch 0."""
        if self.world.struck[Strike.WEEK_PASSES] and any(watch.ledger_lost for watch in self.watches):
            return False
        return self._strike_one(actor, fault)

    def _is_past_the_first(self) -> bool:
        """Whether each start, also one that goes on, tells by the checkpoint alone that its query has a head."""
        at_it = any(driver.is_at_the_first for query in self.queries for driver in query.drivers)
        return not at_it and all(0 in query.committed for query in self.queries) and not self.schedule.plan.runs

    def _append(self, actor: Actor, fault: Fault) -> bool:
        succeeds = fault.strike is Strike.APPEND_SLOW
        logged = fault.strike is not Strike.APPEND_FAILS
        self.cluster.appends[actor] = NextAppend(min(fault.size, APPEND_MS), succeeds, logged)
        return True

    def _timeout(self, actor: Actor, fault: Fault) -> bool:
        succeeds = fault.strike is Strike.TIMEOUT_SLOW
        self.cluster.appends[None] = NextAppend(min(fault.size, APPEND_MS), succeeds, logged=succeeds)
        return True

    def _markers(self, actor: Actor, fault: Fault) -> bool:
        first = fault.size if fault.strike is Strike.MARKERS_LATE else 0
        self.cluster.next_markers = (first, fault.size)
        return True

    def _move(self, actor: Actor, fault: Fault) -> bool:
        self.cluster.move(fault.size, min(fault.size, 2_000))
        return True

    def _stale(self, actor: Actor, fault: Fault) -> bool:
        self.cluster.stale = 1 + fault.size % 3
        return True

    def _refuse_end(self, actor: Actor, fault: Fault) -> bool:
        self.cluster.refuses_ends = ID_UNAUTHORIZED if fault.size % 2 else SERVER_ERROR
        return True

    def _change_feature(self, actor: Actor, fault: Fault) -> bool:
        """Up or down. With two-phase commit it stays, as that needs the newest."""
        if not any(self.schedule.plan.two_phase):
            self.cluster.transaction_version = (self.cluster.transaction_version + 1 + fault.size % 2) % 3
        return True

    def _week(self, actor: Actor, fault: Fault) -> bool:
        """Not where the ledger is lost and nothing else is left of micro-batch 0, as in `Topics`, or of what it has
        lost."""
        if self.world.struck[Strike.LEDGER_CUT] or (self.watch.ledger_lost and not self._is_past_the_first()):
            return False
        self.world.now += WEEK_MS + 3_600_000
        self.world.at(0, lambda: self.world.at(2_000, self.cluster.expire))
        return True

    def _retention(self, actor: Actor, fault: Fault) -> bool:
        for place, log in self.cluster.logs.items():
            if place[0] in OUTPUTS and not self._tells_of_an_abort(log):
                log.begin = log.stable
        return True

    def _tells_of_an_abort(self, log: PartitionLog) -> bool:
        """Whether rows were aborted in this partition alone: with them goes what tells of it, and retention does not
        come before somebody could look."""
        fates = {(p.producer_id, p.epoch): fate for watch in self.watches for p, fate in watch.fates.items()}
        aborted = {(r.producer_id, r.epoch) for r in log.records[log.begin :] if not r.control and r.visible is False}
        return any(fates.get(pair) is not False for pair in aborted)

    def _left_alone(self, log: PartitionLog) -> list[int]:
        """Producer ids whose transaction is open here for a minute, or was decided by a run that is dead: nobody takes
        rows of another, nor of what waits for its markers only, which its coordinator says."""
        found = []
        for producer_id in sorted(log.open):
            name, entry = self.cluster.owner(producer_id)
            if entry is None:
                found.append(producer_id)
                continue
            pair = Pair(name, producer_id, log.producers[producer_id].epoch)
            alive = {driver.run for query in self.queries for driver in query.drivers if driver.may_commit}
            watch = next((watch for watch in self.watches if pair in watch.decided), None)
            abandoned = watch is not None and watch.deciders[watch.decided[pair].batch] not in alive
            if entry.state not in PREPARED and (abandoned or self.world.now - entry.started_ms >= VALID_MS):
                found.append(producer_id)
        return found

    def _retention_of_open(self, actor: Actor, fault: Fault) -> bool:
        logs = [log for place, log in self.cluster.logs.items() if place[0] in OUTPUTS and log.open]
        alone = [log for log in logs if len(self._left_alone(log)) == len(log.open)]
        struck = [log for log in alone if not self._tells_of_an_abort(log)]
        for log in struck:
            log.begin = log.end
        return bool(struck)

    def _abort_in_place(self, actor: Actor, fault: Fault) -> bool:
        for place, log in self.cluster.logs.items():
            ids = sorted(log.open) if place[0] in OUTPUTS else []
            if ids:
                producer_id = ids[fault.size % len(ids)]
                log.mark(producer_id, log.producers[producer_id].epoch, commit=False)
                self.cluster.marked(place, log)
                return True
        return False


def play(schedule: Schedule, traced: bool = False) -> Run:
    run = Run(schedule, traced)
    run.play()
    return run


def open_at_rest(run: Run) -> list[set[Place]]:
    """Play it; the partitions in which something is open, each time that the query has nothing to do."""
    rests: list[set[Place]] = []
    run.query.rested = lambda: rests.append({place for place, log in run.cluster.logs.items() if log.open})
    run.play()
    return rests


def runs_with(seeds: int, extras: Extras) -> list[Run]:
    """So many schedules that have these extras. Raises Violation."""
    return [play(draw(random.Random(seed), None, extras)) for seed in range(seeds)]


def smaller(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule without one of its parts."""
    faults = schedule.faults
    for n in range(len(faults)):
        yield replace(schedule, faults=faults[:n] + faults[n + 1 :])
        if faults[n].then is not None:
            yield replace(schedule, faults=(*faults[:n], replace(faults[n], then=None), *faults[n + 1 :]))
    plan = schedule.plan
    if schedule.others:
        yield replace(schedule, others=schedule.others[:-1])
    if len(plan.rows) > 1:
        yield replace(schedule, plan=replace(plan, rows=plan.rows[:-1]))
    if schedule.double_fence:
        yield replace(schedule, double_fence=False)
    if schedule.first_epoch:
        yield replace(schedule, first_epoch=0)
    if plan.runs > 1:
        yield replace(schedule, plan=replace(plan, runs=plan.runs - 1))
    plainer: dict[str, Any] = {"transaction_version": 2, "lingering": False, "topics": ()}
    for name, value in plainer.items():
        if getattr(plan, name) != value:
            yield replace(schedule, plan=replace(plan, **{name: value}))


def told(schedule: Schedule) -> str:
    """The schedule, and its last steps if it breaks an invariant."""
    run = Run(schedule, traced=True)
    try:
        run.play()
    except Violation as violation:
        assert run.world.trace is not None
        return "\n".join((repr(schedule), str(violation), *run.world.trace[-LAST_STEPS:]))
    return repr(schedule)
