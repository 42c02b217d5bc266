"""The lag of each partition, and transactions that stay open for long and hold back the last stable offset."""

from __future__ import annotations

import time
from typing import Any

from spark_eos.base.log import logger
from spark_eos.base.topic_partition import PartitionOffsets, TopicPartition
from spark_eos.errors import EosError
from spark_eos.kafka.admin.open_transactions import oldest_open_transaction
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.source.watch import TopicWatch

#: Seconds between requests for high watermarks.
_LOOK_S = 1.0
#: Seconds between log lines about the same offset.
_REPEAT_S = 300.0
#: Partitions whose transactions are named at once: each may take seconds, while no micro-batch is planned.
_NAMED = 3


class LagWatch:
    """Compares high watermarks with the offsets up to which the query reads."""

    def __init__(self, client: BrokerClient, watch: TopicWatch, warn_after_s: float) -> None:
        self._client = client
        self._watch = watch
        self._warn_after_s = warn_after_s
        self._high: PartitionOffsets = {}
        self._next_look = 0.0
        #: For each end below the high watermark: the end, and since when it has been there.
        self._held: dict[TopicPartition, tuple[int, float]] = {}
        self._logged: dict[tuple[str, int, int], float] = {}

    def watch(self, ends: PartitionOffsets) -> bool:
        """Compare, once a second, the ends with the high watermarks, and log transactions that hold an end back for
        long. Returns whether it did so now."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_S
        numbers = {topic: list(partitions) for topic, partitions in ends.items()}
        try:
            self._high = self._watch.high_watermarks(numbers)
        except EosError as error:  # a topic is being deleted, or no broker responds: the next request fails with it
            logger.debug("no high watermarks: %s", error)
            return False
        held = {}
        for topic, partitions in ends.items():
            for p, end in partitions.items():
                if end < self._high[topic][p]:
                    known = self._held.get((topic, p))
                    held[topic, p] = known if known is not None and known[0] == end else (end, now)
        self._held = held
        self._logged = {key: at for key, at in self._logged.items() if now - at < _REPEAT_S}
        late = [
            (topic, p, end)
            for (topic, p), (end, since) in held.items()
            if now - since >= self._warn_after_s and (topic, p, end) not in self._logged
        ]
        self._logged |= dict.fromkeys(late, now)
        for topic, p, end in late[:_NAMED]:
            self._name_open_transactions(topic, p, end, now)
        if len(late) > _NAMED:
            logger.warning("the last stable offsets of %d more partitions are held back, too", len(late) - _NAMED)
        return True

    def report(self, position: PartitionOffsets, ends: PartitionOffsets, losses: int) -> dict[str, Any]:
        """Return, as ``lag``, how many offsets the query is behind each partition's last stable offset and high
        watermark, and for how many milliseconds an open transaction has held back the former; and as ``losses`` the
        number of data losses."""
        now = time.monotonic()
        lag: dict[str, dict[str, dict[str, int]]] = {}
        for topic, partitions in sorted(ends.items()):
            for p, end in sorted(partitions.items()):
                at = position.get(topic, {}).get(p, end)
                _, since = self._held.get((topic, p), (end, now))
                lag.setdefault(topic, {})[str(p)] = {
                    "stable": max(0, end - at),
                    "high": max(0, max(end, self._high.get(topic, {}).get(p, end)) - at),  # the ends may be newer
                    "heldMs": int(1000 * (now - since)),
                }
        return {"lag": lag, "losses": losses}

    def _name_open_transactions(self, topic: str, partition: int, end: int, now: float) -> None:
        since = self._held[topic, partition][1]
        try:
            found = oldest_open_transaction(self._client, topic, partition)
        except EosError as error:
            logger.warning("%s-%d: it is not known who holds the last stable offset: %s", topic, partition, error)
            return
        logger.warning(
            "%s-%d: its last stable offset has been %d for %.0f s, while the partition goes on up to %d: nothing "
            "behind it is read until this transaction ends: %s",
            topic, partition, end, now - since, self._high[topic][partition],
            found or "the leader does not say which",
        )  # fmt: skip
