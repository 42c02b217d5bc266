"""What ``spark-eos replay`` answers, and its exit code: 0 when it is done, or, without ``--yes``, can be; 2, by the
caller, when the query cannot be replayed, or not in this way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import absolute
from spark_eos.errors import stop
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.answer import Answer
from spark_eos.ops.replay.doing import Replay
from spark_eos.ops.replay.planning import ReplayPlan, Wish, begun, plan
from spark_eos.ops.replay.ranges import ReplayRange
from spark_eos.ops.replay.target import Target


@dataclass(frozen=True)
class ReplayOptions:
    """The command's options, as its help has them."""

    checkpoint: str
    to_batch: int | None
    to_timestamp: str | None
    to_offsets: str | None
    new: str | None
    again: bool
    topic: str | None
    in_place: bool
    finish: bool
    yes: bool


def replay(asked: ReplayOptions, cluster: Cluster, settings: HadoopSettings) -> Answer:
    """Say what would be read again; with ``yes``, do it. Raises EosError."""
    checkpoint = Checkpoint(absolute(asked.checkpoint), settings)
    to = None if asked.new is None else absolute(asked.new)
    if (to is None) != asked.in_place:
        raise stop("EOS_REPLAY_REFUSED.where_to_continue")
    if asked.finish:
        planned = begun(checkpoint, cluster, to)
    else:
        timestamp = None if asked.to_timestamp is None else milliseconds(asked.to_timestamp)
        wish = Wish(asked.to_batch, timestamp, asked.to_offsets, asked.again, asked.topic, to)
        planned = plan(checkpoint, cluster, wish)
        if to is not None:
            Target(to, settings).check_free()
    doing = Replay(cluster, planned, settings)
    if asked.yes:
        doing.in_place() if to is None else doing.to_a_new_checkpoint()
    return Answer(as_json(planned, done=asked.yes), as_text(planned, done=asked.yes))


def milliseconds(text: str) -> int:
    """Milliseconds since 1970, from such a number or a time as in ISO 8601. Raises ReplayError."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise stop("EOS_REPLAY_REFUSED.timestamp", text=text)
    return int(at.timestamp() * 1000)


def as_json(planned: ReplayPlan, *, done: bool) -> dict[str, Any]:
    """``done``: whether it was carried out, or only planned."""
    unfinished = planned.unfinished
    return {
        "dry_run": not done,
        "query": unfinished.of,
        "checkpoint": unfinished.checkpoint,
        "new_query": planned.query,
        "new_checkpoint": unfinished.to,
        "retires": unfinished.topic is None and not unfinished.in_place,
        "topic": unfinished.topic,
        "group": unfinished.group,
        "sinks": [own.sink for own in planned.heads if own.sink],
        "at_most_rows": sum(each.offsets.size for each in planned.ranges),
        "partitions": [_range_as_json(each) for each in planned.ranges],
    }


def as_text(planned: ReplayPlan, *, done: bool) -> str:
    unfinished = planned.unfinished
    lines = [f"query {unfinished.of} at {unfinished.checkpoint}"]
    if planned.ranges:
        again = [each for each in planned.ranges if each.offsets.size > 0]
        rows = sum(each.offsets.size for each in again)
        lines.append(f"  read again: at most {rows:,} rows of {len(again)} of {len(planned.ranges)} partition(s)")
        lines += [f"    {_range(each)}" for each in again]
    if unfinished.in_place:
        lines.append(f"  in place: goes back to the end of micro-batch {unfinished.batch}, and writes those rows again")
        lines.append("  what is moved out of the checkpoint is kept in its folder 'replayed'")
    elif unfinished.topic is not None:
        lines.append(f"  the new query may write to {unfinished.topic} only; the old one stays as it is")
    else:
        lines.append("  the rows are written to the same topics a second time; the old query is retired for good")
    if unfinished.group is not None:
        lines.append(f"  the group {unfinished.group} is given the offsets at which it begins")
    if not unfinished.in_place:
        lines.append(f"  new checkpoint: {unfinished.to} (query {planned.query})")
    lines.append(_next(planned) if done else "  Nothing was done: add --yes.")
    return "\n".join(lines)


def _next(planned: ReplayPlan) -> str:
    if planned.unfinished.in_place:
        return "  Done: start the query with its checkpoint."
    return "  Done: start the query with the new checkpoint; 'startingOffsets' has no effect on it."


def _range_as_json(replayed: ReplayRange) -> dict[str, Any]:
    r = replayed.offsets
    place = {"topic": r.topic, "partition": r.partition, "start": r.start, "end": r.end}
    return place | {"first_ms": replayed.first_ms, "last_ms": replayed.last_ms}


def _range(replayed: ReplayRange) -> str:
    r, first_ms, last_ms = replayed.offsets, replayed.first_ms, replayed.last_ms
    when = "" if first_ms is None or last_ms is None else f"  {_time(first_ms)} to {_time(last_ms)}"
    return f"{r.topic}-{r.partition}  offsets {r.start} to {r.end}{when}"


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
