"""How the heads of all queries are read, by leaders that hold them in lists."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import pytest

from spark_eos.errors import EosError, LedgerError
from spark_eos.kafka.codes import Code
from spark_eos.ledger.reader import Fetched, LedgerReader


class Leaders:
    """Of a ledger whose records, (key, value), begin at offset 0 of each partition. ``fetched``: what was asked for.
    ``errors``: the first answers."""

    topic = "ledger"
    seconds = 1.0

    def __init__(self, *partitions: list[tuple[bytes, bytes]]) -> None:
        self.records = partitions
        self.fetched: list[tuple[int, int]] = []
        self.errors: list[int] = []

    def partitions(self) -> int:
        return len(self.records)

    def topic_id(self, known_to: str | int | None = None) -> str:
        return "one"

    def begin(self, partition: int) -> int:
        return 0

    def end(self, partition: int) -> int:
        return len(self.records[partition])

    def fetch(self, partition: int, offset: int) -> Fetched:
        self.fetched.append((partition, offset))
        if self.errors:
            return Fetched(self.errors.pop(0))
        rows = [(at, *record) for at, record in enumerate(self.records[partition])][offset:]
        return Fetched(0, rows, self.end(partition), times=[1000 + at for at, _, _ in rows])

    def retrying(self) -> Iterator[None]:
        return repeat(None, 3)


def newest(reader: LedgerReader) -> dict[str, tuple[int, int, int | None, bytes]]:
    return {
        key: (found.partition, found.offset, found.time_ms, found.value)
        for key, found in reader.newest_of_all().items()
    }


def test_what_was_read_of_all_heads_is_not_read_again():
    """Of a ledger of many queries, the second look asks for what was written since the first."""
    leaders = Leaders([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")], [(b"c", b"1")])
    reader = LedgerReader(leaders, 0, "")
    first = {"a": (0, 2, 1002, b"2"), "b": (0, 1, 1001, b"1"), "c": (1, 0, 1000, b"1")}
    assert newest(reader) == first
    assert newest(reader) == first
    assert leaders.fetched == [(0, 0), (1, 0)]
    leaders.records[0].append((b"b", b"2"))
    assert newest(reader) == first | {"b": (0, 3, 1003, b"2")}
    assert leaders.fetched[2:] == [(0, 3)]


def test_a_ledger_that_has_become_shorter_is_not_believed():
    """Decisions are lost: the heads that were read are not the newest ones of what is left, nor are its own."""
    leaders = Leaders([(b"a", b"1"), (b"a", b"2")])
    reader = LedgerReader(leaders, 0, "")
    newest(reader)
    leaders.records[0].pop()
    with pytest.raises(LedgerError, match="EOS_LEDGER_TRUNCATED"):
        reader.newest_of_all()


def test_a_leader_that_has_moved_is_asked_again_and_what_says_more_is_an_error_at_once():
    """The next answer may be that of the new leader; what nobody knows is not waited for."""
    leaders = Leaders([(b"a", b"1")])
    leaders.errors = [Code.NOT_LEADER_OR_FOLLOWER, Code.OFFSET_NOT_AVAILABLE]
    assert newest(LedgerReader(leaders, 0, "")) == {"a": (0, 0, 1000, b"1")}
    leaders.errors = [Code.CORRUPT_MESSAGE]
    with pytest.raises(LedgerError, match=r"EOS_LEDGER_NOT_READABLE.*CORRUPT_MESSAGE"):
        newest(LedgerReader(leaders, 0, ""))
    assert len(leaders.fetched) == 4
    leaders.errors = [Code.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(EosError, match=r"EOS_UNAUTHORIZED.*read the ledger topic"):
        newest(LedgerReader(leaders, 0, ""))
