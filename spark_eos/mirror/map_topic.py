"""The topic of the offset map on the target's cluster: made, checked and read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spark_eos.errors import ConnectionFailed, KafkaError, TopicError
from spark_eos.kafka.admin.configs import create_topic, topic_config
from spark_eos.kafka.admin.topics import begin_offsets, describe_topics, end_offsets, topic_partitions
from spark_eos.kafka.codes import FETCH_RETRIES, OK, name_of
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.ports.ledger_log import KafkaLog
from spark_eos.mirror.entries import MapEntry, SourcePartition, TargetPosition, Translation, from_record

DEFAULT_MAP = "__spark_eos_mirror"
#: The partition of the map that has the origins of topics.
ORIGINS = 0

_PARTITIONS = 9
_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(100 << 20),  # the newest segment is never cleaned
    "compression.type": "producer",
}

KeyValue = tuple[bytes, bytes]


def make_map(kafka: KafkaProperties, topic: str, replication: int) -> None:
    """Create the topic if it is missing, and check that it is compacted. Raises TopicError, KafkaError."""
    if not describe_topics(kafka, [topic], missing_ok=True, unknown_s=0):
        code, said = create_topic(kafka, topic, _PARTITIONS, replication, _CONFIG)
        if code != OK:
            raise not_made(topic, said or name_of(code))
    policy = topic_config(kafka, topic)["cleanup.policy"]
    if policy != "compact":
        raise TopicError(
            "EOS_MIRROR_MAP_NOT_COMPACTED",
            f"The topic of the offset map {topic} has cleanup.policy={policy}, which would delete entries.",
            hint="Set cleanup.policy=compact, or name another topic.",
            topic=topic,
        )


def not_made(topic: str, why: str) -> TopicError:
    """``why``: what the broker says, or its error code's name."""
    return TopicError(
        "EOS_MIRROR_TOPIC_NOT_MADE",
        f"Topic {topic} could not be created, or given more partitions: {why}.",
        hint="Create it, or grant CREATE on the target's cluster, and ALTER on the topic.",
        topic=topic,
    )


def records(kafka: KafkaProperties, topic: str, partitions: Iterable[int] | None = None) -> Iterator[KeyValue]:
    """The newest record of each key, of all partitions or of these, as they are now and stable; deleted ones left out.

    Raises TopicError (EOS_TOPIC_MISSING), ConnectionFailed, KafkaError (EOS_MIRROR_MAP_UNREADABLE).
    """
    numbers = list(range(topic_partitions(kafka, [topic])[topic])) if partitions is None else list(partitions)
    begins, ends = begin_offsets(kafka, {topic: numbers})[topic], end_offsets(kafka, {topic: numbers})[topic]
    newest: dict[bytes, bytes | None] = {}
    log = KafkaLog(kafka, topic)
    for number in numbers:
        newest |= dict(_rows(log, number, begins[number], ends[number]))
    return ((key, value) for key, value in newest.items() if value is not None)


def _rows(log: KafkaLog, partition: int, at: int, end: int) -> Iterator[tuple[bytes, bytes | None]]:
    while at < end:
        for _ in log.retrying():
            found = log.fetch(partition, at)
            if found is not None and (found.damage or found.error not in FETCH_RETRIES | {OK}):
                raise _unreadable(log.topic, partition, at, found.damage or name_of(found.error))
            if found is not None and found.error == OK and found.after > at:
                break
        else:
            raise ConnectionFailed(
                "EOS_KAFKA_UNREACHABLE",
                f"No answer from the leader of {log.topic}-{partition} within {log.seconds:.0f} s.",
                hint="Try again once the cluster is healthy.",
                reason="Timed out",
            )
        yield from ((key, value) for offset, key, value in found.rows if key is not None and offset < end)
        at = found.after


def _unreadable(topic: str, partition: int, offset: int, why: str) -> KafkaError:
    return KafkaError(
        "EOS_MIRROR_MAP_UNREADABLE",
        f"The offset map cannot be read from offset {offset} of {topic}-{partition} on: {why}.",
        hint="Check the topic: it must be readable for this user, and hold nothing but what mirrors have written.",
        topic=topic,
    )


class OffsetMap:
    """The map as it is when it is read. ``cluster``: the id of the source's."""

    def __init__(self, entries: Iterable[MapEntry], cluster: str) -> None:
        by_source: dict[SourcePartition, list[MapEntry]] = {}
        for entry in entries:
            if entry.source.cluster == cluster:
                by_source.setdefault(entry.source, []).append(entry)
        self.cluster = cluster
        self.translations = {source: Translation(some) for source, some in by_source.items()}

    @classmethod
    def read(cls, kafka: KafkaProperties, cluster: str, topic: str = DEFAULT_MAP) -> OffsetMap:
        """From the target's cluster. Errors as for `records`."""
        found = (from_record(key, value) for key, value in records(kafka, topic))
        return cls((entry for entry in found if entry is not None), cluster)

    def topics(self) -> dict[str, list[str]]:
        """The ids under which each topic of the source was mirrored: several, if it was created anew meanwhile."""
        found: dict[str, list[str]] = {}
        for source, translation in self.translations.items():
            ids = found.setdefault(translation.entries[-1].topic, [])
            if source.topic_id not in ids:
                ids.append(source.topic_id)
        return found

    def translate(self, topic: str, partition: int, offset: int, *, topic_id: str | None = None) -> TargetPosition:
        """Where a reader of the target goes on that has read all that is before ``offset`` in the source.

        ``topic_id``: the source topic's, needed only if there was more than one of this name. Raises KafkaError
        (EOS_MIRROR_NOT_COVERED) for what is before the map's beginning, or has not been mirrored yet.
        """
        ids = [topic_id] if topic_id is not None else self.topics().get(topic, [])
        found = [self.translations.get(SourcePartition(self.cluster, id_, partition)) for id_ in ids]
        there = [translation for translation in found if translation is not None]
        if len(there) != 1 or not there[0].covers(offset):
            raise not_covered(topic, partition, offset, there)
        return there[0].place(offset)


def not_covered(topic: str, partition: int, offset: int, there: Sequence[Translation]) -> KafkaError:
    """For an offset that no translation holds. ``there``: those of its partition."""
    spans = " and ".join(f"{translation.begin} to {translation.end}" for translation in there) or "nothing"
    return KafkaError(
        "EOS_MIRROR_NOT_COVERED",
        f"Offset {offset} of {topic}-{partition} cannot be translated: the offset map has {spans}.",
        hint="Its rows were mirrored more than once, as by a mirror that has begun anew: they are at two places in the "
        "target, and it is not known which ones the group wants."
        if any(translation.doubled for translation in there)
        else "Beyond the end, wait for the mirror. Before the beginning, the rows were never mirrored. Where a topic "
        "was recreated, give its id.",
        topic=topic,
        partition=partition,
        offset=offset,
    )
