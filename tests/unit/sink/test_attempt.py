"""An attempt from its first row on: what it hands over, and what it aborts instead, on the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace

import pytest

from spark_eos.errors import EosError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.commit import commit
from spark_eos.protocol.end import VALID_MS
from spark_eos.protocol.head import DIGEST_BITS, Head, Pair, Probe
from spark_eos.protocol.names import TaskId, task_name
from spark_eos.protocol.ports import State
from spark_eos.protocol.task import MicroBatch, TaskReport, assign
from spark_eos.sink import attempt
from spark_eos.sink.attempt import Attempt, RowWriter, WriteStats
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.preflight import Facts
from spark_eos.sink.schema import Columns
from spark_eos.sink.session import Session
from spark_eos.sink.spark_rows import SparkRows
from spark_eos.sink.task import Task as SinkTask
from tests.simulation.by_hand import OUTPUT, TIMEOUT_MS, Brokers, meanwhile, on_brokers, stopped
from tests.simulation.client import Producer
from tests.simulation.ledger import PREFIX, QUERY, SimulatedCoordinator
from tests.simulation.partition_log import Place

BESIDE = ("output", 1)
COLUMNS = Columns(key=False, topic=False, partition=False, headers=False, timestamp=False)
JOB = SinkJob(
    SinkOptions(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"})), Facts(TIMEOUT_MS, 1, "d"), SparkRows(COLUMNS)
)


class Coordinator(SimulatedCoordinator):
    """With what tasks ask that were not told a first offset."""

    def is_first(self, pair: Pair, topic: str, partition: int, offset: int) -> bool:
        found = self._cluster.log((topic, partition)).records[offset]
        return (found.producer_id, found.epoch, found.sequence) == (pair.producer_id, pair.epoch, 0)


class Rows:
    """A task's producer, which sends what it has taken when it is flushed. ``untold``: first offsets
    are not known, as where brokers answered that they had the batches already."""

    client, refused = BrokerClient(JOB.options.kafka), 0

    def __init__(self, brokers: Brokers, head: Head, *, untold: bool = False) -> None:
        self.endtxn_version = brokers.ports().coordinator.endtxn_version()
        name = task_name(PREFIX, QUERY, TaskId(head.generation, 0, 0))
        self._producer = Producer(brokers.world, brokers.cluster, name, TIMEOUT_MS, self.endtxn_version)
        self._producer.init()
        self._untold, self._taken, self.closed = untold, [], False

    def take(self, *places: Place) -> None:
        self._taken += places

    def flush(self) -> None:
        while self._taken:
            self._producer.produce(self._taken.pop(0), (0, 0))

    def identity(self) -> Pair:
        return self._producer.pair

    def firsts(self) -> Mapping[Place, int]:
        return {} if self._untold else self._producer.firsts

    def lasts(self) -> Mapping[Place, int]:
        return self._producer.lasts

    def empty(self) -> tuple[()]:
        return ()

    def abort(self) -> None:
        self._producer.abort()

    def close(self) -> None:
        self.closed = True


class Task:
    """The one task of micro-batch 0 of a run that has been opened; ``happens`` when its rows are acknowledged."""

    def __init__(self, brokers: Brokers, *, untold: bool = False) -> None:
        self.brokers, self.head, self.ports = brokers, brokers.open("r1"), brokers.ports()
        self.producer = Rows(brokers, self.head, untold=untold)
        self.coordinator = Coordinator(brokers.world, brokers.cluster, self.ports.coordinator.endtxn_version)
        self.happens: Callable[[], object] = lambda: None

    def reach(self, point: str) -> None:
        if point == "prepare.flushed":
            self.happens()

    def write(self, parts: Iterator[WriteStats] | list[WriteStats]) -> TaskReport:
        session = Session(BrokerClient(JOB.options.kafka), self.ports, self.coordinator)
        own, assignment = SinkTask(JOB, Identity(QUERY, "r1", 0, 0, 0), session), assign(self.head, 0, 0, 0)
        try:
            writer = RowWriter(JOB.options, self.producer, assignment.digest_by)
            return Attempt(own, assignment, writer).write(iter(parts))
        finally:
            assert self.producer.closed

    def refused(self, entry: str, parts: Iterator[WriteStats] | list[WriteStats]) -> EosError:
        """The error by which it ends; its transaction is aborted."""
        error = stopped(entry.partition(".")[0], lambda: self.write(parts))
        assert error.entry == entry
        assert self.brokers.state(self.producer.identity()) is State.COMPLETE_ABORT
        return error


NewTask = Callable[..., Task]


@pytest.fixture
def new_task(monkeypatch: pytest.MonkeyPatch) -> NewTask:
    """``new_task(brokers)``: a task that goes by the clock of the simulated world."""

    def made(brokers: Brokers, *, untold: bool = False) -> Task:
        task = Task(brokers, untold=untold)
        monkeypatch.setattr(attempt, "time", SimpleNamespace(time=lambda: brokers.world.now / 1000))
        monkeypatch.setattr(attempt, "retrying", lambda _: brokers.world.retrying())
        monkeypatch.setattr(attempt, "failpoints", task)
        return task

    return made


@on_brokers
def test_what_is_handed_over_can_be_decided(brokers: Brokers, new_task: NewTask):
    """All rows, once they are acknowledged, in a transaction that is open; the oldest of their timestamps is noted."""
    task = new_task(brokers)
    task.producer.take(OUTPUT, BESIDE, OUTPUT)
    report = task.write(
        [WriteStats(1, 2**64 - 1, 7), WriteStats(1, 5, 5, letters=1), WriteStats(1, 2, 9), WriteStats(0, 0)]
    )
    assert (report.rows, report.digest, report.oldest_ms) == (3, 6, 5)
    assert report.digest < 1 << DIGEST_BITS
    assert report.written is not None
    assert (report.written.rows, report.written.dead_letters) == (3, 1)
    assert report.written.begins == (Probe(*OUTPUT, 0, 1), Probe(*BESIDE, 0, 0))
    assert (report.topics, report.timeout_ms) == (("output",), TIMEOUT_MS)
    assert brokers.state(task.producer.identity()) is State.ONGOING
    assert commit(brokers.ports(), MicroBatch("r1", 0, (report,))).transactions == 1
    assert [record.visible for record in brokers.cluster.log(OUTPUT).records[:2]] == [True, True]


@on_brokers
def test_records_beside_rows_are_handed_over_without_any_row(brokers: Brokers, new_task: NewTask):
    """They belong to the transaction as rows do; without records there is none."""
    task = new_task(brokers)
    task.producer.take(OUTPUT)
    report = task.write([WriteStats(0, 0, beside=1, dropped=2)])
    assert report.written is not None
    assert (report.rows, report.dropped) == (0, 2)
    assert brokers.state(task.producer.identity()) is State.ONGOING
    nothing = new_task(brokers).write([WriteStats(0, 0, dropped=3)])
    assert (nothing.written, nothing.dropped) == (None, 3)


@on_brokers
def test_an_attempt_without_which_the_micro_batch_is_decided_aborts_itself(brokers: Brokers, new_task: NewTask):
    """Nobody would commit it: it would hold readers until its timeout."""
    task = new_task(brokers)
    task.producer.take(OUTPUT)
    other = brokers.attempt(task_name(PREFIX, QUERY, TaskId(task.head.generation, 0, 0, 1)))
    batch = brokers.prepared(task.head, 1)
    assert other not in batch.pairs
    task.happens = lambda: commit(brokers.ports(), MicroBatch("r1", 0, batch.reports))
    task.refused("EOS_ATTEMPT_LATE", [WriteStats(1, 1)])


@on_brokers
def test_a_transaction_that_no_leader_knows_is_not_handed_over(brokers: Brokers, new_task: NewTask):
    """Without the place of its first record, nobody could tell later what became of it. Leaders are asked again, as
    new ones may lag behind."""
    task, asked = new_task(brokers), []
    task.producer.take(OUTPUT)
    task.happens = lambda: brokers.aborted_by_hand(task.producer.identity())
    meanwhile(task.coordinator, "first_record", lambda: asked.append(None))
    error = task.refused("EOS_TRANSACTION_NOT_FOUND", [WriteStats(1, 1)])
    assert error.parameters["transactional_id"] == task.producer.identity().id
    assert len(asked) > 1


@on_brokers
def test_an_attempt_of_a_run_that_was_replaced_aborts_itself(brokers: Brokers, new_task: NewTask):
    """What it has begun after the new run's look, that one has not seen."""
    task = new_task(brokers)
    task.producer.take(OUTPUT)
    brokers.open("r2")
    task.refused("EOS_SUPERSEDED", [WriteStats(1, 1)])


def begun_again(task: Task) -> Iterator[WriteStats]:
    """After a minute, somebody aborts the transaction in one of its partitions by hand, and the task goes on."""
    task.producer.take(OUTPUT, BESIDE)
    task.producer.flush()
    yield WriteStats(2, 2)
    task.brokers.world.now += VALID_MS
    pair = task.producer.identity()
    task.brokers.cluster.log(BESIDE).mark(pair.producer_id, pair.epoch, commit=False)
    task.producer.take(BESIDE)
    yield WriteStats(1, 1)


@pytest.mark.parametrize(("version", "untold"), [(2, False), (1, False), (1, True)])
@on_brokers
def test_an_old_transaction_begins_everywhere_with_its_first_record(
    brokers: Brokers, version: int, untold: bool, new_task: NewTask
):
    """All leaders are asked; where the producer does not know its first offsets, what is there must be number 0."""
    brokers.cluster.transaction_version = version
    task = new_task(brokers, untold=untold)
    error = task.refused("EOS_TRANSACTION_NOT_HELD", begun_again(task))
    assert "the task's first record in" in error.message
    assert (error.parameters["topic"], error.parameters["partition"]) == BESIDE


@on_brokers
def test_a_fresh_transaction_begins_with_its_first_record(brokers: Brokers, new_task: NewTask):
    """In the one partition whose leader is asked: somebody has aborted it there, and the task has gone on."""
    task = new_task(brokers)
    pair = task.producer.identity()

    def begun_again() -> Iterator[WriteStats]:
        task.producer.take(OUTPUT)
        task.producer.flush()
        yield WriteStats(1, 1)
        brokers.aborted_by_hand(pair)
        task.producer.take(OUTPUT)
        yield WriteStats(1, 1)

    error = task.refused("EOS_TRANSACTION_NOT_HELD", begun_again())
    assert "the task's first record in output-0 is at offset 0" in error.message


@pytest.mark.parametrize(("version", "untold"), [(2, False), (1, False), (1, True)])
@on_brokers
def test_a_partition_that_has_lost_its_newest_records(brokers: Brokers, version: int, untold: bool, new_task: NewTask):
    """They were acknowledged, and an unclean election has taken them."""
    brokers.cluster.transaction_version = version
    task = new_task(brokers, untold=untold)
    task.producer.take(OUTPUT, OUTPUT)
    task.happens = lambda: brokers.cluster.log(OUTPUT).cut_rows(1)
    assert "the task's last record in" in task.refused("EOS_TRANSACTION_NOT_HELD", [WriteStats(2, 2)]).message
