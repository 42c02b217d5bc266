"""Up to where a mirror's source is in its target: where a new checkpoint begins, when the old one is lost.

The offset map has that exactly, as an entry is visible if and only if the rows of its range are. So nothing may be
under way of the query that has written them: it is closed, and what it has decided is settled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import Topic, cluster_id, describe_topics, end_offsets
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.ledger.owners import Cluster
from spark_eos.mirror.map_topic import held_partition
from spark_eos.mirror.offset_map import OffsetMap, Translation
from spark_eos.mirror.origins import Origin, origins_from
from spark_eos.mirror.owner import read_claims
from spark_eos.options.offsets import EARLIEST
from spark_eos.protocol.abort import undecided
from spark_eos.protocol.commands import Standing, closes, hand_over, known_head, recover
from spark_eos.protocol.head import NOBODY, Decision, Head, Successor, Verdict
from spark_eos.protocol.ports import Ports
from spark_eos.protocol.take import newest_head
from spark_eos.topic_partition import PartitionOffsets, TopicPartition


@dataclass(frozen=True)
class MirrorEnd:
    """Where all that is in the target ends in the source, exclusive, as 'startingOffsets' takes it. ``batch``: the last
    micro-batch that the query has decided. ``unread``: partitions of which nothing was mirrored, which begin at their
    first offset. ``again``: those of which decided rows were lost, which the new query writes."""

    query: str
    batch: int
    offsets: PartitionOffsets
    unread: tuple[TopicPartition, ...]
    again: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class Finder:
    """``source`` and ``target``: how both clusters are reached, the latter with the query's ledger; ``map``: the topic
    of the offset map. ``topics``: those of the source that are asked for; none: all that the map has of it."""

    query: str
    source: KafkaProperties
    target: Cluster
    map: str
    topics: tuple[str, ...] = ()

    def find(self, *, settle: bool, wait_s: float) -> MirrorEnd:
        """1. Nothing of the query is under way; with ``settle``, it is closed, and what it has decided is committed.
        2. Wait until readers of the map get to its end, for ``wait_s`` seconds.
        3. Each partition ends where its entries do, which must be without gaps and of one target.
        4. With ``settle``, it is retired: whoever starts it again would mirror what a new checkpoint does.

        Raises EosError: CommandError (EOS_QUERY_UNKNOWN, EOS_MIRROR_NOT_SETTLED), TopicError, and
        KafkaError (EOS_MIRROR_POSITION_UNKNOWN) where the map does not tell.
        """
        cluster = cluster_id(self.source)
        decision = self._settled(settle=settle)
        if decision is None and settle and self._has_claimed():
            self._retire(None)
        if decision is None or decision.copied_from is None or decision.copied_from.cluster != cluster:
            raise self._not_of(cluster, decision)
        known = origins_from(self.target.kafka, self.map, cluster)
        names = self.topics or {origin.source for origin in known}
        sources = describe_topics(self.source, names, missing_ok=not self.topics)
        places = {(name, p) for name, topic in sources.items() for p in range(topic.partitions)}
        map_ = self._map(cluster, places | {(r.topic, r.partition) for w in decision.written for r in w.ranges}, wait_s)
        if not self.topics:
            sources = {name: topic for name, topic in sources.items() if name in map_.mirrored()}
        targets = describe_topics(self.target.kafka, {origin.target for origin in known}, missing_ok=True)
        look = MirrorLook(map_, decision, sources, known, targets)
        look.check_decided()
        unread = look.unread()
        self._check_unread(look, unread)
        end = look.end(self.query, unread)
        if settle:
            self._retire(decision)
        return end

    def _has_claimed(self) -> bool:
        """Whether the query is a mirror to this target, with this ledger and prefix, that may have decided nothing."""
        if not describe_topics(self.target.kafka, [self.map], missing_ok=True):
            return False
        own = self.query, self.target.ledger, self.target.prefix_of(self.query)
        return any((c.query, c.ledger, c.prefix) == own for c in read_claims(self.target.kafka, self.map))

    def _retire(self, decision: Decision | None) -> None:
        """Nobody goes on with its checkpoint any more, whatever restarts it; unless it has decided something since."""
        ports = self.target.ports(self.query)
        if not hand_over(ports, Successor("", ""), Standing(decision), self.target.prefix_of(self.query)):
            raise self._not_settled("a run has begun, and has decided a micro-batch")

    def _settled(self, *, settle: bool) -> Decision | None:
        """The last decision with its verdicts."""
        ports = self.target.ports(self.query)
        found = newest_head(ports)
        if found is None and settle and self._has_claimed():
            self._retire(None)
            found = newest_head(ports)
        head = known_head(found, self.query)
        if _is_settled(ports, head):
            return head.decision
        if not settle:
            raise self._not_settled("a run of it may be alive, or its rows are not committed yet")
        ended = recover(ports, self.query, closes(head))
        if ended.left or ended.head.run != NOBODY:
            raise self._not_settled("a run has begun, or a transaction could not be ended")
        return None if ended.head.decision is None else ended.head.decision.judged(dict(ended.verdicts))

    def _map(self, cluster: str, places: Collection[TopicPartition], wait_s: float) -> OffsetMap:
        """To its end: what others have open there would hide what is behind."""
        if held_partition(self.target.kafka, self.map, wait_s) is not None:
            raise self._not_settled(f"another mirror's transaction has been open in {self.map} for {wait_s:.0f} s")
        return OffsetMap.read(self.target.kafka, cluster, dict.fromkeys(places, ()), self.map)

    def _check_unread(self, look: MirrorLook, unread: Sequence[TopicPartition]) -> None:
        """Raise KafkaError where the target has something in a partition of which the map has nothing."""
        asked: dict[str, list[int]] = {}
        for topic, p in unread:
            target = look.target(topic)
            if p < look.targets[target].partitions:
                asked.setdefault(target, []).append(p)
        ends = end_offsets(self.target.kafka, asked, "read_uncommitted") if asked else {}
        for topic, p in unread:
            if ends.get(look.target(topic), {}).get(p, 0):
                raise unknown(topic, p, f"the map has nothing of it, but {look.target(topic)}-{p} has had records")

    def _not_settled(self, why: str) -> EosError:
        return stop("EOS_MIRROR_NOT_SETTLED", query=self.query, why=why)

    def _not_of(self, cluster: str, decision: Decision | None) -> EosError:
        if decision is not None and decision.copied_from is not None:
            why = f"it reads from cluster {decision.copied_from.cluster}, but --source is {cluster}"
        else:
            why = "its last decision, if any, has no copied rows"
        return stop("EOS_MIRROR_POSITION_UNKNOWN.query", query=self.query, why=why)


@dataclass(frozen=True)
class MirrorLook:
    """What both clusters and the ledger say. ``sources``: the topics that are asked for; ``known``: where targets come
    from; ``targets``: these topics as they are now, by name."""

    map_: OffsetMap
    decision: Decision
    sources: Mapping[str, Topic]
    known: Sequence[Origin]
    targets: Mapping[str, Topic]

    def check_decided(self) -> None:
        """Raise KafkaError unless the map has what was decided last, and not what was lost of it: else it is not the
        map of this query."""
        copied_from = self.decision.copied_from
        assert copied_from is not None
        ids = dict(copied_from.topics)
        for w in self.decision.written:
            for r in w.ranges:
                found = self.map_.of(ids[r.topic], r.partition)
                end = r.start if found is None else found.end
                if end != (r.end if w.verdict is Verdict.COMMITTED else r.start):
                    why = (
                        f"the map ends at offset {end}, but micro-batch {self.decision.batch} has {r.start} to {r.end}"
                    )
                    raise unknown(r.topic, r.partition, why)

    def target(self, topic: str) -> str:
        """The name of the one target of a topic. Those that are gone do not count, if there is another one: it was
        mirrored again, with another prefix. Raises TopicError if all are gone, and KafkaError where there are none, or
        more than one is left."""
        found = {(o.target, o.target_id) for o in self.known if o.source_id == self.sources[topic].id}
        left = [name for name, id_ in found if name in self.targets and self.targets[name].id == id_]
        if not found or len(left) > 1:
            why = "it was mirrored to several topics" if found else "it was never mirrored, or recreated since"
            raise unknown(topic, None, why)
        if not left:
            gone = min(name for name, _ in found)
            raise stop("EOS_MIRROR_TARGET_RECREATED.position", topic=gone, source_topic=topic)
        return left[0]

    def unread(self) -> list[TopicPartition]:
        """Partitions of which neither the map nor the last decision has anything."""
        return [
            (name, p)
            for name, topic in sorted(self.sources.items())
            for p in range(topic.partitions)
            if self._entries(name, p) is None and (name, p) not in self._lost()
        ]

    def end(self, query: str, unread: Sequence[TopicPartition]) -> MirrorEnd:
        """Raises as `target` does, and KafkaError where rows were mirrored twice, or are missing in between."""
        offsets: PartitionOffsets = {}
        for name, topic in sorted(self.sources.items()):
            target_id = self.targets[self.target(name)].id
            offsets[name] = {
                p: EARLIEST if (name, p) in unread else self._end(name, p, target_id) for p in range(topic.partitions)
            }
        again = tuple(sorted(place for place in self._lost() if place[0] in self.sources))
        return MirrorEnd(query, self.decision.batch, offsets, tuple(unread), again)

    def _end(self, topic: str, partition: int, target_id: str) -> int:
        found = self._entries(topic, partition)
        if found is None:
            return self._lost()[topic, partition]
        if found.doubled:
            raise unknown(topic, partition, "its rows were mirrored more than once")
        if found.holes:
            raise unknown(topic, partition, "the map has nothing of the offsets {} to {}".format(*found.holes[0]))
        if set(found.targets) - {target_id}:
            raise unknown(topic, partition, "it was mirrored to several topics")
        return found.end

    def _entries(self, topic: str, partition: int) -> Translation | None:
        return self.map_.of(self.sources[topic].id, partition)

    def _lost(self) -> dict[TopicPartition, int]:
        """Where rows begin that brokers have lost after the decision."""
        return {(r.topic, r.partition): r.start for w in self.decision.lost for r in reversed(w.ranges)}


def _is_settled(ports: Ports, head: Head) -> bool:
    """Whether no run can decide anything more, and all that is decided has an outcome."""
    waits = head.decision is not None and any(w.verdict is None for w in head.decision.written)
    return head.run == NOBODY and not waits and not undecided(ports, head)


def unknown(topic: str, partition: int | None, why: str) -> EosError:
    """For what the offset map does not tell. ``partition``: None for the topic as a whole."""
    place = topic if partition is None else f"{topic}-{partition}"
    return stop("EOS_MIRROR_POSITION_UNKNOWN.place", topic=topic, place=place, why=why)
