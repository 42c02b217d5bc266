"""Writes within foreachBatch of which some fail, at any step, while the function catches what it likes: once rows of a
micro-batch are missing that Spark has passed, no later write of the sink is decided. What is written is committed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pytest

from spark_eos.errors import EosError
from spark_eos.protocol import abort as abort_module
from spark_eos.protocol import commit as commit_module
from spark_eos.protocol import task as task_module
from spark_eos.protocol.abort import abort
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import NOBODY, ForeachBatchWrite, Head
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import Ports, State
from spark_eos.protocol.take import taking
from spark_eos.protocol.task import MicroBatch, TaskReport, Work, assign
from tests.support.models.dying_driver import Killed, kill

from . import by_hand
from .breaking import Patch, first_broken, instead_of
from .by_hand import TIMEOUT_MS, Brokers
from .ledger import PREFIX
from .world import Violation

BATCHES = 6
SEEDS = 200
#: In so many schedules, each known mistake is seen.
ENOUGH = 600
SINK = ForeachBatchWrite("q", "s")
#: A write is decided after one that failed and was passed, or returns before it is committed.
IN_SILENCE = "no row is missing in silence"
FIRST = Head(NOBODY, 1, (), 5, prefix=PREFIX, write=SINK)


class Fails(Enum):
    """How far a write comes."""

    NOT = "it is written"
    PLANNED = "no task runs"
    OPENED = "a stage before the write fails when a task has opened the run"
    PREPARED = "a task fails when another one has handed over its transaction"
    VERIFIED = "the commit raises before the decision"
    DECIDED = "the commit raises after the decision"


class Failed(Exception):
    """What the write's caller is told."""


@dataclass
class Sink:
    """One sink of a query, which somebody starts again whenever it has ended. ``decided``: its micro-batches;
    ``missing``: the first one that failed, was passed, and was not decided."""

    brokers: Brokers
    chance: random.Random
    runs: int = 0
    missing: int | None = None

    def live(self) -> None:
        """Until all micro-batches are passed."""
        batch = 0
        while batch < BATCHES and self.runs < 20:
            self.runs += 1
            batch = self._run(f"r{self.runs}", batch)

    def _run(self, run: str, batch: int) -> int:
        """One start, from a micro-batch on; the one that comes next."""
        while batch < BATCHES:
            try:
                if self.chance.random() < 0.8:  # or the function leaves the sink out
                    self._save(run, batch)
            except Failed:
                if self.chance.random() < 0.5:
                    return batch  # Spark replays it
                self._passed(batch)
            batch += 1
            if self.chance.random() < 0.2:
                break  # it is started anew
        return batch

    def _passed(self, batch: int) -> None:
        if not self._is_decided(batch) and self.missing is None:
            self.missing = batch

    def _is_decided(self, batch: int) -> bool:
        head = self.brokers.ports().ledger.read()
        return head is not None and head.decision is not None and head.decision.batch >= batch

    def _save(self, run: str, batch: int) -> None:
        """As `save()` of a writer within foreachBatch; once more within the same micro-batch, sometimes."""
        try:
            self._write(run, batch, self.chance.choice([*Fails, Fails.NOT, Fails.NOT, Fails.NOT]))
        except (EosError, Killed):
            abort_module.note_unwritten(self.brokers.ports(), batch, FIRST)
            if self.chance.random() < 0.2:
                return self._save(run, batch)
            raise Failed from None
        if self.missing is not None and self.missing < batch:
            raise Violation(IN_SILENCE, f"micro-batch {batch} is written, and {self.missing} never was")
        self._check_committed(batch)
        return None

    def _check_committed(self, batch: int) -> None:
        """Of what is written, Spark notes that it is done, and nobody starts it again."""
        head = self.brokers.ports().ledger.read()
        assert head is not None and head.decision is not None
        left = [pair.id for pair in head.decision.pairs if self.brokers.state(pair) is not State.COMPLETE_COMMIT]
        if head.decision.batch == batch and left:
            raise Violation(IN_SILENCE, f"micro-batch {batch} is written, and {left} are not committed")

    def _write(self, run: str, batch: int, fails: Fails) -> None:
        if fails is Fails.PLANNED:
            raise Killed
        try:
            head = self._opened(run, batch)
            assign(head, batch, 0, 0)
            if fails is Fails.OPENED:
                raise Killed
            body = self._prepared(head, batch)
            if fails is Fails.PREPARED:
                raise Killed
            point = {Fails.VERIFIED: "commit.verified", Fails.DECIDED: "commit.decided"}.get(fails, "")
            commit(self.brokers.ports(point, kill), body)
        except (EosError, Killed):
            self._abort(run, batch)
            raise

    def _abort(self, run: str, batch: int) -> None:
        """What Spark calls, and only the log hears of it where it fails: no broker may be there for as long as it is
        tried, or until transactions expire."""
        missed = self.chance.random()
        if missed > 0.4:
            abort(self.brokers.ports(), run, batch)
        elif missed < 0.1:
            self.brokers.world.sleep(2 * TIMEOUT_MS)

    def _opened(self, run: str, batch: int) -> Head:
        head = self.brokers.ports().ledger.read()
        if head is not None and head.run == run:
            return head
        own = self.brokers.ports()
        return open_run(own, NewRun(run, batch, prefix=PREFIX, write=SINK))

    def _prepared(self, head: Head, batch: int) -> MicroBatch:
        """What a task writes. Where the micro-batch is decided, and nothing known to be lost, it only counts."""
        last = head.decision
        if last is None or last.batch != batch or last.lost:
            return self.brokers.prepared(head, batch)
        return MicroBatch(head.run, batch, (TaskReport(Work.COUNT, 0, 1, 1),))


def play(seed: int) -> Sink:
    sinks: list[Sink] = []

    def steps(brokers: Brokers) -> None:
        sinks.append(Sink(brokers, random.Random(seed)))
        sinks[0].live()

    by_hand.play(steps)
    return sinks[0]


def test_no_write_is_decided_after_one_that_failed_and_was_passed():
    """At whatever step it fails; and schedules in which rows are missing are many."""
    found = [play(seed) for seed in range(SEEDS)]
    assert sum(sink.missing is not None for sink in found) > SEEDS // 4


def _not_noted(patch: pytest.MonkeyPatch) -> None:
    """Only what Spark aborts is noted, and that only if a task has opened the run."""
    patch.setattr(abort_module, "note_unwritten", lambda *_: None)


@instead_of(abort_module, "close")
def _noted_for_the_last(close: Any, ports: Ports, run: str, given_up: int) -> Head | None:
    """The abort of a later micro-batch takes the place of the first one, and a write of the later one clears it."""
    closed: Head | None = close(ports, run)
    for term, head in taking(ports) if closed is not None else ():
        assert head is not None
        term.publish(replace(head, given_up=given_up))
        break
    return closed


def _same_run_trusted(patch: pytest.MonkeyPatch) -> None:
    """Only a start looks at what was noted; a run that goes on does not."""
    patch.setattr(task_module, "check_written", lambda *_: None)
    patch.setattr(commit_module, "check_written", lambda *_: None)


def _decided_taken_for_committed(patch: pytest.MonkeyPatch) -> None:
    """A commit of what is decided returns at once, as if whoever decided it had come to the end of it."""
    patch.setattr(commit_module, "_complete_decided", lambda *_: None)


MISTAKES = [_not_noted, _noted_for_the_last, _same_run_trusted, _decided_taken_for_committed]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_known_mistakes_are_seen(mistake: Patch):
    """Each is put back, and rows stay missing in silence, or may."""
    assert first_broken(mistake, play, range(ENOUGH)) == IN_SILENCE
