"""Who holds back a last stable offset: asked of the leaders and coordinators, as `spark-eos status` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_eos.errors import EosError
from spark_eos.kafka.admin.open_transactions import oldest_open_transaction
from spark_eos.ledger.owners import Cluster, Transaction, find
from spark_eos.ops.metrics.hub import Event
from spark_eos.ops.metrics.queries import is_held
from spark_eos.ops.watching.view import BlockingTransaction
from spark_eos.topic_partition import TopicPartition

#: Partitions; whoever holds one mostly holds others, too.
_MOST_ASKED = 5


def blocking_transactions(cluster: Cluster, events: Sequence[Event]) -> list[BlockingTransaction]:
    """The transactions that hold back partitions, by the newest events; never raises EosError."""
    held = list(_held(events))[:_MOST_ASKED]
    if not held:
        return []
    try:
        ours = {transaction.id: transaction for transaction in find(cluster)}
    except EosError:
        ours = {}  # the leaders may answer all the same
    return [one for topic, partition in held for one in _of(cluster, topic, partition, ours)]


def _held(events: Sequence[Event]) -> Iterator[TopicPartition]:
    newest = {event["source"]: event for event in events if event["event"] == "lag"}
    for event in newest.values():
        for topic, partitions in event["lag"].items():
            yield from ((topic, int(number)) for number, place in partitions.items() if is_held(place))


def _of(cluster: Cluster, topic: str, partition: int, ours: dict[str, Transaction]) -> list[BlockingTransaction]:
    try:
        found = oldest_open_transaction(cluster.kafka, topic, partition)
    except EosError as error:
        return [BlockingTransaction(topic, partition, f"nobody says: {error.condition}")]
    blocking = []
    for one in found:
        own = ours.get(one.transactional_id or "")
        name = (own.query, own.batch, own.decided) if own is not None else (None, None, None)
        blocking.append(BlockingTransaction(topic, partition, str(one), *name))
    return blocking
