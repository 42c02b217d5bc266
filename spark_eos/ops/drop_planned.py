"""Drops the micro-batch that is planned and not decided, so that the next start plans it anew.

Spark writes the end of a micro-batch to the offset log before it runs it, and runs it again with the same end at every
start, so that one which is too large for its transactions never finishes. The ledger has its decision; without one,
none of its rows is visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_eos.base.printable import in_lines
from spark_eos.base.topic_partition import OffsetRange, flat
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import lowest_offsets
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import absolute
from spark_eos.errors import EosError, stop
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.answer import Answer, range_as_json, range_as_text
from spark_eos.ops.checkpoint_files import DROPPED, DroppedFiles
from spark_eos.ops.checkpoint_logs import Logs, check_known
from spark_eos.ops.heads import SinkHead, check_named, heads_of
from spark_eos.ops.table_state import table_in
from spark_eos.protocol.commands import (
    check_not_halted,
    check_still,
    check_undecided,
    halt,
    known_head,
    overtaken,
    resume,
)
from spark_eos.protocol.head import Head, Unfinished


@dataclass(frozen=True)
class Drop:
    """A micro-batch that may be dropped, after all checks. ``mark``: the one for the ledger; ``judged``: the
    query's head by which it may be dropped; ``entry``: the text of its file in the offset log, None where an earlier
    command has moved the file. ``ranges``: the offsets that it was to read, as far as the offset log has them;
    ``left``: its transactions that could not be aborted yet."""

    mark: Unfinished
    judged: Head
    entry: str | None
    ranges: Sequence[OffsetRange] = ()
    left: Sequence[str] = ()


def drop_planned(location: str, settings: HadoopSettings, cluster: Cluster, *, yes: bool) -> Answer:
    """Drop the micro-batch that is planned and not decided; without ``yes``, only print which. Exit code: 1 if a
    transaction of it is still open. Raises EosError."""
    planned = plan(Checkpoint(absolute(location), settings), cluster)
    if yes:
        planned = drop(planned, cluster, settings)
    data = {
        "dry_run": not yes,
        "checkpoint": planned.mark.checkpoint,
        "query": planned.mark.of,
        "batch": planned.mark.dropped,
        "partitions": [range_as_json(r) for r in planned.ranges],
        "left": list(planned.left),
    }
    return Answer(data, _as_text(planned, yes=yes), 1 if planned.left else 0)


def _as_text(planned: Drop, *, yes: bool) -> str:
    lines = [f"query {planned.mark.of}: micro-batch {planned.mark.dropped} is planned, and not decided"]
    lines += [f"    {range_as_text(r)}" for r in planned.ranges]
    if planned.mark.dropped == 0:
        lines.append("  it is the first one: the next start reads from 'startingOffsets' as they are then")
    if planned.left:
        lines.append(f"  {len(planned.left)} transaction(s) could not be aborted yet: the next start aborts them")
    if yes:
        lines.append(f"  dropped: its file is now in {planned.mark.checkpoint}/{DROPPED}; start the query")
    else:
        lines.append("  Nothing was done: add --yes. Make sure that the query does not run meanwhile.")
    return in_lines(lines)


def plan(checkpoint: Checkpoint, cluster: Cluster) -> Drop:
    """Check that a micro-batch is planned and may be dropped. Changes nothing. Raises EosError."""
    query, location = checkpoint.query_id(), checkpoint.location
    if table_in(Logs(checkpoint)):
        raise _nothing(location, "the query writes to a table, which takes micro-batches of any size")
    heads = heads_of(cluster, query) if query is not None else []
    # The files are read after the head: if the same run still has the ledger when it is taken, they are not older.
    logs = Logs(checkpoint)
    if query is None or not (logs.planned or heads):
        raise _nothing(location, "no micro-batch is planned")
    head = _stream_head(heads, query)
    mark = head.marks.unfinished
    if mark is not None and mark.drops and mark.checkpoint == location:
        check_named(mark, query, location, location)
        _check_last(logs, mark.dropped)
        return Drop(mark, head, None, _ranges(logs, mark.dropped))
    if not logs.planned:
        raise _nothing(location, "no micro-batch is planned")
    check_not_halted(head)
    batch = logs.planned[-1]
    if logs.done and logs.done[-1] >= batch:
        raise _nothing(location, f"micro-batch {batch}, the last planned one, is committed")
    check_known(logs)
    check_undecided(head, batch)
    _check_only_this_sink(logs, head)
    mark, entry = Unfinished(query, location, location, batch - 1, ()), checkpoint.read(f"offsets/{batch}")
    return Drop(mark, head, entry, _ranges(logs, batch))


def drop(planned: Drop, cluster: Cluster, settings: HadoopSettings) -> Drop:
    """1. Publish a head that no start gets past, and abort open transactions that are not decided. 2. Move the files
    out of the log. 3. Publish the head from which the query continues.

    Before each step, the command stops if another one has taken over. Raises EosError.
    """
    mark, ports = planned.mark, cluster.ports(planned.mark.of)
    checkpoint, name = Checkpoint(mark.checkpoint, settings), f"offsets/{mark.dropped}"

    def check_files() -> None:
        _check_last(Logs(checkpoint), mark.dropped)
        if planned.entry is not None and checkpoint.read(name) != planned.entry:
            raise overtaken(f"{name} of {mark.checkpoint} has changed")

    def still() -> None:
        check_still(ports, mark.of, halted)

    halted, left = halt(ports, mark, planned.judged, check_files)
    DroppedFiles(mark.checkpoint, settings, halted.generation, still).move(mark.dropped)
    resume(ports, mark, halted)
    return replace(planned, left=sorted(pair.id for pair in left))


def _check_last(logs: Logs, batch: int) -> None:
    """Raise CommandError if Spark has planned a later micro-batch, or committed this one."""
    later = [n for n in logs.planned if n > batch] + [n for n in logs.done if n >= batch]
    if later:
        raise overtaken(f"the query in {logs.checkpoint.location} is now at micro-batch {max(later)}")


def _stream_head(heads: Sequence[SinkHead], query: str) -> Head:
    """Return the head of the stream's sink. Raises LedgerError, and ReplayError for writes within foreachBatch."""
    if any(sink.name is not None for sink in heads):
        raise _other_sink("the query writes within foreachBatch, and the function may have written a part elsewhere")
    return known_head(heads[0].head if heads else None, query)


def _check_only_this_sink(logs: Logs, head: Head) -> None:
    """Raise ReplayError where Spark keeps state for the query, or has committed micro-batches that this ledger does not
    have: another sink may have written the planned one."""
    if logs.stateful:
        raise stop(
            "EOS_DROP_REFUSED.stateful",
            why=f"the query in {logs.checkpoint.location} keeps state, which may already include its rows",
        )
    last = head.decision
    if logs.done and (last is None or last.batch < logs.done[-1]):
        known = "nothing" if last is None else f"micro-batch {last.batch} as the last decision"
        raise _other_sink(f"Spark has committed micro-batch {logs.done[-1]}, but the ledger has {known}")


def _other_sink(why: str) -> EosError:
    return stop("EOS_DROP_REFUSED.stateful", why=f"it is not known whether it was written: {why}")


def _nothing(location: str, why: str) -> EosError:
    return stop("EOS_DROP_REFUSED.nothing", location=location, why=why)


def _ranges(logs: Logs, batch: int) -> list[OffsetRange]:
    """Return the offsets that the micro-batch was to read, of the partitions that the one before it has; it has no rows
    of others."""
    if batch not in logs.planned or batch - 1 not in logs.planned:
        return []
    before, planned = (lowest_offsets(logs.source_lines(n)) for n in (batch - 1, batch))
    starts = flat(before)
    read = [OffsetRange(*p, starts[p], end) for p, end in flat(planned).items() if p in starts]
    return sorted(r for r in read if r.size > 0)
