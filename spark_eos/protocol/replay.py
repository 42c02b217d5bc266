"""A replay beside the decision: the errors where it is not what was decided, or cannot repair it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from spark_eos.errors import Diverged, ProtocolStop
from spark_eos.protocol.direct import differences as differences_of_ranges
from spark_eos.protocol.direct import diverged
from spark_eos.protocol.head import Decision, Digest
from spark_eos.protocol.micro_batch import MicroBatch
from spark_eos.protocol.new_checkpoint import as_json, instead_of_replay, is_untold, is_visible
from spark_eos.protocol.repair import differences

_MOST_LISTED = 20


def check_versions(batch: MicroBatch, digests: Collection[Digest]) -> None:
    """Sums of digests of different kinds say nothing."""
    if batch.reports and len(digests) > 1:
        raise ProtocolStop(
            "EOS_MIXED_VERSIONS",
            f"The rows of micro-batch {batch.id} were digested in different ways "
            f"({', '.join(sorted(digest.value for digest in digests))}): its tasks ran with different versions of "
            "spark-eos.",
            hint="Nothing was decided: install the same version for the driver and all executors, and start the query "
            "again.",
        )


_WHY_DIVERGED = (
    "The query's plan is not deterministic (random values, the time of day, changed code), option 'topic' was changed, "
    "its source cannot be replayed, or the checkpoint was copied and the other one went on. Put the old code, or the "
    "old 'topic', back for this batch, or use the checkpoint that went on."
)


def compare(batch: MicroBatch, last: Decision) -> None:
    """A replay must be what was decided: what is visible already came from it. Of the direct way, it reads nothing that
    is visible already, so that its ranges are compared."""
    other_ranges = differences_of_ranges(last, batch.direct)
    if other_ranges:
        raise diverged(last, other_ranges)
    compared = [("rows", last.rows, batch.rows), ("digest of the rows", last.digest, batch.digest)]
    if last.direct is not None:
        compared = []
    unlike = [f"{what}: decided {was}, now {now}" for what, was, now in compared if was != now]
    if last.offsets is not None and batch.offsets is not None and last.offsets != batch.offsets:
        unlike.append(f"offsets: decided {as_json(last.offsets)}, now {as_json(batch.offsets)}")
    if unlike:
        raise _diverged(batch, last, "; ".join(unlike))


def _diverged(batch: MicroBatch, last: Decision, differences: str) -> Diverged:
    seen = " and made visible" if is_visible(last) and not is_untold(last) else ""
    return Diverged(
        "EOS_REPLAY_DIVERGED",
        f"The replay of micro-batch {batch.id} is not what was decided{seen}: {differences}.",
        hint=f"{_WHY_DIVERGED} {instead_of_replay(last)}",
        batch=batch.id,
    )


def listed(tasks: Sequence[int]) -> str:
    more = len(tasks) - _MOST_LISTED
    return ", ".join(map(str, tasks[:_MOST_LISTED])) + (f" and {more} more" if more > 0 else "")


def needs_same_tasks(batch: MicroBatch, last: Decision) -> Diverged:
    return Diverged(
        "EOS_REPAIR_NEEDS_SAME_TASKS",
        f"Micro-batch {batch.id} lost {len(last.lost)} of {len(last.written)} transactions, and in this replay their "
        f"rows are in tasks together with rows that are visible: {differences(last, batch.reports)}.",
        hint=f"Restore whatever distributes rows to tasks, so that there are {last.tasks} with the same rows as before "
        "(source partitions, minPartitions, maxRecordsPerPartition, repartition, spark.sql.shuffle.partitions, "
        "adaptive execution), and start the query again, from this checkpoint: the offsets of 'offsets.group.id' are "
        "past the lost rows.",
        tasks=last.tasks,
    )
