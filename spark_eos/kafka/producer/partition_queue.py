"""The queue of one partition's record batches in a sender: in flight, to send again, and written."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from spark_eos.base.retry import FIRST_WAIT_S, LONGEST_WAIT_S
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.producer.refusals import Splitting, unclear
from spark_eos.kafka.records.encode import SEQUENCES, Sealed
from spark_eos.kafka.records.resealing import later

#: For so many of a producer's last batches in a partition, a broker recognizes duplicates.
_REMEMBERED = 5
#: An offset that no response has named.
UNKNOWN_OFFSET = -1


@dataclass
class PartitionQueue:
    """The batches of one partition, from `Sender.add` until they are acknowledged."""

    partition: TopicPartition
    #: When a batch was last acknowledged, or the queue began to be busy (monotonic clock).
    moved_at: float
    #: Batches that have not been sent, or are to be sent again; and batches in flight to ``node``, the leader.
    waiting: deque[Sealed] = field(default_factory=deque)
    sent: deque[Sealed] = field(default_factory=deque)
    node: int = -1
    #: The number of responses to come.
    awaited: int = 0
    #: Whether some batch is known to be written.
    begun: bool = False
    #: A batch was not written: all of ``sent`` are sent again when no response is awaited.
    resending: bool = False
    #: The batches were sent again, and none of them is known to be written yet.
    resent: bool = False
    #: Sequence numbers of batches of which a copy may be under way, or written.
    maybe_written: set[int] = field(default_factory=set)
    #: The first batch that was refused for its rows or its size, and Kafka's error code.
    refused: tuple[Sealed, int] | None = None
    #: How many rows were refused: the sequence numbers of later batches are lower by this number.
    removed: int = 0
    #: (first offset, number) of the rows that were written, in order, where they lie without a gap.
    runs: list[tuple[int, int]] = field(default_factory=list)
    #: Written so far: bytes, the last row's sequence number, and the offset after it, as far as it is known.
    bytes: int = 0
    last: int = -1
    end: int = -1
    #: Since when brokers answer that they do not know the partition.
    unknown_since: float | None = None
    #: Why batches were last not written, for the log and for errors.
    why: str = ""
    #: When the next batch may be sent, and how long the pause after the next failure is.
    not_before: float = 0.0
    pause_s: float = 0.0

    def may_send(self, now: float) -> bool:
        """Return whether the next batch may be sent, by the monotonic clock: the first one alone, later ones up to five
        at once."""
        room = len(self.sent) < (_REMEMBERED if self.begun else 1)
        return bool(self.waiting) and room and not self.resending and self.refused is None and now >= self.not_before

    def written(self, sealed: Sealed, now: float, offset: int) -> int:
        """Note that a batch was written at this offset, and with it all that were sent before. Returns the bytes that
        were not known to be written."""
        size = 0
        while sealed in self.sent:
            done = self.sent.popleft()
            size += len(done.data)
            self.maybe_written.discard(done.sequence)
            self._note_run(offset if done is sealed else UNKNOWN_OFFSET, done.count)
            self.last = (done.sequence + done.count - 1) % SEQUENCES
            if done is sealed and offset != UNKNOWN_OFFSET:
                self.end = offset + done.count
        self.bytes += size
        self.begun, self.resent, self.moved_at = True, False, now
        self.unknown_since, self.pause_s, self.why = None, 0.0, ""
        return size

    def _note_run(self, first: int, rows: int) -> None:
        last, count = self.runs[-1] if self.runs else (UNKNOWN_OFFSET, 0)
        if count and (first == last == UNKNOWN_OFFSET or (last != UNKNOWN_OFFSET and last + count == first)):
            self.runs[-1] = last, count + rows
        else:
            self.runs.append((first, rows))

    def resend(self, now: float) -> None:
        """Send all of ``sent`` again, after a growing pause, as one was not written or its outcome is unknown."""
        if not self.resending:
            self.resending, self.not_before = True, now + self.pause_s
            self.pause_s = min(max(2 * self.pause_s, FIRST_WAIT_S), LONGEST_WAIT_S)

    def settle(self) -> None:
        """Put the batches to send again back into the queue, once no response is awaited; called after a response."""
        if self.resending and not self.awaited:
            self.waiting.extendleft(reversed(self.sent))
            self.sent.clear()
            self.resending, self.resent = False, True

    def replace_refused(self, refusals: Splitting) -> int:
        """Replace the refused batch by smaller ones, or none, and give later batches other sequence numbers.

        Call it when no response is awaited. Returns by how many bytes the queue has grown.
        Raises KafkaError and TopicError.
        """
        assert self.refused is not None
        (refused, code), self.refused = self.refused, None
        if self.maybe_written or self.sent[0] is not refused:
            raise unclear(self.partition, code)
        after = [*self.sent, *self.waiting][1:]
        parts = refusals.take(self.partition, refused, code)
        if not parts:
            self.removed += refused.count
            after = [later(sealed, -refused.count) for sealed in after]
        self.sent.clear()
        self.waiting = deque([*parts, *after])
        return sum(len(part.data) for part in parts) - len(refused.data)
