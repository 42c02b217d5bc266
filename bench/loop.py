"""What the plain exactly-once loops of other clients are told and print: consume, produce, commit, without Spark."""

from __future__ import annotations

from dataclasses import dataclass

from bench.spec import Spec


@dataclass(frozen=True)
class LoopSpec(Spec):
    """What to copy: ``rows`` rows, ``rows_per_transaction`` at a time (or some more), key and value; ``codec``:
    of what is written."""

    bootstrap_servers: str
    input: str
    output: str
    partitions: int
    rows: int
    rows_per_transaction: int
    codec: str = "none"


@dataclass(frozen=True)
class TimedTransaction:
    """Times in seconds since the epoch."""

    begin: float
    end: float
    rows: int


def client(servers: str) -> dict[str, str | int]:
    """Settings of a client of confluent-kafka that reads or writes the benchmark's rows."""
    return {"bootstrap.servers": servers, "broker.address.family": "v4", "log_level": 3}
