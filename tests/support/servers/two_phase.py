"""Brokers that offer two-phase commit (KIP-939)."""

from __future__ import annotations

#: Settings of Kafka 4.3.
TWO_PHASE = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
