"""A model of the replicas of one partition, with what each keeps of the epochs of its leaders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.requests.offset_for_leader_epoch import UNKNOWN, EpochEnd
from spark_eos.source.epochs import Leaders

PLACE = ("t", 0)


@dataclass
class Replica:
    """``log``: of each offset the number of the record, unlike any other, and its epoch, or None where the cleaner has
    taken it. ``begun``: epochs and where each begins, as a broker keeps them."""

    log: list[tuple[int, int] | None] = field(default_factory=list)
    begun: list[tuple[int, int]] = field(default_factory=list)
    first: int = 0

    def append(self, record: tuple[int, int] | None) -> None:
        if record is not None and (not self.begun or self.begun[-1][0] != record[1]):
            self.assign(record[1])
        self.log.append(record)

    def assign(self, epoch: int) -> None:
        while self.begun and (self.begun[-1][0] >= epoch or self.begun[-1][1] >= len(self.log)):
            self.begun.pop()
        self.begun.append((epoch, len(self.log)))

    def cut(self, size: int) -> None:
        del self.log[size:]
        while self.begun and self.begun[-1][1] >= size:
            self.begun.pop()

    def expire(self, first: int) -> None:
        """Delete what is before this offset, with what is known of its epochs."""
        self.first = first
        while len(self.begun) > 1 and self.begun[1][1] <= first:
            self.begun.pop(0)
        if self.begun and self.begun[0][1] < first:
            self.begun[0] = self.begun[0][0], first

    def follow(self, leader: Replica, records: int) -> None:
        """Cut off what the leader does not have, and fetch up to so many records."""
        same = 0
        while same < min(len(self.log), len(leader.log)) and self.log[same] == leader.log[same]:
            same += 1
        self.cut(same)
        for record in leader.log[same : same + records]:
            self.append(record)

    def answer(self, epoch: int) -> EpochEnd:
        """As Kafka's LeaderEpochFileCache does."""
        if self.begun and epoch == self.begun[-1][0]:
            return EpochEnd(epoch, len(self.log))
        higher = [entry for entry in self.begun if entry[0] > epoch]
        if epoch < 0 or not higher:
            return EpochEnd(UNKNOWN, UNKNOWN)
        floor = [entry[0] for entry in self.begun if entry[0] <= epoch]
        return EpochEnd(floor[-1] if floor else epoch, higher[0][1])


class Model:
    """One partition of three replicas. ``asked``: how often its leader was asked about an epoch."""

    def __init__(self) -> None:
        self.replicas = [Replica(), Replica(), Replica()]
        self.leader, self.epoch, self.written, self.asked = 0, 0, 0, 0
        self.replicas[0].assign(0)

    @property
    def log(self) -> list[tuple[int, int] | None]:
        return self.replicas[self.leader].log

    def write(self, count: int) -> None:
        for _ in range(count):
            self.replicas[self.leader].append((self.written, self.epoch))
            self.written += 1

    def elect(self, replica: int, skipped: int = 0) -> None:
        self.epoch += 1 + skipped
        self.leader = replica
        self.replicas[replica].assign(self.epoch)

    def leaders(self) -> Leaders:
        return Leaders(self._ends, self._begins, self._first_batch)

    def _ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        self.asked += 1
        return {place: self.replicas[self.leader].answer(epoch) for place, epoch in epochs.items()}

    def _begins(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, self.replicas[self.leader].first)

    def _first_batch(self, place: TopicPartition, offset: int) -> tuple[int, int]:
        there = ((at, r[1]) for at, r in enumerate(self.log) if r is not None and at >= offset)
        return next(there, (len(self.log), UNKNOWN))
