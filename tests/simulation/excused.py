"""Rows that Kafka itself has lost, with a topic or in an unclean election: what may be missing in the end, for that.

An unclean election takes the newest records of a partition, acknowledged or not. What was committed is gone, and so is
a part of what is open, which may be its end only. Who has to look at the transaction after that must not commit it.
Where a marker is gone, what it ended is open once more, and nobody ends that but an operator, in that partition alone.
Until then, what the same producer writes there continues it, and shares its end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from spark_eos.protocol.end import VALID_MS
from spark_eos.protocol.head import Pair

from .partition_log import PartitionLog, Place, Record
from .world import Actor, Violation

WHOLE = "whoever has to look at a transaction does not commit it without its rows"

#: Producer id and epoch: of one transaction.
Producer = tuple[int, int]


@dataclass
class Losses:
    """Of one query. ``gone``: rows that were lost, by their transaction; ``cut_ms``: when it lost some in an unclean
    election. ``reopened``: transactions without a marker, by the partition that lacks it. ``open_with_topic``: rows
    that were deleted with a topic, before their transaction was ended, by it: who commits it has to tell."""

    gone: dict[Producer, set[int]] = field(default_factory=dict)
    cut_ms: dict[Producer, int] = field(default_factory=dict)
    reopened: set[tuple[Place, Producer]] = field(default_factory=set)
    open_with_topic: dict[Producer, set[int]] = field(default_factory=dict)

    def deleted(self, records: Iterable[Record]) -> None:
        """Own rows that were in a topic."""
        for record in records:
            self.gone.setdefault(_producer(record), set()).add(record.payload[1])

    def deleted_with_topic(self, records: Collection[Record]) -> None:
        """Own rows that were in a topic which is deleted as a whole."""
        self.deleted(records)
        for record in records:
            if record.visible is None:
                self.open_with_topic.setdefault(_producer(record), set()).add(record.payload[1])

    def cut(
        self, place: Place, log: PartitionLog, lost: Collection[Record], own: Collection[Record], now_ms: int
    ) -> None:
        """``lost`` from the log's end on, of which ``own`` are rows of the query."""
        self.deleted(own)
        self.cut_ms |= dict.fromkeys(map(_producer, own), now_ms)
        ended = {record.producer_id for record in lost if record.control}
        again = [record for record in log.records if record.producer_id in ended and record.visible is None]
        self.reopened |= {(place, _producer(record)) for record in again}
        self.deleted(again)

    def is_reopened(self, pair: Pair) -> bool:
        """Whether it lacks a marker somewhere, after which its rows may be aborted, and written again."""
        return any(producer == (pair.producer_id, pair.epoch) for _, producer in self.reopened)

    def ended(self, pair: Pair, started_ms: int, by: Actor | None, logs: Iterable[PartitionLog]) -> None:
        """The transaction is committed ``by`` somebody. A start looks at whatever it ends, and so does an operator; a
        commit at what is a minute old. An end that comes late was sent by nobody knows whom. What was lost may have
        come again with a request that was late."""
        cut_ms = self.cut_ms.get((pair.producer_id, pair.epoch))
        if cut_ms is None or by is None or by.born_ms <= cut_ms:
            return
        records = (record for log in logs for record in log.records if not record.control)
        held = {record.payload[1] for record in records if _producer(record) == (pair.producer_id, pair.epoch)}
        if self.gone[pair.producer_id, pair.epoch] <= held:
            return
        if by.role in ("task", "operator") or started_ms <= by.born_ms - VALID_MS:
            raise Violation(WHOLE, f"{pair} was committed by {by.name}, begun {by.born_ms}; it lost rows at {cut_ms}")

    def excused(self, fates: Mapping[Pair, bool]) -> set[int]:
        """Rows of what was committed, before or after; those of what was aborted had to be written again."""
        committed = {(pair.producer_id, pair.epoch) for pair, done in fates.items() if done}
        lost = (self.gone[own] - self.open_with_topic.get(own, set()) for own in self.gone.keys() & committed)
        return set().union(*lost)


def _producer(record: Record) -> Producer:
    return record.producer_id, record.epoch
