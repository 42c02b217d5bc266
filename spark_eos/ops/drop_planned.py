"""Drops the micro-batch that is planned and not decided, so that the next start plans it anew.

Spark writes down where a micro-batch ends before it runs, and runs just that at each start. One that is too large for
its transactions would never be done. Whether it is decided, the ledger says; what is not decided is nowhere visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.checkpoint.stores import absolute
from spark_eos.errors import EosError, stop
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.answer import Answer
from spark_eos.ops.checkpoint.aside import Aside
from spark_eos.ops.checkpoint.logs import Logs, check_known, merged
from spark_eos.ops.heads import OwnHead, check_named, heads_of
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
from spark_eos.topic_partition import OffsetRange, TopicPartition

#: The folder of what is moved out of the logs.
DROPPED = "dropped"


@dataclass(frozen=True)
class Drop:
    """What is dropped, after all checks. ``judged``: the query's head by which that was found; ``entry``: the
    micro-batch in the offset log, None where that is not there any more. ``ranges`` are those of Kafka's sources, as
    far as the offset log tells; ``unfinished``: the mark for the ledger; ``left``: transactions of it that could not be
    aborted yet."""

    query: str
    batch: int
    unfinished: Unfinished
    judged: Head
    entry: str | None
    ranges: Sequence[OffsetRange] = ()
    left: Sequence[str] = ()

    @property
    def first(self) -> bool:
        """Whether nothing of the query is planned before it, so that its sources begin anew."""
        return self.batch == 0


def drop_planned(location: str, settings: HadoopSettings, cluster: Cluster, *, yes: bool) -> Answer:
    """Drop the micro-batch that is planned and not decided; without ``yes``, only say which. Raises EosError."""
    where = absolute(location)
    planned = plan(Checkpoint(where, settings), cluster, where)
    if yes:
        planned = drop(planned, cluster, settings)
    data = {
        "dry_run": not yes,
        "checkpoint": where,
        "query": planned.query,
        "batch": planned.batch,
        "partitions": [
            {"topic": r.topic, "partition": r.partition, "start": r.start, "end": r.end} for r in planned.ranges
        ],
        "left": list(planned.left),
    }
    return Answer(data, _as_text(planned, yes=yes))


def _as_text(planned: Drop, *, yes: bool) -> str:
    lines = [f"query {planned.query}: micro-batch {planned.batch} is planned, and not decided"]
    lines += [f"    {r.topic}-{r.partition}  offsets {r.start} to {r.end}" for r in planned.ranges]
    if planned.first:
        lines.append("  it is the first one: the next start takes 'startingOffsets' as they are then")
    if planned.left:
        lines.append(f"  {len(planned.left)} transaction(s) stay open for now: the next start aborts them")
    if yes:
        lines.append(f"  dropped: its file is in {planned.unfinished.checkpoint}/{DROPPED}; start the query")
    else:
        lines.append("  Nothing was done: add --yes. The query must not run meanwhile.")
    return "\n".join(lines)


def plan(checkpoint: Checkpoint, cluster: Cluster, location: str) -> Drop:
    """Check that there is something that may be dropped. ``location``: the checkpoint's, as the ledger is to name it.
    Changes nothing. Raises EosError."""
    query = checkpoint.query_id()
    heads = heads_of(cluster, query) if query is not None else []
    # The files are read after the head: what is the same run's when the ledger is taken has not gone on in between.
    logs = Logs(checkpoint)
    if query is None or not (logs.planned or heads):
        raise _nothing(location, "no micro-batch is planned")
    own = _head(heads, query)
    mark = own.head.marks.unfinished
    if mark is not None and mark.drops and mark.checkpoint == location:
        check_named(mark, query, location)
        _check_last(logs, mark.dropped)
        return Drop(query, mark.dropped, mark, own.head, None, _ranges(logs, mark.dropped))
    if not logs.planned:
        raise _nothing(location, "no micro-batch is planned")
    check_not_halted(own.head)
    batch = logs.planned[-1]
    if logs.done and logs.done[-1] >= batch:
        raise _nothing(location, f"micro-batch {batch}, the last planned one, is committed")
    check_known(logs)
    check_undecided(own.head, batch)
    _check_ours(logs, own)
    unfinished, entry = Unfinished(query, location, location, batch - 1, ()), checkpoint.read(f"offsets/{batch}")
    return Drop(query, batch, unfinished, own.head, entry, _ranges(logs, batch))


def drop(planned: Drop, cluster: Cluster, settings: HadoopSettings) -> Drop:
    """1. The head that no start gets past; what is open and not decided is aborted. 2. The files are moved aside.
    3. The head from which the query goes on.

    Before each of these steps, the command looks whether another one has gone on meanwhile: then it stops. Raises
    EosError.
    """
    unfinished, ports = planned.unfinished, cluster.ports(planned.query)
    checkpoint = Checkpoint(unfinished.checkpoint, settings)

    def check_files() -> None:
        logs = Logs(checkpoint)
        _check_last(logs, planned.batch)
        if planned.entry is not None and checkpoint.read(f"offsets/{planned.batch}") != planned.entry:
            raise overtaken(f"offsets/{planned.batch} of {unfinished.checkpoint} has changed")

    def still() -> None:
        check_still(ports, planned.query, halted)

    halted, left = halt(ports, unfinished, planned.judged, check_files)
    aside = Aside(unfinished.checkpoint, settings, DROPPED, halted.generation, still, "drop.moved")
    aside.move(["offsets"], unfinished.batch, planned.batch)
    resume(ports, unfinished, halted)
    return replace(planned, left=sorted(pair.id for pair in left))


def _check_last(logs: Logs, batch: int) -> None:
    """Raise CommandError where Spark has planned a later micro-batch, or noted this one as committed."""
    later = [n for n in logs.planned if n > batch] + [n for n in logs.done if n >= batch]
    if later:
        raise overtaken(f"the query in {logs.checkpoint.location} is now at micro-batch {max(later)}")


def _head(heads: Sequence[OwnHead], query: str) -> OwnHead:
    """The head of the stream's sink. Raises LedgerError, and ReplayError for writes within foreachBatch."""
    if not heads:
        known_head(None, query)
    if any(own.sink is not None for own in heads):
        raise _other_sink("the query writes within foreachBatch, and the function may have written a part elsewhere")
    return heads[0]


def _check_ours(logs: Logs, own: OwnHead) -> None:
    """Raise ReplayError unless all that is to be taken back is offsets, and the ledger knows of the micro-batch."""
    if logs.stateful:
        raise stop("EOS_DROP_REFUSED.stateful", location=logs.checkpoint.location)
    last = own.head.decision
    if logs.done and (last is None or last.batch < logs.done[-1]):
        known = "nothing" if last is None else f"micro-batch {last.batch} as the last decision"
        raise _other_sink(f"Spark has committed micro-batch {logs.done[-1]}, but the ledger has {known}")


def _other_sink(why: str) -> EosError:
    return stop("EOS_DROP_REFUSED.other_sink", why=why)


def _nothing(location: str, why: str) -> EosError:
    return stop("EOS_DROP_REFUSED.nothing", location=location, why=why)


def _ranges(logs: Logs, batch: int) -> list[OffsetRange]:
    """The ranges of the partitions that the micro-batch before has, too; others have no row in it."""
    if batch not in logs.planned or batch - 1 not in logs.planned:
        return []
    before, planned = (merged(logs.sources(n)) for n in (batch - 1, batch))
    starts: dict[TopicPartition, int] = {(t, int(p)): at for t, parts in before.items() for p, at in parts.items()}
    found = [
        OffsetRange(topic, int(p), starts[topic, int(p)], end)
        for topic, parts in planned.items()
        for p, end in parts.items()
        if starts.get((topic, int(p)), end) < end
    ]
    return sorted(found)
