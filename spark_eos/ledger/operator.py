"""Commands on one query, by its ledger, for programs that take a query's place, or end it for good."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ledger.owners import Cluster
from spark_eos.protocol.abort import undecided
from spark_eos.protocol.checks import check_halts
from spark_eos.protocol.commands import Ended, SettledState, closes, hand_over, known_head, recover, settled_state
from spark_eos.protocol.head import NOBODY, Decision, Head, Successor
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.take import newest_head


@dataclass(frozen=True)
class QueryOperator:
    """Acts on the query of this id, whose ledger is on the ``cluster``."""

    cluster: Cluster
    query: str

    @classmethod
    def with_ledger(cls, client: BrokerClient, ledger: str, prefix: str, query: str) -> QueryOperator:
        """Return the operator of a query with this ledger topic and prefix of transactional ids."""
        return cls(Cluster(client, ledger, prefix), query)

    @cached_property
    def prefix(self) -> str:
        """The prefix of the query's transactional ids. Raises as `Cluster.prefix_of`."""
        return self.cluster.prefix_of(self.query)

    @cached_property
    def _ports(self) -> Ports:
        return self.cluster.ports(self.query, prefix=self.prefix)

    def check_may_start(self) -> None:
        """Raise Superseded or ProtocolStop where the query is retired, or halted by another command."""
        check_halts(self._ports.ledger.read(), None)

    def is_known(self) -> bool:
        """Return whether the ledger knows the query."""
        return newest_head(self._ports) is not None

    def head(self) -> Head:
        """Return the query's newest head. Raises LedgerError where there is none."""
        return known_head(newest_head(self._ports), self.query)

    def is_settled(self, head: Head) -> bool:
        """Return whether no run can decide anything more, and every decided micro-batch has an outcome."""
        waits = head.decision is not None and head.decision.waiting
        return head.run == NOBODY and not waits and not undecided(self._ports, head)

    def recover(self, judged: Head) -> Ended:
        """Close and settle the query, as long as it is of the run and generation that was ``judged``. See `recover`."""
        return recover(self._ports, self.query, closes(judged))

    def settled_state(self) -> SettledState:
        """Settle the query's last decision, and return its state. See `settled_state`."""
        return settled_state(self._ports)

    def retire(self, seen: Decision | None, successor: str = "", checkpoint: str = "") -> bool:
        """Retire the query in favour of its successor, which has this checkpoint, or for good; False where it has
        decided something since its last decision was ``seen``. See `hand_over`."""
        return hand_over(self._ports, Successor(successor, checkpoint), seen, self.prefix)
