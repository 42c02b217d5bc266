"""Notes: records that become visible with a decision, by the same transaction, in a compacted topic of their own.

The head says what all of them together are, so that whoever reads them knows whether it has found them all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

#: Key and value of a record. No two notes of a query have the same key.
Note = tuple[bytes, bytes]

_SUM = 1 << 64


@dataclass(frozen=True)
class Noted:
    """All notes of a query up to a decision: where they are, how many, and the sum of their digests."""

    topic: str
    partition: int
    count: int = 0
    digest: int = 0

    def with_more(self, notes: Notes) -> Noted:
        """With those of one more decision, which go to the same place."""
        assert (notes.topic, notes.partition) == (self.topic, self.partition), notes
        digest = (self.digest + digest_of(notes.records)) % _SUM
        return Noted(self.topic, self.partition, self.count + len(notes.records), digest)


@dataclass(frozen=True)
class Notes:
    """What one micro-batch notes, and where."""

    topic: str
    partition: int
    records: tuple[Note, ...]

    def added_to(self, before: Noted | None) -> Noted:
        return (before or Noted(self.topic, self.partition)).with_more(self)

    def as_text(self) -> str:
        """As JSON; keys and values are text."""
        records = [[key.decode(), value.decode()] for key, value in self.records]
        return json.dumps([self.topic, self.partition, records], separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Notes:
        topic, partition, records = json.loads(text)
        return cls(topic, partition, tuple((key.encode(), value.encode()) for key, value in records))


def digest_of(records: Iterable[Note]) -> int:
    """A sum, so that it does not depend on the order."""
    return sum(map(_digest, records)) % _SUM


def _digest(record: Note) -> int:
    key, value = record
    framed = b"%d:%b%b" % (len(key), key, value)
    return int.from_bytes(hashlib.blake2b(framed, digest_size=8).digest(), "big")
