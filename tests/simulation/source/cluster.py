"""Topics, their logs and leaders, and what may happen to them: faults strike whenever somebody asks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.support.models.replicas import Replica

NAMES = ("a", "b", "c")
MOST_PARTITIONS = 4

#: A leader that lags is heard no longer than this; another one does not follow sooner than the second time.
LAGS_MS, RESTS_MS = 1_500, 4_000
#: For so long brokers do not tell of a topic.
SHORT_MS, LONG_MS = 3_000, 60_000


class Crash(BaseException):
    """The query's driver dies."""


class Event(Enum):
    """What may happen between two requests of a query."""

    WRITE = auto()
    OPEN = "a transaction begins, and stays open"
    END = "open transactions are committed, or aborted"
    ELECT = "a clean election, often of a leader that lags behind for a moment"
    CUT = "an unclean election: the newest records are gone, and others may follow"
    EXPIRE = "retention or somebody deletes the oldest records"
    COMPACT = "the cleaner takes records, and a replica becomes leader that was filled from what it has left"
    DELETE = "a topic is deleted"
    RECREATE = "a topic is deleted and created anew, and maybe written to"
    CREATE = "a topic of this name is created, if there is none"
    GROW = "a topic is given partitions"
    HIDE = "brokers do not tell of a topic, for a moment or for long"
    SHOW = "they tell of all topics"
    STALE = "some brokers still know the topics as they were before the last change"
    CRASH = "the driver dies"
    WAIT = "time passes"


@dataclass(frozen=True)
class Fault:
    """What happens at a step of the schedule, or at the first one after it that allows it. ``size``: a choice."""

    step: int
    event: Event
    size: int = 0


@dataclass(eq=False)
class Row:
    """One record, of which there is no other. ``visible``: None while its transaction is open; markers and aborted
    records never are. ``gone``: how it went."""

    number: int
    topic: str
    topic_id: str
    partition: int
    offset: int
    visible: bool | None = True
    gone: Event | None = None
    gone_step: int = 0


@dataclass(eq=False)
class Log:
    """A partition: the log of its leader, with the epochs, and for how long it hides its newest records. ``cut_at``,
    ``cut_rows``: the first offset that it has lost by a cut, and how many rows there were anywhere by then."""

    topic: str
    topic_id: str
    partition: int
    replica: Replica = field(default_factory=Replica)
    epoch: int = 0
    lags_until: int = 0
    rests_until: int = 0
    lags_by: int = 0
    cut_at: int | None = None
    cut_rows: int | None = None

    @property
    def end(self) -> int:
        return len(self.replica.log)

    @property
    def first(self) -> int:
        return self.replica.first


@dataclass(eq=False)
class SimulatedTopic:
    id: str
    logs: list[Log]


#: By the topic's id and the partition.
Ends = dict[tuple[str, int], int]

#: What metadata tells: the topic's id and its number of partitions.
Metadata = dict[str, tuple[str, int]]


class Cluster:
    """``rows``: all that were ever written, by their numbers. ``struck``: how many faults there were of each kind.
    ``told_stale``: the last metadata came from a broker that knows neither the last change nor the last elections."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.now, self.step = 1_000, 0
        self.topics: dict[str, SimulatedTopic] = {}
        self.rows: dict[int, Row] = {}
        self.replays = False
        self.lives = dict.fromkeys(NAMES, 0)
        self.trace: list[str] = []
        self.struck: Counter[Event] = Counter()
        self._faults = sorted(faults, key=lambda fault: fault.step)
        self._ids = itertools.count(1)
        self._hidden: dict[str, int] = {}
        self._hidden_ms = dict.fromkeys(NAMES, 0)
        self._before: Metadata = {}
        self._stale_until = -(10**9)
        self._stale_now = self.told_stale = False

    # Time and what happens in it

    def point(self, what: str, ms: int = 1) -> None:
        """Time passes, and what is due happens. Raises Crash."""
        self.now += ms
        self.step += 1
        self.trace.append(f"{self.step} {self.now} {what}")
        while due := next((f for f in self._faults if f.step <= self.step), None):
            self._faults.remove(due)
            self.trace.append(f"  {due.event.name} {due.size}")
            self.struck[due.event] += 1
            self._strike(due)

    def calm(self) -> None:
        """Nothing else happens: what is open is committed, and brokers know all."""
        self._faults.clear()
        self._hidden.clear()
        self._stale_until = 0
        for log in self._logs():
            log.lags_until = 0
            self._end(log, commit=True)

    def _strike(self, fault: Fault) -> None:
        event, size = fault.event, fault.size
        if event is Event.CRASH:
            raise Crash
        if event is Event.WAIT:
            self._pause(100 + size * 50)
        elif event is Event.SHOW:
            self._hidden.clear()
        elif event is Event.STALE:
            self._stale_until, self._stale_now = self.now + 200 + size * 4, True
        elif event in _OF_A_LOG:
            logs = list(self._logs())
            if logs:
                _OF_A_LOG[event](self, logs[size % len(logs)], size // len(logs))
        else:
            _OF_A_TOPIC[event](self, NAMES[size % len(NAMES)], size // len(NAMES))

    def _pause(self, ms: int) -> None:
        """Elections wait, too: else several leaders that lag could answer all tries of one question."""
        self.now += ms
        for log in self._logs():
            log.rests_until += ms

    def _logs(self) -> Iterator[Log]:
        for topic in self.topics.values():
            yield from topic.logs

    # Records

    def append(self, log: Log, count: int, visible: bool | None = True) -> None:
        for _ in range(count):
            number = len(self.rows)
            row = Row(number, log.topic, log.topic_id, log.partition, log.end, visible)
            self.rows[number] = row
            log.replica.append((number, log.epoch))

    def rows_of(self, log: Log, begin: int, end: int) -> Iterator[Row]:
        """Those between two offsets that the cleaner has left."""
        for record in log.replica.log[begin:end]:
            if record is not None:
                yield self.rows[record[0]]

    def stable(self, log: Log) -> int:
        """The last stable offset."""
        return next((row.offset for row in self.rows_of(log, log.first, log.end) if row.visible is None), log.end)

    def _lose(self, log: Log, begin: int, end: int, how: Event) -> None:
        for row in self.rows_of(log, begin, end):
            row.gone, row.gone_step = how, self.step

    def ends(self) -> Ends:
        """The last stable offset of each partition."""
        return {(log.topic_id, log.partition): self.stable(log) for log in self._logs()}

    def _write(self, log: Log, size: int) -> None:
        self.append(log, 1 + size % 7)

    def _open(self, log: Log, size: int) -> None:
        self.append(log, 1 + size % 3, visible=None)
        self.append(log, size % 2)

    def _end(self, log: Log, commit: bool) -> None:
        is_open = False
        for row in self.rows_of(log, log.first, log.end):
            if row.visible is None:
                row.visible, is_open = commit, True
        if is_open:
            self.append(log, 1, visible=False)  # the marker

    def _end_some(self, log: Log, size: int) -> None:
        self._end(log, commit=size % 3 > 0)

    def _elect(self, log: Log, size: int) -> None:
        log.epoch += 1
        log.replica.assign(log.epoch)
        if size % 3:
            self._lag(log, size)

    def _lag(self, log: Log, size: int) -> None:
        if self.now > log.rests_until:
            log.lags_until, log.lags_by = self.now + min(LAGS_MS, 50 + 100 * (size % 20)), 1 + size % 4
            log.rests_until = log.lags_until + RESTS_MS

    def _cut(self, log: Log, size: int) -> None:
        end = max(log.first, log.end - 1 - size % 5)
        self._lose(log, end, log.end, Event.CUT)
        log.cut_at = end if log.cut_at is None else min(end, log.cut_at)
        log.cut_rows = len(self.rows) if log.cut_rows is None else log.cut_rows
        log.replica.cut(end)
        log.epoch += 1
        log.replica.assign(log.epoch)
        self.append(log, (0, 0, 1, 3, 8)[size // 5 % 5])

    def _expire(self, log: Log, size: int) -> None:
        upto = min(log.first + 1 + size % 6, self.stable(log))
        self._lose(log, log.first, upto, Event.EXPIRE)
        log.replica.expire(upto)

    def _compact(self, log: Log, size: int) -> None:
        begin = log.first + size % 4
        end = min(begin + 1 + size // 4 % 8, self.stable(log), log.end - 1)
        if end <= begin:
            return
        self._lose(log, begin, end, Event.COMPACT)
        left = [None if begin <= at < end else record for at, record in enumerate(log.replica.log)]
        log.replica = Replica(first=log.first)
        for at, record in enumerate(left):
            log.replica.append(record if at >= log.first else None)
        log.epoch += 1
        log.replica.assign(log.epoch)
        self._lag(log, 19)

    # Topics

    def _changes(self) -> None:
        self._before = self._metadata()

    def create(self, name: str, size: int) -> None:
        if name in self.topics:
            return
        self._changes()
        id_ = f"id{next(self._ids)}"
        self.lives[name] += 1
        self.topics[name] = SimulatedTopic(id_, [Log(name, id_, p) for p in range(1 + size % 2)])
        for log in self.topics[name].logs:
            log.replica.assign(0)
            self.append(log, (0, 2, 5, 12)[size // 2 % 4])

    def _delete(self, name: str, size: int) -> None:
        if name not in self.topics:
            return
        self._changes()
        for log in self.topics.pop(name).logs:
            self._lose(log, log.first, log.end, Event.DELETE)

    def _recreate(self, name: str, size: int) -> None:
        if name in self.topics:
            before = self._metadata()
            self._delete(name, size)
            self.create(name, size)
            self._before = before

    def _grow(self, name: str, size: int) -> None:
        topic = self.topics.get(name)
        if topic is not None and len(topic.logs) < MOST_PARTITIONS:
            self._changes()
            topic.logs.append(Log(name, topic.id, len(topic.logs)))
            topic.logs[-1].replica.assign(0)
            self.append(topic.logs[-1], size % 4)

    def provide(self, name: str) -> None:
        """What somebody does who reads that a topic, or a partition of it, is missing."""
        self.create(name, 1)
        if len(self.topics[name].logs) < 2:
            self._grow(name, 0)

    def _hide(self, name: str, size: int) -> None:
        ms = SHORT_MS if size % 2 else LONG_MS
        self._hidden_ms[name] += ms
        self._hidden[name] = self.now + ms

    # What brokers know

    def _metadata(self) -> Metadata:
        return {name: (topic.id, len(topic.logs)) for name, topic in self.topics.items()}

    def metadata(self) -> Metadata:
        """By whichever broker is asked. One that is stale does not answer twice in turn; where a micro-batch is
        replayed, or looked at for the last time, it knows no topic that has another id by now."""
        known = self._metadata()
        self.told_stale = self.now < self._stale_until and self._stale_now
        if self.told_stale:
            old = self._before
            known = {n: found for n, found in old.items() if not self.replays or known.get(n, "?")[0] == found[0]}
        self._stale_now = not self._stale_now
        return {name: found for name, found in known.items() if self.now >= self._hidden.get(name, 0)}

    def is_stale(self) -> bool:
        """Whether some brokers may know less than others."""
        return self.now < self._stale_until + 30_000

    def was_hidden(self, name: str, *, for_long: bool = False) -> bool:
        """Whether it ever was; ``for_long``: for more than some seconds, or more than once."""
        ms = self._hidden_ms[name]
        return ms > SHORT_MS if for_long else ms > 0

    def log(self, name: str, partition: int) -> Log | None:
        """The log that a leader has, for those who may know of it."""
        topic = self.topics.get(name)
        if topic is None or partition >= len(topic.logs):
            return None
        return topic.logs[partition]


_OF_A_LOG = {
    Event.WRITE: Cluster._write,
    Event.OPEN: Cluster._open,
    Event.END: Cluster._end_some,
    Event.ELECT: Cluster._elect,
    Event.CUT: Cluster._cut,
    Event.EXPIRE: Cluster._expire,
    Event.COMPACT: Cluster._compact,
}
_OF_A_TOPIC = {
    Event.DELETE: Cluster._delete,
    Event.RECREATE: Cluster._recreate,
    Event.CREATE: Cluster.create,
    Event.GROW: Cluster._grow,
    Event.HIDE: Cluster._hide,
}
