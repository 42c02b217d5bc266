"""Carries a replay out, step by step, from the beginning again where an earlier command has not finished it.

Each step looks whether another command has taken over since the one before (`spark_eos.protocol.commands`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.checkpoint.aside import Aside
from spark_eos.ops.heads import OwnHead, heads_of
from spark_eos.ops.replay.planning import ReplayPlan
from spark_eos.ops.replay.ranges import as_offsets
from spark_eos.ops.replay.target import Target, contents
from spark_eos.protocol.commands import begin, check_still, go_back, intend, retire
from spark_eos.protocol.head import EachSink, Head, Successor
from spark_eos.protocol.names import query_of_sink
from spark_eos.protocol.ports import Ports

#: The folder of what is moved out of the logs.
ASIDE = "replayed"


@dataclass(frozen=True)
class Replay:
    """A replay at work."""

    cluster: Cluster
    plan: ReplayPlan
    settings: HadoopSettings

    def to_a_new_checkpoint(self) -> None:
        """1. The new query's heads, which no start gets past. 2. Its checkpoint. 3. The old query is retired, unless
        the rows go to another topic. 4. The heads from which the new query goes on.

        Raises EosError.
        """
        plan, unfinished = self.plan, self.plan.unfinished
        heads = plan.heads
        begun = {own.key: self._intend(own) for own in heads}

        def still() -> None:
            for own in plan.heads:
                check_still(self._new_ports(own), self._new_key(own), begun[own.key])

        Target(unfinished.to, self.settings).write(contents(plan.query, unfinished), still)
        if unfinished.topic is None:
            still()
            heads = self._retire(begun)
        for own in reversed(heads):  # the one for all sinks at last
            ports = self._new_ports(own, unfinished.group)
            begin(ports, unfinished, as_offsets(unfinished.lines), begun[own.key])

    def _intend(self, own: OwnHead) -> Head:
        each = None if own.sink is None else EachSink(self.plan.query, own.sink)
        return intend(self._new_ports(own), self.plan.unfinished, own.head, each)

    def _retire(self, begun: dict[str, Head]) -> Sequence[OwnHead]:
        """Retire the old query; its heads. Within foreachBatch, the one for all sinks goes first. A run that
        publishes the head of a sink after they were looked up finds that before it decides (`sink.batch_writer`).
        ``begun``: the heads of the new query by the keys of the old one, to which those of such sinks are added."""
        first, *others = self.plan.heads
        heir = Successor(self.plan.query, self.plan.unfinished.to)
        if first.sink is None:
            retire(self._ports(first), first.key, heir, self.plan.passed)
            return [first]
        retire(self._ports(first), first.key, heir, absent=first.head)
        others = [own for own in heads_of(self.cluster, self.plan.unfinished.of) if own.sink]
        for own in others:
            if own.key not in begun:
                begun[own.key] = self._intend(own)
            retire(self._ports(own), own.key, heir)
        return [first, *others]

    def in_place(self) -> None:
        """1. The head that no start gets past. 2. What is later than the micro-batch is moved aside, each file with its
        checksums. 3. The head from which the query goes on.

        Raises EosError.
        """
        unfinished, (own,) = self.plan.unfinished, self.plan.heads
        ports = self._ports(own, unfinished.group)
        halted = go_back(ports, own.key, unfinished, own.head, self.plan.passed)
        aside = Aside(
            unfinished.checkpoint,
            self.settings,
            ASIDE,
            halted.generation,
            lambda: check_still(ports, own.key, halted),
            "replay.moved",
        )
        aside.move(["commits", "offsets"], unfinished.batch)
        begin(ports, unfinished, as_offsets(unfinished.lines), halted)

    def _new_key(self, own: OwnHead) -> str:
        return self.plan.query if not own.sink else query_of_sink(self.plan.query, own.sink)

    def _ports(self, own: OwnHead, group: str | None = None) -> Ports:
        return self.cluster.ports(own.key, group, own.head.prefix)

    def _new_ports(self, own: OwnHead, group: str | None = None) -> Ports:
        """The ports of the new query, which keeps the old one's prefix."""
        return self.cluster.ports(self._new_key(own), group, own.head.prefix)
