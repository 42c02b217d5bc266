"""Kafka's transaction coordinator, as the brokers' own code has them (4.0 to 4.3).

What is modelled: transactional ids with producer id, epoch and its rotation; InitProducerId; AddPartitionsToTxn;
Produce with epochs, sequence numbers and the check that the partition is in the transaction; EndTxn below and from
version 5; time-outs; the coordinator's log, whose append may take its time, fail, or fail and yet be found by the
next coordinator; markers that follow the decision; coordinators that move; ids that expire; retention.

Where it departs: one object is every coordinator (``SHARDS`` of them move one by one); replication inside a
partition's log is instant; the consumer group's offsets are one more partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_eos.kafka.transactions import NEVER_MS
from spark_eos.protocol.ports import State

from .codes import (
    ABORTABLE,
    CONCURRENT,
    FENCED,
    ID_NOT_FOUND,
    INVALID_STATE,
    LOADING,
    MOVED,
    NOT_AVAILABLE,
    OK,
    UNKNOWN_MAPPING,
)
from .leaders import Leaders
from .partition_log import PartitionLog, Place
from .world import Actor, Reply, World

if TYPE_CHECKING:
    from .invariants import Watch

#: Short.MaxValue - 1: the last epoch that a producer is given; one is kept to fence it.
LAST_EPOCH = 32_766

SHARDS = 3
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
WEEK_MS = 7 * 24 * 3_600_000
TIMEOUT_CHECK_MS = 1_000
#: How often a leader looks whether the coordinator has added a partition.
POLL_MS = 20


@dataclass(frozen=True)
class Entry:
    """What the coordinator's log holds of a transactional id."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    places: frozenset[Place] = frozenset()
    started_ms: int = -1
    updated_ms: int = 0
    previous_id: int = -1
    next_id: int = -1


@dataclass(eq=False)
class _Slot:
    """``entry`` is the coordinator's memory, ``logged`` what a new coordinator would load, ``moves`` how often one did.

    ``began`` and ``cause``: the transaction that was ended last as it was before, and who ended it.
    """

    entry: Entry
    logged: Entry
    pending: Entry | None = None
    failed_fence: bool = False
    moves: int = 0
    began: Entry | None = None
    cause: str = ""
    told: Entry | None = None


@dataclass
class NextAppend:
    """How somebody's next append goes: after how long, whether it succeeds, whether it is in the log nevertheless."""

    ms: int = 0
    succeeds: bool = True
    logged: bool = True


class Cluster:
    """All brokers. ``first_epoch``: where new ids begin, to bring rotation near. ``double_fence``: as Kafka 4.0.0,
    where a fence raised the epoch in memory before it was logged, and twice in all (KAFKA-19367). ``watches`` are told
    of ids that are taken, transactions whose fate is sealed, and markers."""

    def __init__(self, world: World, *, first_epoch: int = 0, double_fence: bool = False) -> None:
        self._world = world
        self.first_epoch, self._double_fence = first_epoch, double_fence
        self._slots: dict[str, _Slot] = {}
        self._next_producer_id = 1000
        self.ledgers_lost, self.ledger_told_ms, self.lists_by_pattern = 0, 0, True  # the latter since Kafka 4.1
        self.transaction_version = 2  # the finalized feature: what clients go by
        self._away: dict[int, tuple[int, int]] = {}
        self.logs: dict[Place, PartitionLog] = {}
        self.times_deleted = Counter[str]()  # topics
        self.leaders = Leaders(world)
        self.ledger_partitions = 1
        self.refuses_offsets = self.refuses_ends = OK
        self.ahead_ms = 0  # the clock
        self.appends: dict[Actor | None, NextAppend] = {}  # by actor; None for the broker's own doing
        self.next_markers: tuple[int, int] = (0, 0)
        self.stale = 0  # so many EndTxns meet a coordinator that knows nothing of their transaction
        self.watches: list[Watch] = []

    def topic_id(self, topic: str) -> str:
        """Another one when the topic was deleted and created anew."""
        return f"{topic} {self.times_deleted[topic]}"

    def log(self, place: Place) -> PartitionLog:
        return self.logs.setdefault(place, PartitionLog(strict=self.transaction_version > 1))

    def marked(self, place: Place, log: PartitionLog) -> None:
        """A marker was written there."""
        for watch in self.watches:
            watch.marked(place, log)

    # Requests

    def init(self, name: str, timeout_ms: int, who: str) -> Reply:
        """InitProducerId without a producer id: the answer's value is (producer id, epoch). Two-phase commit is asked
        for by a timeout of NEVER_MS."""
        if (code := self._code_away(name)) is not None:
            return Reply(code)
        slot = self._slots.get(name)
        if slot is None:
            fresh = Entry(self._new_id(), self.first_epoch - 1, timeout_ms, updated_ms=self._world.now)
            slot = self._slots[name] = _Slot(fresh, fresh)
        entry = slot.entry
        if slot.pending is not None or entry.state in PREPARED:
            return Reply(CONCURRENT)
        if entry.state is State.ONGOING:
            self._fence(name, slot, f"InitProducerId by {who if self._world.acting else 'nobody any more'}")
            return Reply(CONCURRENT)
        for watch in self.watches:
            watch.taken(name)
        new = Entry(entry.producer_id, entry.epoch + 1, timeout_ms, updated_ms=self._world.now)
        new = replace(new, previous_id=entry.producer_id)
        if entry.epoch >= LAST_EPOCH:
            new = replace(new, producer_id=self._new_id(), epoch=0)
        return self._append(name, slot, new, (new.producer_id, new.epoch))

    def add(self, name: str, producer_id: int, epoch: int, place: Place) -> Reply:
        """AddPartitionsToTxn."""
        slot, code = self._find(name)
        if slot is None:
            return Reply(code)
        entry = slot.entry
        if entry.producer_id != producer_id:
            return Reply(UNKNOWN_MAPPING)
        if entry.epoch != epoch:
            return Reply(FENCED)
        if slot.pending is not None or entry.state in PREPARED:
            return Reply(CONCURRENT)
        if entry.state is State.ONGOING and place in entry.places:
            return Reply(OK)
        started = entry.started_ms if entry.state is State.ONGOING else self._world.now
        new = replace(
            entry,
            state=State.ONGOING,
            places=entry.places | {place},
            started_ms=started,
            updated_ms=self._world.now,
        )
        if entry.state is not State.ONGOING and entry.timeout_ms != NEVER_MS:
            self._world.at(entry.timeout_ms + TIMEOUT_CHECK_MS, partial(self._time_out, name))
        return self._append(name, slot, new)

    def produce(self, name: str, producer_id: int, epoch: int, place: Place, sequence: int, payload: Any) -> Reply:
        """Produce. The leader asks the coordinator whether the partition is in the transaction, unless that has already
        begun there."""
        log = self.log(place)
        code = OK if log.is_open(producer_id, epoch) else self._verified(name, producer_id, epoch, place)
        if code != OK:
            return Reply(code)
        return self.leaders.append(place, log, producer_id, epoch, sequence, payload)

    def produce_adding(
        self, name: str, producer_id: int, epoch: int, place: Place, sequence: int, payload: Any
    ) -> Reply:
        """Produce from version 12 on (KIP-890): the leader writes once the coordinator has added the partition, however
        late; until then nobody is answered. It does not ask where the transaction has already begun."""
        own = producer_id, epoch
        if (code := self.leaders.code(place)) is not None:
            return Reply(code)
        if self.log(place).is_open(*own):
            return self.produce(name, *own, place, sequence, payload)
        reply = Reply()

        def answer(written: Reply) -> None:
            reply.code, reply.value = written.code, written.value

        def added(adding: Reply) -> None:
            if adding.code == OK:
                self._when_answered(self.produce(name, *own, place, sequence, payload), answer)
            else:
                answer(adding)

        self._when_answered(self.add(name, *own, place), added)
        return reply

    def _when_answered(self, reply: Reply, then: Callable[[Reply], None]) -> None:
        if reply.code is not None:
            then(reply)
        else:
            self._world.at(POLL_MS, lambda: self._when_answered(reply, then))

    def _verified(self, name: str, producer_id: int, epoch: int, place: Place) -> int:
        slot, code = self._find(name)
        if slot is None:
            return code
        entry = slot.entry
        if entry.producer_id != producer_id:
            return UNKNOWN_MAPPING
        if entry.epoch != epoch:
            return FENCED
        if entry.state in PREPARED:
            return CONCURRENT
        return OK if place in entry.places else ABORTABLE

    def end(self, name: str, producer_id: int, epoch: int, *, commit: bool, version: int, who: str) -> Reply:
        """EndTxn by a client."""
        if self.refuses_ends != OK:
            code, self.refuses_ends = self.refuses_ends, OK
            return Reply(code)
        if self.stale:
            self.stale -= 1
            return Reply(INVALID_STATE)
        slot, code = self._find(name)
        if slot is None:
            return Reply(code)
        step = self._end_v5 if version >= 5 else self._end_v4
        code = step(slot, producer_id, epoch, commit)
        if code is not None:
            return Reply(code)
        return self._prepare(name, slot, commit, bump=version >= 5, cause=f"EndTxn by {who}")

    def describe(self, name: str) -> Reply:
        slot, code = self._find(name, absent=ID_NOT_FOUND)
        return Reply(code) if slot is None else Reply(OK, slot.entry)

    def list_in(self, start: str, states: Collection[State]) -> Reply:
        """Names of transactions in these states, of all coordinators. One that loads says so; while nobody has a shard,
        nobody misses its transactions."""
        names = []
        for name, slot in self._slots.items():
            away = self._code_away(name)
            if away == LOADING:
                return Reply(LOADING)
            if away is None and slot.entry.state in states and name.startswith(start):
                names.append(name)
        return Reply(OK, names)

    def owner(self, producer_id: int) -> tuple[str, Entry | None]:
        """Whose producer id this is; nobody's, where it was given up, or forgotten."""
        return next(((n, s.entry) for n, s in self._slots.items() if s.entry.producer_id == producer_id), ("", None))

    # What happens to brokers

    def move(self, shard: int, ms: int) -> None:
        """The shard's coordinator is lost: a new one loads the log, for a while nobody answers."""
        shard %= SHARDS
        self._away[shard] = (self._world.now + ms, ms % 3)
        for name, slot in self._slots.items():
            if self._shard(name) == shard:
                slot.entry, slot.pending, slot.failed_fence = slot.logged, None, False
                slot.moves += 1
                if slot.entry.state in PREPARED:
                    self._world.at(ms, partial(self._resume, name, slot, slot.moves))
                if slot.entry.state is State.ONGOING and slot.entry.timeout_ms != NEVER_MS:
                    self._world.at(ms + TIMEOUT_CHECK_MS, partial(self._time_out, name))

    def expire(self) -> None:
        """Forget the ids that nobody has used for a week."""
        before = self._world.now - WEEK_MS
        for name, slot in tuple(self._slots.items()):
            if slot.entry.state in _RESTING and slot.pending is None and slot.entry.updated_ms <= before:
                del self._slots[name]

    # Steps

    def _end_v5(self, slot: _Slot, producer_id: int, epoch: int, commit: bool) -> int | None:
        """The code that answers at once, or None where the transaction is to be ended."""
        entry = slot.entry
        overflow = entry.previous_id == producer_id and epoch == LAST_EPOCH and entry.epoch == 0
        bumped = entry.epoch == epoch + 1
        valid = {
            State.PREPARE_COMMIT: bumped,
            State.PREPARE_ABORT: bumped,
            State.COMPLETE_COMMIT: bumped or overflow or entry.epoch == epoch,
            State.COMPLETE_ABORT: bumped or overflow or entry.epoch == epoch,
        }.get(entry.state, entry.epoch == epoch)
        if entry.producer_id != producer_id and not overflow:
            return UNKNOWN_MAPPING
        if not valid:
            return FENCED
        if slot.pending is not None:
            return CONCURRENT
        return answer_v5(entry.state, commit, bumped or overflow)

    def _end_v4(self, slot: _Slot, producer_id: int, epoch: int, commit: bool) -> int | None:
        entry = slot.entry
        if entry.producer_id != producer_id:
            return UNKNOWN_MAPPING
        if entry.epoch != epoch:
            return FENCED
        if slot.pending is not None:
            return CONCURRENT
        if entry.state is State.ONGOING:
            return None
        if entry.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT):
            return OK
        return INVALID_STATE

    def _fence(self, name: str, slot: _Slot, cause: str) -> None:
        """Abort an Ongoing transaction from the broker's side, and fence its producer."""
        if self._double_fence and slot.entry.epoch < LAST_EPOCH:
            raised = slot.entry.epoch + (0 if slot.failed_fence else 1)
            slot.entry = replace(slot.entry, epoch=raised)
        self._prepare(name, slot, False, bump=True, cause=cause)

    def _prepare(self, name: str, slot: _Slot, commit: bool, *, bump: bool, cause: str) -> Reply:
        entry = slot.entry
        new = replace(
            entry,
            state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            epoch=entry.epoch + 1 if bump else entry.epoch,
            next_id=self._new_id() if bump and entry.epoch >= LAST_EPOCH else -1,
            updated_ms=self._world.now,
        )
        slot.cause = cause
        if entry.state is State.ONGOING and slot.logged.state is State.ONGOING:
            slot.began = slot.logged
        return self._append(name, slot, new)

    def _time_out(self, name: str) -> None:
        slot = self._slots.get(name)
        if slot is not None and (slot.pending is not None or self._code_away(name) is not None):  # maybe its begin is
            self._world.at(TIMEOUT_CHECK_MS, partial(self._time_out, name))
            return
        age_ms = min(self._world.now - slot.entry.started_ms, NEVER_MS - 1) if slot is not None else 0
        if slot is not None and slot.entry.state is State.ONGOING and slot.entry.timeout_ms <= age_ms:
            self._fence(name, slot, "time-out")

    def _append(self, name: str, slot: _Slot, new: Entry, value: object = None) -> Reply:
        """Write a transition to the coordinator's log. It is pending, and the reply open, until that is done."""
        how = self.appends.pop(self._world.acting, NextAppend())
        reply, moves = Reply(), slot.moves
        slot.pending = new
        if how.logged:
            slot.logged = new  # nobody reads it before the append is done, but the next coordinator

        def done() -> None:
            if slot.moves != moves or self._slots.get(name) is not slot:
                reply.code = MOVED
                return
            slot.pending = None
            if how.succeeds:
                slot.entry = new
                reply.code, reply.value = OK, value
                if new.state in PREPARED:
                    self._send_markers(name, slot)
            else:
                reply.code = NOT_AVAILABLE
                slot.failed_fence = self._double_fence and not slot.cause.startswith("EndTxn")
                self._world.at(TIMEOUT_CHECK_MS, partial(self._time_out, name))

        if how.ms:
            self._world.at(how.ms, done)
        else:
            done()
        return reply

    def _resume(self, name: str, slot: _Slot, moves: int) -> None:
        """The new coordinator goes on with what the old one had begun, unless it has moved again."""
        if slot.moves == moves:
            self._send_markers(name, slot)

    def _send_markers(self, name: str, slot: _Slot) -> None:
        """Write the markers, at once or late, then complete; until then the id's next transition is pending."""
        entry, moves = slot.entry, slot.moves
        slot.failed_fence = False
        slot.pending = replace(entry, state=_COMPLETED[entry.state])
        if slot.told is not entry:
            slot.told = entry
            for watch in self.watches:
                watch.ended(name, slot.began or entry, entry, slot.cause)
        first, others = self.next_markers
        self.next_markers = (0, 0)
        todo = sorted(entry.places)

        def write(place: Place) -> None:
            if slot.moves != moves or place not in todo:
                return
            todo.remove(place)
            log = self.log(place)
            log.mark(entry.producer_id, entry.epoch, entry.state is State.PREPARE_COMMIT)
            self.marked(place, log)
            if not todo:
                self._complete(slot, entry)

        if not todo:
            self._complete(slot, entry)
        for number, place in enumerate(tuple(todo)):
            ms = others if number else first
            if ms:
                self._world.at(ms, lambda place=place: write(place))
            else:
                write(place)

    def _complete(self, slot: _Slot, entry: Entry) -> None:
        new = replace(entry, state=_COMPLETED[entry.state], places=frozenset(), updated_ms=self._world.now)
        if entry.next_id != -1:
            new = replace(new, producer_id=entry.next_id, epoch=0, previous_id=entry.producer_id, next_id=-1)
        slot.entry = slot.logged = new
        slot.pending = None

    def _find(self, name: str, absent: int = UNKNOWN_MAPPING) -> tuple[_Slot | None, int]:
        code = self._code_away(name)
        return (self._slots.get(name), absent) if code is None else (None, code)

    def _code_away(self, name: str) -> int | None:
        until, code = self._away.get(self._shard(name), (0, 0))
        return (LOADING, NOT_AVAILABLE, MOVED)[code] if self._world.now < until else None

    def _shard(self, name: str) -> int:
        return sum(name.encode()) % SHARDS

    def _new_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id


def answer_v5(state: State, commit: bool, retry: bool) -> int | None:
    """The table in Kafka's TransactionCoordinator: what EndTxn v5 answers, None where it ends the transaction."""
    if state is State.ONGOING:
        return None
    if state is (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT):
        return CONCURRENT
    if commit:
        return OK if state is State.COMPLETE_COMMIT and retry else INVALID_STATE
    if retry:
        return OK if state is State.COMPLETE_ABORT else INVALID_STATE
    return INVALID_STATE if state in PREPARED else None  # aborting nothing: the epoch rises


_RESTING = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
_COMPLETED = {State.PREPARE_COMMIT: State.COMPLETE_COMMIT, State.PREPARE_ABORT: State.COMPLETE_ABORT}
