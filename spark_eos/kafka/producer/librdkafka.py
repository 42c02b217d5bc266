"""A transactional producer of one transaction with librdkafka: its producer id and epoch, and its failed deliveries.

librdkafka adds partitions by AddPartitionsToTxn, uses EndTxn below version 5, and keeps its epoch from one
transaction to the next, so a late EndTxn could hit the wrong one (KAFKA-17754). Hence the rule: one producer, one
InitProducerId, one transaction.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Message, Producer

from spark_eos.errors import ProtocolStop
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.errors import Cause, delivery_error, init_error, no_coordinator
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.requests.end_txn import endtxn_version
from spark_eos.kafka.requests.init_producer_id import INIT_S
from spark_eos.protocol.head import FENCING_END, Pair
from spark_eos.retry import retrying

P = ParamSpec("P")
T = TypeVar("T")

IDENTITY_S = 10.0
_STATISTICS_MS = 10
_METADATA_S = 15.0
_POLL_S = 0.1
_FIRST_LOOK = 0.001


class LibrdkafkaProducer:
    """A producer with the transactional id ``name`` and a transaction timeout of ``timeout_ms``.

    A separate thread serves its callbacks from the start, so that statistics and delivery reports neither wait for the
    caller nor accumulate. ``own`` settings override the user's.
    """

    def __init__(self, kafka: KafkaProperties, name: str, timeout_ms: int, own: dict[str, Any] | None = None) -> None:
        self.name = name
        self.endtxn_version = FENCING_END
        self._kafka = kafka
        self._timeout_ms = timeout_ms
        self._identity: Pair | None = None
        self._known = threading.Event()
        self._failure: ClientError | None = None
        self._failed = 0
        ours = {
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
            "delivery.report.only.error": True,
            "on_delivery": self._on_failure,
            "statistics.interval.ms": _STATISTICS_MS,
            "stats_cb": self._on_statistics,
            "reconnect.backoff.ms": 1,
            **(own or {}),
        }
        self._producer = Producer(librdkafka_config(kafka, "producer", ours))
        self.produce = self._producer.produce
        self.poll = self._producer.poll
        self._closed = False
        self._poller = threading.Thread(target=self._serve, name=f"poll {name}", daemon=True)
        self._poller.start()

    def warm_up(self, topic: str | None) -> None:
        """Request metadata. Twice, as otherwise a race in the client's coordinator look-up costs half a second."""
        for _ in range(2):
            self._producer.list_topics(**({"topic": topic} if topic else {}), timeout=_METADATA_S)

    def init(self) -> None:
        """InitProducerId: fences the previous producer with this name, and aborts its open transaction."""
        for _ in retrying(INIT_S):
            try:
                self._producer.init_transactions(INIT_S)
                self.endtxn_version = endtxn_version(broker_client(self._kafka))
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise init_error(self.name, self._timeout_ms, _cause(error.args[0])) from None
        raise no_coordinator(self.name, INIT_S)

    def firsts(self) -> Mapping[tuple[str, int], int]:
        """None of the offsets that `ArrowProducer` knows: a delivery report for each row would cost too much."""
        return {}

    def begin(self) -> None:
        self._producer.begin_transaction()

    def identity(self) -> Pair:
        """This producer's producer id and epoch, from its statistics, as there is no call for them."""
        if not self._known.wait(IDENTITY_S) or self._identity is None:
            raise ProtocolStop(
                "EOS_PRODUCER_WITHOUT_IDENTITY",
                f"The producer of {self.name} did not report its producer id within {IDENTITY_S:.0f} s.",
                hint="Nothing was decided; Spark retries.",
            )
        return self._identity

    def flush(self) -> None:
        """Wait until every row is acknowledged. Raises RowError or KafkaError if one was not."""
        failure = self._drain(self._timeout_ms / 1000)
        if failure is not None:
            raise delivery_error(self.name, _cause(failure), self._failed)

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def abort(self) -> None:
        """Try to abort this producer's open transaction; otherwise the coordinator does so after its timeout."""
        try:
            self._call(self._producer.flush, 5)  # a transaction without partitions cannot be aborted
            self._call(self._producer.abort_transaction, 10)
        except KafkaException:
            return

    def close(self) -> None:
        """Release the client, which ends with its thread; an open transaction stays open."""
        self._closed = True

    def _drain(self, seconds: float) -> ClientError | None:
        """Wait until every row is acknowledged. Returns the first failure, a timeout, or None."""
        deadline, look = time.monotonic() + seconds, _FIRST_LOOK
        try:
            # A flush checks only every 10 ms whether it is done, too rarely for a transaction with a few rows.
            while (remaining := self._call(self._producer.flush, look)) and time.monotonic() < deadline:
                look = min(2 * look, _POLL_S)
        except KafkaException as error:
            fatal: ClientError = error.args[0]
            return fatal
        if self._failure is not None:
            return self._cause() or self._failure
        if remaining:
            return ClientError(ClientError._TIMED_OUT, f"{remaining} rows were not acknowledged within {seconds:.0f} s")
        return None

    def _serve(self) -> None:
        while not self._closed:
            with contextlib.suppress(KafkaException):
                self._call(self._producer.poll, _POLL_S)

    def _call(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Raises a fatal error, such as of a fenced producer, as KafkaException.

        The client raises it from any call that serves its queue; a callback that follows immediately turns it into a
        SystemError.
        """
        try:
            return call(*arguments, **named)
        except SystemError:
            raise KafkaException(self._cause() or ClientError(ClientError._FAIL)) from None

    def _cause(self) -> ClientError | None:
        """The error that ended the transaction; failed rows may only be a consequence of it.

        The client returns it when another transaction is about to begin, without beginning it.
        """
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            cause: ClientError = error.args[0]
            if cause.fatal() or cause.txn_requires_abort():
                return cause
        return None

    def _on_statistics(self, text: str) -> None:
        if self._identity is None:
            eos = json.loads(text).get("eos", {})
            if eos.get("producer_id", -1) >= 0:
                self._identity = Pair(self.name, eos["producer_id"], eos["producer_epoch"])
                self._known.set()

    def _on_failure(self, error: ClientError | None, message: Message) -> None:
        if error is not None:
            self._failed += 1
            self._failure = self._failure or error


def _cause(error: ClientError) -> Cause:
    """librdkafka has a code of its own for a producer that was fenced."""
    code = int(Code.PRODUCER_FENCED) if error.code() == ClientError._FENCED else error.code()
    return Cause(code, error.name(), error.str())
