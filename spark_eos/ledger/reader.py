"""Finds a query's newest head in the ledger topic.

After a stale head, rows would be written twice. So a read goes up to the end offset that the partition's leader returns
for ListOffsets; a new leader does so only when it has all acknowledged records (KIP-207), for which a Fetch would not
wait. It waits until everything below that end is stable, as an open transaction of another query may hide a newer head.
It refuses an end below one that this process has seen before. And a read that fails half-way leaves nothing behind. A
leader that is cut off from its cluster passes all of this; `LedgerReader.follows` detects it.

A query's heads are all in one partition: the one that its id hashes to, or, if the topic had fewer partitions when the
query began, the one where its head is found. A query has no head only if no partition has one.

There is no I/O in here: the reader gets its records from a `LedgerLog`, of which the simulation has an implementation
of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark_eos.errors import EosError, stop
from spark_eos.kafka.codes import FETCH_RETRIES, OK, UNAUTHORIZED, Code, name_of
from spark_eos.kafka.records.rows import Row
from spark_eos.ledger.errors import ledger_unauthorized
from spark_eos.protocol.head import Head
from spark_eos.protocol.head_codec import decode, encode

_FIRST_STRIDE = 64


@dataclass(frozen=True)
class Fetched:
    """The response to a read_committed Fetch. ``error``: Kafka's code; ``damage``: why the records cannot be read.

    ``rows``: the committed records from the requested offset on; ``after``: the offset to fetch from next. ``times``:
    the rows' timestamps, in milliseconds since 1970, if the log has them.
    """

    error: int
    rows: Sequence[Row] = ()
    after: int = -1
    damage: str = ""
    times: Sequence[int] = ()


@dataclass(frozen=True)
class StoredHead:
    """An encoded head, its partition and offset, and its timestamp (milliseconds since 1970; None if unknown)."""

    partition: int
    offset: int
    time_ms: int | None
    value: bytes


class LedgerLog(Protocol):
    """The partitions of a ledger topic, by their leaders. ``seconds``: how long to wait for a leader that does not
    answer."""

    @property
    def topic(self) -> str: ...

    @property
    def seconds(self) -> float: ...

    def partitions(self) -> int:
        """Return the number of partitions. Raises EosError without a response."""
        ...

    def topic_id(self, known_to: str | int | None = None) -> str:
        """Return the topic's id, which changes if the topic is created anew; empty if brokers have none. ``known_to``:
        a transactional id or a partition, to get it from their coordinator or leader; by default from any broker.
        Raises EosError without a response."""
        ...

    def begin(self, partition: int) -> int:
        """Return the first offset. Raises EosError without a response."""
        ...

    def end(self, partition: int) -> int:
        """Return the end offset, with open transactions, of a leader that has all acknowledged records. Raises EosError
        without a response."""
        ...

    def fetch(self, partition: int, offset: int) -> Fetched | None:
        """Return records from this offset on, up to the end or less; None without a response."""
        ...

    def retrying(self) -> Iterator[None]:
        """Yield, with pauses, for ``seconds``."""
        ...


@dataclass(frozen=True)
class _Span:
    """Offsets of a partition; ``end`` is exclusive."""

    partition: int
    start: int
    end: int


class LedgerReader:
    """Reads one query's heads. ``home``: the partition that the query's id hashes to.

    It remembers how far it has read, so that reading a ledger without new records costs one request.
    """

    def __init__(self, log: LedgerLog, home: int, query: str) -> None:
        self.topic, self.query = log.topic, query
        self._log = log
        self._home = home
        self._read_to: dict[int, int] = {}
        self._least_end: dict[int, int] = {}
        self._heads: dict[int, Head] = {}
        self._scanned_to: dict[int, int] = {}
        self._scanned: dict[int, dict[str, StoredHead]] = {}
        self._topic_id: str | None = None

    @property
    def partition(self) -> int:
        """The partition of the query's heads, or of its first head."""
        return next(iter(self._heads), self._home)

    def elsewhere(self) -> list[int]:
        """Return partitions other than `home` that may contain an unseen head; none if a head is known."""
        return [] if self._heads else [p for p in range(self._log.partitions()) if p != self._home]

    def read(self) -> Head | None:
        """Return the newest committed head. Waits up to a minute for a leader that does not answer.

        Raises ConnectionFailed, TopicError, Unauthorized, KafkaError (EOS_LEDGER_HELD) and LedgerError
        (EOS_LEDGER_NOT_READABLE, EOS_LEDGER_TRUNCATED, EOS_LEDGER_AMBIGUOUS).
        """
        self._update(self.partition)
        if not self._heads:
            for partition in range(self._log.partitions()):
                if partition != self._home:
                    self._update(partition)
        if len(self._heads) > 1:
            raise self._ambiguous()
        return next(iter(self._heads.values()), None)

    def check_topic(self) -> None:
        """Forget everything that was read if the topic was deleted and created anew since: the new topic may be as long
        as the old one, so that its end does not show it.

        The first call cannot compare ids; it only forgets the heads, and still refuses an end below the known one.
        Raises as `read`.
        """
        self._is_another(self._log.topic_id())

    def check_taken(self, taken_by: str) -> None:
        """Check the topic's id right after this transactional id has taken the ledger. A changed id is an error: the
        head that was read before may be missing in the new topic.

        Any broker may be late to know of a new topic. So two are asked that took part in the last decision: the
        coordinator of its transaction, and the leader of its partition. Raises as `read`.
        """
        if any(self._is_another(self._log.topic_id(known_to)) for known_to in (taken_by, self.partition)):
            raise stop(
                "EOS_LEDGER_TRUNCATED",
                topic=self.topic,
                sign=f"{self.topic} was deleted and recreated since this process read it",
            )

    def _is_another(self, found: str) -> bool:
        """Return whether this id shows that the topic is another one than before. If so, forget everything that was
        read; if no id was known, everything but the end."""
        if found in (self._topic_id, ""):
            return False
        before, self._topic_id = self._topic_id, found
        self._heads.clear()
        self._read_to.clear()
        self._scanned_to.clear()
        self._scanned.clear()
        if before is None:
            return False
        self._least_end.clear()
        return True

    def newest_of_all(self) -> dict[str, StoredHead]:
        """Return the newest committed head of every query. The first call reads the whole topic, later ones only newer
        records. Raises as `read`."""
        for partition in range(self._log.partitions()):
            end = self._end(partition)
            start = self._scanned_to.get(partition)
            if start is None:
                start = self._log.begin(partition)
            elif end < start:
                raise self._truncated(partition, end, start)
            newest = dict(self._scanned.get(partition, {}))
            for key, dated in self._dated(_Span(partition, start, end)):
                newest[key.decode(errors="replace")] = dated
            self._scanned_to[partition], self._scanned[partition] = end, newest
        return {key: dated for newest in self._scanned.values() for key, dated in newest.items()}

    def to_write(self, head: Head, epoch: int) -> list[tuple[int, bytes | None]]:
        """Return the records that publish a head, as (partition, value) in order; the last one is the head. ``epoch``:
        the producer's, which is 0 when the ledger is taken for the first time.

        Without a known head, but with a later epoch, a head may have been published in another partition meanwhile,
        when the ledger had fewer partitions. So each other partition first gets a record without a value; its offset
        shows whether there is an unseen head before it.
        """
        others = self.elsewhere() if epoch else []
        return [*((other, None) for other in others), (self.partition, encode(head))]

    def follows(self, partition: int, offset: int) -> bool:
        """Return whether the query has no head between the last record that this process has read or published and a
        record that was acknowledged at this offset.

        A replaced leader that is cut off from the others answers reads with an old end. But it acknowledges no record,
        so an acknowledged offset comes from a leader that has all heads before it. Raises as `read`.
        """
        known = self._least_end.get(partition, 0)
        if offset < known:
            raise self._truncated(partition, offset, known)
        return self._newest(_Span(partition, known, offset)) is None

    def published(self, partition: int, offset: int, head: Head) -> None:
        """Remember a head that this process has published at this offset, after `follows` returned True; later reads
        refuse an end before it. The head is not read back: a log that has lost it may have other records there."""
        self._heads[partition] = head
        self._read_to[partition] = self._least_end[partition] = offset + 1

    def rows(self, partition: int) -> Iterator[Row]:
        """Yield every committed record of a partition, up to its end. Raises as `read`."""
        yield from self._records(_Span(partition, self._log.begin(partition), self._end(partition)))

    def _update(self, partition: int) -> None:
        """Read up to the partition's end. A read that fails changes nothing."""
        end = self._end(partition)
        if partition in self._read_to:
            head = self._newest(_Span(partition, self._read_to[partition], end))
        else:
            head = self._search_backwards(partition, self._log.begin(partition), end)
        self._read_to[partition] = self._least_end[partition] = end
        if head is not None:
            self._heads[partition] = head

    def _end(self, partition: int) -> int:
        """Return the partition's end; waits for one that is not below the end that was seen before."""
        least = self._least_end.get(partition, 0)
        for _ in self._log.retrying():
            end = self._log.end(partition)
            if end >= least:
                return end
        raise self._truncated(partition, end, least)

    def _search_backwards(self, partition: int, begin: int, end: int) -> Head | None:
        """Search from the end in growing strides, as the head of a running query is near the end."""
        stride, start = _FIRST_STRIDE, end
        while start > begin:
            upto, start = start, max(begin, start - stride)
            head = self._newest(_Span(partition, start, upto))
            if head is not None:
                return head
            stride *= 4
        return None

    def _newest(self, span: _Span) -> Head | None:
        """Return the query's last head in the span, after reading all of it; None if there is none."""
        newest: bytes | None = None
        for offset, key, value in self._records(span):
            if key == self.query.encode() and offset < span.end and value is not None:
                newest = value
        return None if newest is None else decode(newest)

    def _records(self, span: _Span) -> Iterator[Row]:
        """Yield the committed records from the span's start to its end or beyond. Waits until all of them are
        stable."""
        for fetched in self._fetches(span):
            yield from fetched.rows

    def _dated(self, span: _Span) -> Iterator[tuple[bytes, StoredHead]]:
        """Yield the heads of all queries in the span, as (key, head)."""
        for fetched in self._fetches(span):
            times: Sequence[int | None] = fetched.times or [None] * len(fetched.rows)
            for time, (offset, key, value) in zip(times, fetched.rows, strict=True):
                if key is not None and value is not None:
                    yield key, StoredHead(span.partition, offset, time, value)

    def _fetches(self, span: _Span) -> Iterator[Fetched]:
        position, why = span.start, "no answer"
        while position < span.end:
            before = position
            for _ in self._log.retrying():
                fetched = self._log.fetch(span.partition, position)
                if fetched is None:
                    continue
                if fetched.error != OK:
                    why = name_of(fetched.error)
                    position = self._after(fetched.error, span.partition, position)
                elif fetched.damage:
                    why = fetched.damage
                else:
                    why = "held"
                    position = fetched.after
                    yield fetched
                if position > before:
                    break
            else:
                raise self._held(span.partition) if why == "held" else self._unreadable(span.partition, why)

    def _after(self, error: int, partition: int, position: int) -> int:
        """Return the offset to continue from after an error code; the same offset if a retry may help. Raises EosError
        for other codes."""
        if error in UNAUTHORIZED:
            raise ledger_unauthorized(f"read the ledger topic {self.topic}: {name_of(error)}")
        if error == Code.OFFSET_OUT_OF_RANGE:
            # Records deleted from the beginning, by retention or an operator, contain no newer head.
            return max(position, self._log.begin(partition))
        if error not in FETCH_RETRIES:
            raise self._unreadable(partition, name_of(error))
        return position

    def _held(self, partition: int) -> EosError:
        return stop("EOS_LEDGER_HELD", partition=partition, topic=self.topic, seconds=self._log.seconds)

    def _unreadable(self, partition: int, reason: str) -> EosError:
        return stop("EOS_LEDGER_NOT_READABLE", partition=partition, topic=self.topic, reason=reason)

    def _truncated(self, partition: int, end: int, least: int) -> EosError:
        return stop(
            "EOS_LEDGER_TRUNCATED",
            partition=partition,
            topic=self.topic,
            sign=(
                f"partition {partition} of {self.topic} ends at offset {end}, and this process has seen it end at "
                f"{least}"
            ),
        )

    def _ambiguous(self) -> EosError:
        where = " and ".join(str(p) for p in sorted(self._heads))
        return stop(
            "EOS_LEDGER_AMBIGUOUS",
            partitions=where,
            topic=self.topic,
            query=self.query,
        )
