"""A partition's log: producers with their epochs and sequence numbers, transactions, markers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .codes import INVALID_EPOCH, OK, OUT_OF_ORDER

#: The sequence number of what has none.
UNNUMBERED = -1

#: Topic and partition.
Place = tuple[str, int]


@dataclass
class Record:
    """One record, or a marker. ``visible``: None while its transaction is open. ``gone``: the cleaner has taken it.
    ``sequence``: its number in the transaction."""

    producer_id: int
    epoch: int
    payload: Any = None
    control: bool = False
    visible: bool | None = None
    gone: bool = False
    sequence: int = -1


@dataclass
class _Producer:
    """What a partition knows of a producer id."""

    epoch: int
    sequence: int = -1
    offset: int = -1


@dataclass(eq=False)
class PartitionLog:
    """One partition of a topic. ``open``: producer id → where its transaction begins here. ``begin`` moves with
    retention. ``ended``: where transactions began, and where their markers are. ``strict``: a producer of which nothing
    is known has to begin with number 0, as since Kafka 4.1 where transaction.version is 2. ``once_aborted``: offsets of
    what is open again, as its abort marker is gone."""

    records: list[Record] = field(default_factory=list)
    producers: dict[int, _Producer] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    begin: int = 0
    ended: list[tuple[int, int]] = field(default_factory=list)
    strict: bool = True
    once_aborted: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        return len(self.records)

    @property
    def stable(self) -> int:
        """The last stable offset: nothing below it is open."""
        return min(self.open.values(), default=self.end)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a transaction of this very producer has begun here."""
        return producer_id in self.open and self.producers[producer_id].epoch == epoch

    def append(self, producer_id: int, epoch: int, sequence: int, payload: Any) -> int:
        if producer_id not in self.producers and not self.strict:
            self.producers[producer_id] = _Producer(epoch, max(sequence, 0) - 1)
        producer = self.producers.setdefault(producer_id, _Producer(epoch))
        if epoch < producer.epoch:
            return INVALID_EPOCH
        if epoch > producer.epoch:
            producer.epoch, producer.sequence = epoch, -1
        if sequence == UNNUMBERED:
            sequence = producer.sequence + 1
        if sequence <= producer.sequence:
            return OK  # a duplicate
        if sequence != producer.sequence + 1:
            return OUT_OF_ORDER
        producer.sequence, producer.offset = sequence, self.end
        self.open.setdefault(producer_id, self.end)
        self.records.append(Record(producer_id, epoch, payload, sequence=sequence))
        return OK

    def mark(self, producer_id: int, epoch: int, commit: bool) -> None:
        """Write a marker: it ends what the producer id has open here."""
        producer = self.producers.setdefault(producer_id, _Producer(epoch))
        producer.epoch = max(producer.epoch, epoch)
        if producer_id in self.open:
            self.ended.append((self.open[producer_id], self.end))
        for record in self.records[self.open.pop(producer_id, self.end) :]:
            if record.producer_id == producer_id and record.visible is None:
                record.visible = commit
        self.records.append(Record(producer_id, epoch, control=True, visible=False))

    def cut(self, count: int) -> bool:
        """An unclean election: so many of the newest records are gone, and more, so that what is left are whole
        transactions, or those that are open, and ends with a record. Whether anything is gone."""
        end = self.end - self.without_parts(count)
        is_shorter = end < self.end
        del self.records[end:]
        self.ended = [(first, marker) for first, marker in self.ended if marker < end]
        self.open = {producer_id: first for producer_id, first in self.open.items() if first < end}
        return is_shorter

    def without_parts(self, count: int) -> int:
        """So many of the newest records, and more, that nothing that was ended is left in part."""
        end = max(self.begin, self.end - count)
        while end > self.begin and (self._is_within(end) or self.records[end - 1].gone):
            end -= 1
        return self.end - end

    def cut_rows(self, count: int) -> list[Record]:
        """The same wherever that ends: markers may be gone, too, so that what they ended is open once more. What the
        new leader knows of producers, it knows by its own log. Returns what is gone."""
        end = max(self.begin, self.end - count)
        lost, self.records = self.records[end:], self.records[:end]
        self.producers.clear()
        self.open.clear()
        self.ended.clear()
        self.once_aborted = {offset for offset in self.once_aborted if offset < end}
        for offset, record in enumerate(self.records):
            producer = self.producers.setdefault(record.producer_id, _Producer(record.epoch))
            if record.epoch > producer.epoch:
                producer.epoch, producer.sequence = record.epoch, -1
            if not record.control:
                producer.sequence, producer.offset = record.sequence, offset
                self.open.setdefault(record.producer_id, offset)
            elif record.producer_id in self.open:
                self.ended.append((self.open.pop(record.producer_id), offset))
        for producer_id, first in self.open.items():
            for offset, record in enumerate(self.records[first:], first):
                if record.producer_id == producer_id:
                    if record.visible is False:
                        self.once_aborted.add(offset)
                    record.visible = None
        return lost

    def _is_within(self, offset: int) -> bool:
        """Whether this is between a transaction's begin and its marker."""
        return any(first < offset <= marker for first, marker in self.ended)

    def tells_abort(self, producer_id: int, first: int) -> bool:
        """Whether the index of aborted transactions still has the one that began there, as it has while its marker is
        kept."""
        kept = any(begin == first and marker >= self.begin for begin, marker in self.ended)
        return kept and self.records[first].producer_id == producer_id and self.records[first].visible is False

    def written(self, producer_id: int) -> int:
        """The offset of what this producer id has written last."""
        return self.producers[producer_id].offset

    def visible(self, offset: int, upto: int, most: int) -> tuple[list[tuple[int, Any]], int]:
        """Offset and payload of the committed records in ``most`` batches from ``offset`` on, and where to read on."""
        found, after, count = [], offset, 0
        for at in range(offset, upto):
            record = self.records[at]
            if record.gone:
                continue
            after = at + 1
            if record.visible:
                found.append((at, record.payload))
            count += 1
            if count == most:
                break
        return found, after

    def compact(self) -> None:
        """What the cleaner does to records with a key: of each key the newest stays, and the log's last record."""
        newest: set[Any] = set()
        for record in reversed(self.records[self.begin : min(self.stable, self.end - 1)]):
            key = None if record.control or not record.visible else record.payload[0]
            record.gone = record.gone or key is None or key in newest
            newest.add(key)
