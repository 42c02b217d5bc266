"""A query whose steps a test takes by hand, one after the other, on the simulated cluster."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from spark_eos.errors import EosError
from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.protocol.commit import commit
from spark_eos.protocol.head import Head, Pair, Probe, Write, Written
from spark_eos.protocol.names import TaskId, task_name
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import EndTxnAnswer, Ports, State, Term
from spark_eos.protocol.task import MicroBatch, TaskReport, Work
from tests.support.models.dying_driver import Killed, kill

from .client import Producer
from .codes import NOT_AVAILABLE
from .coordinator import Cluster
from .ledger import LEDGER, PREFIX, QUERY, ports
from .world import Reply, World

OUTPUT, BESIDE = ("output", 0), ("output", 1)
TIMEOUT_MS = 100_000


@dataclass
class Brokers:
    """A simulated cluster, and one query on it whose steps a test takes by hand."""

    world: World
    cluster: Cluster

    def ports(self, at: str = "", happens: Callable[[], None] = lambda: None) -> Ports:
        """The query's; whenever the protocol comes to the point ``at``, this ``happens`` there."""
        return replace(ports(self.world, self.cluster), reach=lambda point: happens() if point == at else None)

    def open(
        self,
        run: str,
        batch: int = 0,
        own: Ports | None = None,
        begin_at: int | None = None,
        write: Write | None = None,
    ) -> Head:
        own = own or self.ports()
        return open_run(own, NewRun(run, batch, begin_at=begin_at, prefix=PREFIX, write=write))

    def prepared(self, head: Head, batch: int = 0) -> MicroBatch:
        """A micro-batch of one row, whose one task has written it and handed its transaction over, open."""
        began_ms, first = self.world.now, self.cluster.log(OUTPUT).end
        pair = self.attempt(task_name(PREFIX, QUERY, TaskId(head.generation, 0, batch % 2)), batch)
        version = self.ports().coordinator.endtxn_version()
        written = Written(0, pair, 1, 1, Probe(*OUTPUT, first), endtxn_version=version)
        return MicroBatch(head.run, batch, (TaskReport(Work.WRITE, 0, 1, 1, written, began_ms, TIMEOUT_MS),))

    def prepared_by_two(self, head: Head) -> MicroBatch:
        """Micro-batch 0 of two rows, by two tasks."""
        first, second = self.prepared(head).reports[0], self.prepared(head, 1).reports[0]
        assert second.written is not None
        second = replace(second, partition=1, written=replace(second.written, partition=1))
        return MicroBatch(head.run, 0, (first, second))

    def prepared_in_two_partitions(self) -> tuple[Pair, MicroBatch]:
        """A micro-batch of run r1 whose one transaction has a row in each of two partitions."""
        batch = self.prepared(self.open("r1"))
        (report,), (written,) = batch.reports, batch.written
        producer = Producer(self.world, self.cluster, written.pair.id, TIMEOUT_MS, written.endtxn_version)
        producer._pair = written.pair
        producer.produce(BESIDE, (0, 1))
        written = replace(written, begins=(written.probe, Probe(*BESIDE, 0)))
        return written.pair, replace(batch, reports=(replace(report, written=written),))

    def another_program(self) -> Producer:
        """A transaction of another program, which is open in the output and keeps readers from what comes after it."""
        other = Producer(self.world, self.cluster, "another program", NEVER_MS)
        other.init()
        other.produce(OUTPUT, ("other", 0))
        return other

    def attempt(self, name: str, batch: int = 0) -> Pair:
        """An attempt of a task that has written one row, and left its transaction open."""
        version = self.ports().coordinator.endtxn_version()
        producer = Producer(self.world, self.cluster, name, TIMEOUT_MS, version)
        producer.init()
        producer.produce(OUTPUT, (batch, 0))
        return producer.pair

    def dies(self, at: str, batch: MicroBatch) -> MicroBatch:
        """A micro-batch whose driver is killed at this point of its commit."""
        with pytest.raises(Killed):
            commit(self.ports(at, kill), batch)
        return batch

    def decided(self, at: str = "commit.decided") -> Written:
        """The one transaction of a micro-batch whose driver was killed at this point, by default before its commit."""
        (written,) = self.dies(at, self.prepared(self.open("r1"))).written
        return written

    def aborted_by_hand(self, pair: Pair) -> None:
        """As ``kafka-transactions.sh abort`` does it: a marker in one partition; the coordinator hears nothing."""
        self.cluster.log(OUTPUT).mark(pair.producer_id, pair.epoch, commit=False)
        assert self.state(pair) is State.ONGOING

    def taken_by_retention(self, _: Pair | None = None) -> None:
        """Retention does not wait for a commit, whosever rows they are."""
        log = self.cluster.log(OUTPUT)
        log.begin = log.end

    def visible(self) -> int:
        """Rows that a read_committed reader sees."""
        log = self.cluster.log(OUTPUT)
        return sum(bool(record.visible) for record in log.records[log.begin :])

    def end(self, pair: Pair, *, commit: bool) -> None:
        version = self.ports().coordinator.endtxn_version()
        assert self.ports().coordinator.end({pair: version}, commit=commit)[pair] is EndTxnAnswer.DONE

    def take_the_ledger(self) -> None:
        """As another start of the query does, which fences whoever had it."""
        self.ports().ledger.take()

    def end_transactions_no_more(self) -> None:
        """As coordinators that cannot write to their own log."""
        self.cluster.end = lambda *_, **__: Reply(NOT_AVAILABLE)  # type: ignore[method-assign]

    def state(self, pair: Pair) -> State:
        return self.ports().coordinator.describe([pair.id])[pair.id].state

    @property
    def heads(self) -> list[bytes]:
        """All that was ever committed to the ledger."""
        return [record.payload[1] for record in self.cluster.log(LEDGER).records if record.visible]


def play(steps: Callable[[Brokers], object]) -> None:
    """Take the steps as the one process of a simulated world without faults; raises what they raise."""
    world = World((), quantum=1)
    brokers = Brokers(world, Cluster(world))

    def driver() -> None:
        steps(brokers)

    world.spawn("driver", "driver", driver)
    world.run()


def on_brokers(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in a world of its own, with its `Brokers` as the first argument and fixtures as the others."""

    @functools.wraps(test)
    def played(**given: Any) -> None:
        play(lambda brokers: test(brokers, **given))

    _, *parameters = inspect.signature(test).parameters.values()
    played.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # by which pytest knows fixtures
    return played


def meanwhile(port: Any, name: str, happens: Callable[[], object], *, answered: bool = False) -> None:
    """Let this happen at each call of the port's method: before it, or when it is answered."""
    asked = getattr(port, name)

    def late(*given: Any, **more: Any) -> Any:
        if not answered:
            happens()
        answer = asked(*given, **more)
        if answered:
            happens()
        return answer

    setattr(port, name, late)


def when_publishing(own: Ports, happens: Callable[[], object], *, answered: bool = False) -> None:
    """Let this happen each time that a head is published through these ports: before it, or when it is answered."""
    take = own.ledger.take

    def taken() -> Term:
        term = take()
        meanwhile(term, "publish", happens, answered=answered)
        return term

    own.ledger.take = taken  # type: ignore[method-assign]


def stopped(condition: str, call: Callable[[], object]) -> EosError:
    """The error that the call must end with."""
    with pytest.raises(EosError) as caught:
        call()
    assert caught.value.condition == condition
    return caught.value
