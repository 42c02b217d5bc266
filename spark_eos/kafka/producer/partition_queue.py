"""What a sender knows of one partition: its batches, which of them are under way, and what is known to be written."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from spark_eos.kafka.producer.refusals import Splitting, damaged, unclear
from spark_eos.kafka.records.batches import Damage
from spark_eos.kafka.records.encode import SEQUENCES, Sealed
from spark_eos.kafka.records.resealing import later
from spark_eos.retry import FIRST_WAIT_S, LONGEST_WAIT_S
from spark_eos.topic_partition import TopicPartition

#: Batches of a partition that a broker remembers.
_REMEMBERED = 5
#: No broker has told.
UNKNOWN_OFFSET = -1


@dataclass
class PartitionQueue:
    """One partition's batches. ``sent``: those in flight to ``node``; ``awaited``: the number of responses to come.
    ``turning``: one was not written, so all of ``sent`` are sent again when no response is awaited. ``doubtful``: they
    were sent again, and none of them is known to be written yet. ``unsure``: sequence numbers of those of which a copy
    may be under way, or written. ``refused``: the first one that was refused for its rows, and the broker's code;
    ``removed``: rows that were refused, by which the sequence numbers of later batches are lower than they were.
    ``runs``: see `Sender.runs` (kafka/producer/sender.py); ``bytes``: of what was written; ``last``: the sequence
    number of the last row of that; ``end``: the offset after the last batch of which one was told; ``why``: what has
    kept its batches from being written, the last time that something did."""

    place: TopicPartition
    moved_at: float
    waiting: deque[Sealed] = field(default_factory=deque)
    sent: deque[Sealed] = field(default_factory=deque)
    awaited: int = 0
    node: int = -1
    begun: bool = False
    turning: bool = False
    doubtful: bool = False
    unsure: set[int] = field(default_factory=set)
    refused: tuple[Sealed, int] | None = None
    removed: int = 0
    runs: list[tuple[int, int]] = field(default_factory=list)
    bytes: int = 0
    last: int = -1
    end: int = -1
    unknown_since: float | None = None
    why: str = ""
    not_before: float = 0.0
    pause_s: float = 0.0

    def may_send(self, now: float) -> bool:
        """Whether a waiting batch may go out. The first one goes alone, later ones up to five at once. ``now``: seconds
        of the steady clock."""
        room = len(self.sent) < (_REMEMBERED if self.begun else 1)
        return bool(self.waiting) and room and not self.turning and self.refused is None and now >= self.not_before

    def written(self, sealed: Sealed, now: float, offset: int) -> int:
        """This batch, at this offset, and those before it were written. Returns the bytes of all of them."""
        size = 0
        while sealed in self.sent:
            done = self.sent.popleft()
            size += len(done.data)
            self.unsure.discard(done.sequence)
            self._note_run(offset if done is sealed else UNKNOWN_OFFSET, done.count)
            self.last = (done.sequence + done.count - 1) % SEQUENCES
            if done is sealed and offset != UNKNOWN_OFFSET:
                self.end = offset + done.count
        self.bytes += size
        self.begun, self.doubtful, self.moved_at = True, False, now
        self.unknown_since, self.pause_s, self.why = None, 0.0, ""
        return size

    def _note_run(self, first: int, rows: int) -> None:
        last, count = self.runs[-1] if self.runs else (UNKNOWN_OFFSET, 0)
        if count and (first == last == UNKNOWN_OFFSET or (last != UNKNOWN_OFFSET and last + count == first)):
            self.runs[-1] = last, count + rows
        else:
            self.runs.append((first, rows))

    def turn(self, now: float) -> None:
        """A batch was not written, or its outcome is unknown: send all of ``sent`` again, after a growing pause."""
        if not self.turning:
            self.turning, self.not_before = True, now + self.pause_s
            self.pause_s = min(max(2 * self.pause_s, FIRST_WAIT_S), LONGEST_WAIT_S)

    def settle(self) -> None:
        """Call it after each response."""
        if self.turning and not self.awaited:
            self.waiting.extendleft(reversed(self.sent))
            self.sent.clear()
            self.turning, self.doubtful = False, True

    def replace_refused(self, refusals: Splitting) -> int:
        """When no response is awaited: put what is sent in place of the refused batch, and give those after it other
        sequence numbers. Returns by how many bytes the queue has grown. Raises KafkaError, TopicError."""
        assert self.refused is not None
        (refused, code), self.refused = self.refused, None
        if self.unsure or self.sent[0] is not refused:
            raise unclear(self.place, code)
        after = [*self.sent, *self.waiting][1:]
        try:
            parts = refusals.take(self.place, refused, code)
        except Damage as damage:
            raise damaged(self.place, refused, code, damage) from None
        if not parts:
            self.removed += refused.count
            after = [later(sealed, -refused.count) for sealed in after]
        self.sent.clear()
        self.waiting = deque([*parts, *after])
        return sum(len(part.data) for part in parts) - len(refused.data)
