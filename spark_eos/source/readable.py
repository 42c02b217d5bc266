"""The ranges of a task whose topics are unchanged since the micro-batch was planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import OffsetRange, TopicPartition
from spark_eos.kafka.admin.topics import cluster_id, describe_topics
from spark_eos.kafka.net.client import BrokerClient, broker_client
from spark_eos.options.parse import SourceOptions
from spark_eos.source.diagnosis import recreated
from spark_eos.source.fetching import Fetching
from spark_eos.source.losses import HIDDEN_S, Losses, check_cluster, data_loss
from spark_eos.source.task import read_range

if TYPE_CHECKING:
    from spark_eos.kafka.producer.arrow import ArrowProducer
    from spark_eos.source.copying import Copied


@dataclass(frozen=True)
class ReadableRanges:
    """Reads ranges of a task, and checks them for topics that were recreated or deleted. ``client``, ``cluster``: of
    the source, the latter its id; ``ids``: topic → its id, when the micro-batch was planned."""

    client: BrokerClient
    source: SourceOptions
    cluster: str
    ids: Mapping[str, str]

    @classmethod
    def in_task(cls, source: SourceOptions, cluster: str, ids: Mapping[str, str]) -> ReadableRanges:
        """Return the ranges that one task reads, by the client of its process."""
        return cls(broker_client(source.kafka), source, cluster, ids)

    @cached_property
    def _losses(self) -> Losses:
        return Losses(self.source.fail_on_data_loss)

    @cached_property
    def _fetching(self) -> Fetching:
        """How the task reads them."""
        return Fetching.from_options(self.client, self.source)

    def records(self, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the committed records of a range. See `read_range`."""
        return read_range(self._fetching, range_)

    def copy(self, range_: OffsetRange, target: TopicPartition, producer: ArrowProducer) -> Copied:
        """Hand the record batches of a range to a producer. See `copy_range`."""
        from spark_eos.source.copying import copy_range  # which tasks that write no topics have no use for

        return copy_range(self._fetching, range_, target, producer)

    def parts(self, ranges: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
        """Yield every range, in order, that is to be read next. At the end, the same topics must be gone: then
        all others were the same throughout, and only ranges that were reported as lost were left out.

        Raises DataLossError, CheckpointError, and KafkaError (EOS_SOURCE_RECREATED).
        """
        every = list(ranges)
        gone = self._gone_for_good(every)
        for r in every:
            if r.topic in gone:
                what = "the topic was deleted or recreated"
                self._losses.report(data_loss(r.topic, r.partition, r.start, None, what))
                continue
            yield replace(r, topic_id=self.ids.get(r.topic, ""))
        changed = self._gone(every) ^ gone
        if changed:
            raise recreated(min(changed))

    def _gone_for_good(self, ranges: Iterable[OffsetRange]) -> set[str]:
        """Return the topics that are gone, and not hidden for a moment: their ranges are left out, or the query
        stops."""
        gone = self._gone(ranges)
        for _ in retrying(HIDDEN_S):
            if not gone:
                break
            gone &= self._gone(ranges)  # one that was there before may be hidden now
        return gone

    def _gone(self, ranges: Iterable[OffsetRange]) -> set[str]:
        """Return topics that were recreated or deleted since. Raises CheckpointError where the servers belong to
        another cluster."""
        names = {r.topic for r in ranges}
        there = describe_topics(self.client, sorted(names), missing_ok=True)
        check_cluster(self.cluster, cluster_id(self.client))
        return {name for name in names if name not in there or there[name].id != self.ids.get(name)}
