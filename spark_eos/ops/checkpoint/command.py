"""What each action of ``spark-eos checkpoint`` answers, and its exit code: 0 when it is done, or can be with ``--yes``;
2, by the caller, when the answer is not known, or the checkpoint cannot be taken over."""

from __future__ import annotations

from spark_eos.checkpoint import Checkpoint
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.answer import Answer
from spark_eos.ops.checkpoint import adopting, dropping, report
from spark_eos.ops.checkpoint.showing import show as shown_of
from spark_eos.storage.settings import HadoopSettings
from spark_eos.storage.stores import absolute


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
    return Answer(data, "\n".join(lines))


def drop(location: str, settings: HadoopSettings, cluster: Cluster, *, yes: bool) -> Answer:
    """Drop the micro-batch that is planned and not decided; without ``yes``, only say which. Raises EosError."""
    where = absolute(location)
    planned = dropping.plan(Checkpoint(where, settings), cluster, where)
    if yes:
        planned = dropping.drop(planned, cluster, settings)
    data = {
        "dry_run": not yes,
        "checkpoint": where,
        "query": planned.query,
        "batch": planned.batch,
        "partitions": [vars(r) for r in planned.ranges],
        "left": list(planned.left),
    }
    return Answer(data, _dropped_as_text(planned, yes=yes))


def _dropped_as_text(planned: dropping.Drop, *, yes: bool) -> str:
    lines = [f"query {planned.query}: micro-batch {planned.batch} is planned, and not decided"]
    lines += [f"    {r.topic}-{r.partition}  offsets {r.start} to {r.end}" for r in planned.ranges]
    if planned.first:
        lines.append("  it is the first one: the next start takes 'startingOffsets' as they are then")
    if planned.left:
        lines.append(f"  {len(planned.left)} transaction(s) stay open for now: the next start aborts them")
    if yes:
        lines.append(f"  dropped: its file is in {planned.unfinished.checkpoint}/{dropping.DROPPED}; start the query")
    else:
        lines.append("  Nothing was done: add --yes. The query must not run meanwhile.")
    return "\n".join(lines)
