"""What brokers say to a transactional producer, as errors: the same for librdkafka's and for our own."""

from __future__ import annotations

from confluent_kafka import KafkaError as ClientError

from spark_eos.errors import ConnectionFailed, EosError, KafkaError, LedgerError, ProtocolStop, RowError

FENCED = (ClientError._FENCED, ClientError.PRODUCER_FENCED, ClientError.INVALID_PRODUCER_EPOCH)
UNAUTHORIZED = (
    ClientError.TOPIC_AUTHORIZATION_FAILED,
    ClientError.GROUP_AUTHORIZATION_FAILED,
    ClientError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ClientError.CLUSTER_AUTHORIZATION_FAILED,
)
_ABOUT_THE_ROWS = (
    ClientError.INVALID_RECORD,
    ClientError.INVALID_TIMESTAMP,
    ClientError.UNSUPPORTED_COMPRESSION_TYPE,
    ClientError.POLICY_VIOLATION,
)


def delivery_error(name: str, error: ClientError, failed: int) -> EosError:
    """The error for ``failed`` rows that were not written under this transactional id."""
    if error.code() == ClientError.MSG_SIZE_TOO_LARGE:
        return RowError(
            "EOS_ROW_TOO_LARGE",
            f"The broker refused a row or a batch of rows as too large ({error.str()}).",
            hint="Raise the topic's max.message.bytes, or shrink the rows.",
        )
    if error.code() in FENCED:
        return fenced(name)
    if error.code() in UNAUTHORIZED:
        return KafkaError(
            "EOS_DELIVERY_UNAUTHORIZED",
            f"This user may not write {failed} row(s): {error.str()}.",
            hint="Grant WRITE and DESCRIBE on the topics and on the transactional ids with the query's prefix. Nothing "
            "of the batch is visible.",
            reason=error.name(),
        )
    if error.code() in _ABOUT_THE_ROWS:
        return RowError(
            "EOS_ROW_REFUSED",
            f"The brokers take none of {failed} row(s), for one of them: {error.str()} ({error.name()}).",
            hint="A compacted topic takes no row without a key; else see the topic's message.timestamp.* and "
            "compression.type.",
            reason=error.name(),
        )
    return KafkaError(
        "EOS_DELIVERY_FAILED",
        f"{failed} row(s) could not be written: {error.str()}.",
        hint="Nothing of the batch is visible; start the query again when the cause is gone.",
        reason=error.name(),
    )


def too_large(place: tuple[str, int], rows: int, size: int) -> RowError:
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


def init_error(name: str, timeout_ms: int, error: ClientError) -> EosError:
    """The error for an InitProducerId that was refused."""
    if error.code() == ClientError.INVALID_TRANSACTION_TIMEOUT:
        return KafkaError(
            "EOS_TRANSACTION_TIMEOUT_TOO_LONG",
            f"'transaction.timeout.ms' is {timeout_ms}, more than the broker's transaction.max.timeout.ms.",
            hint="Lower the option, or raise the broker's setting.",
        )
    if error.code() in FENCED:
        return fenced(name)
    return KafkaError(
        "EOS_TRANSACTIONS_REFUSED",
        f"The brokers refuse a transactional producer under {name}: {error.str()}.",
        hint="Check the ACLs: WRITE and DESCRIBE on the transactional ids with the query's prefix.",
        reason=error.name(),
    )


def ledger_unauthorized(what: str) -> LedgerError:
    return LedgerError(
        "EOS_LEDGER_UNAUTHORIZED",
        f"This user may not {what}.",
        hint="Grant READ, WRITE and DESCRIBE on the ledger topic; with 'offsets.group.id', also READ on that group and "
        "on the topics that the query reads.",
    )


def no_coordinator(name: str, seconds: float) -> ConnectionFailed:
    return ConnectionFailed(
        "EOS_COORDINATOR_UNREACHABLE",
        f"The coordinator of transactional id {name} did not answer for {seconds:.0f} s.",
        hint="Start the query again when the cluster is well.",
    )


def fenced(name: str) -> ProtocolStop:
    return ProtocolStop(
        "EOS_FENCED",
        f"The transaction of {name} was ended, or its transactional id taken, by somebody else.",
        hint="Nothing of it becomes visible; the batch is replayed.",
    )
