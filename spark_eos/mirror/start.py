"""Start a mirror."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from spark_eos.checkpoint.settings import of_session
from spark_eos.copy.checks import check_trigger, checked_ends
from spark_eos.copy.start import started
from spark_eos.kafka.admin.topics import cluster_id
from spark_eos.mirror.beginning import check_beginning, is_new
from spark_eos.mirror.plan import MirrorPlan, Targets
from spark_eos.mirror.source import MirrorDataSource
from spark_eos.mirror.topics import TargetTopics, check_not_to_itself
from spark_eos.options.selection import Pattern
from spark_eos.source.watch import TopicWatch

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
    """Start a query that mirrors topics to those of the same name, or with a prefix, on another cluster.

    ``source`` has the options of ``readStream.format("eos-kafka")``, ``target`` those of ``writeStream``, without
    ``topic``. Returns Spark's query, started. Raises EosError for what can be known before.
    """
    check_trigger(trigger or {})
    written = {**target, "checkpointLocation": checkpoint}
    ends = checked_ends(source, written, of_session(spark), ordered=True, copies=True, keeps_order=_KEEPS_ORDER)
    reads, writes = ends.source, ends.sink
    plan = MirrorPlan(reads, writes, ends.cluster, None, True, targets, cluster_id(writes.kafka))
    check_not_to_itself(plan)
    watch = TopicWatch(reads.kafka, reads.selection)
    selected = reads.selection
    TargetTopics(plan).check(watch.topics().partitions if isinstance(selected, Pattern) else selected.topics)
    if is_new(checkpoint, writes.storage):
        check_beginning(plan, watch)
    return started(spark, plan, MirrorDataSource, checkpoint, trigger, name)
