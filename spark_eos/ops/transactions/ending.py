"""How an operator ends what a query has left open: undecided transactions are aborted, decided ones committed, never
the other way round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_eos.errors import EosError
from spark_eos.ledger.owners import Cluster, Transaction, find
from spark_eos.protocol.commands import abort_undecided, closes, known_head, settle_decided
from spark_eos.protocol.head import NOBODY, Head, Verdict
from spark_eos.protocol.ports import State
from spark_eos.retry import retrying

#: Coordinators answer before the markers are written, in which a partition without a leader may take its time.
_MARKERS_S = 15.0


@dataclass(frozen=True)
class EndPlan:
    """What would be ended, and what would stay; ``closes``: the run that would be closed, if one may be alive.
    ``head``: by which that was found, as far as it is known."""

    query: str
    ends: Sequence[Transaction]
    stays: Sequence[Transaction]
    closes: str | None = None
    head: Head | None = None


@dataclass(frozen=True)
class Result:
    """What was ended. ``left``: what should have been, and is still open; ``lost``: decided transactions that the
    broker aborted before, whose rows the query's next start writes again; ``stays``: what was not to be ended."""

    query: str
    ended: Sequence[str]
    left: Sequence[Transaction] = ()
    lost: Sequence[str] = ()
    stays: Sequence[Transaction] = ()

    @property
    def ok(self) -> bool:
        """Whether all that was to be ended is ended, and nothing is lost."""
        return not self.left and not self.lost


def plan_abort(cluster: Cluster, query: str) -> EndPlan:
    """What `abort` would do. Raises LedgerError where the ledger knows nothing of the query, or cannot be read."""
    found = find(cluster, [query])
    try:
        head = known_head(cluster.ports(query).ledger.read(), query)
    except EosError as error:
        of_ledger = [t for t in found if t.of_ledger]
        if error.condition != "EOS_LEDGER_HELD" or not of_ledger:
            raise
        # To take the ledger ends what holds it. What is decided is known after that.
        return EndPlan(query, of_ledger, [t for t in found if not t.of_ledger])
    ends = [t for t in found if not t.decided]
    return EndPlan(query, ends, [t for t in found if t.decided], head.run if head.run != NOBODY else None, head)


def abort(cluster: Cluster, query: str) -> Result:
    """Take the query's ledger, close its run, and abort what is not decided. Raises EosError."""
    plan = plan_abort(cluster, query)  # which refuses, without having taken anything
    check = closes(plan.head) if plan.head is not None else None
    closed = abort_undecided(cluster.ports(query), query, check).head
    # A run that has begun since then has transactions of its own.
    after = [t for t in _after(cluster, query) if t.generation is not None and t.generation < closed.generation]
    still = {t.id for t in after}
    undecided = [*plan.ends, *(t for t in plan.stays if t.decided is None)]
    return Result(
        query,
        [t.id for t in undecided if t.id not in still],
        left=[t for t in after if not t.decided],
        stays=[t for t in after if t.decided],
    )


def _after(cluster: Cluster, query: str) -> list[Transaction]:
    """What is open when the markers of what was ended are written."""
    found: list[Transaction] = []
    for _ in retrying(_MARKERS_S):
        found = find(cluster, [query])
        if all(t.state == State.ONGOING.value for t in found):
            break
    return found


def plan_settle(cluster: Cluster, query: str) -> EndPlan:
    """What `settle` would do. Raises LedgerError where the ledger knows nothing of the query, or cannot be read."""
    known_head(cluster.ports(query).ledger.read(), query)
    found = find(cluster, [query])
    return EndPlan(query, [t for t in found if t.decided], [t for t in found if not t.decided])


def settle(cluster: Cluster, query: str, *, and_abort_broken: bool = False) -> Result:
    """Commit what the query's last decision has open, but what is broken. Raises EosError, Unclear among them."""
    before = find(cluster, [query])
    ended = settle_decided(cluster.ports(query), query, and_abort_broken=and_abort_broken)
    verdicts = {pair.id: verdict for pair, verdict in ended.verdicts}
    after = _after(cluster, query)
    return Result(
        query,
        [t.id for t in before if t.decided and verdicts.get(t.id) is Verdict.COMMITTED],
        lost=[name for name, verdict in verdicts.items() if verdict is Verdict.LOST],
        left=[t for t in after if t.decided and t.id not in verdicts],
        stays=[t for t in after if not t.decided],
    )
