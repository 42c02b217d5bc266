"""Adds partitions to a transaction before the first write, as transaction.version 0 and 1 require."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple

from spark_eos.base import system
from spark_eos.base.retry import Waiting, retrying
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.codes import COORDINATOR_RETRIES, OK, UNKNOWN_TOPIC, Code, name_of
from spark_eos.kafka.errors import Cause
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.add_partitions_to_txn import add_partitions_to_txn
from spark_eos.kafka.transactions import ProducerIdentity

#: Seconds for which a broker that has just started may not know a partition.
_UNKNOWN_PLACE_S = 30.0
_COORDINATOR = "its coordinator"
#: OPERATION_NOT_ATTEMPTED: another partition of the request is at fault.
_RETRIES = COORDINATOR_RETRIES | UNKNOWN_TOPIC | {Code.OPERATION_NOT_ATTEMPTED}


class Additions:
    """The partitions of one transaction. ``asked``: whether a request was sent, so that the transaction may be open.

    There is one request at a time, for all new partitions, and the caller does nothing else meanwhile; so a request
    without a response is repeated on another connection with nothing in flight. If the broker processes the first copy
    after the transaction has ended, this opens the transaction again, without records. Therefore only the log can show
    whether a transaction of these versions was lost.
    """

    def __init__(self, client: BrokerClient, producer: ProducerIdentity, timeout_s: float, silence_s: float) -> None:
        self.asked = False
        self._client, self._producer = client, producer
        self._timeout_s, self._silence_s = timeout_s, silence_s
        self._added: set[TopicPartition] = set()

    def add(self, partitions: Iterable[TopicPartition]) -> Cause | None:
        """Add the partitions that are not added yet. Returns None when all are added, else the cause."""
        waiting = set(partitions) - self._added
        if not waiting:
            return None
        began, why = system.monotonic(), "the coordinator did not answer"
        self.asked = True
        delay = Waiting(f"adding partitions to the transaction of {self._producer.id}")
        for _ in retrying(self._timeout_s):
            codes = add_partitions_to_txn(self._client, astuple(self._producer), waiting, self._silence_s) or {}
            self._added |= {partition for partition in waiting if codes.get(partition) == OK}
            waiting -= self._added
            if not waiting:
                delay.over(_COORDINATOR)
                return None
            wrong = sorted({code for partition, code in codes.items() if partition in waiting})
            final = [code for code in wrong if code not in _RETRIES]
            if system.monotonic() - began > _UNKNOWN_PLACE_S:
                final += [code for code in wrong if code in UNKNOWN_TOPIC]
            if final:
                return Cause.from_code(final[0])
            why = f"the coordinator answered {name_of(wrong[0])}" if wrong else why
            delay.note({_COORDINATOR: why})
        return Cause.timed_out(
            f"the transaction could not be told of its partitions within {self._timeout_s:.0f} s: {why}"
        )
