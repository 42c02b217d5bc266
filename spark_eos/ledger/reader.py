"""Finds a query's newest head in the ledger topic.

What a read says must be true: rows are written twice by whoever goes on from an older head. So a read goes up to an end
that the partition's leader vouches for by ListOffsets, which a new leader answers only when it has all that was
acknowledged (KIP-207; a Fetch would not wait); everything below that end has to be stable, as an open transaction of
another query may hide a newer head of ours; an end below what this process has seen before is refused; and what a read
that failed half-way has found is forgotten.

A query's heads are all in one partition: the one that its id leads to, or, where the topic had fewer partitions when
the query began, the one where its head is found. "There is no head" is said when all partitions have been read, however
many there are by then.

There is no I/O in here: what the leaders say comes through a `Log` (``ledger_log.py``; the simulation has another one).
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
    """An answer to a Fetch, read_committed: ``error`` is Kafka's code, ``damage`` says why the records cannot be read.

    ``rows`` are the visible ones from the offset that was asked for on, and ``after`` is where to read on. ``times``
    are those of the rows, in milliseconds since 1970, where the log tells them.
    """

    error: int
    rows: Sequence[Row] = ()
    after: int = -1
    damage: str = ""
    times: Sequence[int] = ()


@dataclass(frozen=True)
class Dated:
    """A head as text, where it is, and when it was written (milliseconds since 1970; None where nobody tells)."""

    partition: int
    offset: int
    time_ms: int | None
    value: bytes


class Log(Protocol):
    """What the leaders of the ledger's partitions say. ``seconds``: for how long one that is away is waited for."""

    @property
    def topic(self) -> str: ...

    @property
    def seconds(self) -> float: ...

    def partitions(self) -> int:
        """How many there are. Raises EosError without an answer."""
        ...

    def topic_id(self, known_to: str | int | None = None) -> str:
        """The id of the topic: a topic that is created anew has another one; empty where brokers have none. As some
        broker knows it, or the coordinator of this transactional id, or the leader of this partition. Raises EosError
        without an answer."""
        ...

    def begin(self, partition: int) -> int:
        """The first offset. Raises EosError without an answer."""
        ...

    def end(self, partition: int) -> int:
        """The end, open transactions included, that the leader vouches for. Raises EosError without an answer."""
        ...

    def fetch(self, partition: int, offset: int) -> Fetched | None:
        """What there is from this offset on, or a part of it; None without an answer."""
        ...

    def retrying(self) -> Iterator[None]:
        """Yields for ``seconds``, with pauses."""
        ...


@dataclass(frozen=True)
class _Span:
    """Offsets of a partition, the end exclusive."""

    partition: int
    start: int
    end: int


class LedgerReader:
    """One query's heads; ``home`` is the partition that the query's id leads to.

    It remembers up to where it has read, so that a look at a quiet ledger costs one request.
    """

    def __init__(self, log: Log, home: int, query: str) -> None:
        self.topic, self.query = log.topic, query
        self._log = log
        self._home = home
        self._read_to: dict[int, int] = {}
        self._least_end: dict[int, int] = {}
        self._heads: dict[int, Head] = {}
        self._scanned_to: dict[int, int] = {}
        self._scanned: dict[int, dict[str, Dated]] = {}
        self._topic_id: str | None = None

    @property
    def partition(self) -> int:
        """Where the query's heads are, or the first one goes."""
        return next(iter(self._heads), self._home)

    def elsewhere(self) -> list[int]:
        """The partitions that a head may be in unseen, besides the one to which a first head goes: none if there is a
        head."""
        return [] if self._heads else [p for p in range(self._log.partitions()) if p != self._home]

    def read(self) -> Head | None:
        """The newest committed head. A leader that is away is waited for, for a minute.

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
        """Forget what was read of a topic that was deleted, and created anew since: the new one may have grown as long
        as that was, and then its end does not tell.

        Of which topic this process has read before it asks for the first time is not known: the heads are looked for
        once more, in a topic that may not be shorter. Raises as `read` does.
        """
        self._is_another(self._log.topic_id())

    def check_taken(self, taken_by: str) -> None:
        """Check the topic's id right after this transactional id has taken the ledger, where another topic than before
        is an error: whoever takes it has read it before, and must not go on as if there had been nothing.

        Another broker may not have heard of a new topic yet. Two are asked that have had to do with the last decision
        in it: the coordinator that ended its transaction, and the leader that has its records. Raises as `read` does.
        """
        if any(self._is_another(self._log.topic_id(known_to)) for known_to in (taken_by, self.partition)):
            raise stop("EOS_LEDGER_TRUNCATED.recreated", topic=self.topic)

    def _is_another(self, found: str) -> bool:
        """Whether it is known to be another topic than before; what was read is forgotten then, and where that is not
        known, except for its end."""
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

    def newest_of_all(self) -> dict[str, Dated]:
        """The newest committed head of every query in the topic: all of it is read, and from the second time on what
        was written since. Raises as `read` does."""
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
        """The records that publish a head, (partition, value) in order: the last one holds it. ``epoch``: that of the
        producer, which is 0 for the first to take the ledger.

        A first head by who is not the first to take the ledger could come after one that was published elsewhere
        meanwhile, in a ledger that had fewer partitions then. So each other partition gets a record without a value:
        who acknowledges that knows whether there is a head before it.
        """
        others = self.elsewhere() if epoch else []
        return [*((other, None) for other in others), (self.partition, encode(head))]

    def history(self) -> Iterator[Dated]:
        """The heads of this query that compaction has left, in order: the oldest first. Raises as `read` does."""
        partition, name = self.partition, self.query.encode()
        span = _Span(partition, self._log.begin(partition), self._end(partition))
        return (dated for key, dated in self._dated(span) if key == name)

    def follows(self, partition: int, offset: int) -> bool:
        """Whether a record that was acknowledged at this offset comes right after what this process has read, or
        published itself: no other head of the query is between the two.

        A leader that was replaced and has not noticed, as it is cut off from the others, answers a read with an end of
        long ago. It acknowledges nothing, so that whoever did knows all heads before this one. Raises as `read` does.
        """
        known = self._least_end.get(partition, 0)
        if offset < known:
            raise self._truncated(partition, offset, known)
        return self._newest(_Span(partition, known, offset)) is None

    def published(self, partition: int, offset: int, head: Head) -> None:
        """This process has published a head at this offset, right after what it had read (`follows`): reads that end
        before it are not true. It is not read from the log: one that has lost it, and has grown since, has others'
        records there."""
        self._heads[partition] = head
        self._read_to[partition] = self._least_end[partition] = offset + 1

    def rows(self, partition: int) -> Iterator[Row]:
        """Every visible record of a partition, up to the end that its leader vouches for. Raises as `read` does."""
        yield from self._records(_Span(partition, self._log.begin(partition), self._end(partition)))

    def _update(self, partition: int) -> None:
        """Read up to the partition's end. Nothing is remembered of a read that fails."""
        end = self._end(partition)
        if partition in self._read_to:
            head = self._newest(_Span(partition, self._read_to[partition], end))
        else:
            head = self._search_backwards(partition, self._log.begin(partition), end)
        self._read_to[partition] = self._least_end[partition] = end
        if head is not None:
            self._heads[partition] = head

    def _end(self, partition: int) -> int:
        """The end that the leader vouches for."""
        least = self._least_end.get(partition, 0)
        for _ in self._log.retrying():
            found = self._log.end(partition)
            if found >= least:
                return found
        raise self._truncated(partition, found, least)

    def _search_backwards(self, partition: int, begin: int, end: int) -> Head | None:
        """From the end, in strides that grow: the head of a running query is near it."""
        stride, start = _FIRST_STRIDE, end
        while start > begin:
            upto, start = start, max(begin, start - stride)
            head = self._newest(_Span(partition, start, upto))
            if head is not None:
                return head
            stride *= 4
        return None

    def _newest(self, span: _Span) -> Head | None:
        """The last head of this query in the span, all of which has been read."""
        newest: bytes | None = None
        for offset, key, value in self._records(span):
            if key == self.query.encode() and offset < span.end and value is not None:
                newest = value
        return None if newest is None else decode(newest)

    def _records(self, span: _Span) -> Iterator[Row]:
        """The committed records from the span's start to its end or beyond; it waits until all of them are stable."""
        for fetched in self._fetches(span):
            yield from fetched.rows

    def _dated(self, span: _Span) -> Iterator[tuple[bytes, Dated]]:
        """The records that hold heads, of whatever query: the key, and the head."""
        for fetched in self._fetches(span):
            times: Sequence[int | None] = fetched.times or [None] * len(fetched.rows)
            for time, (offset, key, value) in zip(times, fetched.rows, strict=True):
                if key is not None and value is not None:
                    yield key, Dated(span.partition, offset, time, value)

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
        """Where to read on after a refusal; the same position where asking again may help. Else raises."""
        if error in UNAUTHORIZED:
            raise ledger_unauthorized(f"read the ledger topic {self.topic}: {name_of(error)}")
        if error == Code.OFFSET_OUT_OF_RANGE:
            # What retention or an operator took from the beginning holds no newer head.
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
            "EOS_LEDGER_TRUNCATED.shorter",
            end=end,
            least=least,
            partition=partition,
            topic=self.topic,
        )

    def _ambiguous(self) -> EosError:
        where = " and ".join(str(p) for p in sorted(self._heads))
        return stop(
            "EOS_LEDGER_AMBIGUOUS",
            partitions=where,
            topic=self.topic,
            query=self.query,
        )
