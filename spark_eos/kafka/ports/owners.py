"""Open transactions, and whose they are: by the coordinators, by their ids, and by the ledger."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from spark_eos.errors import EosError
from spark_eos.kafka.admin.topics import topic_partitions
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.errors import no_coordinator
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.ports.coordinator import RETRY_S, TransactionCoordinator
from spark_eos.kafka.ports.ledger_log import KafkaLog
from spark_eos.kafka.ports.ledger_reader import LedgerReader
from spark_eos.kafka.ports.query import LedgerPlace, query_ports
from spark_eos.kafka.requests.list_transactions import open_transactional_ids
from spark_eos.protocol.closing import is_waiting
from spark_eos.protocol.head import NOBODY, Head
from spark_eos.protocol.names import SLOTS, ledger_name, parse_task_name
from spark_eos.protocol.ports import Description, Ports, State
from spark_eos.retry import retrying

#: An end that is under way holds readers, too, until its markers are written.
_OPEN = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
_QUERY = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True)
class Cluster:
    """Where to look. ``prefix`` is that of the transactional ids (`transactionalIdPrefix`)."""

    kafka: KafkaProperties
    ledger: str
    prefix: str

    @cached_property
    def place(self) -> LedgerPlace:
        """Raises TopicError without a ledger that can be read."""
        return LedgerPlace(self.ledger, topic_partitions(self.kafka, [self.ledger])[self.ledger], self.prefix)

    @cached_property
    def heads(self) -> LedgerReader:
        """Reads the heads of all queries (`newest_of_all`)."""
        return LedgerReader(KafkaLog(self.kafka, self.ledger), 0, "")

    def ports(self, query: str) -> Ports:
        """Raises TopicError without a ledger that can be read."""
        return query_ports(self.kafka, self.place, query)[0]


@dataclass(frozen=True)
class Transaction:
    """An open transaction of a query, or, with ``of_ledger``, the query's ledger transaction.

    ``decided``: it may only be committed; None where the ledger does not tell, for the reason in ``problem``. ``run``
    and ``batch`` are None where they cannot be told: of earlier runs. ``timeout_s`` is None where it never expires.
    ``open_s``: by the clocks of the coordinator and of this machine. ``job``: the id of a batch write (`job.id`).
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


@dataclass(frozen=True)
class TransactionPart:
    """Where a transaction begins in a partition; None where the leader has no open transaction of it, or is silent."""

    topic: str
    partition: int
    first_offset: int | None


def find(
    cluster: Cluster, queries: Collection[str] = (), *, only: Callable[[Description], bool] = lambda description: True
) -> list[Transaction]:
    """The open transactions of these queries, or of all under the prefix; ``only`` those of which this is true.

    Raises ConnectionFailed where a broker does not answer: what it coordinates is not known then.
    """
    by_query: dict[str, list[Description]] = {}
    for description in filter(only, _described(cluster, queries)):
        by_query.setdefault(_query_of(cluster.prefix, description.pair.id), []).append(description)
    return [t for query, of in sorted(by_query.items()) for t in _of_query(cluster, query, of)]


def check_listed(cluster: Cluster, queries: Collection[str]) -> None:
    """Raise EosError where this user is not told of transactions: brokers leave out what it may not describe."""
    coordinator = TransactionCoordinator(broker_client(cluster.kafka), cluster.prefix, "")
    coordinator.describe([ledger_name(cluster.prefix, query) for query in queries or [str(uuid.UUID(int=0))]])


def decided_elsewhere(cluster: Cluster, topic: str, own_query: str | None) -> list[Transaction]:
    """Decided transactions of other queries that never expire and are open in the topic: until somebody commits them,
    no reader gets past them."""

    def may_be(description: Description) -> bool:
        return not description.expires and topic in {name for name, _ in description.places}

    return [t for t in find(cluster, only=may_be) if t.decided and t.query != own_query]


def _described(cluster: Cluster, queries: Collection[str]) -> list[Description]:
    client = broker_client(cluster.kafka)
    for _ in retrying(RETRY_S):
        names = open_transactional_ids(client, f"{re.escape(cluster.prefix)}-.*", [state.value for state in _OPEN])
        if names is not None:
            break
    else:
        raise no_coordinator(f"{cluster.prefix}-…", RETRY_S)
    own = [name for name in names if _is_asked_for(_query_of(cluster.prefix, name), queries)]
    found = TransactionCoordinator(client, cluster.prefix, "").describe(own).values()
    return sorted((d for d in found if d.state in _OPEN), key=lambda d: (d.started_ms, d.pair.id))


def _is_asked_for(query: str, queries: Collection[str]) -> bool:
    return bool(query) and (not queries or query in queries)


def _query_of(prefix: str, name: str) -> str:
    """The query whose id this is; empty for an id that is nobody's."""
    match = re.match(f"{re.escape(prefix)}-({_QUERY})-", name)
    query = match[1] if match is not None else ""
    known = parse_task_name(prefix, query, name) is not None or name == ledger_name(prefix, query)
    return query if known else ""


def _of_query(cluster: Cluster, query: str, described: Iterable[Description]) -> list[Transaction]:
    head, problem = None, "the ledger knows nothing of the query"
    try:
        head = cluster.ports(query).ledger.read()
    except EosError as error:
        problem = str(error)
    return [_transaction(cluster.prefix, query, d, head, problem if head is None else "") for d in described]


def _transaction(prefix: str, query: str, d: Description, head: Head | None, problem: str) -> Transaction:
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
        head.job.id if head is not None and head.job is not None else None,
    )


def _newest_run(head: Head) -> tuple[int, str | None]:
    """The newest run that may have begun transactions, by generation and name. Whoever has closed it has the next."""
    if head.run != NOBODY:
        return head.generation, head.run
    return (head.generation - 1, head.earlier[0]) if head.earlier else (head.generation, None)


def parts(cluster: Cluster, transaction: Transaction) -> list[TransactionPart]:
    """Each partition of a transaction, as its leader has it."""
    data = cluster.ports(transaction.query).data
    own = transaction.producer_id, transaction.epoch
    found = []
    for topic, partition in sorted(transaction.places):
        state = data.partition(topic, partition)
        found.append(TransactionPart(topic, partition, state.open.get(own) if state is not None else None))
    return found
