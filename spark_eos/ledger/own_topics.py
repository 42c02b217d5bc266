"""Topics that hold no users' rows: Kafka's internal topics, and ledgers, offset maps and notes of spark-eos.

The latter are recognized by the prefix `OWN_NAMES` of their names, or else by their records. As they are compacted,
only compacted topics are read for this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from spark_eos.base.topic_partition import OWN_NAMES, TopicPartition
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.configs import cleanup_policies
from spark_eos.kafka.admin.topics import Topic, begin_offsets, end_offsets
from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.records.batches import Damage, walk_batches
from spark_eos.kafka.records.rows import Row, read_rows
from spark_eos.kafka.requests.fetch import FetchResponse, fetch_many
from spark_eos.ledger.record_forms import OwnTopic, own_topic_of

#: The description of a topic that Kafka marks as internal.
INTERNAL = "an internal topic of Kafka"

_COMPACTED = "compact"
#: Among so many last offsets of a ledger's partition there is a committed record: each has a marker behind it, and few
#: are aborted.
_NEAR_END = 16
_PART_BYTES, _ALL_BYTES = 256 << 10, 4 << 20
#: Of a record batch, decompressed.
_BATCH_BYTES = 16 << 20
_FETCH_S = 10.0


def not_for_rows(client: BrokerClient, topics: Mapping[str, Topic]) -> dict[str, str]:
    """Return the topics that hold no users' rows, {name: its contents in a few words}; other topics are left out.

    A partition whose leader does not answer, or that this user may not read, does not count. Raises as
    `describe_topics`.
    """
    kinds = {name: what for name, topic in topics.items() if (what := _by_name(name, topic.internal)) is not None}
    others = {name: topic.partitions for name, topic in topics.items() if name not in kinds}
    return kinds | {name: kind.value for name, kind in own_topics(client, others).items()}


def _by_name(name: str, internal: bool) -> str | None:
    if internal:
        return INTERNAL
    return f"a topic of spark-eos, as its name begins with {OWN_NAMES}" if name.startswith(OWN_NAMES) else None


def check_for_rows(client: BrokerClient, topics: Mapping[str, Topic], *, ledger: str | None = None) -> None:
    """Raise TopicError (EOS_TOPIC_RESERVED) if one of these topics holds no users' rows. ``ledger``: the query's
    own."""
    kinds = not_for_rows(client, topics)
    if ledger is not None and ledger in topics:
        kinds[ledger] = "the query's own ledger"
    for name, what in sorted(kinds.items()):
        raise reserved(name, what)


def reserved(topic: str, what: str) -> EosError:
    """Return the error for a topic that holds no users' rows. ``what``: its contents, in a few words."""
    return stop("EOS_TOPIC_RESERVED", topic=topic, what=what)


def own_topics(client: BrokerClient, partitions: Mapping[str, int]) -> dict[str, OwnTopic]:
    """Return which of these topics belong to spark-eos, and their kinds, by their records. Raises as
    `describe_topics`."""
    policies = cleanup_policies(client, partitions)
    compacted = {name: n for name, n in partitions.items() if _COMPACTED in policies.get(name, _COMPACTED)}
    kinds = {topic: kind_of(rows) for topic, rows in samples(client, compacted).items()}
    return {topic: kind for topic, kind in kinds.items() if kind is not None}


def kind_of(rows: Iterable[Row]) -> OwnTopic | None:
    """Return the kind of a topic of spark-eos, by the first record that shows it; None if none does."""
    return next(filter(None, (own_topic_of(key, value) for _, key, value in rows)), None)


def samples(client: BrokerClient, partitions: Mapping[str, int]) -> dict[str, list[Row]]:
    """Return some committed records of each topic, from the beginning and the end of each partition."""
    every = {name: range(count) for name, count in partitions.items()}
    if not every:
        return {}
    begins, ends = begin_offsets(client, every), end_offsets(client, every)
    filled = [(name, p) for name, numbers in every.items() for p in numbers if begins[name][p] < ends[name][p]]
    near = {(name, p): max(begins[name][p], ends[name][p] - _NEAR_END) for name, p in filled}
    first = {(name, p): begins[name][p] for name, p in filled if begins[name][p] < near[name, p]}
    rows_of: dict[str, list[Row]] = {name: [] for name in every}
    for (name, _), rows in (*_rows(client, near), *_rows(client, first)):
        rows_of[name] += rows
    return rows_of


def _rows(client: BrokerClient, at: Mapping[TopicPartition, int]) -> Iterator[tuple[TopicPartition, list[Row]]]:
    if not at:
        return
    wanted = {partition: (offset, _PART_BYTES) for partition, offset in at.items()}
    answers = fetch_many(client, wanted, isolation="read_committed", max_bytes=_ALL_BYTES, timeout_s=_FETCH_S)
    for partition, (answer, data) in answers.items():
        yield partition, _visible(answer, data)


def _visible(answer: FetchResponse, data: bytes) -> list[Row]:
    if answer.error != OK:
        return []
    rows: list[Row] = []
    try:
        for batch in walk_batches(data, answer.size, answer.aborted):
            if batch.visible:
                rows += read_rows(data, batch, _BATCH_BYTES)
    except Damage:
        pass  # the rows before it are enough
    return rows
