"""The assignment of one attempt of one task, its report to the driver, and the micro-batch of all reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import stop
from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.protocol.checks import check_written, checkpoint_behind, superseded
from spark_eos.protocol.extra import Kind
from spark_eos.protocol.head import (
    DIGEST_BITS,
    BatchWrite,
    Decision,
    Digest,
    Extra,
    Head,
    Offsets,
    Pair,
    Probe,
    Written,
    is_waiting,
)
from spark_eos.protocol.names import SLOTS, TaskId, task_name
from spark_eos.protocol.ports import Coordinator, Description, State
from spark_eos.protocol.status import Status, at_batch


class Work(Enum):
    """Work of a task. ``WRITE``: a new micro-batch. ``REPAIR``: write decided rows again that were lost. ``COUNT``:
    write nothing."""

    WRITE = "write"
    REPAIR = "repair"
    COUNT = "count"


@dataclass(frozen=True)
class Assignment:
    """Work of a task, and ``name``, the parts of the transactional id to write under; None where it writes nothing. A
    replay digests rows and deals keys to partitions as the run did that decided."""

    work: Work
    name: TaskId | None
    digest_by: Digest = Digest.ROWS
    partitioner: str = DEFAULT_PARTITIONER


@dataclass(frozen=True)
class TaskReport:
    """Report of a task: its rows, and their transaction, if it wrote any.

    ``work``: as assigned. ``partition``: the task's number, Spark's partition id. ``began_ms``: the time of day, by the
    task's clock, before its transaction began; ``timeout_ms``: how long that may live. ``digest_by``: how ``digest``
    was made. ``oldest_ms``: the earliest timestamp of a row, if rows have any. Where a feature reads the rows, ``rows``
    counts the rows written, and ``bytes`` is their size: for copies, of the record batches as written, and otherwise of
    keys and values. ``topics``: of its transaction. ``dropped``: how many records its transform rejected and left out.
    ``read``: how many rows the task read, where a transform makes others of them. ``extra``: of the feature that reads
    the rows.
    """

    work: Work
    partition: int
    rows: int
    digest: int
    written: Written | None = None
    began_ms: int = 0
    timeout_ms: int = 0
    digest_by: Digest = Digest.ROWS
    oldest_ms: int | None = None
    bytes: int = 0
    topics: tuple[str, ...] = ()
    dropped: int = 0
    read: int = 0
    extra: Extra | None = None


def assign(
    head: Head,
    batch: int,
    partition: int,
    attempt: int,
    *,
    digest_by: Digest = Digest.ROWS,
    partitioner: str | None = None,
    repairs: bool | None = None,
) -> Assignment:
    """Assign a partition of a micro-batch its work, by this head. Raises ProtocolStop when behind.

    ``digest_by`` and ``partitioner`` are for new micro-batches; the partitioner is the user's choice, if there is one.
    ``repairs``: whether this task has lost rows to write, where a feature decides that; None: by the decision.
    """
    check_written(head, batch)
    decision, state = head.decision, at_batch(head, batch)
    slot = batch % SLOTS
    if decision is None or state in (Status.WRITES, Status.CHECKPOINT_AHEAD):
        name = TaskId(head.generation, partition, slot, attempt)
        return Assignment(Work.WRITE, name, digest_by, partitioner or head.partitioner)
    if state is Status.CHECKPOINT_BEHIND:
        raise checkpoint_behind(decision, batch)
    if _rewrites(decision, partition) if repairs is None else repairs:
        name = TaskId(head.generation, partition, slot, attempt, decision.rev + 1)
        return Assignment(Work.REPAIR, name, decision.digest_by, decision.partitioner)
    return Assignment(Work.COUNT, None, decision.digest_by, decision.partitioner)


def _rewrites(decision: Decision, partition: int) -> bool:
    """Return whether this task of a replay has lost rows to write. Where all were lost, every task has."""
    lost = decision.lost
    if decision.rewrite is not None:
        return bool(lost) and partition in decision.rewrite
    return bool(lost) and (len(lost) == len(decision.written) or partition in {w.partition for w in lost})


def check_owner(head: Head | None, run: str, batch: int, work: Work) -> None:
    """Raise ProtocolStop unless an attempt that has written its last row may still be decided on.

    Otherwise the attempt has to abort its own transaction: another run, or a commit that used another attempt, may have
    listed open transactions before this one began, and nobody lists them again.
    """
    if head is None:
        raise stop("EOS_LEDGER_HEAD_MISSING", batch=batch)
    if head.run != run:
        raise superseded(run, head)
    if work is Work.WRITE and head.decision is not None and head.decision.batch >= batch:
        raise stop("EOS_ATTEMPT_LATE", batch=batch)


def free_name(prefix: str, query: str, task: TaskId, head: Head, coordinator: Coordinator) -> str:
    """Return the first transactional id with nothing open under it, counting attempts up.

    Spark counts attempts from 0 again when it resubmits a stage, and does not tell Python which attempt of the stage
    this is: the first one's transaction may be prepared, and even decided, and taking its name would abort it. So a
    name in the head's decision is not taken either, while it has no verdict.
    """
    while True:
        name = task_name(prefix, query, task)
        if not is_waiting(head.decision, name):
            described = coordinator.describe([name]).get(name)
            if described is None or described.state is not State.ONGOING:
                return name
        task = replace(task, attempt=task.attempt + 1)


def check_held(pair: Pair, described: Description | None, *, two_phase: bool = False) -> None:
    """Raise Unclear unless the broker holds the very transaction that this producer wrote; with ``two_phase``, raise
    ProtocolStop where it may expire."""
    if described is not None and described.state is State.ONGOING and described.pair == pair:
        if two_phase and described.expires:
            raise stop("EOS_TWO_PHASE_EXPIRES", transactional_id=pair.id, timeout_ms=described.timeout_ms)
        return
    held = "nothing" if described is None else f"{described.state.value}, {_of(described.pair)}"
    raise stop(
        "EOS_TRANSACTION_NOT_HELD",
        transactional_id=pair.id,
        difference=f"the task wrote as {_of(pair)}, but the coordinator has {held}",
    )


def check_begins(pair: Pair, firsts: Mapping[TopicPartition, int], begins: Mapping[TopicPartition, int]) -> None:
    """Raise Unclear unless the transaction begins, in each partition, with the task's first record there.

    The offsets ``firsts`` are by the answers that the producer had, ``begins`` by the partitions' leaders. Where they
    differ, the transaction was ended and has begun once more, and its first rows are gone: an operator has aborted it
    in that partition, or, where EndTxn does not fence, as a whole, and the attempt's next request has opened it again.
    """
    unlike = sorted(place for place, first in firsts.items() if begins.get(place) != first)
    if unlike:
        (topic, partition), more = unlike[0], len(unlike) - 1
        begin = begins.get(unlike[0])
        state = "is not open" if begin is None else f"begins at offset {begin}"
        and_more = f"; also in {more} more partitions" if more else ""
        raise stop(
            "EOS_TRANSACTION_NOT_HELD",
            transactional_id=pair.id,
            topic=topic,
            partition=partition,
            difference=(
                f"the task's first record in {topic}-{partition} is at offset {firsts[unlike[0]]}, but the transaction "
                f"{state} there, as somebody has aborted it{and_more}"
            ),
        )


def check_ends(pair: Pair, lasts: Mapping[TopicPartition, int], probes: Iterable[Probe]) -> None:
    """Raise Unclear where the transaction does not end, in a partition, with the task's last record there.

    ``lasts``: the sequence number of that record for each partition, as far as it is known; ``probes`` have it by
    the partitions' leaders. An unclean election loses the newest acknowledged records.
    """
    for probe in probes:
        last = lasts.get((probe.topic, probe.partition))
        if None not in (last, probe.last) and last != probe.last:
            raise stop(
                "EOS_TRANSACTION_NOT_HELD",
                transactional_id=pair.id,
                topic=probe.topic,
                partition=probe.partition,
                difference=(
                    f"the task's last record in {probe.topic}-{probe.partition} has the sequence number {last}, but "
                    f"the transaction ends with {probe.last} there, as after an unclean leader election"
                ),
            )


def _of(pair: Pair) -> str:
    return f"producer id {pair.producer_id}, epoch {pair.epoch}"


# Batch writes


def check_target(head: Head, write: BatchWrite) -> None:
    """Raise Diverged where the batch write's rows are decided, and went elsewhere."""
    before = head.write
    if head.decision is None or not isinstance(before, BatchWrite) or before.topic == write.topic:
        return
    raise stop(
        "EOS_JOB_DIFFERS",
        name=f"The batch write with job.id '{write.job_id}'",
        differences=(
            f"{head.decision.rows:,} rows to {_named(before.topic)}, but would now write to {_named(write.topic)}"
        ),
    )


def check_time(head: Head, timeout_ms: int, now_ms: int) -> None:
    """Raise ProtocolStop where nothing of a batch write is decided, and the transactions of its first tasks have
    expired: nothing of it can be decided any more. ``now_ms`` is by the clock of a task, which may be another machine's
    than that which opened the run."""
    if head.decision is not None:
        return
    age_ms = now_ms - head.opened_ms
    if age_ms > timeout_ms:
        raise stop("EOS_JOB_TOO_LONG", age_ms=age_ms // 1000, timeout_ms=timeout_ms // 1000)


def _named(topic: str | None) -> str:
    return f"topic {topic}" if topic is not None else "the topics of the column 'topic'"


# All tasks of a micro-batch


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch when every task has reported. ``offsets``, and the ``group`` that is to have them, only where an
    option sets one; ``partitioner`` only where the user has chosen one. ``planned_ms``: when the driver had planned it,
    and so before any task of it began, by `Ports.elapsed_ms` of the process that commits; None if it is not known.
    ``two_phase``: its transactions never expire. ``kind``: of the extra that the decision is to have, if any."""

    run: str
    id: int
    reports: tuple[TaskReport, ...]
    offsets: Offsets | None = None
    partitioner: str | None = None
    group: str | None = None
    two_phase: bool = False
    kind: Kind | None = None
    planned_ms: int | None = None

    @property
    def rows(self) -> int:
        return sum(report.rows for report in self.reports)

    @property
    def dead_letters(self) -> int:
        """Rows that were written to the dead-letter topic, by this run of the micro-batch."""
        return sum(w.dead_letters for w in self.written)

    @property
    def read(self) -> int:
        """Rows that the tasks have read, where these are counted."""
        return sum(report.read for report in self.reports)

    @property
    def dropped(self) -> int:
        """Records that transforms rejected and that were left out, by this run of the micro-batch."""
        return sum(report.dropped for report in self.reports)

    @property
    def digest(self) -> int:
        return sum(report.digest for report in self.reports) % (1 << DIGEST_BITS)

    @property
    def digests(self) -> frozenset[Digest]:
        """The ways in which the tasks have digested their rows; one, unless executors have different versions."""
        return frozenset(report.digest_by for report in self.reports)

    @property
    def written(self) -> tuple[Written, ...]:
        return tuple(report.written for report in self.reports if report.written is not None)

    @property
    def pairs(self) -> frozenset[Pair]:
        return frozenset(w.pair for w in self.written)

    @property
    def topics(self) -> frozenset[str]:
        """The topics of all transactions."""
        return frozenset(topic for report in self.reports for topic in report.topics)

    @property
    def replayed(self) -> bool:
        """True where the micro-batch was decided before, so that tasks had to repair or to count."""
        return any(report.work is not Work.WRITE for report in self.reports)
