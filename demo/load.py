"""Loads the input topic in transactions, some of which are first aborted, as real producers do."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from confluent_kafka import Producer

from demo.flights import INPUT_TOPIC, FlightRecord, records

ROWS_PER_TRANSACTION = 2_000
_ABORT_EVERY = 10
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Loaded:
    """Counts of rows and transactions. Aborted rows are repeated and committed right after."""

    rows: int
    aborted_rows: int
    transactions: int


def load_flights(bootstrap_servers: str, frame: pd.DataFrame) -> Loaded:
    """Write the rows in order, every tenth transaction twice: marked and aborted, then unmarked and committed."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": "demo-loader",
            "linger.ms": 5,
            "log_level": 3,  # a broker that has just started makes the client wait and log it
            "broker.address.family": "v4",
        }
    )
    producer.init_transactions(_TIMEOUT_S)
    chunks = range(0, len(frame), ROWS_PER_TRANSACTION)
    aborted_rows = 0
    for number, start in enumerate(chunks, 1):
        chunk = frame.iloc[start : start + ROWS_PER_TRANSACTION]
        if number % _ABORT_EVERY == 0:
            _transaction(producer, records(chunk, aborted=True), commit=False)
            aborted_rows += len(chunk)
        _transaction(producer, records(chunk, aborted=False), commit=True)
    return Loaded(len(frame), aborted_rows, len(chunks))


def _transaction(producer: Producer, rows: list[FlightRecord], *, commit: bool) -> None:
    producer.begin_transaction()
    for row in rows:
        producer.produce(INPUT_TOPIC, key=row.key, value=row.value)
        producer.poll(0)
    if commit:
        producer.commit_transaction(_TIMEOUT_S)
    else:
        # Without this, the client drops rows that it has not sent yet, and few or none of them would be in the topic.
        producer.flush(_TIMEOUT_S)
        producer.abort_transaction(_TIMEOUT_S)
