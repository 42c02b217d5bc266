"""Resolves starts and ends to offsets of the cluster.

``latest`` and timestamps are resolved below the last stable offset: open transactions are neither awaited nor skipped.
"""

from __future__ import annotations

from spark_eos.base.log import logger
from spark_eos.base.topic_partition import PartitionOffsets, flat
from spark_eos.errors import invalid_option, stop
from spark_eos.kafka.admin.groups import ConsumerGroup
from spark_eos.kafka.admin.topics import NO_OFFSET
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.options.bounds import ByTime, Limit
from spark_eos.options.offsets import check_known, check_same_partitions, fill_in
from spark_eos.options.parse import SourceOptions
from spark_eos.source.losses import Losses, begins_late, data_loss
from spark_eos.source.watch import TopicWatch


def resolve_start(options: SourceOptions, watch: TopicWatch, losses: Losses | None = None) -> PartitionOffsets:
    """Return the offset of every partition at which a new query begins. ``losses``: counts offsets that are gone.

    Raises OptionError (EOS_OPTION_INVALID), TopicError, KafkaError (EOS_GROUP_ACTIVE, EOS_GROUP_UNSUITABLE),
    and DataLossError for offsets that are gone.
    """
    option, limit = options.starting_option, options.starting
    watch.expect_all()
    if limit == "latest":
        return watch.ends()
    if limit == "earliest":
        return watch.begins()
    if isinstance(limit, ByTime):
        return _at_times(option, limit, watch)
    begin, high, stable = _bounds(watch)
    if limit == "group":
        assert options.group_id is not None  # as they are checked
        wanted = _of_group(watch.client, options.group_id, begin, high)
    else:
        wanted = fill_in(option, limit, begin, stable)
    wanted = _begin_or_later(wanted, begin, losses or Losses(options.fail_on_data_loss))
    check_known(option, wanted, begin, high)
    return wanted


def resolve_end(option: str, limit: Limit, watch: TopicWatch) -> PartitionOffsets:
    """Return the offset of every partition at which a batch ends, exclusive. Raises the errors of `resolve_start`, and
    OptionError (EOS_OPTION_INVALID) for an end beyond the last stable offset."""
    if limit == "latest":
        return watch.ends()
    if isinstance(limit, ByTime):
        return _at_times(option, ByTime(limit.times, else_latest=True), watch)
    assert isinstance(limit, dict)
    begin, _, stable = _bounds(watch)
    wanted = fill_in(option, limit, begin, stable)
    for topic, partitions in wanted.items():
        for p, at in partitions.items():
            if at > stable[topic][p]:
                raise invalid_option(
                    option,
                    f"{at} for {topic}-{p}, whose last stable offset is {stable[topic][p]}",
                    (
                        "an offset up to that one: rows beyond it do not exist yet, or belong to a transaction that is "
                        "still open"
                    ),
                )
    return wanted


def _bounds(watch: TopicWatch) -> tuple[PartitionOffsets, PartitionOffsets, PartitionOffsets]:
    """Return the first offsets, high watermarks and last stable offsets of the same partitions, however topics
    change."""
    while True:
        partitions = watch.topics().partitions
        # In the order in which they are in the log, as rows come and go between the responses.
        begin, stable, high = watch.begins(partitions), watch.ends(), watch.high_watermarks(partitions)
        if flat(begin).keys() == flat(stable).keys():
            return begin, high, stable


def _at_times(option: str, limit: ByTime, watch: TopicWatch) -> PartitionOffsets:
    # Ends are requested first: records that are appended between the two responses are beyond them.
    ends = watch.ends()
    partitions = {topic: list(numbers) for topic, numbers in ends.items()}
    if isinstance(limit.times, int):
        times: PartitionOffsets = {topic: dict.fromkeys(numbers, limit.times) for topic, numbers in partitions.items()}
    else:
        times = limit.times
        check_same_partitions(option, times, {t: dict.fromkeys(numbers, 0) for t, numbers in partitions.items()})
    starts = watch.at_times(times)
    for topic, offsets in starts.items():
        for p, at in offsets.items():
            if at == NO_OFFSET and not limit.else_latest:
                raise invalid_option(
                    option,
                    f"{times[topic][p]} for {topic}-{p}, which has no stable record at or after it",
                    "an earlier timestamp, or set 'startingOffsetsByTimestampStrategy' to latest",
                )
            offsets[p] = ends[topic][p] if at == NO_OFFSET else at
    return starts


def _of_group(client: BrokerClient, group: str, begin: PartitionOffsets, high: PartitionOffsets) -> PartitionOffsets:
    """Return the committed offsets of the group. An empty partition without one begins at its end."""
    of_group = ConsumerGroup(client, group)
    of_group.check_inactive("or both read the same rows. The query continues from their offsets")
    committed = of_group.committed({topic: list(offsets) for topic, offsets in begin.items()})
    result: PartitionOffsets = {}
    lacking = []
    for topic, offsets in begin.items():
        for p, first in offsets.items():
            at = committed.get(topic, {}).get(p)
            if at is None and first < high[topic][p]:
                lacking.append(f"{topic}-{p}")
            result.setdefault(topic, {})[p] = high[topic][p] if at is None else at
    if lacking:
        raise stop("EOS_GROUP_UNSUITABLE.source", group=group, lacking=", ".join(lacking))
    logger.info("starting at the offsets of consumer group %s: %s", group, result)
    return result


def _begin_or_later(wanted: PartitionOffsets, begin: PartitionOffsets, losses: Losses) -> PartitionOffsets:
    result: PartitionOffsets = {}
    for topic, offsets in wanted.items():
        for p, at in offsets.items():
            first = begin[topic][p]
            if at < first:
                losses.report(data_loss(topic, p, at, first, begins_late(first)))
            result.setdefault(topic, {})[p] = max(at, first)
    return result
