"""The targets of a mirror: made before the first row, with as many partitions as their sources, and refused where rows
would go in circles, or be refused, changed or deleted. On the driver.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.configs import add_partitions, create_topic, topic_config
from spark_eos.kafka.admin.topics import Topic, describe_topics
from spark_eos.kafka.codes import OK, Code, name_of
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.own_topics import not_for_rows
from spark_eos.mirror.map_topic import make_map, not_made
from spark_eos.mirror.origins import Origin, OriginsLog, chains_of, origins, write_origin
from spark_eos.mirror.plan import MirrorPlan
from spark_eos.retry import retrying
from spark_eos.sink.outputs import check_outputs
from spark_eos.source.losses import HIDDEN_S
from spark_eos.topic_partition import OWN_NAMES

#: Taken from the source topic when a target is made. All others are the target brokers' defaults.
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
#: What a target is made with, whatever the source has.
_CHANGED = {
    "compression.type": "producer",  # batches stay as they are
    "message.timestamp.type": "CreateTime",  # timestamps are the source's, whoever has set them there
    # A row that was in time for the source's brokers is not, later, for the target's.
    "message.timestamp.before.max.ms": _ANY_TIME,
    "message.timestamp.after.max.ms": _ANY_TIME,
}

#: How the names of settings end whose values are numbers.
_NUMBERS = (".ms", ".bytes")

_VISIBLE_S = 15.0
#: How often a running mirror asks whether topics of its source have become copies, or copies of copies from elsewhere.
_ORIGINS_S = 10.0


def check_not_to_itself(plan: MirrorPlan) -> None:
    """Raises OptionError for a mirror of each topic to itself."""
    if plan.cluster == plan.target_cluster and not plan.targets.prefix:
        raise stop("EOS_OPTION_CONFLICT.mirror_to_itself", option="prefix")


@dataclass(frozen=True)
class _Ready:
    """A topic whose target is prepared: the topic as it was then, the clusters that its rows came from, and the id of
    its target."""

    topic: Topic
    chain: tuple[str, ...]
    target_id: str


class TargetTopics:
    """Remembers what it has checked and prepared: a topic is looked at when it is new to the mirror, when its first
    rows are read, and when its id, its number of partitions, its target or what it comes from changes. A mirror notes
    the origin of a topic before its first row: so where there are rows of one, its origin is known. What that one comes
    from may change later, as mirrors begin."""

    def __init__(self, plan: MirrorPlan) -> None:
        self._plan = plan
        self._source, self._target = broker_client(plan.source.kafka), broker_client(plan.sink.kafka)
        self._origins = OriginsLog(self._source, plan.targets.map)
        self._chains: dict[str, tuple[str, ...]] = {}
        self._checked: set[tuple[str, bool]] = set()
        self._ready: dict[tuple[str, bool], _Ready] = {}

    def check(self, names: Iterable[str]) -> None:
        """Refuse sources that must not be mirrored, and settings that no target can have. Raises TopicError
        (EOS_MIRROR_TOPIC_REFUSED, EOS_MIRROR_CIRCLE, EOS_MIRROR_TARGET_SETTINGS)."""
        named = set(names)
        found = describe_topics(self._source, named, missing_ok=True)
        self._check_kind(named, found)
        for name in found:
            check_numbers(self._plan.target(name), self._plan.targets.settings)
        self._learn(self._origins.read())
        self._check_circles(found)

    def check_planned(self, names: Iterable[str], read: Collection[str]) -> None:
        """Check the topics of a micro-batch that is planned and not logged yet. ``read``: those that it reads."""
        self._learn(self._origins.lately(_ORIGINS_S))
        new = {(name, name in read) for name in names if (name, True) not in self._checked} - self._checked
        if new:
            self.check({name for name, _ in new})
            self._checked |= new

    def circles(self, names: Iterable[str]) -> set[str]:
        """The topics among these of the source whose rows come from the target's cluster."""
        found = describe_topics(self._source, names, missing_ok=True)
        self._learn(self._origins.read())
        return {name for name, topic in found.items() if self._plan.target_cluster in self._chain(topic)}

    def prepare(self, followed: Iterable[str], read: Collection[str]) -> None:
        """Prepare the targets of topics: of those that the mirror follows, and of those that a micro-batch reads.

        One that it reads and that is not followed was logged before it was taken off the list. It is no circle that
        goes on: what was logged is mirrored, as it may be decided already. Raises what `check` does, and TopicError
        (EOS_MIRROR_TARGET_SETTINGS, EOS_MIRROR_TARGET_RECREATED, EOS_MIRROR_TOPIC_REFUSED, EOS_MIRROR_MAP_…).
        """
        followed = set(followed)
        found = describe_topics(self._source, followed | set(read), missing_ok=True)
        self._learn(self._origins.lately(_ORIGINS_S))
        new = self._not_ready(found, read)
        if not new:
            return
        self._check_kind(new, new)
        self._learn(self._origins.read())
        self._check_circles({name: topic for name, topic in new.items() if name in followed})
        make_map(self._target, self._plan.targets.map, self._plan.targets.replication)
        known = origins(self._target, self._plan.targets.map)
        there = self._there({self._plan.target(name) for name in new}, known)
        check_outputs(self._plan.sink, there)
        for name, topic in new.items():
            self._check_same(name, topic, there.get(self._plan.target(name)), known)
            made = self._make(name, topic.partitions, there.get(self._plan.target(name)))
            chain = (self._plan.cluster, *(one for one in self._chain(topic) if one != self._plan.cluster))
            origin = Origin(self._plan.target(name), made.id, name, topic.id, chain)
            if origin not in known:
                write_origin(self._target, self._plan.targets.map, origin)
            self._ready[name, name in read] = _Ready(topic, self._chain(topic), made.id)

    def _learn(self, known: Iterable[Origin]) -> None:
        """What topics of the source come from. Where that has changed, all of them are checked again."""
        chains = chains_of(known)
        if chains != self._chains:
            self._chains = chains
            self._checked.clear()

    def _chain(self, topic: Topic) -> tuple[str, ...]:
        """The clusters that the rows of a topic of the source come from."""
        return self._chains.get(topic.id, ())

    def _not_ready(self, found: Mapping[str, Topic], read: Collection[str]) -> dict[str, Topic]:
        """The topics among these that were not prepared as they are now, or whose targets are no longer there."""
        ids: dict[str, str] = {}
        for name, topic in found.items():
            for ready in (self._ready.get((name, True)), self._ready.get((name, name in read))):
                if ready is not None and (ready.topic, ready.chain) == (topic, self._chain(topic)):
                    ids[name] = ready.target_id
        there = describe_topics(self._target, {self._plan.target(name) for name in ids}, missing_ok=True)
        return {
            name: topic
            for name, topic in found.items()
            if (target := there.get(self._plan.target(name))) is None or target.id != ids.get(name)
        }

    def _there(self, targets: set[str], known: Collection[Origin]) -> dict[str, Topic]:
        """The targets that exist. One that is made now may be missing at the first look, as the controller knows
        better; not so one that was there before, which is hidden at the most."""
        found = describe_topics(self._target, targets, missing_ok=True, unknown_s=0)
        before = {origin.target for origin in known} & targets - found.keys()
        return found | describe_topics(self._target, before, missing_ok=True, unknown_s=HIDDEN_S)

    def _check_kind(self, names: Iterable[str], found: Mapping[str, Topic]) -> None:
        """``found``: those of them that are there."""
        own = {self._plan.sink.ledger_topic, self._plan.targets.map}
        kept = not_for_rows(self._source, found)
        for name in sorted(names):
            if name in kept or name in own or name.startswith(OWN_NAMES):
                raise stop(
                    "EOS_MIRROR_TOPIC_REFUSED.internal", topic=name, kind=kept.get(name, "a ledger or an offset map")
                )
            target = self._plan.target(name)
            if target.startswith(OWN_NAMES) or target in own:
                raise stop("EOS_MIRROR_TOPIC_REFUSED.ledger", topic=name, target=target)

    def _check_circles(self, found: Mapping[str, Topic]) -> None:
        for name, topic in found.items():
            if self._plan.target_cluster in self._chain(topic):
                raise stop("EOS_MIRROR_CIRCLE", topic=name, target_cluster=self._plan.target_cluster)

    def _check_same(self, name: str, topic: Topic, there: Topic | None, known: Collection[Origin]) -> None:
        """A target that is not the one to which this source was mirrored before lacks what went there."""
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

    def _make(self, name: str, partitions: int, there: Topic | None) -> Topic:
        """The target as it is now: created, or given partitions, where that is needed. It is never made smaller."""
        target, own = self._plan.target(name), self._plan.targets
        source = topic_config(self._source, name)
        if there is None:
            wanted = target_settings(source, own.settings)
            check_settings(target, source, {**source, **wanted})
            code, message = create_topic(self._target, target, partitions, own.replication, wanted)
            if code != OK:
                raise not_made(target, message or name_of(code))
        elif there.partitions < partitions:
            code, message = add_partitions(self._target, target, partitions)
            if code not in (OK, Code.INVALID_PARTITIONS):
                raise not_made(target, message or name_of(code))
        for _ in retrying(_VISIBLE_S):
            found = describe_topics(self._target, [target], missing_ok=True).get(target)
            if found is not None and found.partitions >= partitions:
                check_settings(target, source, topic_config(self._target, target))
                return found
        raise not_made(target, f"the brokers do not show {partitions} partitions")


def target_settings(source: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """What to make a target with. ``source``: the settings of the source topic; ``overrides``: the user's."""
    return {**{name: source[name] for name in _KEPT if name in source}, **_CHANGED, **overrides}


def check_settings(topic: str, source: Mapping[str, str], target: Mapping[str, str]) -> None:
    """Raises TopicError (EOS_MIRROR_TARGET_SETTINGS) for settings of a target under which rows would be refused,
    changed, or deleted that the source keeps."""
    if target.get("message.timestamp.type") == "LogAppendTime":
        raise _unfit(topic, "message.timestamp.type", "LogAppendTime", "CreateTime", "timestamps would be lost")
    if "compact" in target.get("cleanup.policy", "") and "compact" not in source.get("cleanup.policy", ""):
        why = "rows without a key would be refused, and of the others only the newest kept for each key"
        raise _unfit(topic, "cleanup.policy", target["cleanup.policy"], source.get("cleanup.policy", "delete"), why)
    check_numbers(topic, {name: value for name, value in target.items() if name == "max.message.bytes"})
    ours, theirs = (int(of.get("max.message.bytes", 0)) for of in (target, source))
    if ours < theirs:
        raise _unfit(topic, "max.message.bytes", str(ours), f"at least {theirs}", "the source may hold larger batches")


def not_numbers(settings: Mapping[str, str]) -> list[str]:
    """The names of settings that take a whole number, and have none."""
    return [name for name, value in settings.items() if name.endswith(_NUMBERS) and not re.fullmatch(r"-?\d+", value)]


def check_numbers(topic: str, overrides: Mapping[str, str]) -> None:
    """Raises TopicError (EOS_MIRROR_TARGET_SETTINGS) for the first of `not_numbers`."""
    for name in not_numbers(overrides):
        raise _unfit(topic, name, overrides[name], "a whole number", "brokers would refuse it")


def _unfit(topic: str, setting: str, has: str, needed: str, why: str) -> EosError:
    return stop("EOS_MIRROR_TARGET_SETTINGS.setting", topic=topic, setting=setting, value=has, why=why, needed=needed)
