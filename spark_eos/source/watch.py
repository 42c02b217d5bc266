"""What the topics to read hold, asked no more often than needed. On the driver, one for each query."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_eos.errors import TopicError
from spark_eos.kafka.admin.own_topics import not_for_rows, reserved
from spark_eos.kafka.admin.topics import (
    TIMEOUT_S,
    Topic,
    begin_offsets,
    cluster_heard,
    describe_topics,
    end_offsets,
    offsets_at,
    topic_names,
)
from spark_eos.kafka.config.librdkafka import check
from spark_eos.kafka.config.properties import Isolation, KafkaProperties
from spark_eos.options.selection import Pattern, Selection
from spark_eos.source.offsets import TopicIds
from spark_eos.topic_partition import PartitionOffsets

#: Spark asks an idle stream for its end every 10 ms; the cluster is asked every 50 ms.
_ENDS_S = 0.05
#: How soon new partitions and topics are noticed.
_TOPICS_S = 5.0
#: Seconds of silence that a running query bears, as when the brokers are restarted one by one.
_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Topics:
    """The topics that are there, of those to read: the partitions to read of each, and its id. ``cluster``: the id of
    the cluster that they are on; empty where brokers do not tell."""

    partitions: dict[str, list[int]]
    ids: TopicIds
    cluster: str = ""


class TopicWatch:
    """Topics, partitions and ends; after `pin` they stay as they are.

    Every question raises ConnectionFailed or TopicError as `spark_eos.kafka.admin.topics` does.
    """

    def __init__(
        self,
        kafka: KafkaProperties,
        selection: Selection,
        isolation: Isolation = "read_committed",
        *,
        looks_only: bool = False,
    ) -> None:
        """``looks_only``: for a batch, which may read whatever it names. A stream would never come to the end of a
        topic that it writes to itself, with each decision."""
        check(kafka, "consumer")
        self._looks_only = looks_only
        self._not_for_rows: dict[tuple[str, str], str | None] = {}
        self._kafka = kafka
        self._selection = selection
        self._isolation: Isolation = isolation
        self._timeout_s = TIMEOUT_S
        self._missing: set[str] = set()
        self._topics = Topics({}, {})
        self._topics_until = 0.0
        self._ends: PartitionOffsets = {}
        self._ends_until = 0.0
        self._pinned = False

    def topics(self, *, now: bool = False) -> Topics:
        """What is there, at most 5 s old; as it is in this moment with ``now``, even when it is pinned."""
        if not now and time.monotonic() < self._topics_until:
            return self._topics
        found = self._look()
        if self._pinned:
            return found
        if found != self._topics:
            self._ends_until = 0.0
        self._topics, self._topics_until = found, time.monotonic() + _TOPICS_S
        return found

    def found(self, names: Iterable[str]) -> Topics:
        """These topics with all their partitions, as they are in this moment, whether they are to be read or not."""
        found = describe_topics(self._kafka, names, self._timeout_s, missing_ok=True)
        partitions = {name: list(range(topic.partitions)) for name, topic in found.items()}
        return Topics(partitions, {name: topic.id for name, topic in found.items()}, cluster_heard(self._kafka))

    def expect_all(self) -> None:
        """Raise TopicError (EOS_TOPIC_MISSING) unless there is everything that a new query is to read."""
        lacking = self._selection.lacking(self.topics(now=True).partitions)
        if lacking:
            servers = self._kafka.bootstrap_servers
            raise TopicError(
                "EOS_TOPIC_MISSING",
                f"{servers} has no topic or partition {', '.join(lacking)}, which {self._selection} requires.",
                hint="Create it, or correct the name. spark-eos does not create topics that it reads or writes.",
                topic=lacking[0],
            )

    def look(self) -> tuple[Topics, PartitionOffsets]:
        """What is there, and where every partition of it ends for this query, exclusive, at most 50 ms old: its last
        stable offset, or its high watermark for a query that reads uncommitted rows.

        The topics are those that the ends were asked for. Whoever puts both together must not ask `topics` for them,
        which may have looked again since.
        """
        there = self.topics()
        if not self._pinned and time.monotonic() >= self._ends_until:
            try:
                self._ends = self._list_ends(there.partitions, self._isolation)
            except TopicError:  # deleted within these five seconds
                there = self.topics(now=True)
                self._ends = self._list_ends(there.partitions, self._isolation)
            self._ends_until = time.monotonic() + _ENDS_S
        return there, self._ends

    def ends(self) -> PartitionOffsets:
        """Where every partition ends, as `look` says."""
        return self.look()[1]

    def known_ends(self) -> PartitionOffsets:
        """What `look` said last, without asking."""
        return self._ends

    def pin(self) -> None:
        """Fix topics and ends at what they are now."""
        self._topics_until = self._ends_until = 0.0
        self.ends()
        self._pinned = True
        self._topics_until = float("inf")

    @property
    def pinned(self) -> bool:
        """Whether topics and ends stay what they are: for a query with `availableNow`."""
        return self._pinned

    def begins(self, partitions: Mapping[str, Iterable[int]] | None = None) -> PartitionOffsets:
        """The first offset of every partition, or of these."""
        return begin_offsets(self._kafka, partitions or self.topics().partitions, self._timeout_s)

    def high_watermarks(self, partitions: Mapping[str, Iterable[int]] | None = None) -> PartitionOffsets:
        """The end of every partition, or of these, open and aborted transactions included."""
        return self._list_ends(partitions or self.topics().partitions, "read_uncommitted")

    def at_times(self, times: PartitionOffsets) -> PartitionOffsets:
        """For each partition the first offset of a record of this time or later; `NO_OFFSET` where none is."""
        return offsets_at(self._kafka, times, self._isolation, self._timeout_s)

    def _list_ends(self, partitions: Mapping[str, Iterable[int]], isolation: Isolation) -> PartitionOffsets:
        return end_offsets(self._kafka, partitions, isolation, self._timeout_s)

    def _look(self) -> Topics:
        if isinstance(self._selection, Pattern):
            asked = self._selection.matching(topic_names(self._kafka, self._timeout_s))
        else:
            asked = list(self._selection.topics)
        if self._missing:  # about each missing topic the cluster is asked for a second: not every time
            known = topic_names(self._kafka, self._timeout_s)
            asked = [topic for topic in asked if topic not in self._missing or topic in known]
        found = describe_topics(self._kafka, asked, self._timeout_s, missing_ok=True)
        self._timeout_s = _PATIENCE_S
        self._missing = set(asked) - found.keys() | self._missing - found.keys()
        there = self._for_rows(found)
        partitions = {name: list(self._selection.of(name, topic.partitions)) for name, topic in there.items()}
        return Topics(partitions, {name: topic.id for name, topic in there.items()}, cluster_heard(self._kafka))

    def _for_rows(self, found: Mapping[str, Topic]) -> dict[str, Topic]:
        """Those that hold rows; a pattern leaves out the others, as Kafka's own consumers leave out internal topics.
        Each topic is looked into once. Raises TopicError (EOS_TOPIC_RESERVED) where one of the others is named."""
        by_pattern = isinstance(self._selection, Pattern)
        if self._looks_only and not by_pattern:
            return dict(found)
        new = {name: topic for name, topic in found.items() if (name, topic.id) not in self._not_for_rows}
        others = not_for_rows(self._kafka, new) if new else {}
        self._not_for_rows |= {(name, topic.id): others.get(name) for name, topic in new.items()}
        kinds = {
            name: kind for name, topic in found.items() if (kind := self._not_for_rows[name, topic.id]) is not None
        }
        if not by_pattern:
            for name, kind in sorted(kinds.items()):
                raise reserved(name, kind)
        return {name: topic for name, topic in found.items() if name not in kinds}
