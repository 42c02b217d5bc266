"""InitProducerId: a producer id and an epoch that nobody else has."""

from __future__ import annotations

from confluent_kafka import KafkaError as ClientError

from spark_eos.kafka.errors import init_error, no_coordinator
from spark_eos.kafka.net.client import MOVED, OK, PASSING, BrokerClient
from spark_eos.protocol.head import Pair
from spark_eos.retry import retrying

INIT_SECONDS = 30.0


def init_producer_id(client: BrokerClient, name: str, timeout_ms: int) -> Pair:
    """Take a transactional id for transactions of at most ``timeout_ms``: fences whoever had it, and aborts what they
    had open.

    Raises ProtocolStop (EOS_FENCED), KafkaError (EOS_TRANSACTION_TIMEOUT_TOO_LONG, EOS_TRANSACTIONS_REFUSED) or
    ConnectionFailed (EOS_COORDINATOR_UNREACHABLE).
    """
    for _ in retrying(INIT_SECONDS):
        answer = client.init_producer(name, timeout_ms)
        if answer is None:
            continue
        error, producer_id, epoch = answer
        if error == OK:
            return Pair(name, producer_id, epoch)
        if error not in PASSING:
            raise init_error(name, timeout_ms, ClientError(error))
        if error in MOVED:
            client.forget([name])
    raise no_coordinator(name, INIT_SECONDS)
