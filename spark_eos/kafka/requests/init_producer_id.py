"""InitProducerId: a producer id and epoch for a transactional id."""

from __future__ import annotations

from typing import Any

from spark_eos.base.retry import Waiting, retrying
from spark_eos.errors import KafkaError
from spark_eos.kafka.codes import COORDINATOR_MOVED, COORDINATOR_RETRIES, OK, Code, meaning_of
from spark_eos.kafka.errors import Cause, init_error, no_coordinator, two_phase_refused, two_phase_unavailable
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    FieldType,
    Int16,
    Int32,
    Int64,
    Record,
    Request,
    record,
)
from spark_eos.kafka.transactions import ProducerIdentity

INIT_S = 30.0

_ASKS: dict[str, FieldType[Any]] = {
    "transactional_id": NULLABLE_STRING,
    "transaction_timeout_ms": INT32,
    "producer_id": INT64,
    "producer_epoch": INT16,
}


class InitProducerIdResponse(Record):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64
    producer_epoch: Int16


class InitProducerIdTwoPhaseResponse(InitProducerIdResponse):
    ongoing_txn_producer_id: Int64
    ongoing_txn_producer_epoch: Int16


#: Version 5 is the last one without two-phase commit (KIP-939).
INIT_PRODUCER_ID = Request("InitProducerId", 22, 3, 5, asks=record(**_ASKS), answers=InitProducerIdResponse)
#: With two-phase commit; pinned, as version 5 would begin transactions that expire. In Kafka 4.3 brokers have it only
#: with unstable.api.versions.enable. Without transaction.two.phase.commit.enable, or without this user's right to
#: TWO_PHASE_COMMIT, the code is 53. Brokers ignore the timeout in the request.
INIT_PRODUCER_ID_TWO_PHASE = Request(
    "InitProducerId",
    22,
    6,
    6,
    asks=record(**_ASKS, enable2_pc=BOOL, keep_prepared_txn=BOOL),
    answers=InitProducerIdTwoPhaseResponse,
)
UNSPOKEN = "do not support version 6 of InitProducerId"
_LOOK_UP_S = 10.0


def init_producer_id(client: BrokerClient, name: str, timeout_ms: int, *, two_phase: bool = False) -> ProducerIdentity:
    """Initialize a transactional id: fence its previous producer, and abort that one's open transaction. Transactions
    of the new producer last at most ``timeout_ms``, or never expire with ``two_phase``.

    Raises ProtocolStop (EOS_FENCED), OptionError (EOS_TRANSACTION_TIMEOUT_TOO_LONG), Unauthorized, KafkaError
    (EOS_TWO_PHASE_UNAVAILABLE, EOS_BROKER_UNSUITABLE) or ConnectionFailed (EOS_KAFKA_UNREACHABLE).
    """
    last: int | None = None
    delay = Waiting("taking a transactional id")
    for _ in retrying(INIT_S):
        answer = ask_init(client, name, timeout_ms, two_phase=two_phase)
        last = None if answer is None else answer[0]
        if answer is None:
            delay.note({name: "no answer from its coordinator"})
            continue
        error, producer_id, epoch = answer
        if error == OK:
            delay.over(name)
            return ProducerIdentity(name, producer_id, epoch)
        if two_phase and error == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise two_phase_refused(name)
        if error not in COORDINATOR_RETRIES:
            raise init_error(name, timeout_ms, Cause.from_code(error))
        delay.note({name: meaning_of(error)})
        if error in COORDINATOR_MOVED:
            client.forget([name])
    raise no_coordinator(name, INIT_S, last)


def ask_init(
    client: BrokerClient, name: str, timeout_ms: int, *, two_phase: bool = False
) -> tuple[int, int, int] | None:
    """Send one InitProducerId request. Returns error code, producer id and epoch; None without a response. While the
    broker aborts the open transaction, the code is CONCURRENT_TRANSACTIONS, and a retry helps."""
    node, code = client.coordinator(name, _LOOK_UP_S)
    if node is None:
        return None if code is None else (code, -1, -1)
    values = {"transactional_id": name, "transaction_timeout_ms": timeout_ms, "producer_id": -1, "producer_epoch": -1}
    if two_phase:
        values |= {"enable2_pc": True, "keep_prepared_txn": False}
    try:
        answer = client.ask(node, INIT_PRODUCER_ID_TWO_PHASE if two_phase else INIT_PRODUCER_ID, values)
    except KafkaError as error:  # the broker was restarted without that version since the driver's check
        if two_phase and error.entry == "EOS_BROKER_UNSUITABLE.request":
            raise two_phase_unavailable(client.bootstrap_servers, [node], UNSPOKEN) from None
        raise
    if answer is None:
        client.forget([name])
        return None
    return answer.error_code, answer.producer_id, answer.producer_epoch
