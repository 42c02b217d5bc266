"""The oldest open transaction of a partition, which holds back its last stable offset."""

from __future__ import annotations

import time
from dataclasses import dataclass

from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.describe_producers import describe_producers, open_begins
from spark_eos.kafka.requests.describe_transactions import describe_transactions
from spark_eos.kafka.requests.list_transactions import transactional_ids
from spark_eos.kafka.transactions import NEVER_MS


@dataclass(frozen=True)
class OpenTransaction:
    """An open transaction in one partition. ``open_s``: its age, by the clocks of the coordinator and of this machine;
    None for a hanging transaction, which no coordinator knows."""

    transactional_id: str | None
    producer_id: int
    epoch: int
    first_offset: int
    open_s: float | None
    timeout_s: float | None

    def __str__(self) -> str:
        producer = f"producer id {self.producer_id}, epoch {self.epoch}, from offset {self.first_offset}"
        if self.transactional_id is None or self.open_s is None or self.timeout_s is None:
            return (
                f"{producer}, which no coordinator knows: a hanging transaction. Find and abort it with Kafka's "
                "tool kafka-transactions"
            )
        ends = f"its time-out is {self.timeout_s:.0f} s"
        if self.timeout_s == NEVER_MS / 1000:
            ends = (
                "it never expires ('spark-eos status' tells whether it is a query's, and 'spark-eos recover' ends it)"
            )
        return f"transactional id {self.transactional_id} ({producer}), open for {self.open_s:.0f} s; {ends}"


def oldest_open_transaction(client: BrokerClient, topic: str, partition: int) -> list[OpenTransaction]:
    """The open transaction with the lowest first offset in a partition, as a list of one; empty if there is none or the
    leader does not answer."""
    begins = open_begins(describe_producers(client, topic, partition))
    if not begins:
        return []
    (producer_id, epoch), first_offset = min(begins.items(), key=lambda begin: begin[1])
    names = transactional_ids(client, producer_id)
    described = [state for state in describe_transactions(client, names) if state.producer_id == producer_id]
    state = described[0] if described else None
    known = state is not None and state.transaction_start_time_ms >= 0
    return [
        OpenTransaction(
            state.transactional_id if state is not None else None,
            producer_id,
            epoch,
            first_offset,
            max(0.0, time.time() - state.transaction_start_time_ms / 1000) if state is not None and known else None,
            state.transaction_timeout_ms / 1000 if state is not None and known else None,
        )
    ]
