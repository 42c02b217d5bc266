"""What a checkpoint and its heads hold, and what a start of the query would do. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spark_eos.checkpoint import Checkpoint
from spark_eos.kafka.admin.topics import begin_offsets, describe_topics, end_offsets
from spark_eos.ledger.owners import Cluster, Transaction, find
from spark_eos.ops.checkpoint.heads import OwnHead, heads_of
from spark_eos.ops.checkpoint.logs import Logs, QuerySource, merged
from spark_eos.protocol.checks import finishing, goes_on, is_visible
from spark_eos.protocol.head import Decision, Offsets
from spark_eos.topic_partition import PartitionOffsets


@dataclass(frozen=True)
class InputPartition:
    """A partition of the input: where the newest planned micro-batch and the newest committed one end, and the log's
    first offset and end; None where that is not known."""

    topic: str
    partition: int
    planned: int
    committed: int | None
    begin: int | None
    end: int | None


@dataclass(frozen=True)
class Shown:
    """Everything. ``query`` is None before the first start; ``kinds`` are those of the sources; ``recreated`` the
    topics that have another id than the offset log says; ``left`` where the query has left topics that it no longer
    reads, and goes on if it reads them again."""

    location: str
    query: str | None
    planned: Sequence[int]
    done: Sequence[int]
    stateful: bool
    kinds: Sequence[str]
    places: Sequence[InputPartition]
    recreated: Sequence[str]
    heads: Sequence[OwnHead]
    open: Sequence[Transaction]
    left: Offsets = field(default_factory=dict)

    @property
    def next(self) -> str:
        """What a start of the query would do, in a sentence."""
        return next_step(self)


def show(checkpoint: Checkpoint, cluster: Cluster) -> Shown:
    """Raises EosError."""
    logs, query = Logs(checkpoint), checkpoint.query_id()
    sources = logs.sources(logs.planned[-1]) if logs.planned else []
    before = merged(logs.sources(logs.done[-1])) if logs.done and logs.done[-1] in logs.planned else {}
    there = describe_topics(cluster.kafka, merged(sources), missing_ok=True)
    heads = heads_of(cluster, query) if query is not None else []
    return Shown(
        checkpoint.location,
        query,
        logs.planned,
        logs.done,
        logs.stateful,
        [source.kind for source in sources],
        _places(cluster, sources, before, {name: topic.partitions for name, topic in there.items()}),
        sorted(t for s in sources for t, known in s.ids.items() if t not in there or there[t].id != known),
        heads,
        find(cluster, [own.key for own in heads]) if heads else [],
        {topic: at for source in sources for topic, at in source.left.items()},
    )


def _places(
    cluster: Cluster, sources: Sequence[QuerySource], before: dict[str, dict[str, int]], there: dict[str, int]
) -> list[InputPartition]:
    planned = merged(sources)
    asked = {t: [int(p) for p in parts if int(p) < there[t]] for t, parts in planned.items() if t in there}
    asked = {topic: parts for topic, parts in asked.items() if parts}
    begin: PartitionOffsets = begin_offsets(cluster.kafka, asked) if asked else {}
    end: PartitionOffsets = end_offsets(cluster.kafka, asked) if asked else {}
    return [
        InputPartition(
            topic,
            int(p),
            at,
            before.get(topic, {}).get(p),
            begin.get(topic, {}).get(int(p)),
            end.get(topic, {}).get(int(p)),
        )
        for topic, parts in sorted(planned.items())
        for p, at in sorted(parts.items(), key=lambda item: int(item[0]))
    ]


def next_step(shown: Shown) -> str:
    """What a start of the query would do."""
    for own in shown.heads:
        successor, unfinished = own.head.marks.successor, own.head.marks.unfinished
        if successor is not None:
            return f"stops (EOS_QUERY_RETIRED): {goes_on(successor)}"
        if unfinished is not None and unfinished.drops:
            return f"stops (EOS_DROP_UNFINISHED); to finish the drop: {finishing(unfinished)}"
        if unfinished is not None:
            return f"stops (EOS_REPLAY_UNFINISHED); to finish the replay: {finishing(unfinished)}"
    if shown.query is None or not shown.planned:
        return "begins a new query, with micro-batch 0"
    planned, done = shown.planned[-1], shown.done[-1] if shown.done else -1
    again = planned > done
    doing = f"runs micro-batch {planned} again" if again else f"plans micro-batch {planned + 1}"
    if any(own.sink is not None for own in shown.heads):
        return f"{doing}; each sink within foreachBatch compares what it has decided"
    head = shown.heads[0].head if shown.heads else None
    if head is None:
        return _without_a_head(shown.done, planned, again, doing)
    return _with(head.decision, planned if again else planned + 1, doing)


def _without_a_head(done: Sequence[int], planned: int, again: bool, doing: str) -> str:
    if not done and planned == 0:
        return f"{doing}: nothing of the query is decided"
    if again:
        return f"stops (EOS_LEDGER_HEAD_MISSING): another sink has left micro-batch {planned} under way"
    return (
        "stops (EOS_LEDGER_HEAD_MISSING): the ledger knows nothing of the query; if another sink has written until "
        "now, 'spark-eos checkpoint adopt' takes the checkpoint over"
    )


def _with(last: Decision | None, batch: int, doing: str) -> str:
    """``batch``: the one that the start would run."""
    if last is None or last.batch < batch:
        if last is not None and last.lost:
            return f"stops (EOS_CHECKPOINT_AHEAD): micro-batch {last.batch} lost rows that were never written again"
        return doing if last is None or is_visible(last) else f"commits micro-batch {last.batch}, then {doing}"
    if last.batch > batch:
        return f"stops (EOS_CHECKPOINT_BEHIND): micro-batch {last.batch} is decided"
    if last.lost:
        return f"{doing}, and writes the rows again that it lost"
    return f"{doing}: it is decided, so that it is only committed, compared, and not written again"
