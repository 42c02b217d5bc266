"""What the subscribed topics hold, asked no more often than needed. On the driver, one for each query."""

from __future__ import annotations

import time
from collections.abc import Iterable

from spark_eos.kafka.config import check
from spark_eos.kafka.metadata import TIMEOUT_S, begin_offsets, end_offsets, topic_partitions
from spark_eos.options import KafkaProperties
from spark_eos.source.offsets import Offsets

#: Spark asks an idle stream for its end every 10 ms; the cluster is asked every 50 ms.
_ENDS_S = 0.05
#: How soon new partitions are noticed.
_PARTITIONS_S = 5.0
#: Seconds of silence that a running query bears, as when the brokers are restarted one by one.
_PATIENCE_S = 60.0


class TopicWatch:
    """Partitions and ends of the topics; after `pin` they stay as they are.

    Every question raises ConnectionFailed or TopicError as `spark_eos.kafka.metadata` does.
    """

    def __init__(self, kafka: KafkaProperties, topics: Iterable[str]) -> None:
        check(kafka, "consumer")
        self._kafka = kafka
        self._topics = tuple(topics)
        self._timeout_s = TIMEOUT_S
        self._counts: dict[str, int] = {}
        self._counts_until = 0.0
        self._ends: Offsets = {}
        self._ends_until = 0.0

    def partition_counts(self) -> dict[str, int]:
        """``{topic: number of partitions}``."""
        if time.monotonic() >= self._counts_until:
            counts = topic_partitions(self._kafka, self._topics, self._timeout_s)
            self._timeout_s = _PATIENCE_S
            if counts != self._counts:
                self._ends_until = 0.0
            self._counts, self._counts_until = counts, time.monotonic() + _PARTITIONS_S
        return self._counts

    def ends(self) -> Offsets:
        """The last stable offset of every partition, at most 50 ms old."""
        counts = self.partition_counts()
        if time.monotonic() >= self._ends_until:
            self._ends = end_offsets(self._kafka, _all(counts), "read_committed", self._timeout_s)
            self._ends_until = time.monotonic() + _ENDS_S
        return self._ends

    def known_ends(self) -> Offsets:
        """What `ends` said last, without asking."""
        return self._ends

    def pin(self) -> None:
        """Fix partitions and ends at what they are now."""
        self._counts_until = self._ends_until = 0.0
        self.ends()
        self._counts_until = self._ends_until = float("inf")

    def begins(self, partitions: dict[str, Iterable[int]] | None = None) -> Offsets:
        """The first offset of every partition, or of these."""
        return begin_offsets(self._kafka, partitions or _all(self.partition_counts()), self._timeout_s)

    def high_watermarks(self, partitions: dict[str, Iterable[int]] | None = None) -> Offsets:
        """The end of every partition, or of these, open and aborted transactions included."""
        asked = partitions or _all(self.partition_counts())
        return end_offsets(self._kafka, asked, "read_uncommitted", self._timeout_s)


def _all(counts: dict[str, int]) -> dict[str, range]:
    return {topic: range(count) for topic, count in counts.items()}
