"""An operator with ``spark-eos transactions``: at any time, and when the query has ended."""

from __future__ import annotations

import contextlib

from spark_eos.errors import EosError
from spark_eos.protocol.closing import abort_undecided, recover, settle_decided

from .coordinator import Cluster
from .ledger import QUERY, ports
from .plan import TOPIC
from .world import Actor, Fault, Strike, Violation, World

_LATER_MS = 600_000
"""By then every leader is itself again."""

NOTHING_HELD = "an operator can end whatever holds readers"


def abort_broken(world: World, cluster: Cluster) -> None:
    """Somebody does what the hint of EOS_DECISION_BROKEN says."""

    def does() -> None:
        with contextlib.suppress(EosError):
            settle_decided(ports(world, cluster), QUERY, and_abort_broken=True)

    world.spawn(f"operator {world.step}", "operator", does)


class Operator:
    """Strikes by the schedule; nobody tells it what the query does."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self._world, self._cluster = world, cluster
        for strike in (Strike.OPERATOR_ABORTS, Strike.OPERATOR_SETTLES):
            world.handlers[strike] = self._strike

    def _strike(self, actor: Actor, fault: Fault) -> bool:
        body = self._abort if fault.strike is Strike.OPERATOR_ABORTS else self._settle
        self._world.spawn(f"operator {self._world.step}", "operator", body)
        return True

    def _abort(self) -> None:
        with contextlib.suppress(EosError):
            abort_undecided(ports(self._world, self._cluster), QUERY)

    def _settle(self) -> None:
        with contextlib.suppress(EosError):
            settle_decided(ports(self._world, self._cluster), QUERY)

    def conclude(self) -> None:
        """The query has ended, and nothing strikes any more: what it has left open is ended, and readers go on."""

        def recovers() -> None:
            self._world.sleep(_LATER_MS)
            # Last, whatever began after that was committed, where nobody could tell what became of it.
            for step in (recover, abort_undecided):
                try:
                    step(ports(self._world, self._cluster), QUERY)
                except EosError as error:
                    # After a week in which retention took the rows, too, nobody can tell; nothing is open then.
                    if error.condition != "EOS_OUTCOME_GONE":
                        raise Violation(NOTHING_HELD, f"{error}") from error

        self._world.calm()
        self._world.spawn("operator at the end", "operator", recovers)
        self._world.run()
        held = [place for place, log in self._cluster.logs.items() if place[0] == TOPIC and log.open]
        if held:
            raise Violation(NOTHING_HELD, f"something is open in {held}")
