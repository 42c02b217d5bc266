"""What must hold when all has come to rest: what our code was told is true, and it was told in time."""

from __future__ import annotations

from kafka.record.memory_records import MemoryRecords

from spark_eos.errors import EosError
from spark_eos.kafka.codes import OK, Code
from spark_eos.protocol.ports import Visibility

from .cluster import Cluster
from .faults import Kind, Schedule, is_mild
from .partition import Partition
from .query import GROUP, TASKS, Progress, rows_of
from .scenarios import Attempt, Read, Scene
from .two_phase import FENCING_LEVEL, REFUSAL
from .world import Violation, World

#: Longer than any transaction lives.
REST_S = 200.0

#: Codes of faults that a refusal may come from.
_REFUSING = {Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Code.UNSUPPORTED_VERSION}

#: Seconds that a call may take whatever happens: its own limit, one broker's silence (30 s) and look-ups in between.
LONGEST_S = {"init": 90.0, "write": 240.0, "more": 240.0, "abort": 60.0, "end": 60.0, "look": 120.0}
#: Bytes that it may wait for besides, on each line that lets them trickle: what is copied has to arrive first.
_TRICKLING = {"write": 15_000}


def come_to_rest(world: World, cluster: Cluster) -> None:
    """No faults any more; what is open runs into its timeout."""
    cluster.rest()
    world.limit_s = world.now + 100 * REST_S
    world.sleep(REST_S)


def values(partition: Partition) -> list[bytes]:
    """The rows that a read_committed reader sees, by kafka-python's decoder."""
    found = []
    for batch in partition.visible():
        for records in MemoryRecords(batch.data):
            found += [record.value for record in records]
    return found


def judge_writes(cluster: Cluster, scene: Scene, attempts: list[Attempt]) -> None:
    """Rows are there once, in order and whole, just when the coordinator has committed; nobody was told otherwise."""
    for attempt in attempts:
        _judge_told(cluster, attempt)
        _judge_time(cluster.schedule, attempt)
        if attempt.two_phase:
            _judge_two_phase(cluster, attempt)
    committed = [attempt for attempt in attempts if _fate(cluster, attempt)]
    for partition in range(scene.partitions):
        log = cluster.partitions[scene.topic, partition]
        if log.stable != log.end:
            raise Violation(f"partition {partition} is held: {log.open}")
        expected = [row for attempt in committed for row in attempt.rows.get(partition, [])]
        if values(log) != expected:
            raise Violation(f"partition {partition} has {values(log)}, not {expected}")


def judge_mild(schedule: Schedule, attempts: list[Attempt]) -> None:
    """What passes by itself is nobody's error."""
    if not is_mild(schedule):
        return
    plan = schedule.two_phase
    for attempt in attempts:
        if attempt.two_phase and plan is not None and plan.hindered and attempt.pair is None:
            continue
        if attempt.error is not None or attempt.code != OK:
            raise Violation(f"{attempt.name} ended with code {attempt.code}, {attempt.error}, for no good reason")


def _judge_two_phase(cluster: Cluster, attempt: Attempt) -> None:
    """It begins nothing where it is not to be had; and nothing that it has begun expires."""
    plan, pair = cluster.schedule.two_phase, attempt.pair
    if plan is not None and plan.is_withheld(cluster.nodes) and pair is not None:
        raise Violation(f"{attempt.name} was begun where two-phase commit is not to be had")
    if pair is not None and (pair.id, pair.epoch) in cluster.transactions.timed_out:
        raise Violation(f"{attempt.name} has expired, in spite of two-phase commit")
    refused = isinstance(attempt.error, EosError) and attempt.error.condition == REFUSAL
    if refused and not is_hindered(cluster.schedule):
        raise Violation(f"{attempt.name} was refused for no good reason: {attempt.error}")


def is_hindered(schedule: Schedule) -> bool:
    """Whether two-phase commit may be refused."""
    struck = any(fault.kind is Kind.CODE and fault.amount in _REFUSING for fault in schedule.faults)
    return struck or schedule.level < FENCING_LEVEL or bool(schedule.two_phase and schedule.two_phase.hindered)


def _fate(cluster: Cluster, attempt: Attempt) -> bool | None:
    """Whether it was committed; None where it never began."""
    entry = cluster.transactions.entries.get(attempt.name)
    if attempt.pair is None or entry is None:
        return None
    return entry.fates.get(attempt.pair.epoch)


def _judge_told(cluster: Cluster, attempt: Attempt) -> None:
    fate = _fate(cluster, attempt)
    if attempt.error is not None:
        if not isinstance(attempt.error, EosError) or not attempt.error.condition.startswith("EOS_"):
            raise Violation(f"{attempt.name} ended with an error without a name: {attempt.error!r}")
        if fate and not attempt.asked:
            raise Violation(f"{attempt.name} failed, and is committed: {attempt.error}")
    elif not attempt.asked:
        raise Violation(f"{attempt.name} ended in silence")
    if attempt.code == OK and fate is not True:
        raise Violation(f"{attempt.name} was told that it is committed, and is not")
    if attempt.found is Visibility.VISIBLE and fate is not True:
        raise Violation(f"{attempt.name} was found, and is not committed")
    if attempt.found in (Visibility.ABORTED, Visibility.EXPIRED) and fate is True:
        raise Violation(f"{attempt.name} was found {attempt.found.value}, and is committed")


def _judge_time(schedule: Schedule, attempt: Attempt) -> None:
    trickle_s = sum(line.pause_s / line.piece for _, line in schedule.lines if line.piece)
    for call, seconds in attempt.seconds.items():
        if seconds > LONGEST_S[call] + _TRICKLING.get(call, 0) * trickle_s:
            raise Violation(f"{attempt.name}: {call} took {seconds:.0f} s")


def judge_query(cluster: Cluster, scene: Scene, progress: Progress) -> None:
    """All rows of all micro-batches, once, in the order of micro-batches and in that of each task; and the offsets."""
    _judge_stops(cluster, progress)
    if progress.done < progress.batches:
        raise Violation(f"wedged at micro-batch {progress.done}: {[str(stop) for stop in progress.stops[-3:]]}")
    for partition in range(scene.partitions):
        log = cluster.partitions[scene.topic, partition]
        if log.stable != log.end:
            raise Violation(f"partition {partition} is held: {log.open}")
        judge_rows(partition, values(cluster.partitions[scene.topic, partition]), progress.batches)
    if scene.with_group:
        given = cluster.transactions.offsets.get(GROUP, {}).get(("source", 0))
        if given != progress.batches:
            raise Violation(f"the group is at {given}, not {progress.batches}")


def _judge_stops(cluster: Cluster, progress: Progress) -> None:
    """A transaction that never expires may be lost to the task's own InitProducerId, which a broker works on after its
    repetition: no client can prevent that."""
    schedule = cluster.schedule
    for stop in progress.stops:
        if not stop.condition.startswith("EOS_"):
            raise Violation(f"stopped without a name: {stop!r}")
        if stop.condition == REFUSAL and schedule.two_phase is not None and not is_hindered(schedule):
            raise Violation(f"two-phase commit was refused for no good reason: {stop}")
        if stop.condition == "EOS_TWO_PHASE_EXPIRES":
            raise Violation(f"transactions were begun that expire: {stop}")
        if stop.condition == "EOS_TRANSACTION_LOST" and progress.never_expires:
            lost = set(stop.parameters["lost_ids"].split(", "))
            if not lost <= cluster.transactions.fenced_late:
                raise Violation(f"what never expires was lost: {stop}")


def judge_rows(partition: int, found: list[bytes], batches: int) -> None:
    """A partition of the query's output: each row once, micro-batch after micro-batch, each task's in its order."""
    at = 0
    for batch in range(batches):
        tasks = [[row for p, row in rows_of(batch, task) if p == partition] for task in range(TASKS)]
        there = found[at : at + sum(map(len, tasks))]
        at += len(there)
        if [[row for row in there if row in task] for task in tasks] != tasks:
            raise Violation(f"partition {partition} has {there} of micro-batch {batch}, not {tasks}")
    if at != len(found):
        raise Violation(f"partition {partition} has too many rows: {found[at:]}")


def judge_read(cluster: Cluster, scene: Scene, partition: int, read: Read) -> None:
    """What was read is what is visible; all of it, as nothing hinders it any more."""
    expected = values(cluster.partitions[scene.topic, partition])
    if read.rows != expected or not read.whole:
        raise Violation(f"partition {partition} was read as {read.rows}, not {expected}")
