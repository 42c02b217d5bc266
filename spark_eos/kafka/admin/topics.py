"""Topics: their ids, partitions, first and last offsets, and leader epochs.

Offsets have the shape ``{topic: {partition: offset}}``. No request here creates a topic.
"""

from __future__ import annotations

import base64
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from spark_eos.base import system
from spark_eos.base.retry import Waiting, retrying
from spark_eos.base.topic_partition import PartitionOffsets, TopicPartition, flat, name_of_partition, nested
from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.codes import OK, TOPIC_RETRIES, UNKNOWN_TOPIC, Code, meaning_of, name_of
from spark_eos.kafka.config.properties import Isolation
from spark_eos.kafka.errors import refusal
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.metadata import METADATA, DescribedTopic, about_topics
from spark_eos.kafka.requests.list_offsets import EARLIEST, LATEST, Found, ask_offsets
from spark_eos.kafka.requests.offset_for_leader_epoch import EpochEnd, ask_epoch_ends

#: The result of `offsets_at` for a partition without such a record.
NO_OFFSET = -1

K = TypeVar("K")

#: Seconds after which a cluster that does not answer is an error.
TIMEOUT_S = 12.0
#: Seconds for which a request is repeated if a topic is unknown: a broker that has just started may know none yet, and
#: only one broker may know a topic that was created a moment ago.
_UNKNOWN_TOPIC_S = 3.0
#: Seconds for which names are looked up that may have been meant.
_NEAR_S = 2.0
#: As `_UNKNOWN_TOPIC_S`, for topics that may well be missing.
_MAY_BE_MISSING_S = 1.0


#: Bits of ``topic_authorized_operations`` in Metadata, and the value of that field if it was not requested.
_OPERATIONS = {"READ": 1 << 3, "WRITE": 1 << 4}
_NOT_REPORTED = -(2**31)

#: The id of each topic where brokers have none.
NO_TOPIC_ID = "A" * 22


@dataclass(frozen=True)
class Topic:
    """A topic; one that is deleted and created again has another ``id``. ``leader_epochs``: {partition: epoch of its
    leader}."""

    id: str
    partitions: int
    internal: bool
    leader_epochs: dict[int, int] = field(default_factory=dict, compare=False)


def describe_topics(
    client: BrokerClient,
    topics: Iterable[str],
    timeout_s: float = TIMEOUT_S,
    *,
    missing_ok: bool = False,
    unknown_s: float = _MAY_BE_MISSING_S,
) -> dict[str, Topic]:
    """Return topics by name, with one request. With ``missing_ok``, topics that brokers report as unknown for
    ``unknown_s`` seconds are left out. A caller that then creates them passes 0, as the controller refuses to create
    one that exists.

    Raises ConnectionFailed (EOS_KAFKA_UNREACHABLE), TopicError (EOS_TOPIC_MISSING) and Unauthorized.
    """
    described = _metadata(client, topics, timeout_s, unknown_s=unknown_s if missing_ok else None)
    return {name: topic_of(topic) for name, topic in described.items()}


def topic_of_coordinator(client: BrokerClient, topic: str, name: str, timeout_s: float = TIMEOUT_S) -> Topic:
    """Return the topic as the coordinator of the transactional id ``name`` knows it. Raises as `describe_topics`."""

    def coordinator(timeout_s: float) -> int | None:
        return client.coordinator(name, timeout_s)[0]

    return _known_to(client, topic, coordinator, lambda: client.forget([name]), timeout_s)


def topic_of_leader(client: BrokerClient, topic: str, partition: int, timeout_s: float = TIMEOUT_S) -> Topic:
    """Return the topic as the leader of one of its partitions knows it. Raises as `describe_topics`.

    A broker receives a topic's metadata before it creates the log, so a leader with records of it knows its id.
    """

    def leader(timeout_s: float) -> int | None:
        return client.leaders([(topic, partition)], timeout_s)[0].get((topic, partition))

    return _known_to(
        client, topic, leader, lambda: client.forget_leader(topic, partition), timeout_s, Code.LEADER_NOT_AVAILABLE
    )


def _known_to(
    client: BrokerClient,
    topic: str,
    broker: Callable[[float], int | None],
    forget: Callable[[], None],
    timeout_s: float,
    nobody: Code = Code.COORDINATOR_NOT_AVAILABLE,
) -> Topic:
    def ask(names: list[str], timeout_s: float) -> dict[str, tuple[int, DescribedTopic | None]]:
        node = broker(timeout_s)
        answer = None if node is None else client.ask(node, METADATA, about_topics(names))
        if answer is not None:
            return {topic.name: (topic.error_code, topic) for topic in answer.topics}
        forget()
        return dict.fromkeys(names, (nobody, None))

    return topic_of(_ask(client, [topic], ask, timeout_s, name=str)[topic])


def topic_of(described: DescribedTopic) -> Topic:
    """Return the `Topic` in the metadata that `describe_topic` returns."""
    epochs = {p.partition_index: p.leader_epoch for p in described.partitions}
    return Topic(_readable(described.topic_id), len(described.partitions), described.is_internal, epochs)


def _metadata(
    client: BrokerClient, topics: Iterable[str], timeout_s: float, *, unknown_s: float | None = None, **flags: bool
) -> dict[str, DescribedTopic]:
    def ask(names: list[str], timeout_s: float) -> dict[str, tuple[int, DescribedTopic]]:
        return {topic.name: (topic.error_code, topic) for topic in client.metadata(names, timeout_s, **flags).topics}

    return _ask(client, list(topics), ask, timeout_s, name=str, left_out_s=unknown_s)


def topic_partitions(client: BrokerClient, topics: Iterable[str], timeout_s: float = TIMEOUT_S) -> dict[str, int]:
    """Return the number of partitions of each topic, ``{topic: number}``. Raises as `describe_topics`."""
    return {name: topic.partitions for name, topic in describe_topics(client, topics, timeout_s).items()}


def describe_topic(client: BrokerClient, topic: str) -> DescribedTopic:
    """Return a topic's metadata: also the replicas of its partitions, and the operations that this user may do.

    Raises as `describe_topics`.
    """
    return _metadata(client, [topic], TIMEOUT_S, include_topic_authorized_operations=True)[topic]


def allowed_operations(topic: DescribedTopic) -> frozenset[str] | None:
    """Return which of READ and WRITE this user may do on a topic; None if the brokers did not report it."""
    allowed = topic.topic_authorized_operations
    return None if allowed == _NOT_REPORTED else frozenset(name for name, bit in _OPERATIONS.items() if allowed & bit)


def topic_names(client: BrokerClient, timeout_s: float = TIMEOUT_S) -> list[str]:
    """Return the names of all topics that this user may describe. Raises ConnectionFailed."""
    return sorted(topic.name for topic in client.metadata(None, timeout_s).topics)


def names_near(client: BrokerClient, topic: str) -> list[str]:
    """Return topics of the cluster with names like that of a missing topic or partition; none where nobody answers."""
    try:
        names = topic_names(client, _NEAR_S)
    except ConnectionFailed:
        return []
    return difflib.get_close_matches(topic, [name for name in names if name != topic], n=2)


def cluster_id(client: BrokerClient) -> str:
    """Return the cluster's id; empty if brokers have none. Raises ConnectionFailed."""
    return client.metadata([], TIMEOUT_S).cluster_id or ""


def _readable(topic_id: bytes) -> str:
    """Return a topic id in the text form of Kafka's tools."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def id_bytes(topic_id: str) -> bytes:
    """Return the 16 bytes of a topic id in the text form of Kafka's tools; empty for a topic without an id."""
    return base64.urlsafe_b64decode(topic_id + "==") if topic_id not in ("", NO_TOPIC_ID) else b""


def begin_offsets(
    client: BrokerClient, partitions: Mapping[str, Iterable[int]], timeout_s: float = TIMEOUT_S
) -> PartitionOffsets:
    """Return the first offset of each partition's log. Raises as `describe_topics`."""
    return _list_offsets(client, _each(partitions, EARLIEST), "read_uncommitted", timeout_s)


def end_offsets(
    client: BrokerClient,
    partitions: Mapping[str, Iterable[int]],
    isolation: Isolation = "read_committed",
    timeout_s: float = TIMEOUT_S,
) -> PartitionOffsets:
    """Return the end offset of each partition, exclusive: the last stable offset for ``read_committed``, else the high
    watermark.

    One ListOffsets request to each leader, all at once. Raises as `describe_topics`.
    """
    return _list_offsets(client, _each(partitions, LATEST), isolation, timeout_s)


def ends_and_epochs(
    client: BrokerClient,
    partitions: Mapping[str, Iterable[int]],
    isolation: Isolation = "read_committed",
    timeout_s: float = TIMEOUT_S,
) -> tuple[PartitionOffsets, PartitionOffsets]:
    """Return the end offset of each partition, as by `end_offsets`, and the epoch of the leader that answered."""
    return offsets_and_epochs_at(
        client, {t: dict.fromkeys(of, LATEST) for t, of in partitions.items()}, isolation, timeout_s
    )


def epoch_ends(
    client: BrokerClient, epochs: Mapping[TopicPartition, int], timeout_s: float = TIMEOUT_S
) -> dict[TopicPartition, EpochEnd]:
    """Return where a leader epoch ends in each partition's log, by the leader (OffsetForLeaderEpoch). Raises as
    `describe_topics`."""

    def ask(partitions: list[TopicPartition], timeout_s: float) -> dict[TopicPartition, tuple[int, EpochEnd]]:
        return ask_epoch_ends(client, {partition: epochs[partition] for partition in partitions}, timeout_s)

    return _ask(client, list(epochs), ask, timeout_s, name=name_of_partition)


def offsets_at(client: BrokerClient, times: Mapping[str, Mapping[int, int]]) -> PartitionOffsets:
    """Return the first offset whose record has this timestamp (milliseconds since 1970) or a later one; `NO_OFFSET` if
    there is none. Records beyond the last stable offset do not count. Raises as `describe_topics`.
    """
    return offsets_and_epochs_at(client, times)[0]


def offsets_and_epochs_at(
    client: BrokerClient,
    times: Mapping[str, Mapping[int, int]],
    isolation: Isolation = "read_committed",
    timeout_s: float = TIMEOUT_S,
) -> tuple[PartitionOffsets, PartitionOffsets]:
    """Return the offsets of `offsets_at`, and the leader epochs of the records there, -1 where there is none. With
    ``read_uncommitted``, records beyond the last stable offset count, too."""
    found = _ask_offsets(client, flat(times), isolation, timeout_s)
    offsets = {partition: there.offset for partition, there in found.items()}
    return nested(offsets), nested({partition: there.leader_epoch for partition, there in found.items()})


def _each(partitions: Mapping[str, Iterable[int]], time_: int) -> dict[TopicPartition, int]:
    return {(topic, p): time_ for topic, numbers in partitions.items() for p in numbers}


def _list_offsets(
    client: BrokerClient, times: Mapping[TopicPartition, int], isolation: Isolation, timeout_s: float
) -> PartitionOffsets:
    return nested({at: found.offset for at, found in _ask_offsets(client, times, isolation, timeout_s).items()})


def _ask_offsets(
    client: BrokerClient, times: Mapping[TopicPartition, int], isolation: Isolation, timeout_s: float
) -> dict[TopicPartition, Found]:
    def ask(partitions: list[TopicPartition], timeout_s: float) -> dict[TopicPartition, tuple[int, Found]]:
        return ask_offsets(client, {partition: times[partition] for partition in partitions}, isolation, timeout_s)

    return _ask(client, list(times), ask, timeout_s, name=name_of_partition)


def _ask(
    client: BrokerClient,
    items: list[K],
    ask: Callable[[list[K], float], Mapping[K, tuple[int, Any]]],
    timeout_s: float,
    name: Callable[[K], str],
    left_out_s: float | None = None,
) -> dict[K, Any]:
    """Request all items at once, then repeat items with an error that may pass, until the time is up. ``ask`` returns
    the error code and the result of each item. An item that is unknown for ``left_out_s`` seconds is left out; with
    None, it is an error after some seconds."""
    began = system.monotonic()
    unknown_s = min(_UNKNOWN_TOPIC_S if left_out_s is None else left_out_s, timeout_s)
    answers: dict[K, Any] = {}
    waiting, errors = items, dict[K, int]()
    if not items:
        return answers
    delay = Waiting("asking about topics")
    for _ in retrying(timeout_s):
        found = ask(waiting, max(0.1, began + timeout_s - system.monotonic()))
        answers |= {item: answer for item, (error, answer) in found.items() if error == OK}
        errors = {item: found[item][0] if item in found else min(UNKNOWN_TOPIC) for item in waiting}
        waiting = []
        for item, error in errors.items():
            if error == OK:
                delay.over(name(item))
                continue
            gone = error in UNKNOWN_TOPIC and system.monotonic() - began >= unknown_s
            if error in TOPIC_RETRIES and not gone:
                waiting.append(item)
            elif left_out_s is None or error not in UNKNOWN_TOPIC:
                near = names_near(client, name(item)) if error in UNKNOWN_TOPIC else ()
                raise refusal(client.bootstrap_servers, name(item), error, system.monotonic() - began, near=near)
        if not waiting:
            return answers
        delay.note({name(item): meaning_of(errors[item]) for item in waiting})
    code = errors[waiting[0]]
    away = client.unreached()
    reason = f"{name_of(code)}; no answer from {away}" if away else None
    raise refusal(client.bootstrap_servers, name(waiting[0]), code, system.monotonic() - began, reason)
