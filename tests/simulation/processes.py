"""The Python processes of a Spark application, and what each keeps of a query from one use to the next.

Tasks have processes of their own, and so have the driver's calls: plans, commits and aborts. Which of those that are
idle comes next is Spark's choice; one whose work was killed does not come back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from spark_eos.protocol.ports import Ports, Term

from .coordinator import Cluster
from .ledger import SimulatedLedger, endtxn_version, ports
from .world import Actor, World

HEARD_MS = 30_000
"""For so long a process goes by what it has heard of the cluster's features."""


@dataclass(eq=False)
class Ahead:
    """The ledger is being taken for a run, by this actor; ``term`` has it then."""

    run: str
    actor: Actor
    term: Term | None = None


class Process:
    """As the library's sessions are kept: by options, and by what was known of the ledger topic.

    ``user`` is at work in it; ``ahead`` and ``sweeper`` go on in it after a commit.
    """

    def __init__(self) -> None:
        self._heard: tuple[int, int] | None = None
        self._ledgers: dict[tuple[int, str | None], SimulatedLedger] = {}
        self.user: Actor | None = None
        self.ahead: Ahead | None = None
        self.sweeper: Actor | None = None

    @property
    def idle(self) -> bool:
        """Whether it can be used again: what goes on after a commit does not stand against it, but a kill does."""
        others = (self.ahead and self.ahead.actor, self.sweeper)
        return (self.user is None or self.user.done) and not any(a and a.killed for a in (self.user, *others))

    def ports(self, world: World, cluster: Cluster, partitions: int, group: str | None, ahead_ms: int) -> Ports:
        """As `spark_eos.sink.session` keeps them: by what is known of the ledger topic, and by options."""
        key = partitions, group
        version = partial(self._endtxn_version, world, cluster)
        if key not in self._ledgers:
            self._ledgers[key] = SimulatedLedger(world, cluster, *key, version)
        return ports(world, cluster, self._ledgers[key], ahead_ms, version)

    def _endtxn_version(self, world: World, cluster: Cluster) -> int:
        """By what the process heard last of the cluster's finalized features."""
        if self._heard is None or world.now - self._heard[0] > HEARD_MS:
            self._heard = world.now, endtxn_version(cluster)
        return self._heard[1]


@dataclass(eq=False)
class Application:
    """A Spark application: processes for tasks, and for the driver's calls. ``keeps``: whether anything is left in
    memory from one use to the next, but what a commit has taken ahead."""

    name: str
    world: World
    keeps: bool
    tasks: list[Process] = field(default_factory=list)
    calls: list[Process] = field(default_factory=list)

    def process(self, of: list[Process]) -> Process:
        """One that is idle, or a new one."""
        idle = [process for process in of if process.idle]
        choice = self.world.step % (len(idle) + 1)
        if self.keeps and choice < len(idle):
            return idle[choice]
        of.append(Process())
        if not self.keeps and idle:
            of[-1].ahead, idle[-1].ahead = idle[-1].ahead, None
        return of[-1]
