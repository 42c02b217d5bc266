"""Where a mirror may begin in a topic: exactly behind what is in its target already."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.settings import HadoopSettings
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import begin_offsets, describe_topics
from spark_eos.mirror.claims import owner_of, read_claims
from spark_eos.mirror.offset_map import OffsetMap
from spark_eos.mirror.origins import origins
from spark_eos.mirror.plan import MirrorPlan
from spark_eos.source.limits import resolve_start
from spark_eos.source.losses import Losses
from spark_eos.source.watch import TopicWatch
from spark_eos.topic_partition import PartitionOffsets, TopicPartition, by_topic


def is_new(checkpoint: str, settings: HadoopSettings) -> bool:
    """Whether nothing was ever planned there. Raises CheckpointError where Python cannot read it: nobody could tell
    then whether another query mirrors the same."""
    return Checkpoint(checkpoint, settings).last_batch("offsets") is None


def check_beginning(plan: MirrorPlan, watch: TopicWatch) -> None:
    """`check_positions` of a mirror that begins. ``watch``: of the source. Raises also what looking for the start of a
    query does."""
    ids = watch.topics().ids
    if _mirrored(plan, ids):
        start = resolve_start(plan.source, watch, Losses(plan.source.fail_on_data_loss))
        check_positions(plan, {topic: id_ for topic, id_ in ids.items() if topic in start}, start, start)


def check_positions(plan: MirrorPlan, ids: Mapping[str, str], at: PartitionOffsets, new: Collection[str]) -> None:
    """Refuse to read topics of these ids on from offsets before the end of what their targets have, by the offset map:
    rows would be there twice. In topics that are ``new`` to the query, offsets behind it are refused, too, if the
    source has rows in between.

    Raises KafkaError (EOS_MIRROR_BEGINS_ELSEWHERE).
    """
    before = _mirrored(plan, ids)
    if not before:
        return
    there = describe_topics(plan.sink.kafka, {plan.target(topic) for topic in before}, missing_ok=True)
    places = {(topic, p): () for topic in before for p in at.get(topic, ())}
    known = {topic: ids[topic] for topic in before}
    map_ = OffsetMap.read(plan.sink.kafka, plan.cluster, places, plan.targets.map, ids=known)
    ends: dict[TopicPartition, int] = {}
    for topic, p in sorted(places):
        name, found = plan.target(topic), map_.of(ids[topic], p)
        if found is None or name not in there:
            continue
        end = found.targets.get(there[name].id, 0)
        if at[topic][p] < end:
            raise _rows_there(plan, ids[topic], (topic, p), at[topic][p], end)
        if topic in new and len(found.targets) <= 1:  # with more, the end may be another target's
            ends[topic, p] = found.end
    if plan.source.fail_on_data_loss:
        _check_nothing_skipped(plan, at, {place: end for place, end in ends.items() if end < at[place[0]][place[1]]})


def _check_nothing_skipped(plan: MirrorPlan, at: PartitionOffsets, ends: Mapping[TopicPartition, int]) -> None:
    """``ends``: of what targets have, of partitions in which the mirror begins behind that. Raises KafkaError, unless
    the source has nothing in between any more."""
    begins = begin_offsets(plan.source.kafka, by_topic(ends)) if ends else {}
    for (topic, p), end in ends.items():
        if begins[topic][p] < at[topic][p]:
            raise stop(
                "EOS_MIRROR_BEGINS_ELSEWHERE.skips",
                topic=topic,
                partition=p,
                begin=at[topic][p],
                target=plan.target(topic),
                end=end,
            )


def _mirrored(plan: MirrorPlan, ids: Mapping[str, str]) -> set[str]:
    """The topics among these of which the target may have rows."""
    known = [origin for origin in origins(plan.sink.kafka, plan.targets.map) if origin.is_from(plan.cluster)]
    return {o.source for o in known if ids.get(o.source) == o.source_id and o.target == plan.target(o.source)}


def _rows_there(plan: MirrorPlan, id_: str, place: TopicPartition, at: int, end: int) -> EosError:
    (topic, partition), target = place, plan.target(place[0])
    claims = [c for c in read_claims(plan.sink.kafka, plan.targets.map) if c.what == (id_, target) and not c.released]
    whose = f", by {owner_of(claims[-1])}" if claims else ""
    return stop(
        "EOS_MIRROR_BEGINS_ELSEWHERE.repeats",
        topic=topic,
        partition=partition,
        begin=at,
        target=target,
        end=end,
        whose=whose,
    )
