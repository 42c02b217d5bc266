"""Kafka's error codes as errors of this package, for librdkafka's clients and for this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import EosError, stop
from spark_eos.kafka.codes import (
    ABOUT_THE_ROWS,
    ADMIN_RETRIES,
    FENCED,
    TOPIC_RETRIES,
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    Code,
    name_of,
)


@dataclass(frozen=True)
class Cause:
    """Why a request failed: Kafka's error code, or a negative one of the client's own, its name, and a sentence."""

    code: int
    name: str
    text: str

    def __str__(self) -> str:
        return self.text if self.text == self.name else f"{self.text} ({self.name})"

    @classmethod
    def of(cls, code: int) -> Cause:
        return cls(code, name_of(code), name_of(code))

    @classmethod
    def timed_out(cls, text: str) -> Cause:
        return cls(Code.REQUEST_TIMED_OUT, Code.REQUEST_TIMED_OUT.name, text)


def delivery_error(name: str, cause: Cause, failed: int) -> EosError:
    """The error for ``failed`` rows that were not written under this transactional id."""
    if cause.code == Code.MESSAGE_TOO_LARGE:
        return stop("EOS_ROW_TOO_LARGE.broker", text=cause.text)
    if cause.code in FENCED:
        return fenced(name)
    if cause.code in UNAUTHORIZED:
        return stop("EOS_UNAUTHORIZED.delivery", reason=cause.name, failed=failed, text=cause.text)
    if cause.code in ABOUT_THE_ROWS:
        return stop("EOS_ROW_REFUSED", reason=cause.name, failed=failed, cause=cause)
    return stop("EOS_DELIVERY_FAILED.rows", reason=cause.name, failed=failed, text=cause.text)


def too_large(place: TopicPartition, rows: int, size: int) -> EosError:
    """The error for a record batch of ``size`` bytes that a partition does not take."""
    topic, partition = place
    less = "shrink the row" if rows == 1 else "lower 'kafka.batch.size', so that a batch has fewer rows"
    return stop("EOS_ROW_TOO_LARGE.batch", topic=topic, bytes=size, partition=partition, rows=rows, less=less)


def init_error(name: str, timeout_ms: int, cause: Cause) -> EosError:
    """The error for an InitProducerId that was refused."""
    if cause.code == Code.INVALID_TRANSACTION_TIMEOUT:
        return stop("EOS_TRANSACTION_TIMEOUT_TOO_LONG.init", timeout_ms=timeout_ms)
    if cause.code in FENCED:
        return fenced(name)
    if cause.code in UNAUTHORIZED:
        return stop("EOS_UNAUTHORIZED.transactions", reason=cause.name, name=name, text=cause.text)
    return stop("EOS_KAFKA_REFUSED.transactions", reason=cause.name, name=name, text=cause.text)


def two_phase_unavailable(bootstrap_servers: str, brokers: list[int], why: str) -> EosError:
    """The error for brokers that do not offer two-phase commit; ``why`` completes "these brokers …"."""
    return stop(
        "EOS_TWO_PHASE_UNAVAILABLE.brokers",
        brokers=brokers,
        bootstrap_servers=bootstrap_servers,
        why=why,
        broker_ids=", ".join(map(str, brokers)),
    )


def two_phase_refused(name: str) -> EosError:
    """The error for an InitProducerId with two-phase commit that was refused with code 53, whatever the reason."""
    return stop(
        "EOS_TWO_PHASE_UNAVAILABLE.refused",
        transactional_id=name,
        error_name=name_of(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    )


def group_unauthorized(bootstrap_servers: str, group: str) -> EosError:
    return stop("EOS_UNAUTHORIZED.group", group=group, bootstrap_servers=bootstrap_servers)


def configs_unreadable(topic: str, bootstrap_servers: str) -> EosError:
    return stop("EOS_UNAUTHORIZED.topic_configs", topic=topic, bootstrap_servers=bootstrap_servers)


def unreadable(topic: str, bootstrap_servers: str) -> EosError:
    """The error for an output topic that this user may write and not read."""
    return stop("EOS_UNAUTHORIZED.topic_log", topic=topic, bootstrap_servers=bootstrap_servers)


def no_coordinator(name: str, waited_s: float, answer: int | None = None) -> EosError:
    """The error for a transactional id whose coordinator does not answer. ``answer``: its last error code, if any."""
    if answer == Code.CONCURRENT_TRANSACTIONS:
        return stop("EOS_KAFKA_UNREACHABLE.coordinator_ending", name=name, waited_s=waited_s, answer=name_of(answer))
    why = "" if answer is None else f" ({name_of(answer)})"
    return stop("EOS_KAFKA_UNREACHABLE.coordinator", name=name, waited_s=waited_s, why=why)


def fenced(name: str) -> EosError:
    return stop("EOS_FENCED", name=name)


def missing(servers: str, topic: str, near: Sequence[str] = (), required: str = "") -> EosError:
    """The error for a topic or partition that is not there. ``near``: topics of the cluster with similar names;
    ``required``: what requires it, as a clause."""
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return stop("EOS_TOPIC_MISSING", topic=topic, servers=servers, near=meant, required=required)


def refusal(
    servers: str, topic: str, code: int, elapsed_s: float, reason: str | None = None, near: Sequence[str] = ()
) -> EosError:
    """The error for a request about a topic, or some of its partitions, that failed with this code. ``near``: topics
    with similar names."""
    if code in UNKNOWN_TOPIC:
        return missing(servers, topic, near)
    if code in TOPIC_RETRIES:
        return _unanswered(servers, topic, code, elapsed_s, reason)
    if code in UNAUTHORIZED:
        return stop("EOS_UNAUTHORIZED.topic", topic=topic, servers=servers)
    answer = reason or name_of(code)
    return stop("EOS_KAFKA_REFUSED.topic", topic=topic, reason=name_of(code), servers=servers, answer=answer)


def group_refusal(
    servers: str, group: str, code: int, elapsed_s: float, reason: str | None = None, *, of: str = ""
) -> EosError:
    """The error for a request about a group that failed with this code. ``of``: what of the group, such as "the offsets
    of "."""
    what = f"{of}group {group}"
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        return stop("EOS_UNAUTHORIZED.group_topics", group=group, bootstrap_servers=servers)
    if code in UNAUTHORIZED:
        return group_unauthorized(servers, group)
    if code in TOPIC_RETRIES - UNKNOWN_TOPIC:
        return _unanswered(servers, what, code, elapsed_s, reason)
    answer = reason or name_of(code)
    return stop("EOS_KAFKA_REFUSED.group", what=what, reason=name_of(code), servers=servers, answer=answer)


def settings_refusal(servers: str, code: int, elapsed_s: float) -> EosError:
    """The error for a request about the brokers' settings that failed with this code."""
    what = "the brokers' settings"
    if code in ADMIN_RETRIES:
        return _unanswered(servers, what, code, elapsed_s, None)
    return stop("EOS_KAFKA_REFUSED.settings", what=what, reason=name_of(code), servers=servers, answer=name_of(code))


def _unanswered(servers: str, what: str, code: int, elapsed_s: float, reason: str | None) -> EosError:
    return stop(
        "EOS_KAFKA_UNREACHABLE.question",
        bootstrap_servers=servers,
        waited_s=round(elapsed_s, 1),
        reason=reason or name_of(code),
        what=what,
    )
