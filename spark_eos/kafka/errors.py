"""What brokers say, as errors: the same for librdkafka's clients and for our own."""

from __future__ import annotations

from dataclasses import dataclass

from spark_eos.errors import (
    ConnectionFailed,
    EosError,
    KafkaError,
    OptionError,
    ProtocolStop,
    RowError,
    TopicError,
)
from spark_eos.kafka.codes import (
    ABOUT_THE_ROWS,
    FENCED,
    TOPIC_RETRIES,
    UNAUTHORIZED,
    UNKNOWN_TOPIC,
    Code,
    name_of,
)
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.topic_partition import TopicPartition

#: For hints of what a user may not do.
ACLS = "'spark-eos doctor --acls' prints all that a query needs"
#: For hints of what brokers do not write. The code says nothing else: no request is sent that a broker does not know.
LOWERED = (
    "Where it is UNSUPPORTED_VERSION, the cluster's transaction.version has been lowered from 2 to 0, at which brokers "
    "cannot end what began before: raise it to 1 and restart them."
)


@dataclass(frozen=True)
class Cause:
    """Why a request failed: Kafka's code, or a negative one of the client's own, its name, and a sentence."""

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
        return RowError(
            "EOS_ROW_TOO_LARGE",
            f"The broker refused a row or a batch of rows as too large ({cause.text}).",
            hint="Raise the topic's max.message.bytes, or shrink the rows.",
        )
    if cause.code in FENCED:
        return fenced(name)
    if cause.code in UNAUTHORIZED:
        return KafkaError(
            "EOS_DELIVERY_UNAUTHORIZED",
            f"This user may not write {failed} row(s): {cause.text}.",
            hint="Grant WRITE and DESCRIBE on the topics and on the transactional ids with the query's prefix "
            f"({ACLS}). Nothing of the batch is visible.",
            reason=cause.name,
        )
    if cause.code in ABOUT_THE_ROWS:
        return RowError(
            "EOS_ROW_REFUSED",
            f"The brokers take none of {failed} row(s), for one of them: {cause}.",
            hint="A compacted topic rejects rows without a key; otherwise check the topic's message.timestamp.* and "
            "compression.type. A row without a timestamp gets that of its executor's clock, which may be ahead.",
            reason=cause.name,
        )
    return KafkaError(
        "EOS_DELIVERY_FAILED",
        f"{failed} row(s) could not be written: {cause.text}.",
        hint=f"Nothing of the batch is visible; start the query again once the cause is fixed. {LOWERED}",
        reason=cause.name,
    )


def too_large(place: TopicPartition, rows: int, size: int) -> RowError:
    """The error for a record batch of ``size`` bytes that a partition does not take."""
    topic, partition = place
    less = "shrink the row" if rows == 1 else "lower 'kafka.batch.size', so that fewer rows go together"
    return RowError(
        "EOS_ROW_TOO_LARGE",
        f"Partition {partition} of topic {topic} takes no batch of {rows} row(s) and {size} bytes.",
        hint=f"Raise the topic's max.message.bytes, or {less}.",
        topic=topic,
        bytes=size,
    )


def init_error(name: str, timeout_ms: int, cause: Cause) -> EosError:
    """The error for an InitProducerId that was refused."""
    if cause.code == Code.INVALID_TRANSACTION_TIMEOUT:
        return OptionError(
            "EOS_TRANSACTION_TIMEOUT_TOO_LONG",
            f"'transaction.timeout.ms' is {timeout_ms}, more than the broker's transaction.max.timeout.ms.",
            hint="Lower the option, or raise the broker's setting.",
        )
    if cause.code in FENCED:
        return fenced(name)
    return KafkaError(
        "EOS_TRANSACTIONS_REFUSED",
        f"The brokers refuse a transactional producer under {name}: {cause.text}.",
        hint=f"Check the ACLs: WRITE and DESCRIBE on the transactional ids with the query's prefix; {ACLS}.",
        reason=cause.name,
    )


TWO_PHASE_NEEDS = (
    "brokers that offer two-phase commit (KIP-939; in Apache Kafka 4.3 with unstable.api.versions.enable=true), "
    "transaction.two.phase.commit.enable=true on every broker, and, besides WRITE and DESCRIBE, the right to "
    "TWO_PHASE_COMMIT on the transactional ids with the query's prefix"
)


def two_phase_unavailable(kafka: KafkaProperties, brokers: list[int], why: str) -> KafkaError:
    """The error where these brokers do not offer two-phase commit; ``why`` says what they do not do, or have."""
    return KafkaError(
        "EOS_TWO_PHASE_UNAVAILABLE",
        f"'transaction.two.phase.commit' is true, but of the brokers of {kafka.bootstrap_servers} these {why}: "
        f"{', '.join(map(str, brokers))}.",
        hint=f"It needs {TWO_PHASE_NEEDS}. Or remove the option.",
        brokers=brokers,
    )


def two_phase_refused(name: str) -> KafkaError:
    """The error for an InitProducerId with two-phase commit that was refused with code 53, whatever the reason."""
    return KafkaError(
        "EOS_TWO_PHASE_REFUSED",
        f"The coordinator of {name} refuses two-phase commit: its broker has "
        "transaction.two.phase.commit.enable=false, or this user lacks a right (Kafka answers "
        f"{name_of(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)} in both cases).",
        hint=f"'transaction.two.phase.commit' needs {TWO_PHASE_NEEDS}. Or remove the option; what is decided is "
        "settled either way.",
        transactional_id=name,
    )


def group_unauthorized(kafka: KafkaProperties, group: str) -> KafkaError:
    return KafkaError(
        "EOS_GROUP_UNAUTHORIZED",
        f"This user may not READ the consumer group {group} on {kafka.bootstrap_servers}.",
        hint=f"Grant READ on it: 'offsets.group.id' needs it, and so does startingOffsets = group; {ACLS}.",
        group=group,
    )


def configs_unreadable(topic: str, kafka: KafkaProperties) -> TopicError:
    return TopicError(
        "EOS_TOPIC_UNAUTHORIZED",
        f"This user may not DESCRIBE_CONFIGS of the topic {topic} on {kafka.bootstrap_servers}.",
        hint="Grant DESCRIBE_CONFIGS on it: its settings tell the sink whether the ledger topic is durable and, with "
        f"'deadLetters.topic', how large rows may be; {ACLS}.",
        topic=topic,
    )


def unreadable(topic: str, kafka: KafkaProperties) -> TopicError:
    """The error for a topic of the sink that this user may write and not read."""
    return TopicError(
        "EOS_TOPIC_UNAUTHORIZED",
        f"This user may not READ the topic {topic} on {kafka.bootstrap_servers}.",
        hint="Grant READ, WRITE and DESCRIBE on it: the log is needed to find the outcome of transactions that the "
        f"coordinator has forgotten; {ACLS}.",
        topic=topic,
    )


def no_coordinator(name: str, waited_s: float, said: int | None = None) -> ConnectionFailed:
    """``said``: the last error code that the coordinator has answered, if it has."""
    if said == Code.CONCURRENT_TRANSACTIONS:
        return ConnectionFailed(
            "EOS_COORDINATOR_UNREACHABLE",
            f"The coordinator could not end the open transaction of transactional id {name} within {waited_s:.0f} s "
            f"({name_of(said)}).",
            hint="A partition of that transaction may have no leader, or too few replicas in sync: bring the brokers "
            "back, then start the query again.",
        )
    why = "" if said is None else f" ({name_of(said)})"
    return ConnectionFailed(
        "EOS_COORDINATOR_UNREACHABLE",
        f"The coordinator of transactional id {name} did not answer for {waited_s:.0f} s{why}.",
        hint="Start the query again once the cluster is healthy.",
    )


def fenced(name: str) -> ProtocolStop:
    return ProtocolStop(
        "EOS_FENCED",
        f"The transaction of {name} was ended, or its transactional id taken, by somebody else.",
        hint="Nothing of it becomes visible; the batch is replayed.",
    )


def refusal(
    kafka: KafkaProperties, what: str, code: int, elapsed_s: float, reason: str | None = None
) -> KafkaError | ConnectionFailed | TopicError:
    """The error for what the brokers said when they were asked about ``what``."""
    servers = kafka.bootstrap_servers
    if code in UNKNOWN_TOPIC:
        return TopicError(
            "EOS_TOPIC_MISSING",
            f"{servers} has no topic or partition {what}.",
            hint="Create it, or correct the name. spark-eos does not create topics that it reads or writes.",
            topic=what,
        )
    if code in TOPIC_RETRIES:
        return ConnectionFailed(
            "EOS_KAFKA_UNREACHABLE",
            f"No answer about {what} from {servers} within {elapsed_s:.1f} s ({reason or name_of(code)}).",
            hint="Check kafka.bootstrap.servers, the network, kafka.security.* and kafka.sasl.*.",
            bootstrap_servers=servers,
            waited_s=round(elapsed_s, 1),
            reason=reason or name_of(code),
        )
    if code in UNAUTHORIZED and what.startswith("group "):
        return group_unauthorized(kafka, what.removeprefix("group "))
    if code in UNAUTHORIZED:
        return TopicError(
            "EOS_TOPIC_UNAUTHORIZED",
            f"This user may neither READ, WRITE nor DESCRIBE the topic {what} on {servers}.",
            hint=f"Grant READ on it, and WRITE where the query writes to it; DESCRIBE comes with either; {ACLS}.",
            topic=what,
        )
    return KafkaError(
        "EOS_KAFKA_REFUSED",
        f"{servers} refused a question about {what}: {reason or name_of(code)}.",
        hint="Check the topic's name and the state of the brokers.",
        topic=what,
        reason=name_of(code),
    )
