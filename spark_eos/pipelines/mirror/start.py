"""Start a mirror."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.datasource.ranges import RangeQuery
from spark_eos.pipelines.copy.checks import check_trigger, checked_ends
from spark_eos.pipelines.copy.start import prepared
from spark_eos.pipelines.mirror.owner import check_positions, mirrored_topics
from spark_eos.pipelines.mirror.plan import MirrorClients, MirrorPlan, Targets
from spark_eos.pipelines.mirror.source import MirrorStreamReader
from spark_eos.pipelines.mirror.task import MirrorRows
from spark_eos.pipelines.mirror.topics import TargetTopics, check_not_to_itself
from spark_eos.source.bounds import resolve_start
from spark_eos.spi import HadoopSettings, TopicWatch

_KEEPS_ORDER = "Remove it: a mirror keeps the order of each partition."


def mirror(
    spark: SparkSession,
    *,
    source: Mapping[str, str],
    target: Mapping[str, str],
    targets: Targets,
    checkpoint: str,
    trigger: Mapping[str, object] | None = None,
    name: str | None = None,
) -> StreamingQuery:
    """Start a query that mirrors topics to topics of the same name, or with a prefix, on another cluster.

    ``source``: options of ``readStream.format("eos-kafka")``; ``target``: options of ``writeStream``, without
    ``topic``. Returns Spark's query, started. Raises EosError for errors that can be known before.
    """
    check_trigger(trigger or {})
    written = {**target, "checkpointLocation": checkpoint}
    ends = checked_ends(
        source, written, HadoopSettings.from_session(spark), ordered=True, copies=True, keeps_order=_KEEPS_ORDER
    )
    reads, writes = ends.source, ends.sink
    clients = MirrorClients(ends.client, ends.target)
    plan = MirrorPlan(reads, writes, None, ends.cluster, targets, ends.target_cluster)
    check_not_to_itself(plan)
    watch = TopicWatch(clients.source, reads.selection)
    TargetTopics(plan, clients).check(reads.selection.topics or watch.topics().partitions)
    if is_new(checkpoint, writes.storage):
        check_start(plan, clients, watch)
    query = RangeQuery(plan, MirrorStreamReader, MirrorRows.writer)
    return prepared(spark, query).start(spark, checkpoint, trigger, name)


def is_new(checkpoint: str, settings: HadoopSettings) -> bool:
    """Return whether no micro-batch was ever planned in the checkpoint. Raises CheckpointError where Python cannot read
    it: then it would be unknown whether another query mirrors the same topics."""
    return Checkpoint(checkpoint, settings).last_batch("offsets") is None


def check_start(plan: MirrorPlan, clients: MirrorClients, watch: TopicWatch) -> None:
    """Run `check_positions` for a mirror with a new checkpoint. ``watch``: of the source. Raises also the errors of
    resolving 'startingOffsets'."""
    ids = watch.topics().ids
    if mirrored_topics(plan, clients.target, ids):
        start = resolve_start(plan.source, watch)
        check_positions(plan, clients, {topic: id_ for topic, id_ in ids.items() if topic in start}, start, start)
