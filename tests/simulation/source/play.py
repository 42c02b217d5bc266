"""Runs a schedule: its starts one after the other, then as many as it takes until the query has read everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from spark_eos.errors import DataLossError, EosError
from tests.simulation.world import Violation

from .admin import Admin
from .cluster import NAMES, Cluster, Crash
from .judge import ARRIVES, BY_NAME, Judge
from .query import MOST_BATCHES, Query, Start, Trigger, install
from .schedule import Schedule

#: So many starts are enough for a query that is left alone: one or more with losses, and one that finds nothing new.
_LAST_STARTS = 12
#: How a start may end, beside data loss: somebody deletes a topic while it is asked about, or has a transaction open
#: below an end that was stable before an unclean election.
_MAY_END = {"EOS_TOPIC_MISSING", "EOS_SOURCE_RECREATED", "EOS_SOURCE_STALLED"}


class Run:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.cluster = Cluster(schedule.faults)
        for name, size in schedule.topics:
            self.cluster.create(name, size)
        self.query = Query(self.cluster, dict(schedule.options), schedule.old_spark, schedule.by_id)
        self.judge = Judge(self.cluster, self.query)

    def play(self) -> None:
        """Raises Violation."""
        with pytest.MonkeyPatch.context() as patch:
            Admin(self.cluster).install(patch)
            install(patch, self.query)
            self._run_all()

    def _run_all(self) -> None:
        lost = False
        for start in self.schedule.starts:
            lost = self._run(replace(start, fail=start.fail and not lost)) == "lost"
        self.cluster.calm()
        for name in NAMES:
            self.cluster.create(name, 3)
        for _ in range(_LAST_STARTS):
            self.cluster.now += 20_000
            last = self._run(Start(Trigger.DEFAULT, fail=not lost, batches=MOST_BATCHES))
            lost = last == "lost"
            if last == "done":
                break
        else:
            raise Violation(ARRIVES, f"the last start has ended with {last}")
        self.judge.check_rows()

    def _run(self, start: Start) -> str:
        self.cluster.trace.append(f"start {start}")
        try:
            self.query.run(start)
            ended = "done" if len(self.query.lines) < MOST_BATCHES else "never ends"
        except Crash:
            ended = "crash"
        except DataLossError as loss:
            self.query.lost(loss, raised=True)
            ended = "lost"
        except EosError as error:
            ended = error.condition
            if ended not in _MAY_END:
                raise Violation(BY_NAME, f"{error.condition} {error.message}") from error
            for name in () if 0 in self.query.committed else NAMES:
                self.cluster.provide(name)
        self.cluster.trace.append(f"ended: {ended}")
        self.cluster.replays = False
        return ended


def play(schedule: Schedule) -> Run:
    """Run it to its end. Raises Violation."""
    run = Run(schedule)
    run.play()
    return run


def smaller(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule without one of its parts."""
    for name in ("faults", "starts"):
        parts = getattr(schedule, name)
        for n in range(len(parts)):
            yield replace(schedule, **{name: parts[:n] + parts[n + 1 :]})
    if len(schedule.topics) > 1:
        yield replace(schedule, topics=schedule.topics[:-1])


def told(schedule: Schedule) -> str:
    """The schedule, and what happens in it."""
    run = Run(schedule)
    try:
        run.play()
    except Violation as violation:
        run.cluster.trace.append(str(violation))
    lines = [f"{line.step}: {line.text}" for line in run.query.lines]
    losses = [f"{loss.step}: {'raised' if loss.raised else 'warned'} {loss.error.message}" for loss in run.query.losses]
    return "\n".join((str(schedule), *run.cluster.trace, *lines, *losses, str(run.query.written)))
