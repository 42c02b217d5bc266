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
    """Cause of a failed request: Kafka's error code, or a negative one of the client's own, its name, and a
    sentence."""

    code: int
    name: str
    text: str

    def __str__(self) -> str:
        return self.text if self.text == self.name else f"{self.text} ({self.name})"

    @classmethod
    def from_code(cls, code: int) -> Cause:
        return cls(code, name_of(code), name_of(code))

    @classmethod
    def timed_out(cls, text: str) -> Cause:
        return cls(Code.REQUEST_TIMED_OUT, Code.REQUEST_TIMED_OUT.name, text)


#: The rights that a query needs on its transactional ids.
ID_RIGHTS = "WRITE and DESCRIBE on the transactional ids with the query's prefix ('transactionalIdPrefix')"


def unauthorized(operation: str, rights: str, **parameters: object) -> EosError:
    """Return the error of an operation for which this user lacks rights: "This user may not OPERATION. Hint: Grant
    RIGHTS"."""
    return stop("EOS_UNAUTHORIZED", operation=operation, rights=rights, **parameters)


def delivery_error(name: str, cause: Cause, failed: int) -> EosError:
    """Return the error for ``failed`` rows that were not written under this transactional id."""
    if cause.code == Code.MESSAGE_TOO_LARGE:
        return stop(
            "EOS_ROW_TOO_LARGE.broker",
            who="The broker",
            what=f"a row or a batch of rows ({cause.text})",
            less="shrink the rows",
        )
    if cause.code in FENCED:
        return fenced(name)
    if cause.code in UNAUTHORIZED:
        return unauthorized(
            f"write {failed} row(s): {cause.text}. Nothing of the batch is visible",
            "WRITE and DESCRIBE on the topics and on the transactional ids with the query's prefix",
            reason=cause.name,
        )
    if cause.code in ABOUT_THE_ROWS:
        return stop("EOS_ROW_REFUSED", reason=cause.name, failed=failed, cause=cause)
    return stop("EOS_DELIVERY_FAILED.rows", reason=cause.name, failed=failed, text=cause.text)


def too_large(place: TopicPartition, rows: int, size: int) -> EosError:
    """Return the error for a record batch of ``size`` bytes that a partition does not take."""
    topic, partition = place
    less = "shrink the row" if rows == 1 else "lower 'kafka.batch.size', so that a batch has fewer rows"
    return stop(
        "EOS_ROW_TOO_LARGE.broker",
        topic=topic,
        partition=partition,
        less=less,
        who=f"Partition {partition} of topic {topic}",
        what=f"a batch of {rows} row(s) and {size} bytes",
    )


def init_error(name: str, timeout_ms: int, cause: Cause) -> EosError:
    """Return the error for an InitProducerId that was refused."""
    if cause.code == Code.INVALID_TRANSACTION_TIMEOUT:
        return stop("EOS_TRANSACTION_TIMEOUT_TOO_LONG", timeout_ms=timeout_ms, most="")
    if cause.code in FENCED:
        return fenced(name)
    if cause.code in UNAUTHORIZED:
        return unauthorized(
            f"begin transactions of {name}: {cause.text}",
            ID_RIGHTS,
            reason=cause.name,
        )
    return stop(
        "EOS_KAFKA_REFUSED",
        reason=cause.name,
        servers="The coordinator",
        what=f"the transactional producer {name}",
        answer=cause.text,
    )


def two_phase_unavailable(bootstrap_servers: str, brokers: list[int], why: str) -> EosError:
    """Return the error for brokers that do not offer two-phase commit; ``why`` completes "these brokers …"."""
    named = ", ".join(map(str, brokers))
    return stop("EOS_TWO_PHASE_UNAVAILABLE.brokers", why=f"these brokers of {bootstrap_servers} {why}: {named}")


def two_phase_refused(name: str) -> EosError:
    """Return the error for an InitProducerId with two-phase commit that was refused with code 53, for any reason."""
    answer = name_of(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    why = f"the coordinator of {name} refuses it, by its setting or for lack of a right (it answers {answer} to both)"
    return stop("EOS_TWO_PHASE_UNAVAILABLE.brokers", why=why, refused=True, transactional_id=name)


def group_unauthorized(bootstrap_servers: str, group: str) -> EosError:
    return unauthorized(
        f"READ the consumer group {group} on {bootstrap_servers}",
        "READ on it: 'offsets.group.id' needs it, and so does startingOffsets = group",
    )


def group_active(group: str, members: Sequence[str], otherwise: str, at: str = "") -> EosError:
    """Return the error for a group that has members. ``otherwise``: the consequence if they went on."""
    named = ", ".join(sorted(set(members)))
    return stop("EOS_GROUP_ACTIVE", group=group, count=len(members), members=named, at=at, otherwise=otherwise)


def configs_unreadable(topic: str, bootstrap_servers: str) -> EosError:
    return unauthorized(
        f"DESCRIBE_CONFIGS of the topic {topic} on {bootstrap_servers}",
        "DESCRIBE_CONFIGS on it: its settings say whether the ledger is durable and how large dead letters may be",
        topic=topic,
    )


def unreadable(topic: str, bootstrap_servers: str) -> EosError:
    """Return the error for an output topic that this user may write and not read."""
    return unauthorized(
        f"READ the topic {topic} on {bootstrap_servers}",
        "READ, WRITE and DESCRIBE on it: its log tells how transactions ended that the coordinator has forgotten",
        topic=topic,
    )


def no_coordinator(name: str, waited_s: float, answer: int | None = None) -> EosError:
    """Return the error for a transactional id whose coordinator does not answer. ``answer``: its last error code, if
    any."""
    if answer == Code.CONCURRENT_TRANSACTIONS:
        return stop("EOS_KAFKA_UNREACHABLE.coordinator_ending", name=name, waited_s=waited_s, answer=name_of(answer))
    why = "" if answer is None else f" ({name_of(answer)})"
    return stop(
        "EOS_KAFKA_UNREACHABLE.coordinator",
        waited_s=waited_s,
        why=why,
        who=f"the coordinator of transactional id {name}",
    )


def fenced(name: str) -> EosError:
    return stop("EOS_FENCED", name=name)


def missing(servers: str, topic: str, near: Sequence[str] = (), required: str = "") -> EosError:
    """Return the error for a missing topic or partition. ``near``: topics of the cluster with similar names;
    ``required``: a clause that says why it is required."""
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return stop("EOS_TOPIC_MISSING", topic=topic, servers=servers, near=meant, required=required)


def refusal(
    servers: str, topic: str, code: int, elapsed_s: float, reason: str | None = None, near: Sequence[str] = ()
) -> EosError:
    """Return the error for a request about a topic, or some of its partitions, that failed with this code. ``near``:
    topics with similar names."""
    if code in UNKNOWN_TOPIC:
        return missing(servers, topic, near)
    if code in TOPIC_RETRIES:
        return _unanswered(servers, topic, code, elapsed_s, reason)
    if code in UNAUTHORIZED:
        return unauthorized(
            f"READ, WRITE or DESCRIBE the topic {topic} on {servers}",
            "READ on it, and WRITE where the query writes to it; DESCRIBE comes with either",
            topic=topic,
        )
    answer = reason or name_of(code)
    return stop("EOS_KAFKA_REFUSED", topic=topic, reason=name_of(code), servers=servers, what=topic, answer=answer)


def group_refusal(
    servers: str, group: str, code: int, elapsed_s: float, reason: str | None = None, *, of: str = ""
) -> EosError:
    """Return the error for a request about a group that failed with this code. ``of``: the requested part of the group,
    such as "the offsets of "."""
    what = f"{of}group {group}"
    if code == Code.TOPIC_AUTHORIZATION_FAILED:
        return unauthorized(
            f"READ a topic of the consumer group {group} on {servers}",
            "READ on the topics whose offsets the group has or gets",
        )
    if code in UNAUTHORIZED:
        return group_unauthorized(servers, group)
    if code in TOPIC_RETRIES - UNKNOWN_TOPIC:
        return _unanswered(servers, what, code, elapsed_s, reason)
    answer = reason or name_of(code)
    return stop("EOS_KAFKA_REFUSED", what=what, reason=name_of(code), servers=servers, answer=answer)


def settings_refusal(servers: str, code: int, elapsed_s: float) -> EosError:
    """Return the error for a request about the brokers' settings that failed with this code."""
    what = "the brokers' settings"
    if code in ADMIN_RETRIES:
        return _unanswered(servers, what, code, elapsed_s, None)
    return stop("EOS_KAFKA_REFUSED", reason=name_of(code), servers=servers, what=what, answer=name_of(code))


def _unanswered(servers: str, what: str, code: int, elapsed_s: float, reason: str | None) -> EosError:
    return stop(
        "EOS_KAFKA_UNREACHABLE.brokers",
        bootstrap_servers=servers,
        waited_s=round(elapsed_s, 1),
        reason=reason or name_of(code),
        about=f" about {what}",
    )
