"""A mirror's settings, as they are sent to Spark's Python processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_eos.pipelines.copy.plan import CopyPlan
from spark_eos.pipelines.mirror.offset_map import DEFAULT_MAP
from spark_eos.spi import BrokerClient, broker_client


@dataclass(frozen=True)
class Targets:
    """Settings of new target topics. ``prefix``: goes before the source topic's name; ``settings``: topic settings that
    override the source's; ``replication``: -1 for the brokers' default; ``map``: the topic of the offset map."""

    prefix: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    replication: int = -1
    map: str = DEFAULT_MAP

    def name(self, topic: str) -> str:
        """Return the name at the target of a source topic."""
        return self.prefix + topic


@dataclass(frozen=True)
class MirrorPlan(CopyPlan):
    """See CopyPlan. ``target_cluster``: the id of the target's cluster."""

    targets: Targets = field(default_factory=Targets)
    target_cluster: str = ""

    @property
    def aside(self) -> frozenset[str]:
        """The topic of the offset map."""
        return frozenset([self.targets.map])

    def target(self, topic: str) -> str:
        """Return the target's name, by `Targets.name`; the option ``topic`` does not count."""
        return self.targets.name(topic)


@dataclass(frozen=True)
class MirrorClients:
    """Clients of the two clusters of a mirror, in one process."""

    source: BrokerClient
    target: BrokerClient

    @classmethod
    def for_plan(cls, plan: MirrorPlan) -> MirrorClients:
        """Return this process's clients for a plan, where Spark calls in."""
        return cls(broker_client(plan.source.kafka), broker_client(plan.sink.kafka))
