"""Where a mirror with a new checkpoint may begin: behind what is in its targets already."""

from __future__ import annotations

from spark_eos.checkpoint import Checkpoint
from spark_eos.errors import CheckpointError, KafkaError
from spark_eos.kafka.admin.topics import describe_topics
from spark_eos.log import logger
from spark_eos.mirror.offset_map import OffsetMap
from spark_eos.mirror.origins import origins
from spark_eos.mirror.plan import MirrorPlan
from spark_eos.source.limits import resolve_start
from spark_eos.source.losses import Losses
from spark_eos.source.watch import TopicWatch
from spark_eos.storage.settings import HadoopSettings


def is_new(checkpoint: str, settings: HadoopSettings) -> bool:
    """Whether nothing was ever planned there. False, with a warning, where Python cannot read it."""
    try:
        return Checkpoint(checkpoint, settings).last_batch("offsets") is None
    except CheckpointError as error:
        logger.warning(
            "whether the mirror begins where an earlier one has ended is not checked, as its checkpoint cannot be read "
            "from Python: %s",
            error.message,
        )
        return False


def check_beginning(plan: MirrorPlan, watch: TopicWatch) -> None:
    """Refuse a new mirror that would write rows once more which are in its targets, by the offset map: those of a
    mirror whose checkpoint was lost, or of another one. ``watch``: of the source. Raises KafkaError
    (EOS_MIRROR_ROWS_THERE), and what looking for the start of a query does."""
    source, target = plan.source, plan.sink.kafka
    known = [origin for origin in origins(target, plan.targets.map) if origin.is_from(plan.cluster)]
    ids = watch.topics().ids
    before = {o.source for o in known if ids.get(o.source) == o.source_id and o.target == plan.target(o.source)}
    if not before:
        return
    start = resolve_start(source, watch, Losses(source.fail_on_data_loss))
    there = describe_topics(target, {plan.target(topic) for topic in before}, missing_ok=True)
    places = {(topic, p): () for topic in before for p in start.get(topic, ())}
    map_ = OffsetMap.read(target, plan.cluster, places, plan.targets.map, ids={topic: ids[topic] for topic in before})
    for topic, p in sorted(places):
        name, found = plan.target(topic), map_.of(ids[topic], p)
        end = found.targets.get(there[name].id, 0) if found is not None and name in there else 0
        if start[topic][p] < end:
            raise KafkaError(
                "EOS_MIRROR_ROWS_THERE",
                f"The mirror has a new checkpoint and begins at offset {start[topic][p]} of {topic}-{p}, but "
                f"{name}-{p} has its rows up to offset {end} already: they would be there twice.",
                hint="Start the mirror with the checkpoint that has written them. If that is lost, 'spark-eos mirror "
                "position' says where a new one begins ('startingOffsets'). To mirror all of it once more, take "
                "another prefix and another topic for the offset map, in all mirrors of a chain.",
                topic=topic,
                partition=p,
            )
