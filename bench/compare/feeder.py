"""Numbered rows that go on coming, and some that are aborted, in transactions of a producer that outlives brokers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer

#: Prefix of the feeders' transactional ids.
NAME = "feeder-"
#: The value of a row that is aborted.
ABORTED = "aborted"
_TRY_S = 30
_PERIOD_S = 0.25
#: One transaction of so many is aborted before it.
_ABORTED_SHARE = 5


class Feeder(threading.Thread):
    """Writes ``p.0``, ``p.1``, … to each partition ``p``, in transactions. ``rows``: how many are in each partition.
    ``keyed``: the partition's number is their key, too."""

    def __init__(self, servers: str, topic: str, partitions: int, rows_per_second: int, *, keyed: bool = False) -> None:
        super().__init__(name="feeder", daemon=True)
        self.rows = 0
        self._topic, self._partitions, self._keyed = topic, partitions, keyed
        self._count = max(1, round(rows_per_second * _PERIOD_S / partitions))
        self.failure: BaseException | None = None
        self._over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "broker.address.family": "v4",
                "transactional.id": NAME + topic,
                "transaction.timeout.ms": 120_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        try:
            self._retried(partial(self._producer.init_transactions, _TRY_S))
            for n in itertools.count(1):
                if n % _ABORTED_SHARE == 0:
                    self._transaction([ABORTED], commit=False)
                self._transaction([str(i) for i in range(self.rows, self.rows + self._count)], commit=True)
                self.rows += self._count
                if self._over.wait(_PERIOD_S):
                    return
        except BaseException as error:
            self.failure = error

    def stop(self) -> None:
        """End after the transaction that is under way. Raises what has stopped it before."""
        self._over.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def _transaction(self, values: list[str], *, commit: bool) -> None:
        while True:
            self._producer.begin_transaction()
            try:
                for p in range(self._partitions):
                    for value in values:
                        key = str(p) if self._keyed else None
                        self._producer.produce(self._topic, f"{p}.{value}", key, partition=p)
                while self._producer.flush(_TRY_S):  # what is on its way might come after an abort, into the next one
                    pass
                end = self._producer.commit_transaction if commit else self._producer.abort_transaction
                self._retried(partial(end, _TRY_S))
                return
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._retried(partial(self._producer.abort_transaction, _TRY_S))

    def _retried(self, call: Callable[[], object]) -> None:
        """A call whose outcome is not known yet is made again: the client knows that it is the same."""
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not (error.args[0].retriable() or error.args[0].code() == KafkaError._TIMED_OUT):
                    raise
