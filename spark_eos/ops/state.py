"""The state of queries: what the ledger, the coordinators and a checkpoint hold of them, and what a start would do.

Reads only. `spark_eos.ops.status` prints it, and `spark_eos.ops.recover` plans by it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import SourceLine, merged
from spark_eos.errors import EosError
from spark_eos.kafka.admin.topics import begin_offsets, describe_topics, end_offsets
from spark_eos.ledger.owners import Cluster, Transaction, TransactionPart, check_listed, find, parts
from spark_eos.ops.checkpoint_logs import Logs
from spark_eos.ops.heads import SinkHead, newest_heads
from spark_eos.protocol.checks import is_visible, stop_of
from spark_eos.protocol.commands import known_head
from spark_eos.protocol.head import NOBODY, Head
from spark_eos.protocol.status import Start, Status, status
from spark_eos.topic_partition import PartitionOffsets, TopicPartition, by_topic


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
class CheckpointState:
    """What a checkpoint holds. ``planned``: the micro-batches in its offset log, ``committed`` those in its commit log.
    ``sources``: the kind of each; ``recreated``: topics that have another id than the offset log says; ``left``: where
    the query has left topics that it no longer reads, and goes on if it reads them again."""

    location: str
    planned: Sequence[int] = ()
    committed: Sequence[int] = ()
    stateful: bool = False
    sources: Sequence[str] = ()
    partitions: Sequence[InputPartition] = ()
    recreated: Sequence[str] = ()
    left: PartitionOffsets = field(default_factory=dict)

    @property
    def runs_again(self) -> bool:
        """Whether a start begins with a micro-batch that is planned, and not committed."""
        return bool(self.planned) and (not self.committed or self.planned[-1] > self.committed[-1])

    @property
    def next_batch(self) -> int:
        """The micro-batch with which a start begins."""
        return self.planned[-1] + (not self.runs_again) if self.planned else 0

    @property
    def lag(self) -> int | None:
        """Offsets from the end of the last committed micro-batch to the last stable offset, of all partitions; None
        where the query has read no topic, or a topic is gone."""
        lags = [max(0, p.end - (p.committed or p.begin or 0)) for p in self.partitions if p.end is not None]
        return sum(lags) if lags and len(lags) == len(self.partitions) else None


@dataclass(frozen=True)
class Life:
    """Signs of a run. A run that waits for rows gives none, so that "no sign" does not mean that there is no run.
    ``signs``: what moved while it was looked at, in a few words. ``last_s``: seconds since the newest sign before that,
    None without any. ``closed``: no run has the query. ``quiet_s``: a sign that is younger counts."""

    signs: Sequence[str] = ()
    last_s: float | None = None
    closed: bool = False
    quiet_s: float = 60.0

    @property
    def running(self) -> bool | None:
        """Whether somebody runs the query; None where nobody can tell."""
        if self.signs or (not self.closed and self.last_s is not None and self.last_s < self.quiet_s):
            return True
        return False if self.closed else None


@dataclass(frozen=True)
class QueryState:
    """A query. ``query``: its id, None before its first start. ``sinks``: its newest heads, by the sinks' names.
    ``parts``: the partitions of open transactions as their leaders have them, by transactional id, where these were
    asked. ``checkpoint``: None where none was named. ``problem``: why the ledger could not be read."""

    query: str | None
    sinks: Sequence[SinkHead] = ()
    open: Sequence[Transaction] = ()
    life: Life = field(default_factory=Life)
    checkpoint: CheckpointState | None = None
    parts: Mapping[str, Sequence[TransactionPart]] = field(default_factory=dict)
    problem: str = ""

    def start(self, sink: str | None = None) -> Start:
        """What is known of a start, without the query's options."""
        batch = None if self.checkpoint is None else self.checkpoint.next_batch
        return Start(batch, in_foreach_batch=sink is not None)

    def status(self, sink: SinkHead) -> Status | None:
        """What a start does with a head; None where that cannot be read."""
        return None if sink.head is None else status(sink.head, self.start(sink.name))

    @property
    def stop(self) -> tuple[SinkHead | None, Status] | None:
        """The head, or none, by which a start stops, and why; None where it does not stop, or that is not known."""
        for sink in self.sinks:
            found = self.status(sink)
            # Whether Spark has passed what was given up, the checkpoint tells.
            if found is not None and found.stops and (found is not Status.GIVEN_UP or self.checkpoint is not None):
                return sink, found
        if not self.sinks and not self.problem and (found := status(None, self.start())).stops:
            return None, found
        return None

    @property
    def next(self) -> str | None:
        """What a start of the query does, in a sentence without its subject; None where that is not known."""
        return next_step(self)

    @property
    def troubles(self) -> list[str]:
        """What needs somebody: a start or a command that does it."""
        found = [f"the ledger cannot be read: {self.problem}"] if self.problem else []
        stop = self.stop
        # A query that is retired needs nobody, until somebody is about to start it.
        if stop is not None and (self.checkpoint is not None or stop[1] in _UNFINISHED):
            found.append(self.next or "")
        for sink in self.sinks:
            if sink.head is None:
                found.append(f"{name_of(sink)}: {sink.problem}")
            elif (stop is None or sink is not stop[0]) and _waits_for_a_start(sink.head):
                found.append(f"{name_of(sink)}: {in_words(sink.head)}")
        if self.life.running is not True and self.open:
            found.append(
                f"{len(self.open)} transaction(s) hold back readers, and the query does not seem to be running"
            )
        return found


_UNFINISHED = (Status.DROP_UNFINISHED, Status.REPLAY_UNFINISHED)


def _waits_for_a_start(head: Head) -> bool:
    """Whether there are rows that only a start of the query writes."""
    return status(head, Start(None)) in (Status.GIVEN_UP, Status.REPAIRS)


def name_of(sink: SinkHead) -> str:
    """The sink, for a reader."""
    return "sink" if sink.name is None else f"sink {sink.name or 'all'}"


def in_words(head: Head) -> str:
    """What a head says of its query, in a few words."""
    found, last, marks = status(head, Start(None)), head.decision, head.marks
    if found is Status.RETIRED and marks.successor is not None:
        return f"retired, in favour of {marks.successor.query}"
    words = {
        Status.DROP_UNFINISHED: "drop not finished",
        Status.REPLAY_UNFINISHED: "replay not finished",
        Status.ROWS_MISSING: "rows are missing",
        Status.GIVEN_UP: f"micro-batch {head.unwritten} was given up",
        Status.REPAIRS: f"{len(last.lost) if last else 0} transaction(s) lost: its next start writes them again",
    }
    if found in words:
        return words[found]
    if head.job is not None and last is not None and not last.written:
        return "completed"
    return "closed" if head.run == NOBODY else "open"


def next_step(state: QueryState) -> str | None:
    """See `QueryState.next`."""
    stop, at = state.stop, state.checkpoint
    if stop is not None:
        sink, found = stop
        if sink is None:
            return f"stops ({found.value}): {_without_a_head(at or CheckpointState(''))}"
        of = f"{name_of(sink)}: " if sink.name else ""
        return f"stops: {of}{stop_of(found, sink.head, state.start(sink.name))}"
    if at is None or state.problem or any(sink.head is None for sink in state.sinks):
        return None
    if state.query is None or not at.planned:
        return "begins a new query, with micro-batch 0"
    doing = f"{'runs' if at.runs_again else 'plans'} micro-batch {at.next_batch}{' again' if at.runs_again else ''}"
    if any(sink.name is not None for sink in state.sinks):
        return f"{doing}; each sink within foreachBatch compares what it has decided"
    return _does(state, doing)


def _does(state: QueryState, doing: str) -> str:
    if not state.sinks:
        return f"{doing}: nothing of the query is decided"
    found = state.status(state.sinks[0])
    if found is Status.REPAIRS:
        return f"{doing}, and writes the rows again that it lost"
    if found is Status.COMPLETES:
        return f"{doing}: it is decided, so that it is only committed, compared, and not written again"
    head = state.sinks[0].head
    last = None if head is None else head.decision
    return doing if last is None or is_visible(last) else f"commits micro-batch {last.batch}, then {doing}"


def _without_a_head(at: CheckpointState) -> str:
    batch, known = at.next_batch, "the ledger knows nothing of the query"
    if at.runs_again:
        return (
            f"{known}. If another sink has left micro-batch {batch} under way, start that query once more, unchanged, "
            f"with trigger(availableNow=True); if a start that stopped so has planned it, set 'ledger.begin' to {batch}"
        )
    return f"{known}. If another sink has written until now, set 'ledger.begin' to {batch}, with which it goes on"


@dataclass(frozen=True)
class _Look:
    """One look at everything that a run moves. ``ends``: where partitions end that open transactions write to."""

    heads: Sequence[SinkHead]
    open: Sequence[Transaction]
    problem: EosError | None
    ends: frozenset[tuple[str, int, int]] = frozenset()
    files: frozenset[str] = frozenset()


def states_of(
    cluster: Cluster, queries: Collection[str] = (), *, watch_s: float = 0.0, quiet_s: float = 60.0
) -> list[QueryState]:
    """Queries by their ids, or the keys of their sinks in the ledger; without any, all that the ledger or the
    coordinators know. The newest head comes first.

    It looks twice, ``watch_s`` seconds apart, for signs of a run. Raises EosError where nothing is known of a query
    that was named, or this user is not told of transactions.
    """
    before = _look(cluster, queries, None, ends=watch_s > 0)
    after = _again(cluster, queries, None, watch_s)
    found = []
    for query in dict.fromkeys([*(sink.query for sink in before.heads), *_unknown(before)]):
        found.append(_state(query, before, after, quiet_s))
    for query in queries:
        if not any(query in (state.query, *(sink.key for sink in state.sinks)) for state in found):
            known_head(None, query)
    return found


def state_at(checkpoint: Checkpoint, cluster: Cluster, *, watch_s: float = 0.0, quiet_s: float = 60.0) -> QueryState:
    """The query of a checkpoint. Raises EosError."""
    query, logs = checkpoint.query_id(), Logs(checkpoint)
    if query is None:
        return QueryState(None, checkpoint=_checkpoint_state(logs, cluster), life=Life(closed=True, quiet_s=quiet_s))
    before = _look(cluster, [query], checkpoint, ends=watch_s > 0)
    at = _checkpoint_state(logs, cluster)
    after = _again(cluster, [query], checkpoint, watch_s)
    return replace(_state(query, before, after, quiet_s), checkpoint=at)


def _look(cluster: Cluster, queries: Collection[str], checkpoint: Checkpoint | None, *, ends: bool) -> _Look:
    heads: list[SinkHead] = []
    problem = None
    try:
        heads = [sink for sink in newest_heads(cluster) if _is_asked_for(cluster, sink, queries)]
    except EosError as error:
        # Where a checkpoint has never had this sink, its first start makes the ledger.
        problem = None if checkpoint is not None and error.condition == "EOS_TOPIC_MISSING" else error
    keys = [sink.key for sink in heads]
    open_ = find(cluster, [*keys, *(q for q in queries if q not in keys)] if queries else ())
    if not open_:
        check_listed(cluster, keys or queries)
        if problem is not None:
            raise problem
    newest = {sink.key: sink.head.generation for sink in heads if sink.head is not None}
    own = [t for t in open_ if t.generation == newest.get(t.query)]
    files: list[str] = []
    if checkpoint is not None:
        files = [f"{log}/{name}" for log in ("offsets", "commits") for name in checkpoint.names(log)]
    if queries:
        heads.sort(key=lambda head: head.name or "")
    return _Look(heads, open_, problem, _ends(cluster, own) if ends else frozenset(), frozenset(files))


def _is_asked_for(cluster: Cluster, sink: SinkHead, queries: Collection[str]) -> bool:
    if queries:
        return sink.key in queries or sink.query in queries
    return cluster.prefix is None or sink.head is None or sink.head.prefix == cluster.prefix


def _again(cluster: Cluster, queries: Collection[str], checkpoint: Checkpoint | None, watch_s: float) -> _Look | None:
    if watch_s <= 0:
        return None
    time.sleep(watch_s)
    return _look(cluster, queries, checkpoint, ends=True)


def _unknown(look: _Look) -> Iterable[str]:
    """Queries that have something open, and no head."""
    keys = {sink.key for sink in look.heads}
    return [t.query for t in look.open if t.query not in keys]


def _state(query: str, before: _Look, after: _Look | None, quiet_s: float) -> QueryState:
    sinks = [sink for sink in before.heads if sink.query == query or sink.key == query]
    keys = {query, *(sink.key for sink in sinks)}
    open_ = [t for t in before.open if t.query in keys]
    newest = {sink.key: sink.head.generation for sink in sinks if sink.head is not None}
    ages = [sink.age_s for sink in sinks if sink.age_s is not None]
    ages += [t.open_s for t in open_ if t.generation == newest.get(t.query)]
    closed = before.problem is None and all(sink.head is not None and sink.head.run == NOBODY for sink in sinks)
    signs = [] if after is None else _signs(keys, before, after)
    problem = "" if before.problem is None else f"[{before.problem.condition}] {before.problem.message}"
    return QueryState(query, sinks, open_, Life(signs, min(ages, default=None), closed, quiet_s), problem=problem)


def _signs(keys: Collection[str], before: _Look, after: _Look) -> list[str]:
    def published(look: _Look) -> set[tuple[str, int, int]]:
        return {(sink.key, sink.partition, sink.offset) for sink in look.heads if sink.key in keys}

    def begun(look: _Look) -> set[tuple[str, int]]:
        return {(t.id, t.epoch) for t in look.open if t.query in keys}

    places: set[TopicPartition] = {place for t in before.open if t.query in keys for place in t.places}
    known = {(topic, partition) for topic, partition, _ in before.ends} & places
    moved = {
        "a head was published": published(after) != published(before),
        "a transaction was begun": bool(begun(after) - begun(before)),
        "rows were written": bool({(t, p) for t, p, _ in after.ends - before.ends} & known),
        "the checkpoint has changed": after.files != before.files,
    }
    return [what for what, true in moved.items() if true]


def _ends(cluster: Cluster, transactions: Sequence[Transaction]) -> frozenset[tuple[str, int, int]]:
    """Where the partitions end that these transactions write to."""
    asked = by_topic(sorted({place for t in transactions for place in t.places}))
    found = end_offsets(cluster.client, asked, "read_uncommitted") if asked else {}
    return frozenset((topic, partition, at) for topic, of in found.items() for partition, at in of.items())


def with_parts(cluster: Cluster, state: QueryState) -> QueryState:
    """The state with the partitions of its open transactions, of which each one's leader is asked."""
    if state.problem:
        return state  # to ask for them takes the ledger, too
    return replace(state, parts={t.id: _parts(cluster, t) for t in state.open})


def _parts(cluster: Cluster, transaction: Transaction) -> Sequence[TransactionPart]:
    """The partitions of a transaction; only the names of an output that this user may not read."""
    try:
        return parts(cluster, transaction)
    except EosError:
        return [TransactionPart(topic, partition, None) for topic, partition in sorted(transaction.places)]


def _checkpoint_state(logs: Logs, cluster: Cluster) -> CheckpointState:
    sources = logs.sources(logs.planned[-1]) if logs.planned else []
    before = merged(logs.sources(logs.done[-1])) if logs.done and logs.done[-1] in logs.planned else {}
    there = describe_topics(cluster.client, merged(sources), missing_ok=True)
    return CheckpointState(
        logs.checkpoint.location,
        logs.planned,
        logs.done,
        logs.stateful,
        [source.kind for source in sources],
        _places(cluster, sources, before, {name: topic.partitions for name, topic in there.items()}),
        sorted(t for s in sources for t, known in s.position.ids.items() if t not in there or there[t].id != known),
        {topic: left.offsets for source in sources for topic, left in source.position.left.items()},
    )


def _places(
    cluster: Cluster, sources: Sequence[SourceLine], before: PartitionOffsets, there: dict[str, int]
) -> list[InputPartition]:
    planned = merged(sources)
    asked = {t: [p for p in parts if p < there[t]] for t, parts in planned.items() if t in there}
    asked = {topic: parts for topic, parts in asked.items() if parts}
    begin: PartitionOffsets = begin_offsets(cluster.client, asked) if asked else {}
    end: PartitionOffsets = end_offsets(cluster.client, asked) if asked else {}
    return [
        InputPartition(
            topic,
            p,
            at,
            before.get(topic, {}).get(p),
            begin.get(topic, {}).get(p),
            end.get(topic, {}).get(p),
        )
        for topic, parts in sorted(planned.items())
        for p, at in sorted(parts.items())
    ]
