"""Open transactions and the queries that they belong to, by the coordinators, the transactional ids and the ledger."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from spark_eos.errors import EosError, KafkaError, LedgerError, TopicError, Unauthorized, stop
from spark_eos.kafka.admin.topics import topic_partitions
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ledger.coordinator import describe, list_ids
from spark_eos.ledger.ledger import ledger_partition
from spark_eos.ledger.log import KafkaLog
from spark_eos.ledger.query import LedgerAddress, query_ports
from spark_eos.ledger.reader import LedgerReader
from spark_eos.protocol.head import NOBODY, BatchWrite, Head, is_waiting
from spark_eos.protocol.head_codec import decode
from spark_eos.protocol.names import SLOTS, ledger_name, names_of, owner_in, parse_task_name
from spark_eos.protocol.ports import Description, Ports, State

#: A transaction that is being ended also holds back readers, until its markers are written.
_OPEN = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)

#: The default of `transactionalIdPrefix`.
DEFAULT_PREFIX = "spark-eos"


@dataclass(frozen=True)
class Cluster:
    """A cluster and a ledger topic on it. ``prefix``: that of the transactional ids (`transactionalIdPrefix`), if the
    user has set it; a query's head also contains the query's prefix."""

    client: BrokerClient
    ledger: str
    prefix: str | None = None

    @cached_property
    def partitions(self) -> int:
        """The number of partitions of the ledger topic. Raises TopicError if it cannot be read."""
        return topic_partitions(self.client, [self.ledger])[self.ledger]

    @cached_property
    def heads(self) -> LedgerReader:
        """A reader of the heads of all queries (`newest_of_all`)."""
        return LedgerReader(KafkaLog(self.client, self.ledger), 0, "")

    @cached_property
    def _prefixes(self) -> dict[str, str]:
        """The prefix of each query whose head was read. It never changes."""
        return {}

    def head(self, query: str) -> Head | None:
        """Return the query's newest head. Raises as `LedgerReader.read` does."""
        home = ledger_partition(query, self.partitions)
        head = LedgerReader(KafkaLog(self.client, self.ledger), home, query).read()
        if head is not None:
            self._prefixes[query] = head.prefix
        return head

    def ports(self, query: str, group: str | None = None, prefix: str | None = None) -> Ports:
        """Return the ports of a query. ``prefix``: that of a query that has no head yet. Raises TopicError if the
        ledger cannot be read, and CommandError (EOS_PREFIX_MISMATCH)."""
        address = LedgerAddress(self.ledger, self.partitions, prefix if prefix is not None else self.prefix_of(query))
        return query_ports(self.client, address, query, group)

    def prefix_of(self, query: str) -> str:
        """Return the prefix of the query's transactional ids: from its head; if that is missing or cannot be read, from
        the ids that the coordinators know, or from ``prefix``.

        Taking the ledger under a wrong prefix would fence nothing and find nothing open. So CommandError
        (EOS_PREFIX_MISMATCH) is raised if ``prefix`` is another one. Raises KafkaError (EOS_LEDGER_HELD) if nothing
        shows the prefix.
        """
        if query not in self._prefixes:
            try:
                known, held = self.head(query) is not None, None
            except KafkaError as error:
                if error.condition != "EOS_LEDGER_HELD":
                    raise
                known, held = False, error
            if not known:
                return self._prefix_by_ids(query, held)
        self._check_prefix(query, {self._prefixes[query]})
        return self._prefixes[query]

    def _prefix_by_ids(self, query: str, held: KafkaError | None) -> str:
        prefixes = {owner[0] for name in _listed(self, [query], list(State)) if (owner := owner_in(name)) is not None}
        if prefixes:
            self._check_prefix(query, prefixes)
        if self.prefix is not None:
            return self.prefix
        if len(prefixes) == 1:
            return prefixes.pop()
        if held is not None:
            raise held
        return DEFAULT_PREFIX

    def _check_prefix(self, query: str, known: Collection[str]) -> None:
        if self.prefix is not None and self.prefix not in known:
            names = " or ".join(f"'{prefix}'" for prefix in sorted(known))
            raise stop("EOS_PREFIX_MISMATCH.query", query=query, prefix_of_query=names, prefix=self.prefix)


@dataclass(frozen=True)
class Transaction:
    """An open transaction of a query; with ``of_ledger``, the query's ledger transaction.

    ``decided``: it may only be committed; None if unknown, for the reason in ``problem``; ``unread``: that reason is
    that the query's head could not be read. ``run`` and ``batch``: None for a transaction of an earlier run.
    ``timeout_s``: None if it never expires. ``open_s``: its age, by the clocks of the coordinator and of this machine.
    ``job``: the id of a batch write (`job.id`).
    """

    id: str
    query: str
    producer_id: int
    epoch: int
    state: str
    open_s: float
    timeout_s: float | None
    of_ledger: bool
    generation: int | None
    run: str | None
    batch: int | None
    decided: bool | None
    places: tuple[tuple[str, int], ...] = ()
    problem: str = field(default="", compare=False)
    job: str | None = None
    unread: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class TransactionPart:
    """The part of a transaction in one partition. ``first_offset``: None if its leader has no open transaction of it,
    or does not answer."""

    topic: str
    partition: int
    first_offset: int | None


def find(
    cluster: Cluster, queries: Collection[str] = (), *, only: Callable[[Description], bool] = lambda description: True
) -> list[Transaction]:
    """Return the open transactions of these queries, under the prefixes in their heads; without queries, of all
    queries, under ``cluster.prefix`` if it is set. ``only``: a filter.

    Raises ConnectionFailed if a broker does not answer, as its transactions are unknown then, and CommandError
    (EOS_PREFIX_MISMATCH) as `Cluster.prefix_of`.
    """
    by_query: dict[str, list[Description]] = {}
    for description in filter(only, _described(cluster, queries)):
        _, query = _owner(description)
        by_query.setdefault(query, []).append(description)
    return [t for query, of in sorted(by_query.items()) for t in _of_query(cluster, query, of, named=bool(queries))]


def check_listed(cluster: Cluster, queries: Collection[str]) -> None:
    """Raise EosError if there may be open transactions although `find` returned none: brokers do not list transactional
    ids that this user may not describe, and no transaction has a prefix that no query uses (EOS_PREFIX_MISMATCH)."""
    if queries:
        with contextlib.suppress(TopicError, Unauthorized):  # without a ledger, no query has transactions
            describe(cluster.client, [ledger_name(cluster.prefix_of(query), query) for query in queries])
            return
    known = _prefixes_in_use(cluster)
    if known and cluster.prefix is not None and cluster.prefix not in known:
        raise stop(
            "EOS_PREFIX_MISMATCH.prefix", ledger=cluster.ledger, prefix=cluster.prefix, known=", ".join(sorted(known))
        )
    asked = known if cluster.prefix is None else {cluster.prefix}
    describe(cluster.client, [ledger_name(prefix, str(uuid.UUID(int=0))) for prefix in asked or {DEFAULT_PREFIX}])


def _prefixes_in_use(cluster: Cluster) -> set[str]:
    """Return the prefixes in the heads of all queries that can be read; empty without a ledger."""
    try:
        newest = cluster.heads.newest_of_all().values()
    except (TopicError, Unauthorized):
        return set()
    names = set()
    for dated in newest:
        with contextlib.suppress(LedgerError):  # a head of another version, or a record of other software
            names.add(decode(dated.value).prefix)
    return names


def decided_elsewhere(cluster: Cluster, topic: str, own_query: str | None) -> list[Transaction]:
    """Return transactions of other queries that are open in the topic, never expire, and are decided, or may be, as the
    query's head could not be read: until they are committed, no reader gets past them."""

    def may_be(description: Description) -> bool:
        return not description.expires and topic in {name for name, _ in description.places}

    return [t for t in find(cluster, only=may_be) if (t.decided or t.unread) and t.query != own_query]


def _described(cluster: Cluster, queries: Collection[str]) -> list[Description]:
    names = [name for name in _listed(cluster, queries, _OPEN) if _is_asked_for(cluster, name, queries)]
    described = describe(cluster.client, names).values()
    return sorted((d for d in described if d.state in _OPEN), key=lambda d: (d.started_ms, d.pair.id))


def _listed(cluster: Cluster, queries: Collection[str], states: Iterable[State]) -> list[str]:
    """Return transactional ids in these states that belong to these queries, or to any query."""
    return [name for name, _ in list_ids(cluster.client, names_of(queries), states)]


def _is_asked_for(cluster: Cluster, name: str, queries: Collection[str]) -> bool:
    owner = owner_in(name)
    if owner is None or (queries and owner[1] not in queries):
        return False
    return bool(queries) or cluster.prefix in (None, owner[0])


def _owner(description: Description) -> tuple[str, str]:
    owner = owner_in(description.pair.id)
    assert owner is not None  # `_described` leaves others out
    return owner


def _of_query(cluster: Cluster, query: str, described: Iterable[Description], *, named: bool) -> list[Transaction]:
    """Return open transactions of a query. ``named``: whether the caller named the query. Then open transactions under
    another prefix than its head's are not the query's own; a list of all queries includes them, as they hold back
    readers, too."""
    head, problem, unread = None, "the ledger knows nothing of the query", False
    try:
        head = cluster.head(query)
    except EosError as error:
        problem, unread = str(error), True
    if named:
        prefix = cluster.prefix_of(query) if head is not None else cluster.prefix
        described = [d for d in described if prefix in (None, _owner(d)[0])]
    return [replace(_transaction(d, head, problem), unread=unread) for d in described]


def _transaction(d: Description, head: Head | None, problem: str) -> Transaction:
    """Describe an open transaction. ``problem``: why the head is unknown."""
    prefix, query = _owner(d)
    if head is not None and head.prefix != prefix:
        problem = f"by the ledger, the prefix of the query is '{head.prefix}'"
        head = None
    elif head is not None:
        problem = ""
    task = parse_task_name(prefix, query, d.pair.id)
    run = batch = decided = None
    if head is not None and task is not None:
        last = head.decision.batch if head.decision is not None else -1
        decided = is_waiting(head.decision, d.pair.id)
        of_newest, newest = _newest_run(head)
        if task.generation == of_newest:
            run, batch = newest, last + 1 if (last + 1) % SLOTS == task.slot else last
        if decided:
            batch = last
    return Transaction(
        d.pair.id,
        query,
        d.pair.producer_id,
        d.pair.epoch,
        d.state.value,
        max(0.0, time.time() - d.started_ms / 1000),
        d.timeout_ms / 1000 if d.expires else None,
        task is None,
        task.generation if task is not None else None,
        run,
        batch,
        decided,
        d.places,
        problem,
        head.write.job_id if head is not None and isinstance(head.write, BatchWrite) else None,
    )


def _newest_run(head: Head) -> tuple[int, str | None]:
    """Return the newest run that may have begun transactions, as (generation, name). A head that closes a run has the
    next generation."""
    if head.run != NOBODY:
        return head.generation, head.run
    return (head.generation - 1, head.earlier[0]) if head.earlier else (head.generation, None)


def parts(cluster: Cluster, transaction: Transaction) -> list[TransactionPart]:
    """Return the parts of a transaction, from the leaders of its partitions."""
    data = cluster.ports(transaction.query).data
    own = transaction.producer_id, transaction.epoch
    listed = []
    for topic, partition in sorted(transaction.places):
        state = data.partition(topic, partition)
        listed.append(TransactionPart(topic, partition, state.open.get(own) if state is not None else None))
    return listed
