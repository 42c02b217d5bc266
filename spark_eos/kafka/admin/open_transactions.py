"""The oldest open transaction of a partition, which holds back its last stable offset."""

from __future__ import annotations

import time
from dataclasses import dataclass

from spark_eos.kafka.codes import OK, Code
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.describe_producers import describe_producers, open_begins
from spark_eos.kafka.requests.describe_transactions import TransactionState, describe_transactions
from spark_eos.kafka.requests.list_transactions import transactional_ids
from spark_eos.kafka.transactions import NEVER_MS


@dataclass(frozen=True)
class OpenTransaction:
    """An open transaction in one partition. ``open_s``: its age, by the clocks of the coordinator and of this machine;
    None for a hanging transaction, which no coordinator knows. ``answered``: whether all coordinators that may know it
    have answered; without that, it is not known whether it hangs."""

    transactional_id: str | None
    producer_id: int
    epoch: int
    first_offset: int
    open_s: float | None
    timeout_s: float | None
    answered: bool = True

    def __str__(self) -> str:
        producer = f"producer id {self.producer_id}, epoch {self.epoch}, from offset {self.first_offset}"
        if not self.answered:
            return f"{producer}; its coordinator does not answer, so that it is not known whose it is"
        if self.transactional_id is None or self.open_s is None or self.timeout_s is None:
            return (
                f"{producer}, which no coordinator names: a hanging transaction, or one of a transactional id that "
                "this user may not describe. Before it is aborted, 'kafka-transactions.sh find-hanging', by a user who "
                "may describe all of them, has to name it"
            )
        ends = f"its time-out is {self.timeout_s:.0f} s"
        if self.timeout_s == NEVER_MS / 1000:
            ends = (
                "it never expires ('spark-eos status' tells whether it is a query's, and 'spark-eos recover' ends it)"
            )
        return f"transactional id {self.transactional_id} ({producer}), open for {self.open_s:.0f} s; {ends}"


def oldest_open_transaction(client: BrokerClient, topic: str, partition: int) -> OpenTransaction | None:
    """Return the open transaction with the lowest first offset in a partition; None if there is none or the leader does
    not answer."""
    oldest = _oldest(client, topic, partition)
    if oldest is None:
        return None
    (producer_id, epoch), first_offset = oldest
    answered, state = _known(client, producer_id)
    if state is not None and state.transaction_start_time_ms >= 0:
        open_s = max(0.0, time.time() - state.transaction_start_time_ms / 1000)
        timeout_s = state.transaction_timeout_ms / 1000
        return OpenTransaction(state.transactional_id, producer_id, epoch, first_offset, open_s, timeout_s)
    if answered and _oldest(client, topic, partition) != oldest:
        return None  # it has ended while the coordinators were asked
    return OpenTransaction(None, producer_id, epoch, first_offset, None, None, answered)


def _oldest(client: BrokerClient, topic: str, partition: int) -> tuple[tuple[int, int], int] | None:
    """Return producer id, epoch and first offset of the oldest open transaction."""
    begins = open_begins(describe_producers(client, topic, partition))
    return min(begins.items(), key=lambda begin: begin[1], default=None)


def _known(client: BrokerClient, producer_id: int) -> tuple[bool, TransactionState | None]:
    """Return whether all coordinators that may know this producer id have answered, and its state by one of them."""
    names = transactional_ids(client, producer_id)
    if names is None:
        return False, None
    final = [s for s in describe_transactions(client, names) if s.error_code in (OK, Code.TRANSACTIONAL_ID_NOT_FOUND)]
    state = next((s for s in final if s.error_code == OK and s.producer_id == producer_id), None)
    return {s.transactional_id for s in final} >= set(names), state
