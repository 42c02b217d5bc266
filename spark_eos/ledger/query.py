"""The ports of one query, together."""

from __future__ import annotations

from dataclasses import dataclass

from spark_eos import failpoints, system
from spark_eos.clocks import Elapsed
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ledger.coordinator import TransactionCoordinator
from spark_eos.ledger.ledger import KafkaLedger
from spark_eos.ledger.lookup import RecordLookup
from spark_eos.protocol.ports import Ports
from spark_eos.retry import retrying

#: Seconds for which a step is retried before the query stops and leaves it to its next run.
SETTLE_S = 60.0


@dataclass(frozen=True)
class LedgerPlace:
    """Where a query keeps what it decides: the ledger topic, its number of partitions, and the prefix of the query's
    transactional ids."""

    ledger: str
    partitions: int
    prefix: str


def query_ports(
    client: BrokerClient, place: LedgerPlace, query: str, group: str | None = None
) -> tuple[Ports, TransactionCoordinator]:
    """``group`` gets the offsets of decisions. The coordinator is the ports' own, with methods that only tasks need."""
    coordinator = TransactionCoordinator(client, place.prefix, query)
    ports = Ports(
        ledger=KafkaLedger(client, place.ledger, place.partitions, place.prefix, query, group),
        coordinator=coordinator,
        data=RecordLookup(client),
        retrying=lambda: retrying(SETTLE_S),
        now_ms=lambda: int(system.time_of_day() * 1000),
        elapsed_ms=Elapsed(system.steady, system.time_of_day),
        reach=failpoints.reach,
    )
    return ports, coordinator
