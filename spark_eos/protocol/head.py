"""The ledger's records: the head of a query, with its newest decision (as text: `spark_eos.protocol.head_codec`).

A head says all that its replay must repeat, so that a newer version of the library, installed between a crash and the
replay, repeats it. Besides the run and the decision, it bears marks: of `spark-eos replay`, of foreachBatch, and of
rows that are missing. A replay makes a query that begins where another one was before. Until it is finished, the new
query's head bears `Unfinished`, which no start gets past; where rows are written to the same topic again, the old
query's head bears `Successor` for good, so that the two can never both go on.

A feature's data in a decision is an extra: bytes that only the feature reads (`spark_eos.protocol.extra`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.kafka.transactions import FENCING_END, ProducerIdentity
from spark_eos.protocol.names import query_of_job, query_of_sink

#: How many earlier runs a head remembers. A zombie of a run older than that opens as a new one would: the living run
#: then stops as replaced, and no row is at stake.
EARLIER_RUNS = 32


#: How many topics a head names: with names as long as Kafka allows, 50 kB before it is compressed.
MOST_TOPICS = 200


#: The run of a head whose last run was closed after a failed micro-batch.
NOBODY = ""


#: End offsets of a micro-batch, exclusive, as in Spark's offset log: topic → partition (as text) → offset.
Offsets = Mapping[str, Mapping[str, int]]


class Verdict(Enum):
    """The final outcome of a decided transaction."""

    COMMITTED = "committed"
    LOST = "lost"


class Digest(Enum):
    """Digests of a micro-batch's rows (``spark_eos.sink.digests``): ``ROWS`` by a hash of each row, in any order;
    ``CHUNKS`` and ``BATCHES`` for a copy, where order and position in the source count: by a hash of each chunk that a
    transform returned, or of each record batch that was copied."""

    ROWS = "rows"
    CHUNKS = "chunks"
    BATCHES = "batches"


DIGEST_BITS = 64

#: A transactional id with one producer id and epoch. Each has one transaction, so this identifies a transaction.
Pair = ProducerIdentity


@dataclass(frozen=True)
class Probe:
    """One record of a transaction: its offset shows in the log how the transaction ended. ``last``: the sequence number
    of the transaction's last record in that partition; None where it is not known. ``topic_id``: of the topic, before
    the transaction's first record there; empty where it is not known."""

    topic: str
    partition: int
    offset: int
    last: int | None = field(default=None, compare=False)
    topic_id: str = field(default="", compare=False)


#: Where a transaction begins in a partition.
TransactionStart = tuple[Pair, Probe]
#: The micro-batch of each transaction that begins there.
TransactionStarts = Mapping[TransactionStart, int]


# Decisions


@dataclass(frozen=True)
class Extra:
    """Data of a feature in a decision. ``body``: bytes for the feature of this ``kind``. ``lasting``: they are about
    the query up to here, so that no later decision may do without them."""

    kind: str
    body: bytes
    lasting: bool = False


@dataclass(frozen=True)
class Written:
    """Rows and transaction of one task. The digest does not depend on the order of rows. ``partition``: the task's
    number, Spark's partition id.

    ``endtxn_version`` is the one version of EndTxn that may end the transaction: answers of different versions do not
    fit together. It belongs to the pair, from its first batch to its end, even if the cluster's transaction.version
    changes meanwhile.

    ``dead_letters``: how many of the rows are in the dead-letter topic. A replay may find other rows too large, so that
    this is only noted; ``rows`` and ``digest`` are of all rows, in either topic. ``empty``: partitions, (topic,
    number), of the transaction without a row, as brokers refused all of them: it is never open there. ``begins``: its
    first record in each of its partitions, with the sequence number of its last one there. Rows are looked for by these
    before an end, and after one that came late; the head leaves them out where they are long. ``extra``: the
    transaction's part of the decision's extra.
    """

    partition: int
    pair: Pair
    rows: int
    digest: int
    probe: Probe
    verdict: Verdict | None = None
    endtxn_version: int = FENCING_END
    dead_letters: int = 0
    empty: tuple[TopicPartition, ...] = ()
    begins: tuple[Probe, ...] = field(default=(), compare=False)
    extra: bytes = b""

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of topics that are known."""
        return {probe.topic: probe.topic_id for probe in (self.probe, *self.begins) if probe.topic_id}

    @property
    def end_fences(self) -> bool:
        return self.endtxn_version >= FENCING_END


@dataclass(frozen=True)
class Decision:
    """A micro-batch that is decided: all of ``written`` is to be committed.

    ``rev`` counts its repairs. ``rows`` and ``digest`` are sums over all tasks; ``tasks`` counts tasks without rows,
    too. A replay digests by ``digest_by``, and deals keys to partitions by ``partitioner``. ``group`` is the
    consumer group that was given ``offsets``; None where there is none. ``rewrite`` names the tasks that are to write
    the lost rows again, if other tasks wrote them before. ``two_phase``: its transactions never expire.
    ``extra``: of a feature, if any.
    """

    batch: int
    rev: int
    tasks: int
    rows: int
    digest: int
    offsets: Offsets | None
    written: tuple[Written, ...]
    digest_by: Digest = Digest.ROWS
    partitioner: str = DEFAULT_PARTITIONER
    group: str | None = None
    rewrite: tuple[int, ...] | None = None
    two_phase: bool = False
    extra: Extra | None = None

    @classmethod
    def without_rows(cls, batch: int, offsets: Offsets | None, partitioner: str, group: str | None = None) -> Decision:
        """Make a decision without rows, for a micro-batch that was completed elsewhere or precedes this ledger: a start
        that is still at it, or before it, must not write it."""
        return cls(batch, 0, 0, 0, 0, offsets, (), Digest.ROWS, partitioner, group)

    @property
    def is_assumed(self) -> bool:
        """True for a decision of `without_rows`: Spark runs at least one task for each micro-batch."""
        return self.tasks == 0

    @property
    def lost(self) -> tuple[Written, ...]:
        return tuple(w for w in self.written if w.verdict is Verdict.LOST)

    @property
    def waiting(self) -> tuple[Written, ...]:
        """The transactions without a verdict: they may only be committed."""
        return tuple(w for w in self.written if w.verdict is None)

    @property
    def pairs(self) -> frozenset[Pair]:
        return frozenset(w.pair for w in self.written)

    def judged(self, verdicts: Mapping[Pair, Verdict]) -> Decision:
        """Return the decision with these verdicts."""
        return replace(self, written=tuple(replace(w, verdict=verdicts.get(w.pair, w.verdict)) for w in self.written))


def is_waiting(decision: Decision | None, transactional_id: str) -> bool:
    """Return whether the transaction of this id is decided and has no verdict yet: then it may only be committed."""
    return decision is not None and any(w.pair.id == transactional_id for w in decision.waiting)


# Writes that are no stream's


@dataclass(frozen=True)
class BatchWrite:
    """A batch write (``df.write``). ``job_id``: the user's name for it, or a generated one; ``topic``: of all rows,
    None where a column names it."""

    job_id: str
    topic: str | None

    @property
    def query_id(self) -> str:
        """The id that stands for a query's in the ledger."""
        return query_of_job(self.job_id)


#: A sink's name that stands for all sinks of the query.
WHOLE = ""


@dataclass(frozen=True)
class ForeachBatchWrite:
    """The writes to one sink within the foreachBatch of a query. With `WHOLE` as the sink it stands for all sinks, with
    or without a head of their own: such a head bears marks and no decision."""

    query: str
    sink: str

    @property
    def query_id(self) -> str:
        """The id that stands for a query's in the ledger."""
        return self.query if self.sink == WHOLE else query_of_sink(self.query, self.sink)


#: A write that has a head in the ledger as a streaming query does.
Write = BatchWrite | ForeachBatchWrite


# Marks


@dataclass(frozen=True)
class Unfinished:
    """A replay, or the drop of a planned micro-batch, that a command has begun.

    Of a replay, ``of`` is the query that is replayed, ``checkpoint`` the location of its checkpoint, and ``to`` that of
    the new query's. ``batch`` is the micro-batch that the new query begins with, as a done one. The new checkpoint is
    made of ``lines``, a line of the offset log for each source, of the ``metadata`` before them, and of ``done``, the
    lines of the commit log. ``topic`` is the only one that the new query may write to; None where it is the old one's
    topics, and the old query is to be retired. ``group`` is given the offsets.

    Of a drop, ``to`` is ``checkpoint``, and the micro-batch after ``batch`` is dropped
    (`spark_eos.protocol.commands.halt`)."""

    of: str
    checkpoint: str
    to: str
    batch: int
    lines: tuple[str, ...]
    metadata: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    topic: str | None = None
    group: str | None = None

    @property
    def drops(self) -> bool:
        return self.to == self.checkpoint

    @property
    def dropped(self) -> int:
        """The micro-batch that is dropped."""
        return self.batch + 1


@dataclass(frozen=True)
class Successor:
    """The query that continues for a retired one, and the location of its checkpoint; both are empty where an operator
    has closed a mirror for good, and its successor is not known yet."""

    query: str
    checkpoint: str


@dataclass(frozen=True)
class Missing:
    """Rows that were committed and are not visible: a transaction's, by its id, from this offset of a partition on.
    Nothing removes this mark: after the rows were written by other means, the query needs a new checkpoint."""

    transaction: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Marks:
    """The marks of a head. ``topic``: the only one that the query may write to."""

    unfinished: Unfinished | None = None
    successor: Successor | None = None
    topic: str | None = None
    missing: Missing | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the marks that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


NO_MARKS = Marks()


# The head


@dataclass(frozen=True)
class Head:
    """The newest record of a query in the ledger.

    ``generation`` counts the runs. ``endtxn_version`` is the version of EndTxn for transactions that began when the run
    did; each transaction of a decision has its own. ``driver`` names the Spark application that the run belongs to.
    ``prefix``: of the transactional ids; runs under another one would not fence this. ``partitioner`` is the one that
    the query began with and keeps, unless its user chooses another: a key whose rows are in one partition must not
    continue in another unasked. ``two_phase``: this run, or one before it, begins transactions that never expire.
    ``write``: the batch write, or the one within foreachBatch, that has this head; None for a streaming query. A batch
    write has the one micro-batch 0, and when all of that is committed, its decision has no transactions any more.
    ``opened_ms``: when the run was opened, by the clock of the task that did it, in milliseconds. ``given_up``: the
    micro-batch of which a write within foreachBatch failed. ``marks`` stay from run to run. ``committed_as``: producer
    id and epoch of the ledger's transactional id once the transaction that wrote this head was committed; None before.
    ``closed_by_operator``: a command has closed the last run. ``unverified``: starts of committed transactions that
    open transactions of other producers have kept readers from, so that nobody has verified them, without the starts of
    ``decision``'s own transactions that have no verdict (`spark_eos.protocol.verify.unverified_starts`). ``topics``:
    every topic that the query's rows were to go to, sorted; ``more_topics``: there were others, more than
    `MOST_TOPICS`.
    """

    run: str
    generation: int
    earlier: tuple[str, ...]
    endtxn_version: int
    decision: Decision | None = None
    driver: str = ""
    prefix: str = ""
    partitioner: str = DEFAULT_PARTITIONER
    two_phase: bool = False
    write: Write | None = None
    opened_ms: int = 0
    given_up: int | None = None
    marks: Marks = NO_MARKS
    committed_as: tuple[int, int] | None = field(default=None, compare=False)
    closed_by_operator: bool = False
    unverified: TransactionStarts = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    more_topics: bool = False

    def with_topics(self, topics: Iterable[str]) -> Head:
        """Return the head of a query that also writes to these topics."""
        every = sorted({*self.topics, *topics})
        if len(every) == len(self.topics):
            return self
        if len(every) > MOST_TOPICS:
            return replace(self, more_topics=True)
        return replace(self, topics=tuple(every))

    def may_write_to(self, topic: str) -> bool:
        """Return whether rows of the query may be in this topic, or are to go there."""
        written = () if self.decision is None else self.decision.written
        return self.more_topics or topic in self.topics or any(w.probe.topic == topic for w in written)

    @property
    def in_foreach_batch(self) -> bool:
        """True for the head of one sink within foreachBatch."""
        return isinstance(self.write, ForeachBatchWrite) and self.write.sink != WHOLE

    @property
    def unwritten(self) -> int | None:
        """The micro-batch that was given up and has not been decided since."""
        if self.given_up is None or (self.decision is not None and self.decision.batch >= self.given_up):
            return None
        return self.given_up

    def closed(self, *, by_operator: bool = False) -> Head:
        """Return the head that closes the run."""
        return replace(self.succeeded_by(NOBODY, self.endtxn_version), closed_by_operator=by_operator)

    def succeeded_by(self, run: str, endtxn_version: int, driver: str = "") -> Head:
        """Return the head that a new run publishes: the same decision, the next generation."""
        earlier = self.earlier if self.run == NOBODY else (self.run, *self.earlier)[:EARLIER_RUNS]
        return replace(
            self,
            run=run,
            generation=self.generation + 1,
            earlier=earlier,
            endtxn_version=endtxn_version,
            driver=driver,
            closed_by_operator=False,
        )
