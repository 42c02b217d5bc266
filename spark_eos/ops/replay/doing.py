"""Carries a replay out, step by step; whatever of it is done already is passed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_eos.kafka.ports.owners import Cluster
from spark_eos.kafka.ports.query import query_ports
from spark_eos.ops.checkpoint.aside import set_aside
from spark_eos.ops.checkpoint.heads import OwnHead, heads_of
from spark_eos.ops.replay.planning import ReplayPlan
from spark_eos.ops.replay.ranges import as_offsets
from spark_eos.ops.replay.target import Target, contents
from spark_eos.protocol.marks import EachSink, Successor
from spark_eos.protocol.names import query_of_sink
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.replaying import begin, go_back, intend, retire
from spark_eos.storage.settings import HadoopSettings

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
        for own in heads:
            self._intend(own)
        Target(unfinished.to, self.settings).write(contents(plan.query, unfinished))
        if unfinished.topic is None:
            heads = self._retire()
        for own in reversed(heads):  # the one for all sinks at last
            begin(self._ports(self._new_key(own), unfinished.group), unfinished, as_offsets(unfinished.lines))

    def _intend(self, own: OwnHead) -> None:
        each = None if own.sink is None else EachSink(self.plan.query, own.sink)
        intend(self._ports(self._new_key(own)), self.plan.unfinished, own.head, each)

    def _retire(self) -> Sequence[OwnHead]:
        """Retire the old query; its heads. Within foreachBatch, the one for all sinks goes first. A run that
        publishes the head of a sink after they were looked up finds that before it decides (`sink.batch_writer`)."""
        first, *others = self.plan.heads
        heir = Successor(self.plan.query, self.plan.unfinished.to)
        if first.sink is None:
            retire(self._ports(first.key), first.key, heir, self.plan.passed)
            return [first]
        retire(self._ports(first.key), first.key, heir, absent=first.head)
        others = [own for own in heads_of(self.cluster, self.plan.unfinished.of) if own.sink]
        for own in others:
            self._intend(own)
            retire(self._ports(own.key), own.key, heir)
        return [first, *others]

    def in_place(self) -> None:
        """1. The head that no start gets past. 2. What is later than the micro-batch is moved aside, each file with its
        checksums. 3. The head from which the query goes on.

        Raises EosError.
        """
        unfinished = self.plan.unfinished
        go_back(self._ports(unfinished.of), unfinished.of, unfinished, self.plan.passed)
        set_aside(unfinished.checkpoint, self.settings, unfinished.batch, ASIDE, "replay.moved")
        begin(self._ports(unfinished.of, unfinished.group), unfinished, as_offsets(unfinished.lines))

    def _new_key(self, own: OwnHead) -> str:
        return self.plan.query if not own.sink else query_of_sink(self.plan.query, own.sink)

    def _ports(self, key: str, group: str | None = None) -> Ports:
        return query_ports(self.cluster.kafka, self.cluster.place, key, group)[0]
