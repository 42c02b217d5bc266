"""The topics to read, their partitions and ends, with no more requests than needed. On the driver, one per query."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from spark_eos.base.topic_partition import PartitionOffsets, TopicPartition
from spark_eos.checkpoint.offset_log import TopicIds
from spark_eos.errors import TopicError, Unauthorized
from spark_eos.kafka.admin.topics import (
    TIMEOUT_S,
    Topic,
    begin_offsets,
    describe_topics,
    ends_and_epochs,
    names_near,
    offsets_and_epochs_at,
    topic_names,
)
from spark_eos.kafka.config.properties import Isolation
from spark_eos.kafka.errors import missing
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.requests.offset_for_leader_epoch import UNKNOWN
from spark_eos.ledger.own_topics import not_for_rows, reserved
from spark_eos.options.selection import Pattern, Selection
from spark_eos.source.epochs import LeaderEpochs, Noted, leaders_of
from spark_eos.source.questions import Topics

#: Seconds for which known ends are used. Spark asks an idle stream for its end every 10 ms.
_ENDS_S = 0.05
#: Seconds for which known topics and partitions are used, so after which new ones are noticed.
_TOPICS_S = 5.0
#: Seconds of silence that a running query bears, as when the brokers are restarted one by one.
_PATIENCE_S = 60.0


class TopicWatch:
    """Topics, partitions and ends; after `pin` they stay as they are.

    Every method that sends requests raises ConnectionFailed or TopicError as `spark_eos.kafka.admin.topics` does.
    """

    def __init__(
        self,
        client: BrokerClient,
        selection: Selection,
        isolation: Isolation = "read_committed",
        *,
        looks_only: bool = False,
    ) -> None:
        """``looks_only``: for a batch, which may read any topic that it names. A stream that reads the ledger topic
        would never reach its end, as each of its own decisions adds to it."""
        self._looks_only = looks_only
        self._not_for_rows: dict[tuple[str, str], str | None] = {}
        self.client = client
        self._selection = selection
        self._isolation: Isolation = isolation
        self._timeout_s = TIMEOUT_S
        self._missing: set[str] = set()
        self._topics = Topics({}, {})
        self._topics_until = 0.0
        self._ends: PartitionOffsets = {}
        self._ends_until = 0.0
        self._known_ids: TopicIds = {}
        #: The newest epoch of each partition's leader, by all answers: no offset that was told may be of a later one.
        self._leaders: dict[TopicPartition, int] = {}
        self._epochs = LeaderEpochs(leaders_of(client, _PATIENCE_S))
        self._pinned = False

    def topics(self, *, now: bool = False) -> Topics:
        """Return the topics that exist, at most 5 s old; with ``now``, as of this moment, even when they are pinned."""
        if not now and time.monotonic() < self._topics_until:
            return self._topics
        current = self._describe_selected()
        self._note_topics(current)
        if self._pinned:
            return current
        if current != self._topics:
            self._ends_until = 0.0
        self._topics, self._topics_until = current, time.monotonic() + _TOPICS_S
        return current

    def named(self, names: Iterable[str]) -> Topics:
        """Return these topics with all their partitions, as of this moment, whether or not the query reads them."""
        described = describe_topics(self.client, names, self._timeout_s, missing_ok=True)
        partitions = {name: list(range(topic.partitions)) for name, topic in described.items()}
        there = self._topics_of(partitions, described)
        self._note_topics(there)
        return there

    def expect_all(self) -> None:
        """Raise TopicError (EOS_TOPIC_MISSING) unless everything exists that a new query is to read."""
        lacking = self._selection.lacking(self.topics(now=True).partitions)
        if lacking:
            near, required = names_near(self.client, lacking[0]), f", which {self._selection} requires"
            raise missing(self.client.bootstrap_servers, ", ".join(lacking), near, required)

    def look(self) -> tuple[Topics, PartitionOffsets]:
        """Return the topics, and the end of every partition for this query, exclusive, at most 50 ms old: its last
        stable offset, or its high watermark for a query that reads uncommitted rows.

        The ends belong to exactly these topics. `topics` may be newer, so the two must not be combined.
        """
        there = self.topics()
        if not self._pinned and time.monotonic() >= self._ends_until:
            try:
                self._ends, epochs = ends_and_epochs(self.client, there.partitions, self._isolation, self._timeout_s)
            except (TopicError, Unauthorized):  # deleted within these five seconds
                there = self.topics(now=True)
                self._ends, epochs = ends_and_epochs(self.client, there.partitions, self._isolation, self._timeout_s)
            self._note_epochs(epochs)
            self._ends_until = time.monotonic() + _ENDS_S
        return there, self._ends

    def epochs_at(
        self, offsets: Mapping[TopicPartition, int], least: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the leader epochs of the records before these offsets, where they are known. ``least``: lower bounds
        for them. Costs one request for each new leader, and some for offsets before its time."""
        epochs = self._epochs.at(offsets, self._leaders, least)
        return {partition: epoch for partition, epoch in epochs.items() if epoch != UNKNOWN}

    def diverged(
        self, offsets: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the partitions whose log no longer has records of these epochs before these offsets, each with the
        offset from which the log differs. Costs one request for each new leader."""
        noted = {
            partition: Noted(offsets[partition], epoch) for partition, epoch in epochs.items() if partition in offsets
        }
        return self._epochs.diverged(noted, self._leaders)

    def _note_topics(self, there: Topics) -> None:
        for topic, id_ in there.ids.items():
            if self._known_ids.get(topic, id_) != id_:
                self._leaders = {
                    partition: epoch for partition, epoch in self._leaders.items() if partition[0] != topic
                }
                self._epochs.forget(topic)
        self._known_ids |= there.ids
        self._note_epochs(there.leader_epochs)

    def _note_epochs(self, epochs: PartitionOffsets) -> None:
        for topic, partitions in epochs.items():
            for p, epoch in partitions.items():
                self._leaders[topic, p] = max(epoch, self._leaders.get((topic, p), UNKNOWN))

    def ends(self) -> PartitionOffsets:
        """Return the end of every partition, from `look`."""
        return self.look()[1]

    def known_ends(self) -> PartitionOffsets:
        """Return the ends that `look` returned last. Sends no request."""
        return self._ends

    def pin(self) -> None:
        """Fix topics and ends as they are now, also if they were fixed before."""
        self._pinned = False
        self._topics_until = self._ends_until = 0.0
        self.ends()
        self._pinned = True
        self._topics_until = float("inf")

    @property
    def pinned(self) -> bool:
        """True while topics and ends stay the same: for a query with `availableNow`."""
        return self._pinned

    def begins(self, partitions: Mapping[str, Iterable[int]] | None = None) -> PartitionOffsets:
        """Return the first offset of every partition (None), or of these."""
        asked = self.topics().partitions if partitions is None else partitions
        return begin_offsets(self.client, asked, self._timeout_s)

    def high_watermarks(self, partitions: Mapping[str, Iterable[int]]) -> PartitionOffsets:
        """Return the end of each of these partitions, open and aborted transactions included."""
        ends, epochs = ends_and_epochs(self.client, partitions, "read_uncommitted", self._timeout_s)
        self._note_epochs(epochs)
        return ends

    def at_times(self, times: PartitionOffsets) -> PartitionOffsets:
        """Return for each partition the first offset of a record of this time or later; `NO_OFFSET` where none is."""
        offsets, epochs = offsets_and_epochs_at(self.client, times, self._isolation, self._timeout_s)
        self._note_epochs(epochs)
        return offsets

    def _topics_of(self, partitions: dict[str, list[int]], described: Mapping[str, Topic]) -> Topics:
        ids = {name: topic.id for name, topic in described.items()}
        epochs = {name: topic.leader_epochs for name, topic in described.items()}
        return Topics(partitions, ids, self.client.cluster_id, epochs)

    def _describe_selected(self) -> Topics:
        if isinstance(self._selection, Pattern):
            wanted = self._selection.matching(topic_names(self.client, self._timeout_s))
        else:
            wanted = list(self._selection.topics)
        if self._missing:  # to describe a missing topic takes a second: not every time
            known = topic_names(self.client, self._timeout_s)
            wanted = [topic for topic in wanted if topic not in self._missing or topic in known]
        described = describe_topics(self.client, wanted, self._timeout_s, missing_ok=True)
        self._timeout_s = _PATIENCE_S
        self._missing = set(wanted) - described.keys() | self._missing - described.keys()
        there = self._for_rows(described)
        partitions = {
            name: list(self._selection.partitions_of(name, topic.partitions)) for name, topic in there.items()
        }
        return self._topics_of(partitions, there)

    def _for_rows(self, described: Mapping[str, Topic]) -> dict[str, Topic]:
        """Return the topics that hold rows of users. A pattern leaves out the others, as Kafka's consumers leave out
        internal topics; one that is named raises TopicError (EOS_TOPIC_RESERVED). Each topic is inspected once."""
        by_pattern = isinstance(self._selection, Pattern)
        if self._looks_only and not by_pattern:
            return dict(described)
        new = {name: topic for name, topic in described.items() if (name, topic.id) not in self._not_for_rows}
        others = not_for_rows(self.client, new) if new else {}
        self._not_for_rows |= {(name, topic.id): others.get(name) for name, topic in new.items()}
        kinds = {
            name: kind for name, topic in described.items() if (kind := self._not_for_rows[name, topic.id]) is not None
        }
        if not by_pattern:
            for name, kind in sorted(kinds.items()):
                raise reserved(name, kind)
        return {name: topic for name, topic in described.items() if name not in kinds}
