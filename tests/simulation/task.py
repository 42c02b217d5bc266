"""One attempt of a task: what ``spark_eos.sink.task`` does, with a simulated producer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_eos.errors import KafkaError
from spark_eos.protocol.head import Digest, Head, Written
from spark_eos.protocol.names import TaskId
from spark_eos.protocol.ports import NEVER_MS, Ports
from spark_eos.protocol.run import open_run
from spark_eos.protocol.task import Assignment, TaskReport, assign, check_held, check_owner, free_name

from .client import LIBRDKAFKAS, OURS, Producer, Refused
from .ledger import PREFIX, QUERY, SimulatedCoordinator
from .plan import digest, place_of, rows_of
from .world import World

if TYPE_CHECKING:
    from .processes import Process
    from .spark import Driver
    from .stage import Attempt

OPEN_MS = 3_000


@dataclass(frozen=True)
class Task:
    driver: Driver
    batch: int
    tasks: int
    attempt: Attempt
    process: Process

    @property
    def rows(self) -> list[int]:
        start, end = self.driver.query.offsets[self.batch]
        return rows_of(start, end, self.tasks, self.attempt.partition, self.driver.dealing(self.batch)[1])


def run_task(task: Task) -> TaskReport:
    """What ``spark_eos.sink.task`` does, with a simulated producer."""
    world, cluster = task.driver.world, task.driver.query.cluster
    own = task.driver.ports(task.process)
    head = _opened(task, own)
    library, rows = task.driver.library, task.rows
    assignment = assign(head, task.batch, task.attempt.partition, task.attempt.number, digest_by=library.digest_by)
    if assignment.name is None:
        return _report(task, assignment, rows)
    version = LIBRDKAFKAS if task.attempt.partition % 2 else OURS  # by librdkafka go rows with headers, say
    timeout_ms = NEVER_MS if task.driver.two_phase else task.driver.query.plan.timeout_ms
    producer = Producer(world, cluster, _free_name(own, head, assignment.name), timeout_ms, version)
    producer.init()
    if not rows:
        return _report(task, assignment, rows)
    try:
        return _write(task, own, assignment, producer, rows)
    except BaseException:
        producer.abort()
        raise


def _free_name(own: Ports, head: Head, task: TaskId) -> str:
    return free_name(PREFIX, QUERY, task, head, own.coordinator)


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
        driver=driver.application.name,
        prefix=PREFIX,
        partitioner=driver.library.partitioner,
        two_phase=driver.two_phase,
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
    began_ms = own.now_ms()
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
    check_held(producer.pair, described, two_phase=task.driver.two_phase)
    assert described is not None
    for _ in task.driver.world.retrying():
        probe = own.coordinator.first_record(producer.pair, described.places)
        if probe is not None:
            return Written(task.attempt.partition, producer.pair, len(rows), digest(rows, by), probe)
    raise KafkaError("EOS_TRANSACTION_NOT_FOUND", "No leader knows the transaction.", hint="Spark tries again.")
