"""Kafka's transactions as plain values: who writes one, and which version of EndTxn ends it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

#: The version of EndTxn that ends transactions where the cluster's transaction.version is 2: the epoch rises with the
#: end, so that nothing that comes late can belong to the producer whose transaction it was (KIP-890).
FENCING_END = 5

#: The version where it is 0 or 1; brokers that speak only lower ones mean the same by them. The epoch stays, and what
#: comes late may open a transaction of the same producer once more.
PLAIN_END = 4

#: The timeout, in milliseconds, of a transaction that never expires: of two-phase commit (KIP-939).
NEVER_MS = 2**31 - 1


@dataclass(frozen=True)
class ProducerIdentity:
    """A transactional id with one producer id and epoch, as InitProducerId gives them."""

    id: str
    producer_id: int
    epoch: int

    def committed_by(self, endtxn_version: int) -> tuple[int, int]:
        """Producer id and epoch of the transactional id once this version of EndTxn has committed the transaction."""
        return self.producer_id, self.epoch + (endtxn_version >= FENCING_END)
