"""The state of a query (`QueryState`), from the ledger, the coordinators and its checkpoint, and what its next start
does.

Reads only. `spark_eos.ops.status` prints it, and `spark_eos.ops.recover` plans by it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spark_eos.base import system
from spark_eos.base.topic_partition import PartitionOffsets, TopicPartition, by_topic
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import BUILT_IN, OURS, SourceLine, merged
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import begin_offsets, cluster_id, describe_topics, end_offsets
from spark_eos.ledger.owners import Cluster, Transaction, TransactionPart, check_listed, find, parts
from spark_eos.ops.checkpoint_logs import Logs
from spark_eos.ops.heads import SinkHead, newest_heads
from spark_eos.ops.table_state import TableState, sink_of, table_state
from spark_eos.pipelines.tables.micro_batch import BatchPresence
from spark_eos.protocol.checks import is_visible, stop_of
from spark_eos.protocol.commands import known_head
from spark_eos.protocol.head import NOBODY, BatchWrite, Head
from spark_eos.protocol.status import Start, Status, status


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

    @property
    def read_up_to(self) -> int:
        """The offset from which a start reads."""
        return self.planned if self.committed is None else self.committed

    @property
    def gone(self) -> bool:
        """Whether the log begins behind that."""
        return self.begin is not None and self.begin > self.read_up_to


@dataclass(frozen=True)
class CheckpointState:
    """What a checkpoint holds. ``planned``: the micro-batches in its offset log; ``committed``: those in its commit
    log; ``sources``: the kind of each source; ``recreated_topics``: topics whose id is not the one in the offset log;
    ``elsewhere``: topics of another cluster than the ledger's, whose logs were not looked at; ``left``: the offset at
    which the query continues if it reads a topic or partition again that it no longer reads."""

    location: str
    planned: Sequence[int] = ()
    committed: Sequence[int] = ()
    stateful: bool = False
    sources: Sequence[str] = ()
    partitions: Sequence[InputPartition] = ()
    recreated_topics: Sequence[str] = ()
    elsewhere: Sequence[str] = ()
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
        """Offsets from the end of the last committed micro-batch, or from where the log begins, to the last stable
        offset, of all partitions; None where the query has read no topic, or a topic is gone, another one or
        elsewhere."""
        known = [p for p in self.partitions if p.end is not None and p.topic not in self.recreated_topics]
        lags = [max(0, (p.end or 0) - max(p.committed or 0, p.begin or 0)) for p in known]
        return sum(lags) if lags and len(lags) == len(self.partitions) else None

    @property
    def losses(self) -> list[str]:
        """What the source stops at, unless its failOnDataLoss is false, which the checkpoint does not have."""
        found = [f"{topic} was deleted or recreated since it was read" for topic in self.recreated_topics]
        found += [
            f"{p.topic}-{p.partition} is read up to offset {p.read_up_to}, and its log begins at {p.begin}"
            for p in self.partitions
            if p.gone and p.topic not in self.recreated_topics
        ]
        return found

    @property
    def loss(self) -> str:
        """The condition of the error by which the source stops for `losses`; where there are several, of each kind."""
        return " or ".join(name for kind, name in _LOSSES.items() if kind in self.sources)


@dataclass(frozen=True)
class Liveness:
    """Signs of a run. A run that waits for rows gives none, so that "no sign" does not mean "no run".

    ``signs``: what changed between two looks, in a few words; ``last_s``: seconds since the newest sign before that,
    None if there is none; ``closed``: the last run of each sink is closed; ``quiet_s``: a sign that is younger counts.
    """

    signs: Sequence[str] = ()
    last_s: float | None = None
    closed: bool = False
    quiet_s: float = 60.0

    @property
    def running(self) -> bool | None:
        """Whether the query is running; None where that cannot be known."""
        if self.signs or (not self.closed and self.last_s is not None and self.last_s < self.quiet_s):
            return True
        return False if self.closed else None


@dataclass(frozen=True)
class QueryState:
    """A query. ``query``: its id, None before its first start; ``sinks``: the newest head of each sink, by name;
    ``open``: its open transactions; ``parts``: their partitions as the leaders have them, by transactional id, where
    these were looked up; ``checkpoint``: None where none was named; ``problem``: why the ledger could not be read;
    ``table``: of a query to a table, which has no sinks in the ledger."""

    query: str | None
    sinks: Sequence[SinkHead] = ()
    open: Sequence[Transaction] = ()
    liveness: Liveness = field(default_factory=Liveness)
    checkpoint: CheckpointState | None = None
    parts: Mapping[str, Sequence[TransactionPart]] = field(default_factory=dict)
    problem: str = ""
    table: TableState | None = None

    def start(self, sink: str | None = None) -> Start:
        """The next start, as far as it is known without the query's options."""
        batch = None if self.checkpoint is None else self.checkpoint.next_batch
        return Start(batch, in_foreach_batch=sink is not None)

    def status(self, sink: SinkHead) -> Status | None:
        """What the next start does with the head of a sink; None where the head cannot be read."""
        return None if sink.head is None else status(sink.head, self.start(sink.name))

    @property
    def stop(self) -> tuple[SinkHead, Status] | None:
        """The sink by whose head a start stops, and why. None where it does not stop, or that is not known."""
        for sink in self.sinks:
            found = self.status(sink)
            # Only the checkpoint tells whether Spark has passed the micro-batch that was given up.
            if found is not None and found.stops and (found is not Status.GIVEN_UP or self.checkpoint is not None):
                return sink, found
        return None

    @property
    def unknown(self) -> str:
        """Why it is not known what the next start does, where only the ledger's record or the table would tell; empty
        where it is known. Without a record, the query may never have had one, as it writes to something else."""
        if self.table is not None:
            return (
                "" if not self.table.problem else f"{self.table.name} cannot be asked: {self.table.problem} {_STORAGE}"
            )
        if self.sinks or self.problem or not (found := status(None, self.start())).stops:
            return ""
        return _without_a_head(found, self.checkpoint or CheckpointState(""))

    @property
    def next(self) -> str | None:
        """What the next start does, as a sentence without its subject; None where that is not known."""
        stop, at = self.stop, self.checkpoint
        if stop is not None:
            sink, found = stop
            of = f"{name_of(sink)}: " if sink.name else ""
            return f"stops: {of}{stop_of(found, sink.head, self.start(sink.name))}"
        if self.table is not None and self.table.stop is not None:
            return f"stops: {self.table.stop}"
        if at is None or self.problem or self.unknown or any(sink.head is None for sink in self.sinks):
            return None
        stops = f"unless its source stops ({at.loss}), as it lacks what was not read"
        return f"{self._step(at)}, {stops}" if at.losses else self._step(at)

    def _step(self, at: CheckpointState) -> str:
        """What a start does that its heads do not stop."""
        if self.query is None or not at.planned:
            return "begins a new query, with micro-batch 0"
        step = f"{'runs' if at.runs_again else 'plans'} micro-batch {at.next_batch}{' again' if at.runs_again else ''}"
        if any(sink.name is not None for sink in self.sinks):
            return f"{step}; each sink within foreachBatch compares its rows with what it has decided before"
        if self.table is not None:
            return f"{step}{_IN_TABLE[self.table.again]}"
        if not self.sinks:
            return f"{step}; the ledger topic has no decision of the query yet"
        return self._with_last_decision(step)

    def _with_last_decision(self, step: str) -> str:
        """The step, and what is done about the last decision of the stream's sink."""
        sink = self.sinks[0]
        found = self.status(sink)
        if found is Status.REPAIRS:
            return f"{step}, and writes the rows of the lost transactions again"
        if found is Status.COMPLETES:
            return f"{step}: it is decided already, so its transactions are committed, and no row is written again"
        last = None if sink.head is None else sink.head.decision
        return step if last is None or is_visible(last) else f"commits micro-batch {last.batch}, then {step}"

    @property
    def troubles(self) -> list[str]:
        """What needs attention: a start of the query, or a command."""
        found = [f"the ledger cannot be read: {self.problem}"] if self.problem else []
        stop = self.stop
        # A retired query needs no attention until somebody is about to start it.
        if stop is not None and (self.checkpoint is not None or stop[1] in _UNFINISHED):
            found.append(f"the next start {self.next}")
        if self.table is not None and self.table.stop is not None:
            found.append(f"the next start {self.next}")
        if self.checkpoint is not None:
            stops = f"the source stops for that ({self.checkpoint.loss}), unless failOnDataLoss is false"
            found += [f"{loss}: {stops}" for loss in self.checkpoint.losses]
        for sink in self.sinks:
            if sink.head is None:
                found.append(f"{name_of(sink)}: its record in the ledger topic cannot be read: {sink.problem}")
            elif (stop is None or sink is not stop[0]) and _waits_for_a_start(sink.head):
                found.append(f"{name_of(sink)}: {in_words(sink.head)}")
        if self.liveness.running is not True and self.open:
            found.append(
                f"{len(self.open)} open transaction(s) hold back read_committed consumers, and there is no sign of a "
                "run that would end them"
            )
        return found


#: By the kind of a source, the condition of its error for offsets that are gone; Spark's own is of its connector.
_LOSSES = {OURS: "EOS_SOURCE_DATA_LOSS", BUILT_IN: "KAFKA_DATA_LOSS"}
_STORAGE = "The option --storage, before the command, takes settings of its store (fs.…) and its catalog (catalog.…)."
#: What becomes of a micro-batch that is run again, by whether the table has it.
_IN_TABLE = {
    None: "",
    BatchPresence.NEW: ": the table does not have it yet",
    BatchPresence.THERE: ": the table has it already, so no row is written again",
    BatchPresence.UNCLEAR: ": the table has one with this number, and only adds no row if that has the same offsets",
}
_UNFINISHED = (Status.DROP_UNFINISHED, Status.REPLAY_UNFINISHED)


def _waits_for_a_start(head: Head) -> bool:
    """Whether there are rows that only a start of the query writes."""
    return status(head, Start(None)) in (Status.GIVEN_UP, Status.REPAIRS)


def name_of(sink: SinkHead) -> str:
    """The sink as it is called in text."""
    return "sink" if sink.name is None else f"sink {sink.name or 'all'}"


def in_words(head: Head) -> str:
    """The state of a sink by its head, in a few words."""
    found, last, marks = status(head, Start(None)), head.decision, head.marks
    if found is Status.RETIRED and marks.successor is not None:
        return f"retired, replaced by query {marks.successor.query}"
    words = {
        Status.DROP_UNFINISHED: "drop of a micro-batch not finished",
        Status.REPLAY_UNFINISHED: "replay not finished",
        Status.ROWS_MISSING: "rows of a committed transaction are missing",
        Status.GIVEN_UP: f"the write of micro-batch {head.unwritten} was given up",
        Status.REPAIRS: f"{len(last.lost) if last else 0} transaction(s) lost; the next start writes their rows again",
    }
    if found in words:
        return words[found]
    if isinstance(head.write, BatchWrite) and last is not None and not last.written:
        return "completed"
    return "closed" if head.run == NOBODY else "open"


def _without_a_head(found: Status, at: CheckpointState) -> str:
    batch = at.next_batch
    missing = (
        f"the ledger topic has no record of this query, and its checkpoint is at micro-batch {batch}. A query to "
        "tables or files needs none, and goes on: there is nothing to do. If it writes to topics by eos-kafka, the "
        f"next start stops ({found.value})"
    )
    if at.runs_again:
        return (
            f"{missing}: if another sink wrote until now and has not finished that micro-batch, start the query once "
            "more with that sink, unchanged, with trigger(availableNow=True); if a start with this sink has planned "
            f"it, and stopped with this error, set the option 'ledger.begin' to {batch}"
        )
    return f"{missing}: if another sink wrote until now, set the option 'ledger.begin' to {batch} to continue here"


@dataclass(frozen=True)
class _Snapshot:
    """Everything that a run changes, at one moment. ``ends``: of the partitions that open transactions write to."""

    heads: Sequence[SinkHead]
    open: Sequence[Transaction]
    problem: EosError | None
    ends: frozenset[tuple[str, int, int]] = frozenset()
    files: frozenset[str] = frozenset()


def states_wanted(
    cluster: Cluster, checkpoint: Checkpoint | None, queries: Collection[str], *, watch_s: float, quiet_s: float
) -> list[QueryState]:
    """The query of a checkpoint, or queries as in `states_of`. Raises EosError."""
    if checkpoint is not None:
        return [state_at(checkpoint, cluster, watch_s=watch_s, quiet_s=quiet_s)]
    return states_of(cluster, queries, watch_s=watch_s, quiet_s=quiet_s)


def states_of(
    cluster: Cluster, queries: Collection[str] = (), *, watch_s: float = 0.0, quiet_s: float = 60.0
) -> list[QueryState]:
    """Queries by their ids, or by the keys of their sinks in the ledger; by default all queries that have a head in the
    ledger or an open transaction. The query with the newest head comes first.

    Signs of a run are what changes within ``watch_s`` seconds. Raises EosError where a named query is unknown, or this
    user may not describe transactions.
    """
    before = _snapshot(cluster, queries, None, ends=watch_s > 0)
    after = _second_snapshot(cluster, queries, None, watch_s)
    found = []
    for query in dict.fromkeys([*(sink.query for sink in before.heads), *_queries_without_head(before)]):
        found.append(_state(query, before, after, quiet_s))
    for query in queries:
        if not any(query in (state.query, *(sink.key for sink in state.sinks)) for state in found):
            known_head(None, query)
    return found


def state_at(checkpoint: Checkpoint, cluster: Cluster, *, watch_s: float = 0.0, quiet_s: float = 60.0) -> QueryState:
    """The query of a checkpoint. Raises EosError, also where nothing is there."""
    query, logs = checkpoint.query_id(), Logs(checkpoint)
    if query is None and not checkpoint.names():  # a wrong path, or a store that is not mounted
        raise stop("EOS_QUERY_UNKNOWN.checkpoint", location=checkpoint.location)
    if query is None:
        return QueryState(
            None, checkpoint=_checkpoint_state(logs, cluster), liveness=Liveness(closed=True, quiet_s=quiet_s)
        )
    if sink := sink_of(logs):
        liveness = _by_checkpoint(checkpoint, watch_s, quiet_s)
        at = _checkpoint_state(logs, cluster)
        return QueryState(query, liveness=liveness, checkpoint=at, table=table_state(query, sink, logs))
    before = _snapshot(cluster, [query], checkpoint, ends=watch_s > 0)
    at = _checkpoint_state(logs, cluster)
    after = _second_snapshot(cluster, [query], checkpoint, watch_s)
    return replace(_state(query, before, after, quiet_s), checkpoint=at)


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


def _log_files(checkpoint: Checkpoint) -> frozenset[str]:
    return frozenset(f"{log}/{name}" for log in ("offsets", "commits") for name in checkpoint.names(log))


def _by_checkpoint(checkpoint: Checkpoint, watch_s: float, quiet_s: float) -> Liveness:
    """Signs of a run of a query without a ledger: files of its checkpoint, by the clocks of their store and of this
    machine."""
    before = _log_files(checkpoint)
    times = [at for log in ("offsets", "commits") for at in checkpoint.times(log).values()]
    last_s = max(0.0, system.time_of_day() - max(times)) if times else None
    time.sleep(watch_s)
    has_changed = watch_s > 0 and _log_files(checkpoint) != before
    return Liveness(["the checkpoint has changed"] if has_changed else [], last_s, quiet_s=quiet_s)


def _is_wanted(cluster: Cluster, sink: SinkHead, queries: Collection[str]) -> bool:
    if queries:
        return sink.key in queries or sink.query in queries
    return cluster.prefix is None or sink.head is None or sink.head.prefix == cluster.prefix


def _second_snapshot(
    cluster: Cluster, queries: Collection[str], checkpoint: Checkpoint | None, watch_s: float
) -> _Snapshot | None:
    if watch_s <= 0:
        return None
    time.sleep(watch_s)
    return _snapshot(cluster, queries, checkpoint, ends=True)


def _queries_without_head(snapshot: _Snapshot) -> Iterable[str]:
    """Queries that have an open transaction, and no head."""
    keys = {sink.key for sink in snapshot.heads}
    return [t.query for t in snapshot.open if t.query not in keys]


def _state(query: str, before: _Snapshot, after: _Snapshot | None, quiet_s: float) -> QueryState:
    sinks = [sink for sink in before.heads if sink.query == query or sink.key == query]
    keys = {query, *(sink.key for sink in sinks)}
    open_ = [t for t in before.open if t.query in keys]
    newest = {sink.key: sink.head.generation for sink in sinks if sink.head is not None}
    ages = [sink.age_s for sink in sinks if sink.age_s is not None]
    ages += [t.open_s for t in open_ if t.generation == newest.get(t.query)]
    closed = before.problem is None and all(sink.head is not None and sink.head.run == NOBODY for sink in sinks)
    signs = [] if after is None else _signs(keys, before, after)
    problem = "" if before.problem is None else f"[{before.problem.condition}] {before.problem.message}"
    return QueryState(query, sinks, open_, Liveness(signs, min(ages, default=None), closed, quiet_s), problem=problem)


def _signs(keys: Collection[str], before: _Snapshot, after: _Snapshot) -> list[str]:
    def published(snapshot: _Snapshot) -> set[tuple[str, int, int]]:
        return {(sink.key, sink.partition, sink.offset) for sink in snapshot.heads if sink.key in keys}

    def begun(snapshot: _Snapshot) -> set[tuple[str, int]]:
        return {(t.id, t.epoch) for t in snapshot.open if t.query in keys}

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
    """The partitions that these transactions write to, each with its high watermark."""
    asked = by_topic(sorted({place for t in transactions for place in t.places}))
    found = end_offsets(cluster.client, asked, "read_uncommitted") if asked else {}
    return frozenset((topic, partition, at) for topic, of in found.items() for partition, at in of.items())


def with_parts(cluster: Cluster, state: QueryState) -> QueryState:
    """The state with the partitions of its open transactions, as their leaders have them."""
    if state.problem:
        return state  # they cannot be looked up without the ledger
    return replace(state, parts={t.id: _parts(cluster, t) for t in state.open})


def _parts(cluster: Cluster, transaction: Transaction) -> Sequence[TransactionPart]:
    """The partitions of a transaction; without offsets where this user may not read the output."""
    try:
        return parts(cluster, transaction)
    except EosError:
        return [TransactionPart(topic, partition, None) for topic, partition in sorted(transaction.places)]


def _checkpoint_state(logs: Logs, cluster: Cluster) -> CheckpointState:
    sources = logs.sources(logs.planned[-1]) if logs.planned else []
    before = merged(logs.sources(logs.done[-1])) if logs.done and logs.done[-1] in logs.planned else {}
    here = _sources_here(cluster, sources)
    there = describe_topics(cluster.client, merged(here), missing_ok=True)
    return CheckpointState(
        logs.checkpoint.location,
        logs.planned,
        logs.done,
        logs.stateful,
        [source.kind for source in sources],
        _input_partitions(cluster, merged(sources), before, {name: topic.partitions for name, topic in there.items()}),
        sorted(t for s in here for t, known in s.position.ids.items() if t not in there or there[t].id != known),
        sorted({t for s in sources if s not in here for t in s.position.offsets}),
        {topic: left.offsets for source in sources for topic, left in source.position.left.items()},
    )


def _sources_here(cluster: Cluster, sources: Sequence[SourceLine]) -> list[SourceLine]:
    """The sources without those of another cluster, as of a mirror: topics of the same names are others here."""
    noted = {source.position.cluster for source in sources} - {None}
    known = cluster_id(cluster.client) if noted else ""
    return [source for source in sources if not known or source.position.cluster in (None, known)]


def _input_partitions(
    cluster: Cluster, planned: PartitionOffsets, before: PartitionOffsets, there: Mapping[str, int]
) -> list[InputPartition]:
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
