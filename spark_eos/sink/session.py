"""One query's connections in one process: the protocol's ports, kept from one micro-batch to the next."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import lru_cache

from spark_eos import faults
from spark_eos.kafka.coordinator import RecordLookup, TransactionCoordinator
from spark_eos.kafka.ledger import KafkaLedger
from spark_eos.kafka.wire import wire
from spark_eos.options import SinkOptions
from spark_eos.patience import patience
from spark_eos.protocol.ports import Ports

SETTLE_SECONDS = 60.0
"""How long a step is tried again before the query stops and leaves it to its next run."""


@dataclass(frozen=True)
class Session:
    """``ports`` for the steps of the protocol; ``coordinator`` once more, as tasks ask it more than the port has."""

    ports: Ports
    coordinator: TransactionCoordinator


def session(options: SinkOptions, ledger_partitions: int, query: str) -> Session:
    """The process's session for a query."""
    return _session(options, ledger_partitions, query, os.getpid())


@lru_cache(maxsize=16)
def _session(options: SinkOptions, ledger_partitions: int, query: str, process_id: int) -> Session:
    connection = wire(options.kafka)
    coordinator = TransactionCoordinator(connection, options.prefix, query)
    ledger = KafkaLedger(
        options.kafka, options.ledger_topic, ledger_partitions, options.prefix, query, options.group_id
    )
    ports = Ports(
        ledger=ledger,
        coordinator=coordinator,
        data=RecordLookup(connection, options.kafka),
        patience=lambda: patience(SETTLE_SECONDS),
        now_ms=lambda: int(time.time() * 1000),
        reach=faults.reach,
    )
    return Session(ports, coordinator)
