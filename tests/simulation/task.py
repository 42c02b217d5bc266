"""One attempt of a task: what ``spark_eos.sink.task`` does, with a simulated producer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import KafkaError
from spark_eos.kafka.transactions import FENCING_END, NEVER_MS, PLAIN_END
from spark_eos.pipelines.copy.ranges import CopiedFrom, ranges_to_read, reported
from spark_eos.protocol.end import VALID_MS
from spark_eos.protocol.head import BatchWrite, Digest, Head, Probe, Written
from spark_eos.protocol.names import TaskId
from spark_eos.protocol.open import NewRun, open_run
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.task import (
    Assignment,
    TaskReport,
    assign,
    check_begins,
    check_ends,
    check_held,
    check_owner,
    check_target,
    check_time,
    free_name,
)

from .client import Producer, Refused
from .ledger import PREFIX, SimulatedCoordinator
from .partition_log import Place
from .plan import TOPIC, copied_of, digest, place_of, rows_in, rows_of
from .world import Violation, World

if TYPE_CHECKING:
    from .driver import Driver
    from .processes import Process
    from .stage import Attempt

OPEN_MS = 3_000
#: What a query writes whose runs are those of a batch write.
JOB = BatchWrite("job", TOPIC)


@dataclass(frozen=True)
class Task:
    driver: Driver
    batch: int
    tasks: int
    attempt: Attempt
    process: Process

    @property
    def rows(self) -> list[int]:
        start, end = self.driver.planned[self.batch]
        return rows_of(start, end, self.tasks, self.attempt.partition, self.driver.dealing(self.batch)[1])


def run_task(task: Task) -> TaskReport:
    """What ``spark_eos.sink.task`` does, with a simulated producer."""
    world, cluster = task.driver.world, task.driver.query.cluster
    own = task.driver.ports(task.process)
    head = _opened(task, own)
    _check_job(task, own, head)
    assignment, rows, ranges = _assigned(task, head)
    if assignment.name is None:
        return _report(task, assignment, rows)
    ends = own.coordinator.endtxn_version()
    version = PLAIN_END if task.attempt.partition % 2 else ends  # as where the feature was lowered meanwhile
    timeout_ms = NEVER_MS if task.driver.two_phase else task.driver.query.plan.timeout_ms
    producer = Producer(
        world, cluster, _free_name(own, head, assignment.name, task.driver.query.id), timeout_ms, version
    )
    producer.handed_over_with = ends
    producer.init()
    if not rows:
        return _report(task, assignment, rows)
    try:
        report = _write(task, own, assignment, producer, rows)
        return reported(report, copied_of(task.rows), ranges) if task.driver.query.plan.copy else report
    except Violation:
        raise
    except BaseException:
        producer.abort()
        raise


def _assigned(task: Task, head: Head) -> tuple[Assignment, list[int], tuple[OffsetRange, ...]]:
    """What to do, and the rows; of a copy, also the ranges that these are read from."""
    partition, number, rows = task.attempt.partition, task.attempt.number, task.rows
    if not task.driver.query.plan.copy:
        return assign(head, task.batch, partition, number, digest_by=task.driver.library.digest_by), rows, ()
    given = copied_of(rows)
    ranges = _ranges_of(head, task, given)
    assignment = assign(head, task.batch, partition, number, digest_by=given.digest_by, repairs=bool(ranges))
    return assignment, rows_in(ranges), ranges


def _ranges_of(head: Head, task: Task, given: CopiedFrom) -> tuple[OffsetRange, ...]:
    return ranges_to_read(head.decision, task.batch, task.attempt.partition, task.tasks, given)


def _free_name(own: Ports, head: Head, task: TaskId, query: str) -> str:
    return free_name(PREFIX, query, task, head, own.coordinator)


def _opened(task: Task, own: Ports) -> Head:
    for _ in _while(task.driver.world, OPEN_MS * task.attempt.partition):
        head = own.ledger.read()
        if head is not None and head.run == task.driver.run:
            return head
        if task.attempt.partition == 0:
            break
    driver = task.driver
    new = NewRun(
        driver.run,
        task.batch,
        driver=driver.application.name,
        prefix=PREFIX,
        partitioner=driver.library.partitioner,
        two_phase=driver.two_phase,
        write=JOB if driver.query.plan.runs else None,
        begin_at=driver.begin_at,
        topic=driver.topic,
    )
    return open_run(own, new)


def _check_job(task: Task, own: Ports, head: Head) -> None:
    """Of a batch write: its first tasks may have begun so long ago that nothing of it can be decided any more."""
    if task.driver.query.plan.runs:
        check_target(head, JOB)
        if not task.driver.two_phase:
            check_time(head, task.driver.query.plan.timeout_ms, own.now_ms())


def _report(task: Task, assignment: Assignment, rows: list[int]) -> TaskReport:
    """Of a task that has written nothing."""
    by = assignment.digest_by
    sums = len(rows), digest(rows, by, task.driver.topic)
    report = TaskReport(assignment.work, task.attempt.partition, *sums, digest_by=by)
    return reported(report, copied_of(task.rows)) if task.driver.query.plan.copy else report


def _while(world: World, ms: int) -> Iterator[None]:
    deadline, wait = world.now + ms, 10
    yield
    while world.now + wait < deadline:
        world.sleep(wait)
        yield
        wait *= 3


def _write(task: Task, own: Ports, assignment: Assignment, producer: Producer, rows: list[int]) -> TaskReport:
    began_ms, query = own.now_ms(), task.driver.query
    own.reach("prepare.begun")
    try:
        for row in rows:
            producer.produce(place_of(row, assignment.partitioner, task.driver.topic), (task.batch, row, query.id))
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
        timeout_ms=query.plan.timeout_ms,
        topics=tuple(sorted({topic for topic, _ in producer.firsts})),
    )


def _hand_over(task: Task, own: Ports, producer: Producer, rows: list[int], by: Digest) -> Written:
    assert isinstance(own.coordinator, SimulatedCoordinator)
    described = own.coordinator.describe([producer.name]).get(producer.name)
    check_held(producer.pair, described, two_phase=task.driver.two_phase)
    assert described is not None
    _check_begins(task.driver.world, own.coordinator, producer)
    for _ in task.driver.world.retrying():
        probe = own.coordinator.first_record(producer.pair, described.places)
        if probe is not None:
            return _written(task, producer, probe, len(rows), digest(rows, by, task.driver.topic))
    raise KafkaError("EOS_TRANSACTION_NOT_FOUND", "No leader knows the transaction.", hint="Spark tries again.")


def _written(task: Task, producer: Producer, probe: Probe, rows: int, digest: int) -> Written:
    """``probe``: by the one leader that was asked."""
    at = probe.topic, probe.partition
    check_begins(producer.pair, {at: producer.firsts[at]}, {at: probe.offset})
    check_ends(producer.pair, producer.lasts, [probe])
    begins = tuple(
        Probe(*place, first, producer.lasts[place], producer.topic_ids[place[0]])
        for place, first in sorted(producer.firsts.items())
    )
    probe = replace(probe, topic_id=producer.topic_ids[probe.topic])
    version = producer.handed_over_with
    return Written(task.attempt.partition, producer.pair, rows, digest, probe, endtxn_version=version, begins=begins)


def _check_begins(world: World, coordinator: SimulatedCoordinator, producer: Producer) -> None:
    """Asked only where somebody may have aborted what the producer wrote first, while it went on."""
    if producer.handed_over_with >= FENCING_END and world.now - producer.began_ms < VALID_MS:
        return
    found: dict[Place, Probe] = {}
    for _ in world.retrying():
        begins = coordinator.begins(producer.pair, producer.firsts.keys() - found.keys())
        found |= {(probe.topic, probe.partition): probe for probe in begins}
        if found.keys() == producer.firsts.keys():
            break
    check_begins(producer.pair, producer.firsts, {place: probe.offset for place, probe in found.items()})
    check_ends(producer.pair, producer.lasts, found.values())
