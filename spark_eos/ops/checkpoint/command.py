"""What each action of ``spark-eos checkpoint`` answers, and its exit code: 0 when it is done; 1 when ``--yes`` is
missing; 2, by the caller, when the answer is not known, or the checkpoint cannot be taken over."""

from __future__ import annotations

from spark_eos.checkpoint import Checkpoint
from spark_eos.kafka.ports.owners import Cluster
from spark_eos.ops.answer import Answer
from spark_eos.ops.checkpoint import adopting, report
from spark_eos.ops.checkpoint.showing import show as shown_of


def show(checkpoint: Checkpoint, cluster: Cluster) -> Answer:
    """What checkpoint and ledger hold. Raises EosError."""
    shown = shown_of(checkpoint, cluster)
    return Answer(report.as_json(shown), report.as_text(shown))


def adopt(checkpoint: Checkpoint, cluster: Cluster, group: str | None, *, yes: bool) -> Answer:
    """Take over the checkpoint of another sink; without ``yes``, only say whether it is possible. Raises EosError."""
    adoption = adopting.adopt(checkpoint, cluster, group) if yes else adopting.plan(checkpoint, cluster)
    lines = [
        f"query {adoption.query}: micro-batch {adoption.batch} is the last one that is committed, and none is under way"
    ]
    if adoption.stateful:
        lines.append("  its state stays, as the checkpoint does")
    if yes:
        after = adoption.batch + 1
        lines.append(f"  taken over: start the query with this checkpoint; it goes on with micro-batch {after}")
    else:
        lines.append("  Nothing was done: add --yes. The old query must no longer run.")
    data = {
        "dry_run": not yes,
        "checkpoint": adoption.location,
        "query": adoption.query,
        "batch": adoption.batch,
        "offsets": adoption.offsets,
        "stateful": adoption.stateful,
    }
    return Answer(data, "\n".join(lines), 0 if yes else 1)
