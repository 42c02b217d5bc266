"""A whole query by the real protocol and its real ports: micro-batches of two tasks, started again after each stop.

What Spark does is written down here once more, one after the other; tasks are the sink's own.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, repeat

import pyarrow as pa
import pytest

from spark_eos.base import failpoints, system
from spark_eos.errors import EosError
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client, close_all
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.ledger.query import LedgerAddress, query_ports
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.abort import SWEEPS_AFTER_S, abort, sweep
from spark_eos.protocol.commit import commit, take_ahead
from spark_eos.protocol.head import DIGEST_BITS
from spark_eos.protocol.ports import Ports, Term
from spark_eos.protocol.task import MicroBatch, TaskReport
from spark_eos.sink import two_phase
from spark_eos.sink.attempt import WriteStats
from spark_eos.sink.brokers import check_brokers
from spark_eos.sink.job import Identity, SinkJob
from spark_eos.sink.preflight import Facts
from spark_eos.sink.schema import Columns
from spark_eos.sink.session import Session
from spark_eos.sink.spark_rows import SparkRows
from spark_eos.sink.task import Task

from .faults import Turn
from .scenarios import TIMEOUT_MS, Scene
from .two_phase import REFUSAL, TwoPhase

QUERY, GROUP = "q", "lag"
TASKS = 2
#: Of a driver that is never sure.
_MOST_SWEEPS = 20


@dataclass
class Progress:
    """What the checkpoint knows, and the query's fate: ``done`` of ``batches`` micro-batches are logged as committed.

    ``stops``: the errors by which starts have ended. ``turns``: what happens at which of its points, by number;
    ``reached``: how many points there were. ``starts``: how many starts; ``never_expires``: all of them so far by
    two-phase commit. ``withdrawn``: the user has taken that option away, as it was refused.
    """

    batches: int
    turns: dict[int, tuple[Turn, float]] = field(default_factory=dict)
    done: int = 0
    stops: list[EosError] = field(default_factory=list)
    reached: int = 0
    starts: int = 0
    never_expires: bool = True
    withdrawn: bool = False

    def asks(self, plan: TwoPhase | None) -> bool:
        """Whether the next start asks for two-phase commit."""
        return plan is not None and plan.used(self.starts) and not self.withdrawn


class Gone(Exception):
    """The process has died, or Spark has found that another driver runs the query."""


@dataclass
class _Driver:
    """One start of the query."""

    scene: Scene
    progress: Progress
    run: str
    two_phase: bool
    ports: Ports = field(init=False)
    session: Session = field(init=False)
    job: SinkJob = field(init=False)
    ahead: Term | None = None

    def __post_init__(self) -> None:
        scene, group = self.scene, GROUP if self.scene.with_group else None
        place = LedgerAddress(scene.ledger, 2, scene.prefix)
        client = broker_client(scene.kafka)
        self.ports = replace(query_ports(client, place, QUERY, group), reach=self._reach)
        self.session = Session(client, self.ports, self.ports.coordinator, two_phase=self.two_phase)
        options = SinkOptions(scene.kafka, scene.topic, prefix=scene.prefix, two_phase=self.two_phase)
        rows = SparkRows(Columns(key=False, topic=False, partition=True, headers=False, timestamp=False))
        self.job = SinkJob(options, Facts(TIMEOUT_MS, place.partitions, self.run), rows)

    def prepares(self, point: str) -> None:
        """A task comes through a point; those of queries that know no two-phase commit have none."""
        if self.scene.two_phase is not None:
            self._reach(point)

    def _reach(self, point: str) -> None:
        """The query comes through a point of the protocol."""
        turn, seconds = self.progress.turns.get(self.progress.reached, (None, 0.0))
        self.progress.reached += 1
        if turn is Turn.DIES:
            raise Gone(f"{self.run} dies at {point}")
        if turn is Turn.OVERTAKEN:
            elsewhere = KafkaProperties({**self.scene.kafka, "client.id": f"c{self.progress.starts}"})
            start(replace(self.scene, kafka=elsewhere), self.progress)
        if turn is not None:
            system.sleep(seconds)


def rows_of(batch: int, task: int) -> list[tuple[int, bytes]]:
    """A deterministic plan: the partitions and values of a task's rows, in order."""
    count = (5, 1, 12, 0, 30)[(batch + 2 * task) % 5]
    return [(zlib.crc32(b"%d%d%d" % (batch, task, i)) % 3, f"{batch}.{task}.{i}".encode()) for i in range(count)]


def start(scene: Scene, progress: Progress) -> None:
    """Start the query once, and let it run until it is done or stops; the error is noted."""
    driver = _Driver(scene, progress, f"run{progress.starts}", progress.asks(scene.two_phase))
    progress.starts += 1
    progress.never_expires &= driver.two_phase
    batch = progress.done
    if driver.two_phase and not _planned(driver):
        return
    try:
        while progress.done < progress.batches:
            batch = progress.done
            _run_batch(driver, batch)
            if progress.done != batch:
                raise Gone("another driver has written the commit log")
            progress.done += 1
        if scene.two_phase is not None:
            _rest(driver, batch)
    except Gone:
        return
    except EosError as error:
        progress.stops.append(error)
        progress.withdrawn |= error.condition == REFUSAL
        _abort(driver, batch)
    if scene.chance.random() < 0.5:
        forget()


def forget() -> None:
    """What comes next is in another process."""
    close_all()
    two_phase._check_brokers.cache_clear()
    two_phase._try_out.cache_clear()


def _planned(driver: _Driver) -> bool:
    """As the writer looks at the cluster before any task: whether it may go on."""
    scene, progress = driver.scene, driver.progress
    client = broker_client(scene.kafka)
    try:
        check_brokers(client, two_phase=True)
        two_phase.check_two_phase(client, scene.prefix)
    except EosError as error:
        progress.stops.append(error)
        progress.withdrawn |= error.condition == REFUSAL
        return False
    return True


def _rest(driver: _Driver, batch: int) -> None:
    """As `Session` looks after what may be left open, while there is nothing more to commit."""
    clean = 0
    for seconds in chain(SWEEPS_AFTER_S, repeat(SWEEPS_AFTER_S[-1], _MOST_SWEEPS if driver.two_phase else 0)):
        if clean == 2:
            return
        system.sleep(seconds)
        try:
            left = sweep(driver.ports, driver.run, batch)
        except EosError:
            if not driver.two_phase:
                return
            clean = 0
            continue
        if left is None:
            return
        clean = 0 if left else clean + 1


def _abort(driver: _Driver, batch: int) -> None:
    try:
        abort(driver.ports, driver.run, batch)
    except EosError as error:
        driver.progress.stops.append(error)
    except Gone:
        return


def _run_batch(driver: _Driver, batch: int) -> None:
    reports = tuple(_retried(lambda t=task: _run_task(driver, batch, t)) for task in range(TASKS))
    offsets = {"source": {"0": batch + 1}} if driver.scene.with_group else None
    ahead, driver.ahead = driver.ahead, None
    group = GROUP if offsets else None
    body = MicroBatch(driver.run, batch, reports, offsets, group=group, two_phase=driver.two_phase)
    commit(driver.ports, body, ahead)
    if driver.scene.chance.random() < 0.5:
        try:
            driver.ahead = take_ahead(driver.ports, driver.run)
        except EosError:
            driver.ahead = None


def _retried(task: Callable[[], TaskReport]) -> TaskReport:
    """As Spark does with a task that has failed."""
    for _ in range(2):
        try:
            return task()
        except EosError as error:
            if not error.restart_helps:
                raise
    return task()


def _run_task(driver: _Driver, batch: int, number: int) -> TaskReport:
    task = Task(driver.job, Identity(QUERY, driver.run, batch, number, 0), driver.session)
    head, rows = task.open(), rows_of(batch, number)
    assignment = task.assign(head)
    attempt = task.begin(head, assignment)
    if attempt is None:
        digest = _digest(rows) % (1 << DIGEST_BITS)
        return TaskReport(assignment.work, number, len(rows), digest, digest_by=assignment.digest_by)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "reach", driver.prepares)
        return attempt.write(_parts(driver.scene, attempt.writer.producer, rows))


def _parts(scene: Scene, producer: ArrowProducer, rows: list[tuple[int, bytes]]) -> Iterator[WriteStats]:
    for at in range(0, len(rows), 9):
        part = rows[at : at + 9]
        numbers, values = zip(*part, strict=True)
        producer.write(
            scene.topic, scene.partitions, value=pa.array(values, pa.binary()), partition=pa.array(numbers, pa.int32())
        )
        yield WriteStats(len(part), _digest(part))


def _digest(rows: list[tuple[int, bytes]]) -> int:
    return sum(zlib.crc32(value) ** 2 for _, value in rows)
