"""The protocol's ports for one query."""

from __future__ import annotations

from dataclasses import dataclass

from spark_eos.base import failpoints, system
from spark_eos.base.clocks import Elapsed
from spark_eos.base.retry import retrying
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ledger.coordinator import TransactionCoordinator
from spark_eos.ledger.ledger import KafkaLedger
from spark_eos.ledger.lookup import RecordLookup
from spark_eos.protocol.ports import Ports

#: Seconds for which a step is retried; then the query stops, and its next run continues.
SETTLE_S = 60.0


@dataclass(frozen=True)
class LedgerAddress:
    """The ledger topic of a query, its number of partitions, and the prefix of the query's transactional ids."""

    ledger: str
    partitions: int
    prefix: str


def query_ports(client: BrokerClient, address: LedgerAddress, query: str, group: str | None = None) -> Ports:
    """Return the ports of a query. ``group``: the consumer group to which a decision's offsets are published."""
    return Ports(
        ledger=KafkaLedger(client, address.ledger, address.partitions, address.prefix, query, group),
        coordinator=TransactionCoordinator(client, address.prefix, query),
        data=RecordLookup(client),
        retrying=lambda: retrying(SETTLE_S),
        now_ms=lambda: int(system.time_of_day() * 1000),
        elapsed_ms=Elapsed(system.steady, system.time_of_day),
        reach=failpoints.reach,
    )
