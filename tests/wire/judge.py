"""What must hold when all has come to rest: what our code was told is true, and it was told in time."""

from __future__ import annotations

from kafka.record.memory_records import MemoryRecords

from spark_eos.errors import EosError
from spark_eos.kafka.codes import OK
from spark_eos.protocol.ports import Found

from .cluster import Cluster
from .faults import Schedule, is_mild
from .partition import Partition
from .query import GROUP, TASKS, Progress, rows_of
from .scenarios import Attempt, Read, Scene
from .world import Violation, World

REST_S = 200.0
"""Longer than any transaction lives."""

#: Seconds that a call may take whatever happens: its own limit, one broker's silence (30 s) and look-ups in between.
LONGEST_S = {"init": 90.0, "write": 240.0, "abort": 60.0, "end": 60.0, "look": 120.0}


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
        _judge_time(attempt)
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
    for attempt in attempts:
        if attempt.error is not None or attempt.code != OK:
            raise Violation(f"{attempt.name} ended with code {attempt.code}, {attempt.error}, for no good reason")


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
    if attempt.found is Found.THERE and fate is not True:
        raise Violation(f"{attempt.name} was found, and is not committed")
    if attempt.found in (Found.MISSING, Found.GONE) and fate is True:
        raise Violation(f"{attempt.name} was found {attempt.found.value}, and is committed")


def _judge_time(attempt: Attempt) -> None:
    for call, seconds in attempt.seconds.items():
        if seconds > LONGEST_S[call]:
            raise Violation(f"{attempt.name}: {call} took {seconds:.0f} s")


def judge_query(cluster: Cluster, scene: Scene, progress: Progress) -> None:
    """All rows of all micro-batches, once, in the order of micro-batches and in that of each task; and the offsets."""
    for stop in progress.stops:
        if not stop.condition.startswith("EOS_"):
            raise Violation(f"stopped without a name: {stop!r}")
    if progress.done < progress.batches:
        raise Violation(f"wedged at micro-batch {progress.done}: {[str(stop) for stop in progress.stops[-3:]]}")
    for partition in range(scene.partitions):
        judge_rows(partition, values(cluster.partitions[scene.topic, partition]), progress.batches)
    if scene.with_group:
        given = cluster.transactions.offsets.get(GROUP, {}).get(("source", 0))
        if given != progress.batches:
            raise Violation(f"the group is at {given}, not {progress.batches}")


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
