"""What the cluster says about topics: how many partitions, where they begin, where they end.

Offsets have the shape ``{topic: {partition: offset}}``. Nothing here ever creates a topic by asking for it.
"""

from __future__ import annotations

import base64
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient, OffsetSpec

from spark_eos.errors import ConnectionFailed, KafkaError, TopicError
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.config.properties import Isolation, KafkaProperties

#: What `offsets_at` says of a partition without a record of that time or later.
NO_OFFSET = -1

Offsets = dict[str, dict[int, int]]
T = TypeVar("T")

#: Seconds for the first try; each further one has twice as many.
_FIRST_TRY_S = 4.0
#: Seconds until a silent cluster is an error.
TIMEOUT_S = 12.0
#: Seconds for which "unknown topic" is asked again: a broker that has just started may say so of any topic.
_UNKNOWN_TOPIC_S = 1.0

_UNKNOWN_TOPIC = {
    ClientError.UNKNOWN_TOPIC_OR_PART,
    ClientError._UNKNOWN_TOPIC,
    ClientError._UNKNOWN_PARTITION,
    ClientError._NOENT,  # "no leaders found": the partitions asked for are not in the metadata
}
_UNREACHABLE = {
    ClientError._TIMED_OUT,
    ClientError._TIMED_OUT_QUEUE,
    ClientError._TRANSPORT,
    ClientError._ALL_BROKERS_DOWN,
    ClientError._RESOLVE,
    ClientError._AUTHENTICATION,
    ClientError._SSL,
}
#: The client goes by what it remembers of the leaders, and does not ask again before its metadata are minutes old.
_STALE = {ClientError.FENCED_LEADER_EPOCH, ClientError.UNKNOWN_LEADER_EPOCH}
#: A group's or a transactional id's coordinator is being set up, or moves.
COORDINATOR_MOVING = {
    ClientError.COORDINATOR_LOAD_IN_PROGRESS,
    ClientError.COORDINATOR_NOT_AVAILABLE,
    ClientError.NOT_COORDINATOR,
}
#: Leadership is moving, or a broker is starting; the next answer may be a good one.
_PASSING = {
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.NOT_LEADER_FOR_PARTITION,
    ClientError.REPLICA_NOT_AVAILABLE,
    ClientError.FENCED_LEADER_EPOCH,
    ClientError.UNKNOWN_LEADER_EPOCH,
    ClientError.OFFSET_NOT_AVAILABLE,
    ClientError.KAFKA_STORAGE_ERROR,
    ClientError.NETWORK_EXCEPTION,
    ClientError.REQUEST_TIMED_OUT,
} | COORDINATOR_MOVING


@dataclass(frozen=True)
class Topic:
    """One life of a topic: a topic that is deleted and created again has another ``id``."""

    id: str
    partitions: int
    internal: bool


def describe_topics(
    kafka: KafkaProperties, topics: Iterable[str], timeout_s: float = TIMEOUT_S, *, missing_ok: bool = False
) -> dict[str, Topic]:
    """The topics by one request; with ``missing_ok`` those that are not there are left out.

    Raises ConnectionFailed (EOS_KAFKA_UNREACHABLE) and TopicError (EOS_TOPIC_MISSING, EOS_TOPIC_UNAUTHORIZED).
    """

    def send(client: AdminClient, names: list[str], left_s: float) -> dict[str, Future]:
        return client.describe_topics(TopicCollection(names), request_timeout=left_s)

    found = _ask(kafka, list(topics), send, timeout_s, name=str, missing_ok=missing_ok)
    return {
        name: Topic(_readable(topic.topic_id), len(topic.partitions), topic.is_internal)
        for name, topic in found.items()
    }


def topic_partitions(kafka: KafkaProperties, topics: Iterable[str], timeout_s: float = TIMEOUT_S) -> dict[str, int]:
    """``{topic: number of partitions}``. Errors as for `describe_topics`."""
    return {name: topic.partitions for name, topic in describe_topics(kafka, topics, timeout_s).items()}


def topic_names(kafka: KafkaProperties, timeout_s: float = TIMEOUT_S) -> list[str]:
    """Every topic that this user may see. Raises ConnectionFailed."""

    def send(client: AdminClient, items: list[str], left_s: float) -> dict[str, Future]:
        answer: Future = Future()
        try:
            answer.set_result(client.list_topics(timeout=left_s))
        except KafkaException as error:
            answer.set_exception(error)
        return {items[0]: answer}

    return sorted(_ask(kafka, ["all topics"], send, timeout_s, name=str)["all topics"].topics)


def _readable(topic_id: Uuid) -> str:
    """The id as Kafka's own tools print it."""
    bits = topic_id.get_most_significant_bits() % 2**64 << 64 | topic_id.get_least_significant_bits() % 2**64
    return base64.urlsafe_b64encode(bits.to_bytes(16, "big")).decode().rstrip("=")


def begin_offsets(
    kafka: KafkaProperties, partitions: Mapping[str, Iterable[int]], timeout_s: float = TIMEOUT_S
) -> Offsets:
    """The first offset that each partition still has. Errors as for `topic_partitions`."""
    return _list_offsets(kafka, _each(partitions, OffsetSpec.earliest()), "read_uncommitted", timeout_s)


def end_offsets(
    kafka: KafkaProperties,
    partitions: Mapping[str, Iterable[int]],
    isolation: Isolation = "read_committed",
    timeout_s: float = TIMEOUT_S,
) -> Offsets:
    """The end of each partition, exclusive: its last stable offset for ``read_committed``, else its high watermark.

    One pipelined ListOffsets for all partitions: 2 ms on a connection that is there. Errors as for `topic_partitions`.
    """
    return _list_offsets(kafka, _each(partitions, OffsetSpec.latest()), isolation, timeout_s)


def offsets_at(
    kafka: KafkaProperties,
    times: Mapping[str, Mapping[int, int]],
    isolation: Isolation = "read_committed",
    timeout_s: float = TIMEOUT_S,
) -> Offsets:
    """The first offset whose record is of this time (milliseconds since 1970) or later; `NO_OFFSET` where none is.

    With ``read_committed``, records beyond the last stable offset do not count. Errors as for `describe_topics`.
    """
    specs = {
        TopicPartition(t, p): OffsetSpec.for_timestamp(at) for t, parts in times.items() for p, at in parts.items()
    }
    return _list_offsets(kafka, specs, isolation, timeout_s)


def _each(partitions: Mapping[str, Iterable[int]], spec: OffsetSpec) -> dict[TopicPartition, OffsetSpec]:
    return {TopicPartition(topic, p): spec for topic, numbers in partitions.items() for p in numbers}


def _list_offsets(
    kafka: KafkaProperties, specs: Mapping[TopicPartition, OffsetSpec], isolation: Isolation, timeout_s: float
) -> Offsets:
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED

    def send(client: AdminClient, asked: list[TopicPartition], left_s: float) -> dict[TopicPartition, Future]:
        wanted = {place: specs[place] for place in asked}
        return client.list_offsets(wanted, isolation_level=level, request_timeout=left_s)

    result: Offsets = {}
    for place, info in _ask(kafka, list(specs), send, timeout_s, name=lambda p: f"{p.topic}-{p.partition}").items():
        result.setdefault(place.topic, {})[place.partition] = info.offset
    return result


def _ask(
    kafka: KafkaProperties,
    items: list[Any],
    send: Callable[[AdminClient, list[Any], float], Mapping[Any, Future]],
    timeout_s: float,
    name: Callable[[Any], str],
    missing_ok: bool = False,
) -> dict[Any, Any]:
    """Send for all items at once, and again for those whose error may pass, until the time is up.

    A client that got no answer is replaced: librdkafka sends what concerns no particular broker to the one that it
    takes for the controller, and an admin client that knows no topic does not learn that this one is dead and that
    another has taken its place before its metadata are minutes old.
    """
    if not items:
        return {}
    admin = _admin(kafka, os.getpid())
    admin.reason = None
    began = time.monotonic()
    answers: dict[Any, Any] = {}
    missing: set[Any] = set()
    try_s = _FIRST_TRY_S
    for pause_s in _pauses():
        waiting = [item for item in items if item not in answers and item not in missing]
        left_s = min(try_s, max(0.1, began + timeout_s - time.monotonic()))
        errors = {}
        for item, future in send(admin.client, waiting, left_s).items():
            try:
                answers[item] = future.result()
            except KafkaException as error:
                errors[item] = error.args[0]
        admin.client.poll(0)  # serves the error callback and the log
        if not errors:
            return answers
        elapsed_s = time.monotonic() - began
        for item, error in list(errors.items()):
            if not _may_pass(error.code(), elapsed_s, timeout_s):
                if not (missing_ok and error.code() in _UNKNOWN_TOPIC):
                    raise named(kafka, name(item), error, elapsed_s, admin.reason)
                missing.add(item)
                del errors[item]
        if not errors:
            return answers
        if any(error.code() in _STALE | _UNREACHABLE for error in errors.values()):
            admin = _replaced(kafka, admin)
            try_s *= 2
        time.sleep(pause_s)
    raise AssertionError


def answer(kafka: KafkaProperties, question: Callable[[AdminClient, float], T], timeout_s: float = TIMEOUT_S) -> T:
    """What ``question(client, seconds)`` returns, which may raise KafkaException.

    A client that got no answer, or that asks a coordinator of yesterday, is replaced by another one, until the time is
    up, as in `_ask`; any other error is for the caller.
    """
    began = time.monotonic()
    try_s = _FIRST_TRY_S
    for pause_s in _pauses():
        admin = _admin(kafka, os.getpid())
        try:
            return question(admin.client, min(try_s, max(0.1, began + timeout_s - time.monotonic())))
        except KafkaException as error:
            may_pass = error.args[0].code() in _STALE | _UNREACHABLE | COORDINATOR_MOVING
            if not may_pass or time.monotonic() - began >= timeout_s:
                raise
        _replaced(kafka, admin)
        try_s *= 2
        time.sleep(pause_s)
    raise AssertionError


def _replaced(kafka: KafkaProperties, admin: _Admin) -> _Admin:
    """A new client, which knows what the old one said last."""
    _admin.cache_clear()
    new = _admin(kafka, os.getpid())
    new.reason = admin.reason
    return new


def _pauses() -> Iterable[float]:
    pause_s = 0.01
    while True:
        yield pause_s
        pause_s = min(0.25, pause_s * 2)


def _may_pass(code: int, elapsed_s: float, timeout_s: float) -> bool:
    if code in _UNKNOWN_TOPIC:
        return elapsed_s < min(_UNKNOWN_TOPIC_S, timeout_s)
    return code in _PASSING | _UNREACHABLE and elapsed_s < timeout_s


def named(
    kafka: KafkaProperties, what: str, error: ClientError, elapsed_s: float, reason: str | None = None
) -> KafkaError:
    """The error with a name for what a client said when it was asked about ``what``."""
    code, servers = error.code(), kafka.bootstrap_servers
    if code in _UNREACHABLE | _PASSING:
        return ConnectionFailed(
            "EOS_KAFKA_UNREACHABLE",
            f"No answer about {what} from {servers} within {elapsed_s:.1f} s ({reason or error.str()}).",
            hint="Check kafka.bootstrap.servers, the network, kafka.security.* and kafka.sasl.*.",
            bootstrap_servers=servers,
            waited_s=round(elapsed_s, 1),
            reason=reason or error.str(),
        )
    if code in _UNKNOWN_TOPIC:
        return TopicError(
            "EOS_TOPIC_MISSING",
            f"{servers} has no topic or partition {what}.",
            hint="Create it, or correct the name. spark-eos creates no topic by reading or writing it.",
            topic=what,
        )
    if code in (ClientError.TOPIC_AUTHORIZATION_FAILED, ClientError.CLUSTER_AUTHORIZATION_FAILED):
        return TopicError(
            "EOS_TOPIC_UNAUTHORIZED",
            f"This user may not describe the topic {what} on {servers}.",
            hint="Grant Describe, and Read or Write as needed, on the topic.",
            topic=what,
        )
    return KafkaError(
        "EOS_KAFKA_REFUSED",
        f"{servers} refused a question about {what}: {error.str()} ({error.name()}).",
        hint="Check the topic's name and the state of the brokers.",
        topic=what,
        reason=error.name(),
    )


class _Admin:
    """An AdminClient and the last thing it said about its connections."""

    def __init__(self, kafka: KafkaProperties) -> None:
        self.reason: str | None = None
        self.client = AdminClient(librdkafka_config(kafka, "admin", {"error_cb": self._remember}))

    def _remember(self, error: ClientError) -> None:
        if error.code() != ClientError._ALL_BROKERS_DOWN:  # says less than the errors around it
            self.reason = error.str()


@functools.lru_cache(maxsize=4)
def _admin(kafka: KafkaProperties, process_id: int) -> _Admin:
    """One client for each cluster and process: a first connection costs 20 ms, a question on an open one 2 ms."""
    return _Admin(kafka)
