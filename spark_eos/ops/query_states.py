"""Reads the state of queries from the ledger, the coordinators and their checkpoints. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from spark_eos.base import system
from spark_eos.base.topic_partition import PartitionOffsets, by_topic
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import lowest_offsets
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import begin_offsets, cluster_id, describe_topics, end_offsets
from spark_eos.ledger.owners import Cluster, Transaction, TransactionPart, check_listed, find, parts
from spark_eos.ops.checkpoint_logs import Logs
from spark_eos.ops.heads import SinkHead, newest_heads
from spark_eos.ops.state import CheckpointState, Liveness, QueryState, ReadPartition
from spark_eos.ops.table_state import table_in, table_state
from spark_eos.protocol.commands import known_head
from spark_eos.protocol.head import NOBODY


def query_states(
    cluster: Cluster, checkpoint: Checkpoint | None, queries: Collection[str], *, watch_s: float, quiet_s: float
) -> list[QueryState]:
    """Return the query of a checkpoint; or queries by their ids, or by the keys of their sinks in the ledger; or all
    queries that have a head in the ledger or an open transaction, the query with the newest head first.

    Signs of a run are changes within ``watch_s`` seconds. Raises EosError where a query is unknown or nothing is at the
    checkpoint, and where this user may not describe transactions.
    """
    if checkpoint is not None:
        return [_at(checkpoint, cluster, watch_s, quiet_s)]
    before = _snapshot(cluster, queries, None, ends=watch_s > 0)
    after = _later_snapshot(cluster, queries, None, watch_s)
    keys = {sink.key for sink in before.heads}
    named = [*(sink.query for sink in before.heads), *(t.query for t in before.open if t.query not in keys)]
    states = [_state(query, before, after, quiet_s) for query in dict.fromkeys(named)]
    for query in queries:
        if not any(query in (state.query, *(sink.key for sink in state.sinks)) for state in states):
            known_head(None, query)
    return states


def _at(checkpoint: Checkpoint, cluster: Cluster, watch_s: float, quiet_s: float) -> QueryState:
    query, logs = checkpoint.query_id(), Logs(checkpoint)
    if query is None and not checkpoint.names():  # a wrong path, or a store that is not mounted
        raise stop("EOS_QUERY_UNKNOWN.checkpoint", location=checkpoint.location)
    if query is None:
        liveness = Liveness(closed=True, quiet_s=quiet_s)
        return QueryState(None, checkpoint=checkpoint_state(logs, cluster), liveness=liveness)
    if sink := table_in(logs):
        liveness = _by_files(checkpoint, watch_s, quiet_s)
        at = checkpoint_state(logs, cluster)
        return QueryState(query, liveness=liveness, checkpoint=at, table=table_state(query, sink, logs))
    # Read the head first: with a head newer than its files, the checkpoint would seem to be behind.
    before = _snapshot(cluster, [query], checkpoint, ends=watch_s > 0)
    at = checkpoint_state(logs, cluster)
    after = _later_snapshot(cluster, [query], checkpoint, watch_s)
    return replace(_state(query, before, after, quiet_s), checkpoint=at)


@dataclass(frozen=True)
class _Snapshot:
    """Everything that a run changes, at one moment. ``ends``: of the partitions that open transactions write to."""

    heads: Sequence[SinkHead]
    open: Sequence[Transaction]
    problem: EosError | None
    ends: frozenset[tuple[str, int, int]] = frozenset()
    files: frozenset[str] = frozenset()


def _snapshot(cluster: Cluster, queries: Collection[str], checkpoint: Checkpoint | None, *, ends: bool) -> _Snapshot:
    heads: list[SinkHead] = []
    problem = None
    try:
        heads = [sink for sink in newest_heads(cluster) if _is_wanted(cluster, sink, queries)]
    except EosError as error:
        # The first start with this sink creates the ledger topic.
        problem = None if checkpoint is not None and error.condition == "EOS_TOPIC_MISSING" else error
    keys = [sink.key for sink in heads]
    open_ = find(cluster, [*keys, *(q for q in queries if q not in keys)] if queries else ())
    if not open_:
        check_listed(cluster, keys or queries)
        if problem is not None:
            raise problem
    newest = {sink.key: sink.head.generation for sink in heads if sink.head is not None}
    own = [t for t in open_ if t.generation == newest.get(t.query)]
    files = frozenset() if checkpoint is None else _log_files(checkpoint)
    if queries:
        heads.sort(key=lambda head: head.name or "")
    return _Snapshot(heads, open_, problem, _ends(cluster, own) if ends else frozenset(), files)


def _later_snapshot(
    cluster: Cluster, queries: Collection[str], checkpoint: Checkpoint | None, watch_s: float
) -> _Snapshot | None:
    if watch_s <= 0:
        return None
    time.sleep(watch_s)
    return _snapshot(cluster, queries, checkpoint, ends=True)


def _is_wanted(cluster: Cluster, sink: SinkHead, queries: Collection[str]) -> bool:
    if queries:
        return sink.key in queries or sink.query in queries
    return cluster.prefix is None or sink.head is None or sink.head.prefix == cluster.prefix


def _log_files(checkpoint: Checkpoint) -> frozenset[str]:
    return frozenset(f"{log}/{name}" for log in ("offsets", "commits") for name in checkpoint.names(log))


def _ends(cluster: Cluster, transactions: Sequence[Transaction]) -> frozenset[tuple[str, int, int]]:
    """Return the partitions that these transactions write to, each with its high watermark, except deleted ones.
    Raises EosError where one has no leader: it is not known then whether rows are written."""
    written = by_topic(sorted({partition for t in transactions for partition in t.places}))
    there = describe_topics(cluster.client, written, missing_ok=True) if written else {}
    left = {name: [p for p in written[name] if p < topic.partitions] for name, topic in there.items()}
    ends = end_offsets(cluster.client, left, "read_uncommitted") if any(left.values()) else {}
    return frozenset((topic, partition, at) for topic, of in ends.items() for partition, at in of.items())


def _state(query: str, before: _Snapshot, after: _Snapshot | None, quiet_s: float) -> QueryState:
    sinks = [sink for sink in before.heads if query in (sink.query, sink.key)]
    keys = {query, *(sink.key for sink in sinks)}
    open_ = [t for t in before.open if t.query in keys]
    newest = {sink.key: sink.head.generation for sink in sinks if sink.head is not None}
    ages = [sink.age_s for sink in sinks if sink.age_s is not None]
    ages += [t.open_s for t in open_ if t.generation == newest.get(t.query)]
    closed = before.problem is None and all(sink.head is not None and sink.head.run == NOBODY for sink in sinks)
    signs = [] if after is None else _signs(keys, before, after)
    unread = "" if before.problem is None else f"[{before.problem.condition}] {before.problem.message}"
    return QueryState(query, sinks, open_, Liveness(signs, min(ages, default=None), closed, quiet_s), unread=unread)


def _signs(keys: Collection[str], before: _Snapshot, after: _Snapshot) -> list[str]:
    """Return signs of a run between two snapshots of a query, whose sinks have these keys."""
    published, published_before = (
        {(sink.key, sink.partition, sink.offset) for sink in snapshot.heads if sink.key in keys}
        for snapshot in (after, before)
    )
    begun, begun_before = ({(t.id, t.epoch) for t in snapshot.open if t.query in keys} for snapshot in (after, before))
    own = {partition for t in before.open if t.query in keys for partition in t.places}
    known = {(topic, partition) for topic, partition, _ in before.ends} & own
    signs = {
        "the query's record in the ledger has changed": published != published_before,
        "a transaction was begun": bool(begun - begun_before),
        "rows were written": any((t, p) in known for t, p, _ in after.ends - before.ends),
        "the checkpoint has changed": after.files != before.files,
    }
    return [sign for sign, is_there in signs.items() if is_there]


def _by_files(checkpoint: Checkpoint, watch_s: float, quiet_s: float) -> Liveness:
    """Return signs of a run of a query without a ledger: files of its checkpoint, by the clocks of their store and of
    this machine."""
    before = _log_files(checkpoint)
    times = [at for log in ("offsets", "commits") for at in checkpoint.times(log).values()]
    last_s = max(0.0, system.time_of_day() - max(times)) if times else None
    time.sleep(watch_s)
    has_changed = watch_s > 0 and _log_files(checkpoint) != before
    return Liveness(["the checkpoint has changed"] if has_changed else [], last_s, quiet_s=quiet_s)


def with_parts(cluster: Cluster, state: QueryState) -> QueryState:
    """Return the state with the partitions of its open transactions, as their leaders have them; without offsets where
    this user may not read the output."""
    if state.unread:
        return state  # they cannot be looked up without the ledger
    looked_up: dict[str, Sequence[TransactionPart]] = {}
    for transaction in state.open:
        try:
            looked_up[transaction.id] = parts(cluster, transaction)
        except EosError:
            places = sorted(transaction.places)
            looked_up[transaction.id] = [TransactionPart(topic, partition, None) for topic, partition in places]
    return replace(state, parts=looked_up)


def checkpoint_state(logs: Logs, cluster: Cluster) -> CheckpointState:
    """Return the content of a checkpoint, and the ends of the input partitions that are on this cluster."""
    sources = logs.source_lines(logs.planned[-1]) if logs.planned else []
    committed = lowest_offsets(logs.source_lines(logs.done[-1])) if logs.done and logs.done[-1] in logs.planned else {}
    # Topics of another cluster, such as a mirror reads, are not the topics with these names here.
    known = cluster_id(cluster.client) if any(source.position.cluster is not None for source in sources) else ""
    here = [source for source in sources if not known or source.position.cluster in (None, known)]
    topics = describe_topics(cluster.client, lowest_offsets(here), missing_ok=True)
    ids = {(topic, id_) for source in here for topic, id_ in source.position.ids.items()}
    counts = {name: topic.partitions for name, topic in topics.items()}
    return CheckpointState(
        location=logs.checkpoint.location,
        planned=logs.planned,
        committed=logs.done,
        stateful=logs.stateful,
        sources=[source.kind for source in sources],
        partitions=_inputs(cluster, lowest_offsets(sources), committed, counts),
        recreated_topics=sorted({topic for topic, id_ in ids if topic not in topics or topics[topic].id != id_}),
        elsewhere=sorted({topic for source in sources if source not in here for topic in source.position.offsets}),
        left={topic: left.offsets for source in sources for topic, left in source.position.left.items()},
    )


def _inputs(
    cluster: Cluster, planned: PartitionOffsets, committed: PartitionOffsets, counts: Mapping[str, int]
) -> list[ReadPartition]:
    """Return the input partitions on this cluster. ``counts``: the number of partitions of each topic that exists
    there."""
    there = {topic: [p for p in sorted(of) if p < counts.get(topic, 0)] for topic, of in planned.items()}
    asked = {topic: numbers for topic, numbers in there.items() if numbers}
    begin: PartitionOffsets = begin_offsets(cluster.client, asked) if asked else {}
    end: PartitionOffsets = end_offsets(cluster.client, asked) if asked else {}
    return [
        ReadPartition(topic, p, at, *(offsets.get(topic, {}).get(p) for offsets in (committed, begin, end)))
        for topic, of in sorted(planned.items())
        for p, at in sorted(of.items())
    ]
