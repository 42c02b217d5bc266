"""A transactional producer of one transaction with librdkafka, which exposes its producer id and epoch.

librdkafka adds partitions by AddPartitionsToTxn, uses EndTxn below version 5, and keeps its epoch from one transaction
to the next, so that a late EndTxn could hit the wrong one (KAFKA-17754). Hence the rule: one producer, one
InitProducerId, one transaction.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer

from spark_eos.base.retry import Waiting, retrying
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import ConnectionFailed, stop
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.errors import Cause, delivery_error, init_error, no_coordinator
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.end_txn import endtxn_version
from spark_eos.kafka.requests.init_producer_id import INIT_S
from spark_eos.kafka.transactions import FENCING_END, ProducerIdentity

T = TypeVar("T")

IDENTITY_S = 10.0
_STATISTICS_MS = 10
_METADATA_S = 15.0
_POLL_S = 0.1
_FIRST_LOOK = 0.001


class LibrdkafkaProducer:
    """A producer with the transactional id ``name`` and a transaction timeout of ``timeout_ms``.

    A separate thread serves its callbacks from the start, so that statistics and delivery reports neither wait for the
    caller nor accumulate. ``overrides``: settings that take precedence over the user's.
    """

    def __init__(
        self, client: BrokerClient, name: str, timeout_ms: int, overrides: dict[str, Any] | None = None
    ) -> None:
        self.name = name
        self.endtxn_version = FENCING_END
        self._client = client
        self._timeout_ms = timeout_ms
        self._reports = _Reports(name)
        ours = {
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
            "delivery.report.only.error": True,
            "on_delivery": self._reports.on_delivery,
            "statistics.interval.ms": _STATISTICS_MS,
            "stats_cb": self._reports.on_statistics,
            "reconnect.backoff.ms": 1,
            **(overrides or {}),
        }
        self._producer = Producer(librdkafka_config(client.properties, "producer", ours))
        self._closed = threading.Event()
        threading.Thread(target=_serve, args=(self._producer, self._closed), name=f"poll {name}", daemon=True).start()

    def warm_up(self, topic: str | None) -> None:
        """Request metadata. Twice, as otherwise a race in the client's coordinator look-up costs half a second."""
        for _ in range(2):
            self._producer.list_topics(**({"topic": topic} if topic else {}), timeout=_METADATA_S)

    def init(self) -> None:
        """InitProducerId: fences the previous producer with this name, and aborts its open transaction."""
        try:
            self._client.reach(INIT_S)
        except ConnectionFailed as error:
            if error.condition != "EOS_KAFKA_UNREACHABLE":
                raise
            raise no_coordinator(self.name, INIT_S) from None
        for _ in retrying(INIT_S):
            try:
                self._producer.init_transactions(INIT_S)
                self.endtxn_version = endtxn_version(self._client)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise init_error(self.name, self._timeout_ms, _cause(error.args[0])) from None
        raise no_coordinator(self.name, INIT_S)

    def firsts(self) -> Mapping[TopicPartition, int]:
        """Empty: first offsets are unknown, as a delivery report for each row would cost too much."""
        return {}

    def lasts(self) -> Mapping[TopicPartition, int]:
        """Empty: last sequence numbers are unknown, as a delivery report for each row would cost too much."""
        return {}

    @property
    def produce(self) -> Callable[..., None]:
        """librdkafka's own method, without a Python call around it for each row."""
        return self._producer.produce

    def begin(self) -> None:
        """Begin the transaction, locally: the coordinator learns of it with the first rows."""
        self._producer.begin_transaction()

    def identity(self) -> ProducerIdentity:
        """This producer's producer id and epoch, from its statistics, as librdkafka has no call for them."""
        identity = self._reports.identity(IDENTITY_S)
        if identity is None:
            raise stop("EOS_PRODUCER_WITHOUT_IDENTITY", name=self.name, identity_s=IDENTITY_S)
        return identity

    def flush(self) -> None:
        """Wait until every row is acknowledged. Raises RowError or KafkaError if one was not."""
        failure = self._drain(self._timeout_ms / 1000)
        if failure is not None:
            raise delivery_error(self.name, _cause(failure), self._reports.failed)

    @property
    def failed(self) -> bool:
        """Whether a row was not delivered; `flush` raises the reason."""
        return self._reports.failure is not None

    def abort(self) -> None:
        """Try to abort this producer's open transaction; otherwise the coordinator does so after its timeout."""
        try:
            _call(self._producer, Producer.flush, 5)  # a transaction without partitions cannot be aborted
            _call(self._producer, Producer.abort_transaction, 10)
        except KafkaException:
            return

    def close(self) -> None:
        """Release the client, which ends with its thread; an open transaction stays open. No other call may follow."""
        self._closed.set()
        # A caller that keeps this object does not keep the client, whose statistics would accumulate.
        self.__dict__.pop("_producer", None)

    def _drain(self, timeout_s: float) -> ClientError | None:
        """Wait until every row is acknowledged. Returns the first failure, a timeout, or None."""
        deadline, look = time.monotonic() + timeout_s, _FIRST_LOOK
        delay = Waiting("writing through librdkafka")
        try:
            # A flush checks only every 10 ms whether it is done, too rarely for a transaction with a few rows.
            while (remaining := _call(self._producer, Producer.flush, look)) and time.monotonic() < deadline:
                look = min(2 * look, _POLL_S)
                delay.note({self.name: f"{remaining} rows are not acknowledged: see the leaders and replicas in sync"})
            delay.over(self.name)
        except KafkaException as error:
            fatal: ClientError = error.args[0]
            return fatal
        if self._reports.failure is not None:
            return _end_of(self._producer) or self._reports.failure
        if remaining:
            return ClientError(
                ClientError._TIMED_OUT, f"{remaining} rows were not acknowledged within {timeout_s:.0f} s"
            )
        return None


class _Reports:
    """What the client's callbacks report.

    It has no reference to the producer: a client to which its own callbacks refer would live until Python's next
    garbage collection, with its threads and accumulating statistics.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._identity: ProducerIdentity | None = None
        self._known = threading.Event()
        self.failure: ClientError | None = None
        self.failed = 0

    def identity(self, timeout_s: float) -> ProducerIdentity | None:
        self._known.wait(timeout_s)
        return self._identity

    def on_statistics(self, text: str) -> None:
        if self._identity is None:
            eos = json.loads(text).get("eos", {})
            if eos.get("producer_id", -1) >= 0:
                self._identity = ProducerIdentity(self._name, eos["producer_id"], eos["producer_epoch"])
                self._known.set()

    def on_delivery(self, error: ClientError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            self.failure = self.failure or error


def _serve(producer: Producer, closed: threading.Event) -> None:
    while not closed.is_set():
        with contextlib.suppress(KafkaException):
            _call(producer, Producer.poll, _POLL_S)


def _call(producer: Producer, call: Callable[[Producer, float], T], timeout_s: float) -> T:
    """Call a method of the client; a fatal error, such as that of a fenced producer, is raised as KafkaException.

    The client raises it from any call that serves its queue; a callback that follows immediately turns it into a
    SystemError.
    """
    try:
        return call(producer, timeout_s)
    except SystemError:
        raise KafkaException(_end_of(producer) or ClientError(ClientError._FAIL)) from None


def _end_of(producer: Producer) -> ClientError | None:
    """The error that ended the transaction, if any; failed rows may only be a consequence of it.

    librdkafka returns it when another transaction is to begin, and does not begin that one.
    """
    try:
        producer.begin_transaction()
    except KafkaException as error:
        cause: ClientError = error.args[0]
        if cause.fatal() or cause.txn_requires_abort():
            return cause
    return None


def _cause(error: ClientError) -> Cause:
    """The cause of a client's error; librdkafka has a code of its own for a fenced producer."""
    code = int(Code.PRODUCER_FENCED) if error.code() == ClientError._FENCED else error.code()
    return Cause(code, error.name(), error.str())
