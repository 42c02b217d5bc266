"""Limits the bytes that a micro-batch reads, about: ``maxBytesPerTrigger``.

Kafka has no request that maps offsets to sizes. So the driver samples the log: at a few offsets it fetches some record
batches, whose headers have their sizes and offsets. The size of a sample is exact. The stretch from there to the next
sample is taken to be as dense as the denser of its ends. A stretch is at most an eighth of the partition's share of the
limit, and is halved where it could hold more than a quarter. So an estimate is far off only if record sizes change and
change back within one stretch.

Bytes are counted as in the log and on the network, where they are compressed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from spark_eos.base.topic_partition import PartitionOffsets, TopicPartition
from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.codes import OK
from spark_eos.kafka.config.properties import Isolation
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.records.batches import Damage, walk_batches
from spark_eos.kafka.requests.fetch import FetchResponse, fetch_many, fetch_once
from spark_eos.source.range_math import backlogs

#: Bytes that one look fetches, or one record batch if that is larger.
LOOK_BYTES = 64 * 1024
#: How many looks one request to a leader has, and for how many seconds it is waited for.
_TOGETHER, _ANSWER_S = 64, 5.0
_STRETCHES = 8
#: A stretch that is as dense as the log behind it may hold the share divided by this; a longer one is halved.
_BOUND = 4
_MOST_LOOKS = 32
#: Assumed if the partition's leader does not answer. Tasks wait for that leader in any case.
_BYTES_PER_OFFSET = 1024.0
#: The log is not sampled if rows could be this many times larger than the last sampled ones, and still fit.
_ROOM = 1000


@dataclass(frozen=True)
class SampledBatch:
    """A record batch of offsets ``begin`` to ``end``, exclusive, and its bytes."""

    begin: int
    end: int
    size: int

    @property
    def density(self) -> float:
        """Bytes per offset."""
        return self.size / (self.end - self.begin)


#: Returns the record batches from the offset of each partition on, as many as one look fetches; none if its leader does
#: not answer.
Look = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, list[SampledBatch]]]


class Sizes:
    """Estimates of how many bytes lie between offsets, for the partitions of one query. ``look`` fetches samples."""

    def __init__(self, look: Look) -> None:
        self._look = look
        #: Bytes for each offset, where it was looked at last.
        self._density: dict[TopicPartition, float] = {}

    def within(self, start: PartitionOffsets, ends: PartitionOffsets, most: int) -> PartitionOffsets:
        """Return ``ends``, or earlier offsets, so that about ``most`` bytes lie between ``start`` and them.

        The bytes are divided in proportion to the backlog of each partition. A partition with a backlog gets at least
        one record batch of any size.
        """
        waiting = backlogs(start, ends)
        known = sum(offsets * self._density.get(partition, float("inf")) for partition, offsets in waiting.items())
        if known * _ROOM <= most:
            return ends
        first = self._see({(topic, p): start[topic][p] for topic, p in waiting})
        sizes = {
            partition: waiting[partition] * self._density.get(partition, _BYTES_PER_OFFSET) for partition in waiting
        }
        total = sum(sizes.values())
        result = {topic: dict(partitions) for topic, partitions in ends.items()}
        walks = {
            (topic, p): self._walk((topic, p), start[topic][p], ends[topic][p], most * (size / total), first[topic, p])
            for (topic, p), size in sizes.items()
        }
        answers: Mapping[TopicPartition, Any] = dict.fromkeys(walks)
        while answers:
            asked = {}
            for (topic, p), pieces in answers.items():
                try:
                    asked[topic, p] = walks[topic, p].send(pieces)
                except StopIteration as stop:
                    result[topic][p] = stop.value
            answers = self._see(asked) if asked else {}
        return result

    def _see(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, list[SampledBatch]]:
        seen = self._look(wanted)
        for partition, pieces in seen.items():
            if pieces:
                offsets = pieces[-1].end - min(wanted[partition], pieces[0].begin)
                self._density[partition] = max(1.0, sum(piece.size for piece in pieces) / offsets)
        return seen

    def _walk(
        self, partition: TopicPartition, at: int, end: int, share: float, pieces: list[SampledBatch]
    ) -> Generator[int, list[SampledBatch], int]:
        """Return the offset at which the partition's share ends; an earlier one if that takes too many looks, whose
        offsets are yielded."""
        spent, looks = 0.0, 1
        while looks < _MOST_LOOKS:
            for piece in pieces:
                at, spent = piece.end, spent + piece.size
                if at >= end or spent >= share:
                    return min(at, end)
            before = max(self._density.get(partition, _BYTES_PER_OFFSET), pieces[-1].density if pieces else 0.0)
            stretch = min(end - at, max(1, int(min(share - spent, share / _STRETCHES) / before)))
            after, pieces, looks = before, [], looks + 1
            while looks < _MOST_LOOKS:
                pieces = yield min(at + stretch, end - 1)
                after = max((piece.density for piece in pieces), default=before)
                if stretch == 1 or stretch * after <= share / _BOUND:
                    break
                stretch, looks = stretch // 2, looks + 1
            at, spent = at + stretch, spent + stretch * max(before, after)
            if at >= end or spent >= share:
                break
        return min(at, end)


def look_at(client: BrokerClient, isolation: Isolation) -> Look:
    """Return a `Look` that fetches from the partitions' leaders, of many by one request."""
    most_bytes = _TOGETHER * LOOK_BYTES

    def look(wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, list[SampledBatch]]:
        seen = dict[TopicPartition, list[SampledBatch]]()
        partitions = list(wanted)
        for i in range(0, len(partitions), _TOGETHER):
            some = {at: (wanted[at], LOOK_BYTES) for at in partitions[i : i + _TOGETHER]}
            try:
                fetched = fetch_many(client, some, isolation=isolation, max_bytes=most_bytes, timeout_s=_ANSWER_S)
            except ConnectionFailed:
                fetched = {}
            for partition, (offset, _) in some.items():
                answer = fetched.get(partition)
                if answer is not None and answer[0].error == OK and not answer[0].size:  # the batch may be too large
                    answer = fetch_once(client, *partition, offset, LOOK_BYTES, isolation=isolation)
                seen[partition] = [] if answer is None else _sampled(*answer, offset)
        return seen

    return look


def _sampled(answer: FetchResponse, data: bytes, at: int) -> list[SampledBatch]:
    if answer.error != OK:
        return []
    try:
        batches = list(walk_batches(data, answer.size, ()))
    except Damage:  # the task reports the damage
        return []
    stops = [batch.stop for batch in batches]
    sizes = [stop - before for stop, before in zip(stops, [0, *stops[:-1]], strict=True)]
    pieces = (SampledBatch(batch.base, batch.last + 1, size) for batch, size in zip(batches, sizes, strict=True))
    return [piece for piece in pieces if piece.end > at]
