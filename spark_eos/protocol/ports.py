"""Ports of the protocol: implemented by `spark_eos.ledger` for real brokers, and by the simulation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.protocol.extra import FeatureRecords
from spark_eos.protocol.head import Head, Offsets, Pair, Probe, TransactionStart


class NotPublished(Exception):
    """A ledger transaction was fenced, or nobody knows whether it was committed: take the ledger and read."""


class State(Enum):
    """A transaction's state, in the coordinator's words."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"
    UNKNOWN = "Unknown"

    @property
    def commits(self) -> bool:
        """True from the commit on, with or without markers."""
        return self in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


@dataclass(frozen=True)
class Description:
    """A coordinator's description of a transactional id. Milliseconds; ``started_ms`` is by the coordinator's clock.

    ``places``: partitions, (topic, number), that the transaction has written to.
    """

    pair: Pair
    state: State
    started_ms: int
    timeout_ms: int
    places: tuple[tuple[str, int], ...] = ()

    @property
    def expires(self) -> bool:
        return self.timeout_ms != NEVER_MS


@dataclass(frozen=True)
class Generations:
    """The newest generation that has begun a transaction of a task, the newest with a committed one, and the newest
    that a decision names; 0 where there is none."""

    begun: int = 0
    committed: int = 0
    decided: int = 0


class EndTxnAnswer(Enum):
    """Meaning of an answer to EndTxn; the numbers are Kafka's error codes."""

    DONE = "done"  # 0
    PENDING = "pending"  # 51, 14, 15, 16, or no answer in time: ask again
    INCONCLUSIVE = "inconclusive"  # 48, 90, 47, 49: the coordinator has no such transaction, or not any more


class Visibility(Enum):
    """State of a transaction in a partition, by the log at the offset of one of its records, once the last stable
    offset is past it."""

    VISIBLE = "visible"
    ABORTED = "aborted"
    DELETED = "deleted"  # with its topic; there may be another one of that name
    EXPIRED = "expired"  # retention or compaction has taken it, or another producer's record has its offset
    BLOCKED = "blocked"  # an open transaction of another producer, which began earlier, keeps readers from it


@dataclass(frozen=True)
class PartitionState:
    """A partition as its leader has it: where its log begins, and, by (producer id, epoch) of each transaction that is
    open in it, the offset of its first record, and the sequence number of its last one."""

    begin: int
    open: Mapping[tuple[int, int], int]
    lasts: Mapping[tuple[int, int], int] = field(default_factory=dict)


class Term(Protocol):
    """The ledger, taken: its previous holder is fenced. Good for one publication."""

    def read(self) -> Head | None:
        """Return the head, authoritative."""
        ...

    def publish(self, head: Head, offsets: Offsets | None = None, records: FeatureRecords | None = None) -> None:
        """Write the head, and consumer offsets and a feature's records if given, in one transaction. Raises
        NotPublished."""
        ...


class Ledger(Protocol):
    def read(self) -> Head | None:
        """Return the newest head that is committed; not authoritative, as its successor may be under way."""
        ...

    def check_topic(self) -> None:
        """Forget records of a lost ledger that this process has read, if there is another one instead."""
        ...

    def take(self) -> Term:
        """Fence the ledger's holder. A topic that was created anew since the last read is an error
        (EOS_LEDGER_TRUNCATED): it may be as long as the old one was, with another run's decision in it."""
        ...


class Coordinator(Protocol):
    def describe(self, ids: Collection[str]) -> Mapping[str, Description]:
        """Describe these transactional ids; ids that the coordinators do not know are left out."""
        ...

    def of_ledger(self) -> Description | None:
        """Describe the id under which the ledger is taken; None where its coordinator does not know it."""
        ...

    def known(self) -> Collection[Description]:
        """Return every transactional id of this query that has had a transaction within a week."""
        ...

    def generations(self, decided: Collection[str] = (), *, since: int = 0, thorough: bool = False) -> Generations:
        """Return the newest generations of this query that had a transaction of a task within a week; of ``decided``
        ids, at any time. Only generations after the decided ones, and from ``since`` on, are listed: a week of short
        runs has many. Brokers that do not list by pattern return none; with ``thorough``, they list the transactions of
        all users, and an id under which nothing was written yet counts, too, as a late request leaves one."""
        ...

    def ongoing(
        self, *, before: int | None = None, generation_and_slot: tuple[int, int] | None = None, empty: bool = False
    ) -> Collection[Description]:
        """Return every Ongoing transaction of a task of this query; with ``before``, only of generations before that
        one; with ``generation_and_slot``, only of these. With ``empty`` also the ids under which nothing is open yet,
        of an attempt that has not written anything."""
        ...

    def begin_ongoing(self, *, empty: bool = False) -> Callable[[], Collection[Description]]:
        """Begin to list all Ongoing transactions of tasks. The function that is returned waits for the answer, or
        raises the error."""
        ...

    def endtxn_version(self) -> int:
        """Return the version of EndTxn for transactions that begin now, by the cluster's finalized transaction.version
        as this process last heard of it: ``FENCING_END`` or ``PLAIN_END``."""
        ...

    def end(self, pairs: Mapping[Pair, int], *, commit: bool) -> Mapping[Pair, EndTxnAnswer]:
        """Send EndTxn for all transactions at once, each by the version that is given with it."""
        ...

    def fence(self, names: Collection[str]) -> Collection[str]:
        """Send InitProducerId once for each transactional id, which aborts its open transaction and fences its
        producer. Returns the ids that were not given a new epoch: ask again. Raises Unauthorized."""
        ...


class Data(Protocol):
    def look(self, pair: Pair, probe: Probe) -> Visibility | None:
        """Look for a record of this pair, read_committed; None while the last stable offset is not past it."""
        ...

    def look_each(self, starts: Collection[TransactionStart]) -> Mapping[TransactionStart, Visibility | None]:
        """Return whether the transactions with these starts were ABORTED in that partition, and otherwise VISIBLE,
        though the rows may have been removed since. DELETED where the topic with this id is not there any more.
        BLOCKED, or None, while it is not known; None also while one of these transactions itself is open there.

        One request to each leader for all of its partitions; more only where several transactions begin in one."""
        ...

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """Return a partition's state by its leader; None without an answer."""
        ...

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the ids of these topics by now, as far as a broker knows them: a hint, as that one may lag behind."""
        ...


@dataclass(frozen=True)
class Ports:
    """Everything that the steps of one query need.

    ``retrying()`` yields for as long as it is worth trying again, waiting in between; ``now_ms()`` is the time of day,
    ``elapsed_ms()`` measures the time between two calls, even if the clock is set back or the machine sleeps;
    ``reach(point)`` marks the named points of ``spark_eos.base.failpoints``.
    """

    ledger: Ledger
    coordinator: Coordinator
    data: Data
    retrying: Callable[[], Iterator[None]]
    now_ms: Callable[[], int]
    elapsed_ms: Callable[[], int]
    reach: Callable[[str], None]
