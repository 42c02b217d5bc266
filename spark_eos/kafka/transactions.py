"""Kafka's transactions as plain values: fencing, the versions of EndTxn, and the identity of a producer. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

#: The level of transaction.version from which on the end of a transaction fences its producer (KIP-890).
FENCING_LEVEL = 2

#: The version of EndTxn with that level. It raises the producer epoch, so that late requests of the ended
#: transaction are fenced (KIP-890). Brokers take it with any transaction.version: the finalized feature decides, never
#: the announced versions. A commit by one version that is repeated by the other gets 48 or 90 (Kafka 4.3.1).
FENCING_END = 5

#: The version of EndTxn with transaction.version 0 or 1; lower versions mean the same. It keeps the producer epoch, so
#: that late requests may open a new transaction of the same producer.
PLAIN_END = 4

#: The timeout, in milliseconds, of a transaction that never expires, for two-phase commit (KIP-939).
NEVER_MS = 2**31 - 1


@dataclass(frozen=True)
class ProducerIdentity:
    """A transactional id with a producer id and epoch from InitProducerId."""

    id: str
    producer_id: int
    epoch: int

    def committed_by(self, endtxn_version: int) -> tuple[int, int]:
        """Return the transactional id's producer id and epoch after this version of EndTxn has committed the
        transaction."""
        return self.producer_id, self.epoch + (endtxn_version >= FENCING_END)
