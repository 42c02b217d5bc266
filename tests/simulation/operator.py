"""An operator with ``spark-eos recover``: at any time, and when the query has ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from spark_eos.errors import EosError
from spark_eos.protocol import commands
from spark_eos.protocol.commands import recover, settle_decided
from spark_eos.protocol.ports import Ports

from .coordinator import Cluster
from .ledger import QUERY, ports
from .partition_log import Place
from .plan import OUTPUTS
from .world import Actor, Fault, Strike, Violation, World

#: What an operator does to a query that he names.
Step = Callable[[Ports, str], object]
#: Nobody tells him what the query does meanwhile.
STEPS: dict[Strike, Step] = {
    Strike.OPERATOR_ABORTS: commands.abort_undecided,
    Strike.OPERATOR_SETTLES: settle_decided,
}
#: By then every leader is itself again.
_LATER_MS = 600_000

NOTHING_HELD = "an operator can end whatever holds readers"


def abort_broken(world: World, cluster: Cluster, query: str, error: EosError) -> None:
    """Somebody does what the hint of EOS_DECISION_BROKEN says: where it names an offset, what begins there is aborted
    in that partition before."""

    def step(own: Ports, query: str) -> None:
        told = error.parameters
        if "offset" in told:
            _abort_at(cluster, (told["topic"], told["partition"]), told["offset"])
        settle_decided(own, query, and_abort_broken=True)

    _take(world, cluster, query, step)


def _abort_at(cluster: Cluster, place: Place, offset: int) -> None:
    log = cluster.log(place)
    for producer_id in [id for id, begin in log.open.items() if begin == offset]:
        log.mark(producer_id, log.producers[producer_id].epoch, commit=False)
        cluster.marked(place, log)


def abort_undecided(world: World, cluster: Cluster, query: str) -> None:
    """Somebody ends what the query itself has left open, and keeps readers from what it has decided."""
    _take(world, cluster, query, commands.abort_undecided)


def _take(world: World, cluster: Cluster, query: str, step: Step) -> None:
    def does() -> None:
        with contextlib.suppress(EosError):
            step(ports(world, cluster, query=query), query)

    world.spawn(_name(world, query), "operator", does)


def _name(world: World, query: str) -> str:
    return f"operator {world.step}" if query == QUERY else f"operator {query}/r{world.step}"


class Operator:
    """Strikes by the schedule, at one of these queries."""

    def __init__(self, world: World, cluster: Cluster, queries: Sequence[str] = (QUERY,)) -> None:
        self._world, self._cluster, self._queries = world, cluster, queries
        for strike in STEPS:
            world.handlers[strike] = self._strike

    def _strike(self, actor: Actor, fault: Fault) -> bool:
        query = self._queries[self._world.step % len(self._queries)]
        _take(self._world, self._cluster, query, STEPS[fault.strike])
        return True

    def conclude(self) -> None:
        """The queries have ended, and nothing strikes any more: what they have left open is ended, and readers go
        on."""

        def recovers(query: str) -> None:
            self._world.sleep(_LATER_MS)
            # Last, whatever began after that was committed, where nobody could tell what became of it.
            for step in (recover, commands.abort_undecided):
                try:
                    step(ports(self._world, self._cluster, query=query), query)
                except EosError as error:
                    # After a week in which retention took the rows, too, nobody can tell; nothing is open then.
                    if error.condition != "EOS_OUTCOME_GONE":
                        raise Violation(NOTHING_HELD, f"{error}") from error

        self._world.calm()
        for query in self._queries:
            self._world.spawn(_name(self._world, query), "operator", partial(recovers, query))
        self._world.run()
        held = [place for place, log in self._cluster.logs.items() if place[0] in OUTPUTS and log.open]
        if held:
            raise Violation(NOTHING_HELD, f"something is open in {held}")
