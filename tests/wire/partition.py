"""A partition's log as its leader holds it: record batches, who writes, what is open, what was aborted."""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field

from crc32c import crc32c

from spark_eos.kafka.codes import Code

# First offset, length, leader epoch, magic, checksum, attributes, last offset delta, first and largest timestamp,
# producer id, epoch, first sequence number, records.
HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED_FROM = 21
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_REMEMBERED = 5
_SEQUENCES = 1 << 31


@dataclass(frozen=True)
class Batch:
    """Offsets are inclusive."""

    base: int
    last: int
    data: bytes
    producer_id: int
    epoch: int
    control: bool = False


@dataclass
class Writer:
    """What a leader remembers of a producer: its last batches by first and last sequence number, with their offset."""

    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))


class Partition:
    """``strict``: a producer's first batch must have the number 0, as since Kafka 4.1. ``says_duplicate``: a batch that
    is there already is answered with an error, as by brokers of old, instead of its offset. ``largest``: bytes of a
    batch. ``heard``: end and last stable offset as followers know them, who have heard of none since the last election.
    """

    def __init__(self, leader: int, *, strict: bool = True, says_duplicate: bool = False) -> None:
        self.leader: int | None = leader
        self.epoch = 0
        self.heard = 0, 0
        self.largest = 1 << 20
        self.strict, self.says_duplicate = strict, says_duplicate
        self.batches: list[Batch] = []
        self.writers: dict[int, Writer] = {}
        self.open: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, the marker's

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def append(self, data: bytes) -> tuple[int, int]:
        """Error code, and the offset of the first record, for one batch of a transaction."""
        if len(data) > self.largest:
            return Code.MESSAGE_TOO_LARGE, -1
        fields = HEADER.unpack_from(data)
        _, length, _, magic, checksum, flags, delta, _, _, producer_id, epoch, first, count = fields
        if magic != 2 or length != len(data) - 12 or crc32c(data[_CHECKED_FROM:]) != checksum:
            return Code.CORRUPT_MESSAGE, -1
        if not flags & _TRANSACTIONAL or flags & _CONTROL or count != delta + 1:
            return Code.INVALID_RECORD, -1
        last = (first + delta) % _SEQUENCES
        code, base = self._check(producer_id, epoch, first, last)
        if code != Code.NONE or base >= 0:
            return code, base
        base = self.end
        placed = struct.pack(">q", base) + data[8:12] + struct.pack(">i", self.epoch) + data[16:]
        self.batches.append(Batch(base, base + delta, placed, producer_id, epoch))
        writer = self.writers.setdefault(producer_id, Writer(epoch))
        if writer.epoch != epoch:
            writer.epoch = epoch
            writer.batches.clear()
        writer.batches.append((first, last, base))
        self.open.setdefault(producer_id, base)
        return Code.NONE, base

    def _check(self, producer_id: int, epoch: int, first: int, last: int) -> tuple[int, int]:
        """The code for this batch, and its offset where it is there already."""
        writer = self.writers.get(producer_id)
        if writer is not None and epoch < writer.epoch:
            return Code.INVALID_PRODUCER_EPOCH, -1
        known = writer.batches if writer is not None and writer.epoch == epoch else ()
        for sequences in known:
            if sequences[:2] == (first, last):
                return (Code.DUPLICATE_SEQUENCE_NUMBER, -1) if self.says_duplicate else (Code.NONE, sequences[2])
        if known:
            in_order = first == (known[-1][1] + 1) % _SEQUENCES
        else:
            in_order = first == 0 or not self.strict
        return (Code.NONE, -1) if in_order else (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)

    def mark(self, producer_id: int, epoch: int, commit: bool) -> None:
        """The end of a producer's transaction, here. Where the marker has the next epoch, it fences the producer."""
        begin = self.open.pop(producer_id, None)
        base = self.end
        if begin is not None and not commit:
            self.aborted.append((producer_id, begin, base))
        self.batches.append(
            Batch(base, base, _marker(base, self.epoch, (producer_id, epoch), commit), producer_id, epoch, True)
        )
        if producer_id not in self.writers or self.writers[producer_id].epoch != epoch:
            self.writers[producer_id] = Writer(epoch)

    def elect(self, leader: int | None, *, forgetful: bool) -> None:
        """Another leader. ``forgetful``: it has read its log anew, and knows the last batch of each producer alone."""
        self.leader = leader
        self.epoch += 1
        self.heard = self.end, self.stable
        if forgetful:
            for writer in self.writers.values():
                while len(writer.batches) > 1:
                    writer.batches.popleft()

    def ends(self, node: int) -> tuple[int, int]:
        """High watermark and last stable offset, as this broker tells them."""
        return (self.end, self.stable) if node == self.leader else self.heard

    def fetch(self, offset: int, size: int, upto: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Bytes of whole batches from the one with this offset on, and the aborted transactions among them."""
        data, last = b"", offset
        for batch in self.batches:
            if batch.last < offset or batch.base >= upto:
                continue
            if data and len(data) + len(batch.data) > size:
                break
            data += batch.data
            last = batch.last
        aborted = [(pid, first) for pid, first, end in self.aborted if end >= offset and first <= last]
        return data, aborted

    def visible(self) -> list[Batch]:
        """What a read_committed reader sees."""
        return [
            b
            for b in self.batches
            if not b.control
            and b.last < self.stable
            and not any(pid == b.producer_id and first <= b.base < end for pid, first, end in self.aborted)
        ]


def _marker(base: int, leader_epoch: int, producer: tuple[int, int], commit: bool) -> bytes:
    key, value = struct.pack(">hh", 0, commit), bytes(6)
    record = bytes((0, 0, 0, 2 * len(key))) + key + bytes((2 * len(value),)) + value + b"\0"
    body = bytes((2 * len(record),)) + record
    now = 1_700_000_000_000
    checked = struct.pack(
        ">hiqqqhii", _TRANSACTIONAL | _CONTROL, 0, now, now, *producer, -1, 1
    )  # fmt: skip
    length = HEADER.size - 12 + len(body)
    return struct.pack(">qiibI", base, length, leader_epoch, 2, crc32c(checked + body)) + checked + body
