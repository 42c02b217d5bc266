"""The target topics of a mirror, on the driver: created before the first row, with as many partitions as their sources.
Refused are topics whose rows would go round in circles, and targets that would refuse, change or compact rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import OWN_NAMES
from spark_eos.errors import stop
from spark_eos.kafka.admin.configs import add_partitions, create_topic, topic_config
from spark_eos.ledger.own_topics import not_for_rows
from spark_eos.pipelines.mirror.offset_map import (
    Origin,
    OriginsLog,
    chains_of,
    make_map,
    not_made,
    origins,
    unfit,
    write_origin,
)
from spark_eos.pipelines.mirror.plan import MirrorClients, MirrorPlan
from spark_eos.sink.outputs import check_not_reserved
from spark_eos.spi import Topic, describe_topics

#: Settings that a new target takes from its source. For all others, the target brokers' defaults apply.
_KEPT = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
)

_ANY_TIME = str(2**63 - 1)
#: Settings of every new target, not copied from its source.
_CHANGED = {
    "compression.type": "producer",  # batches stay as they are
    "message.timestamp.type": "CreateTime",  # timestamps are the source's, whether a producer or a broker has set them
    # A row that the source's brokers accepted in time may be too old for the target's when it gets there.
    "message.timestamp.before.max.ms": _ANY_TIME,
    "message.timestamp.after.max.ms": _ANY_TIME,
}

#: The ends of the names of settings whose values are numbers.
_NUMBERS = (".ms", ".bytes")

#: For how long a target that was mirrored to before may be hidden by a broker that lags behind.
_HIDDEN_S = 5.0
#: How long to wait until brokers show a topic, or partitions, that were just created.
_VISIBLE_S = 15.0
#: How often a running mirror reads which topics of its source are mirrored from elsewhere, directly or indirectly.
_ORIGINS_S = 10.0


def check_not_to_itself(plan: MirrorPlan) -> None:
    """Raise OptionError if the mirror would copy each topic to itself."""
    if plan.cluster == plan.target_cluster and not plan.targets.prefix:
        raise stop("EOS_OPTION_CONFLICT.mirror_to_itself", option="prefix")


@dataclass(frozen=True)
class _Ready:
    """A source topic whose target is prepared: the topic as it was then, the clusters that its rows came from, and the
    target's id."""

    topic: Topic
    chain: tuple[str, ...]
    target_id: str


class TargetTopics:
    """Checks and prepares topics, and remembers which. A topic is checked when it is new to the mirror, when its first
    rows are read, and when its id, its number of partitions, its target or its origin changes. Every mirror writes a
    target's origin before its first row: so if a topic has rows, its origin is known. The origin's own origin may
    change later, as mirrors begin."""

    def __init__(self, plan: MirrorPlan, clients: MirrorClients) -> None:
        self._plan, self._source, self._target = plan, clients.source, clients.target
        self._origins = OriginsLog(self._source, plan.targets.map)
        self._chains: dict[str, tuple[str, ...]] = {}
        self._checked: set[tuple[str, bool]] = set()
        self._ready: dict[tuple[str, bool], _Ready] = {}

    def check(self, names: Iterable[str]) -> None:
        """Refuse source topics that must not be mirrored, and settings that no target can have. Raises TopicError
        (EOS_MIRROR_TOPIC_REFUSED, EOS_MIRROR_CIRCLE, EOS_MIRROR_TARGET_SETTINGS)."""
        named = set(names)
        sources = describe_topics(self._source, named, missing_ok=True)
        self._check_kinds(named, sources)
        for name in sources:
            check_numbers(self._plan.target(name), self._plan.targets.settings)
        self._update_chains(self._origins.read())
        self._check_circles(sources)

    def check_planned(self, names: Iterable[str], read: Collection[str]) -> None:
        """Check the topics of a micro-batch that is not in the offset log yet. ``read``: topics that it reads."""
        self._update_chains(self._origins.lately(_ORIGINS_S))
        new = {(name, name in read) for name in names if (name, True) not in self._checked} - self._checked
        if new:
            self.check({name for name, _ in new})
            self._checked |= new

    def circles(self, names: Iterable[str]) -> set[str]:
        """Return the source topics, out of these, whose rows come from the target's cluster."""
        sources = describe_topics(self._source, names, missing_ok=True)
        self._update_chains(self._origins.read())
        return {name for name, topic in sources.items() if self._plan.target_cluster in self._chain(topic)}

    def prepare(self, followed: Iterable[str], read: Collection[str]) -> None:
        """Prepare the targets of the topics that the mirror follows or a micro-batch reads.

        A topic that is read but not followed was planned before it was taken off the mirror. It is mirrored even if it
        is part of a circle, as the micro-batch may be decided already; no later one reads it. Raises the errors of
        `check`, and TopicError (EOS_MIRROR_TARGET_SETTINGS, EOS_MIRROR_TARGET_RECREATED, EOS_MIRROR_TOPIC_REFUSED,
        EOS_MIRROR_MAP_…).
        """
        followed = set(followed)
        sources = describe_topics(self._source, followed | set(read), missing_ok=True)
        self._update_chains(self._origins.lately(_ORIGINS_S))
        new = self._not_ready(sources, read)
        if not new:
            return
        self._check_kinds(new, new)
        self._update_chains(self._origins.read())
        self._check_circles({name: topic for name, topic in new.items() if name in followed})
        make_map(self._target, self._plan.targets.map, self._plan.targets.replication)
        known = origins(self._target, self._plan.targets.map)
        there = self._existing({self._plan.target(name) for name in new}, known)
        check_not_reserved(self._target, there, ledger=self._plan.sink.ledger_topic)
        for name, topic in new.items():
            self._check_not_recreated(name, topic, there.get(self._plan.target(name)), known)
            made = self._create_or_grow(name, topic.partitions, there.get(self._plan.target(name)))
            chain = (self._plan.cluster, *(one for one in self._chain(topic) if one != self._plan.cluster))
            origin = Origin(self._plan.target(name), made.id, name, topic.id, chain)
            if origin not in known:
                write_origin(self._target, self._plan.targets.map, origin)
            self._ready[name, name in read] = _Ready(topic, self._chain(topic), made.id)

    def _update_chains(self, known: Iterable[Origin]) -> None:
        """Note the origins of the source topics. If that has changed, all topics are checked again."""
        chains = chains_of(known)
        if chains != self._chains:
            self._chains = chains
            self._checked.clear()

    def _chain(self, topic: Topic) -> tuple[str, ...]:
        """Return the clusters that the rows of a source topic come from."""
        return self._chains.get(topic.id, ())

    def _not_ready(self, sources: Mapping[str, Topic], read: Collection[str]) -> dict[str, Topic]:
        """Return the topics, out of these, that have changed since they were prepared, or whose targets are gone."""
        ids: dict[str, str] = {}
        for name, topic in sources.items():
            for ready in (self._ready.get((name, True)), self._ready.get((name, name in read))):
                if ready is not None and (ready.topic, ready.chain) == (topic, self._chain(topic)):
                    ids[name] = ready.target_id
        there = describe_topics(self._target, {self._plan.target(name) for name in ids}, missing_ok=True)
        return {
            name: topic
            for name, topic in sources.items()
            if (target := there.get(self._plan.target(name))) is None or target.id != ids.get(name)
        }

    def _existing(self, targets: set[str], known: Collection[Origin]) -> dict[str, Topic]:
        """Return the targets that exist. Targets that were mirrored to before may be hidden for a moment, and are
        waited for. Others are created if they are not seen: the controller knows if they exist after all."""
        targets_there = describe_topics(self._target, targets, missing_ok=True, unknown_s=0)
        before = {origin.target for origin in known} & targets - targets_there.keys()
        return targets_there | describe_topics(self._target, before, missing_ok=True, unknown_s=_HIDDEN_S)

    def _check_kinds(self, names: Iterable[str], sources: Mapping[str, Topic]) -> None:
        """Refuse topics of kinds that cannot be mirrored, such as a ledger. ``sources``: the topics that exist."""
        own = {self._plan.sink.ledger_topic, self._plan.targets.map}
        kept = not_for_rows(self._source, sources)
        for name in sorted(names):
            if name in kept or name in own or name.startswith(OWN_NAMES):
                raise stop(
                    "EOS_MIRROR_TOPIC_REFUSED.internal",
                    topic=name,
                    why=f"it is {kept.get(name, 'a ledger or an offset map')}, which means nothing on another cluster",
                )
            target = self._plan.target(name)
            if target.startswith(OWN_NAMES) or target in own:
                raise stop(
                    "EOS_MIRROR_TOPIC_REFUSED.internal",
                    topic=name,
                    why=f"at the target, {target} is the name of a ledger or an offset map",
                )

    def _check_circles(self, sources: Mapping[str, Topic]) -> None:
        for name, topic in sources.items():
            if self._plan.target_cluster in self._chain(topic):
                raise stop("EOS_MIRROR_CIRCLE", topic=name, target_cluster=self._plan.target_cluster)

    def _check_not_recreated(self, name: str, topic: Topic, there: Topic | None, known: Collection[Origin]) -> None:
        """Raise TopicError if the target was recreated: it lacks the rows that were mirrored before."""
        target = self._plan.target(name)
        before = [
            o.target_id
            for o in known
            if (o.target, o.source_id) == (target, topic.id) and o.is_from(self._plan.cluster)
        ]
        if before and (there is None or there.id not in before):
            raise stop(
                "EOS_MIRROR_TARGET_RECREATED.start",
                topic=target,
                and_recreated="" if there is None else " and recreated",
                name=name,
            )

    def _create_or_grow(self, name: str, partitions: int, there: Topic | None) -> Topic:
        """Create the target, or add partitions, if need be; the target as it is then. Partitions are never removed."""
        target, own = self._plan.target(name), self._plan.targets
        source = topic_config(self._source, name)
        if there is None:
            wanted = target_settings(source, own.settings)
            check_settings(target, source, {**source, **wanted})
            why = create_topic(self._target, target, partitions, own.replication, wanted)
            if why:
                raise not_made(target, why)
        elif there.partitions < partitions:
            why = add_partitions(self._target, target, partitions)
            if why:
                raise not_made(target, why)
        for _ in retrying(_VISIBLE_S):
            made = describe_topics(self._target, [target], missing_ok=True).get(target)
            if made is not None and made.partitions >= partitions:
                check_settings(target, source, topic_config(self._target, target))
                return made
        raise not_made(target, f"the brokers do not show {partitions} partitions")


def target_settings(source: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a new target. ``source``: settings of the source topic; ``overrides``: the user's."""
    return {**{name: source[name] for name in _KEPT if name in source}, **_CHANGED, **overrides}


def check_settings(topic: str, source: Mapping[str, str], target: Mapping[str, str]) -> None:
    """Raise TopicError (EOS_MIRROR_TARGET_SETTINGS) if a target with these settings would refuse or change rows, or
    compact them where the source does not. How long it keeps them is its owner's choice."""
    if target.get("message.timestamp.type") == "LogAppendTime":
        raise unfit(topic, "message.timestamp.type", "LogAppendTime", "CreateTime", "timestamps would be lost")
    if "compact" in target.get("cleanup.policy", "") and "compact" not in source.get("cleanup.policy", ""):
        why = "it would refuse rows without a key, and keep only the newest row of each key"
        raise unfit(topic, "cleanup.policy", target["cleanup.policy"], source.get("cleanup.policy", "delete"), why)
    check_numbers(topic, {name: value for name, value in target.items() if name == "max.message.bytes"})
    most, source_most = (int(of.get("max.message.bytes", 0)) for of in (target, source))
    if most < source_most:
        why = "the source may hold larger batches"
        raise unfit(topic, "max.message.bytes", str(most), f"at least {source_most}", why)


def not_numbers(settings: Mapping[str, str]) -> list[str]:
    """Return the names of settings that need a whole number, and have another value."""
    return [
        name for name, value in settings.items() if name.endswith(_NUMBERS) and not re.fullmatch(r"-?[0-9]+", value)
    ]


def check_numbers(topic: str, overrides: Mapping[str, str]) -> None:
    """Raise TopicError (EOS_MIRROR_TARGET_SETTINGS) for the first of `not_numbers`."""
    for name in not_numbers(overrides):
        raise unfit(topic, name, overrides[name], "a whole number", "brokers would refuse it")
