"""The Python processes of a Spark application, and what each keeps of a query from one use to the next.

Tasks have processes of their own, and so have the driver's calls: plans, commits and aborts. Which of those that are
idle comes next is Spark's choice; one whose work was killed does not come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from spark_eos.errors import EosError
from spark_eos.protocol.head import Decision, TransactionStarts
from spark_eos.protocol.ports import Ports, Term

from .coordinator import Cluster
from .ledger import SimulatedData, SimulatedLedger, endtxn_version, ports
from .world import Actor, World

if TYPE_CHECKING:
    from .driver import Driver

#: For so long a process goes by what it has heard of the cluster's features.
HEARD_MS = 30_000


#: A query, as many partitions of the ledger as are known, and the group that gets the offsets.
Known = tuple[str, int, str | None]


@dataclass(eq=False)
class Ahead:
    """A commit of this run is done: by this actor, what was committed is looked at once more, and the ledger is taken.
    ``term`` has it then; ``waiting`` are the places that could not be looked at yet, and ``error`` is what the look has
    raised."""

    run: str
    actor: Actor
    decision: Decision | None = None
    term: Term | None = None
    waiting: TransactionStarts = field(default_factory=dict)
    error: EosError | None = None


class Process:
    """As the library's sessions are kept: by query and options, and by what was known of the ledger topic.

    ``user`` is at work in it; ``ahead`` and ``sweepers``, by query, go on in it after a commit.
    """

    def __init__(self) -> None:
        self._heard: tuple[int, int] | None = None
        self._kept: dict[Known, tuple[SimulatedLedger, SimulatedData]] = {}
        self.user: Actor | None = None
        self.ahead: dict[str, Ahead] = {}
        self.sweepers: dict[str, Actor] = {}

    @property
    def idle(self) -> bool:
        """Whether it can be used again: what goes on after a commit does not stand against it, but a kill does."""
        others = (*(taking.actor for taking in self.ahead.values()), *self.sweepers.values())
        return (self.user is None or self.user.done) and not any(a and a.killed for a in (self.user, *others))

    def ports(self, world: World, cluster: Cluster, known: Known, ahead_ms: int) -> Ports:
        """As `spark_eos.sink.session` keeps them: by query, by what is known of the ledger topic, and by options."""
        query, partitions, group = known
        version = partial(self._endtxn_version, world, cluster)
        key = self.key_of(known)
        if key not in self._kept:
            ledger = SimulatedLedger(world, cluster, partitions, group, version, query)
            self._kept[key] = ledger, SimulatedData(world, cluster)
        ledger, data = self._kept[key]
        return ports(world, cluster, ledger, ahead_ms, version, query, data)

    def key_of(self, known: Known) -> Known:
        """By what ledgers and look-ups are kept."""
        return known

    def _endtxn_version(self, world: World, cluster: Cluster) -> int:
        """By what the process heard last of the cluster's finalized features."""
        if self._heard is None or world.now - self._heard[0] > HEARD_MS:
            self._heard = world.now, endtxn_version(cluster)
        return self._heard[1]


@dataclass(eq=False)
class Application:
    """A Spark application: processes for tasks, and for the driver's calls. ``keeps``: whether anything is left in
    memory from one use to the next, but what a commit has taken ahead. ``gone``: its driver has died, and with it all
    ``drivers`` of queries in it."""

    name: str
    world: World
    keeps: bool
    tasks: list[Process] = field(default_factory=list)
    calls: list[Process] = field(default_factory=list)
    drivers: list[Driver] = field(default_factory=list)
    gone: bool = False

    def process(self, of: list[Process]) -> Process:
        """One that is idle, or a new one."""
        idle = [process for process in of if process.idle]
        choice = self.world.step % (len(idle) + 1)
        if self.keeps and choice < len(idle):
            return idle[choice]
        of.append(Process())
        if not self.keeps and idle:
            of[-1].ahead, idle[-1].ahead = idle[-1].ahead, {}
        return of[-1]


@dataclass(eq=False)
class Applications:
    """Of one query, each start's own; or ``shared`` by several queries, as sessions of one driver process are."""

    world: World
    keeps: bool
    shared: bool = False
    all: dict[str, Application] = field(default_factory=dict)

    def one(self, name: str | None) -> Application:
        """The one of this name while it lives; else the one that is shared, or a new one."""
        if name is None and self.shared and self.all:
            name = next(reversed(self.all))
        if name is None or self.all[name].gone:
            name = f"application {len(self.all)}"
            self.all[name] = Application(name, self.world, self.keeps)
        return self.all[name]
