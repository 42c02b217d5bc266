"""Checks of a copy on the driver, before any task runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import invalid_option, missing_option, stop
from spark_eos.kafka.config.librdkafka import check
from spark_eos.pipelines.copy.plan import CopyPlan, OnMalformed
from spark_eos.sink.outputs import check_not_reserved
from spark_eos.spi import (
    BrokerClient,
    SinkOptions,
    SourceOptions,
    broker_client,
    cluster_id,
    describe_topics,
    sink_options,
    stream_options,
)

#: Bytes of a micro-batch where no option sets them: the end of a micro-batch is logged before it runs, so one that no
#: transaction lives long enough for could never be made smaller.
DEFAULT_BYTES = 1 << 30

_TRIGGERS = ("availableNow", "processingTime")


@dataclass(frozen=True)
class Ends:
    """The checked options of a query's source and sink, with a client of each. ``cluster``, ``target_cluster``: the ids
    of the clusters, empty where brokers do not report them."""

    source: SourceOptions
    sink: SinkOptions
    client: BrokerClient
    target: BrokerClient
    cluster: str
    target_cluster: str

    @property
    def same_cluster(self) -> bool:
        """Return whether source and target are one cluster."""
        return self.cluster == self.target_cluster


def checked_ends(
    source: Mapping[str, str],
    sink: Mapping[str, str],
    session: Mapping[str, str],
    *,
    ordered: bool,
    copies: bool,
    keeps_order: str,
) -> Ends:
    """Parse and check the options of both ends. ``session``: its settings of file systems; ``ordered``,
    ``keeps_order``: see `check_source`; ``copies``: records are copied as whole batches. Raises OptionError,
    ConnectionFailed.
    """
    reads, writes = bounded(stream_options(source)), sink_options(sink, session)
    check(reads.kafka, "consumer")  # of both, before any is asked
    check(writes.kafka, "producer")
    check_source(reads, ordered=ordered, keeps_order=keeps_order)
    check_sink(reads, writes, copies=copies)
    client, target = broker_client(reads.kafka), broker_client(writes.kafka)
    ends = Ends(reads, writes, client, target, cluster_id(client), cluster_id(target))
    check_clusters(reads, writes, same=ends.same_cluster)
    return ends


def bounded(options: SourceOptions) -> SourceOptions:
    """Return the options with a limit for each micro-batch, so that a backlog cannot make it arbitrarily large."""
    if options.max_bytes_per_trigger is not None or options.max_offsets_per_trigger is not None:
        return options
    return replace(options, max_bytes_per_trigger=DEFAULT_BYTES)


def check_malformed(on_malformed: str, sink: SinkOptions) -> None:
    """Check the argument for records that a transform rejects. Raises OptionError."""
    if on_malformed not in get_args(OnMalformed):
        raise invalid_option("on_malformed", f"'{on_malformed}'", ", ".join(get_args(OnMalformed)))
    if on_malformed == "deadLetters" and sink.dead_letters is None:
        raise missing_option(
            "deadLetters.topic",
            "records that the transform rejects are to be written as dead letters",
            "a topic, as an option of the sink, or use another value for 'on_malformed'",
        )


def check_trigger(trigger: Mapping[str, object]) -> None:
    """Refuse triggers without micro-batches, or with micro-batches of unlimited size. Raises OptionError."""
    unknown = [name for name in trigger if name not in _TRIGGERS]
    if unknown or len(trigger) > 1:
        raise stop(
            "EOS_OPTION_CONFLICT.trigger",
            option="trigger",
            trigger=", ".join(trigger),
            triggers=" and ".join(_TRIGGERS),
        )


def check_source(options: SourceOptions, *, ordered: bool, keeps_order: str) -> None:
    """Refuse to read rows that are aborted later, or that lose their order. Raises OptionError.

    ``ordered``: the rows of a source partition keep their order; ``keeps_order``: the hint in the error, which depends
    on the function that the user called.
    """
    if options.isolation != "read_committed":
        raise stop(
            "EOS_OPTION_CONFLICT.remove",
            option="kafka.isolation.level",
            given="read_uncommitted",
            why="rows that are aborted later would be copied permanently",
        )
    splits = {
        "minPartitions": (options.min_partitions or 1) > 1,  # 1 is a task for each partition
        "maxRecordsPerPartition": options.max_records_per_partition is not None,
    }
    given = [name for name, is_split in splits.items() if is_split]
    if ordered and given:
        raise stop("EOS_OPTION_CONFLICT.order", option=given[0], keeps_order=keeps_order)


def check_sink(source: SourceOptions, sink: SinkOptions, *, copies: bool) -> None:
    """Refuse options that copies cannot have, and one group for both ends. ``copies``: as whole batches. Raises
    OptionError."""
    if copies and sink.dead_letters is not None:
        raise stop(
            "EOS_OPTION_CONFLICT.remove",
            option="deadLetters.topic",
            given="set",
            why="records are copied as whole batches, and only a transform can reject some of them",
        )
    if sink.group_id and source.report_group:
        raise stop("EOS_OPTION_CONFLICT.group_of_both", group=sink.group_id)


def check_clusters(source: SourceOptions, sink: SinkOptions, *, same: bool) -> None:
    """Refuse options that need source and target to be one cluster, where they are not. Raises OptionError."""
    if not same and sink.group_id:
        raise stop(
            "EOS_OPTION_CONFLICT.group_of_other_cluster",
            group=sink.group_id,
            why="source and sink are on different clusters",
            option="offsets.group.id",
        )
    if not same and source.starting == "group" and source.group_id == source.report_group:
        raise stop("EOS_OPTION_CONFLICT.group_start", option="startingOffsets", group_id=source.group_id)


def check_copy(sink: SinkOptions, topics: Iterable[str], *, same_cluster: bool) -> None:
    """Raise OptionError where a query would read its own output, in an endless loop."""
    targets = {sink.topic} if sink.topic else set(topics)
    circle = sorted(targets & set(topics)) if same_cluster else []
    if circle:
        raise stop("EOS_OPTION_CONFLICT.copy_to_itself", option="topic", topic=circle[0])


def check_targets(client: BrokerClient, plan: CopyPlan, ranges: Iterable[OffsetRange]) -> None:
    """Check that each partition of the source has one of the same number to be copied to. ``client``: of the target.
    Raises TopicError (EOS_TARGET_PARTITIONS, EOS_TOPIC_RESERVED)."""
    if plan.transform is not None:
        return
    highest: dict[str, OffsetRange] = {}
    for r in ranges:
        target = plan.target(r.topic)
        if target not in highest or highest[target].partition < r.partition:
            highest[target] = r
    if not highest:
        return
    there = describe_topics(client, sorted(highest))
    check_not_reserved(client, there, ledger=plan.sink.ledger_topic)
    for target, r in highest.items():
        if r.partition >= there[target].partitions:
            raise stop(
                "EOS_TARGET_PARTITIONS",
                topic=target,
                partitions=there[target].partitions,
                partition=r.partition,
                source_topic=r.topic,
            )
