"""Kafka's transaction coordinator. By version 5 of EndTxn, as with transaction.version 2, an end raises the epoch; by
those before it does not, and the transaction may begin once more at the same one. With a timeout of `NEVER_MS`, that of
two-phase commit, it does not time out.

Where it departs from a real one: one object is every coordinator, its log is safe at once, epochs do not run out, and
ids do not expire. `tests/simulation/coordinator.py` has those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_eos.kafka.codes import Code
from spark_eos.kafka.transactions import NEVER_MS

from .partition import Partition
from .world import World

Place = tuple[str, int]
ONGOING, EMPTY = "Ongoing", "Empty"
_PREPARED = {True: "PrepareCommit", False: "PrepareAbort"}
_COMPLETE = {True: "CompleteCommit", False: "CompleteAbort"}


@dataclass
class Entry:
    """What the coordinator has of a transactional id; ``fates``: how the transaction of each epoch ended that had rows,
    or else one that had none. ``begun``: how many transactions there were."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: str = EMPTY
    places: set[Place] = field(default_factory=set)
    groups: dict[str, dict[Place, int]] = field(default_factory=dict)
    started: float = 0.0
    fates: dict[int, bool] = field(default_factory=dict)
    begun: int = 0


class Transactions:
    """``markers_s``: seconds from a decision to its markers, asked for each."""

    def __init__(self, world: World, partitions: dict[Place, Partition], markers_s: Callable[[], float]) -> None:
        self._world, self._partitions, self._markers_s = world, partitions, markers_s
        self.entries: dict[str, Entry] = {}
        self.offsets: dict[str, dict[Place, int]] = {}
        self.timed_out: set[tuple[str, int]] = set()  # id and epoch
        self.fenced_late: set[str] = set()  # by a client's own InitProducerId, which it had long given up and repeated
        self._next_id = 1000

    def note_late_init(self, name: str) -> None:
        """The next InitProducerId of this id comes from a client that has gone."""
        entry = self.entries.get(name)
        if entry is not None and entry.state == ONGOING:
            self.fenced_late.add(name)

    def init(self, name: str, timeout_ms: int) -> tuple[int, int, int]:
        """Error code, producer id and epoch."""
        entry = self.entries.get(name)
        if entry is None:
            self._next_id += 1
            entry = self.entries[name] = Entry(self._next_id, -1, timeout_ms)
        if entry.state == ONGOING:
            self._prepare(name, entry, commit=False, fences=True)
        if entry.state in _PREPARED.values():
            return Code.CONCURRENT_TRANSACTIONS, -1, -1
        entry.epoch, entry.timeout_ms, entry.state = entry.epoch + 1, timeout_ms, EMPTY
        return Code.NONE, entry.producer_id, entry.epoch

    def add(self, name: str, producer_id: int, epoch: int, place: Place | None) -> int:
        """A partition's leader asks to add it, or a group's coordinator (None), before it takes what belongs to it. Or
        the client does."""
        entry = self._of_epoch(name, producer_id, epoch)
        if isinstance(entry, Code):
            return entry
        if entry.state != ONGOING:
            entry.state, entry.started, entry.begun = ONGOING, self._world.now, entry.begun + 1
            if entry.timeout_ms != NEVER_MS:
                self._world.at(entry.timeout_ms / 1000, self._time_out, name, entry.begun)
        if place is not None:
            entry.places.add(place)
        return Code.NONE

    def verify(self, name: str, producer_id: int, epoch: int, place: Place | None, group: str | None = None) -> int:
        """A partition's leader asks, before it takes a batch, whether the client has added it; or a group's
        coordinator does. TRANSACTION_ABORTABLE if not, which clients of old are told as INVALID_TXN_STATE."""
        entry = self._of_epoch(name, producer_id, epoch)
        if isinstance(entry, Code):
            return entry
        known = place in entry.places if place is not None else group in entry.groups
        return Code.NONE if entry.state == ONGOING and known else Code.TRANSACTION_ABORTABLE

    def _of_epoch(self, name: str, producer_id: int, epoch: int) -> Entry | Code:
        """The id's entry, if that may take something in now."""
        entry = self.entries.get(name)
        if entry is None or entry.producer_id != producer_id:
            return Code.INVALID_PRODUCER_ID_MAPPING
        if entry.epoch != epoch:
            return Code.INVALID_PRODUCER_EPOCH
        return Code.CONCURRENT_TRANSACTIONS if entry.state in _PREPARED.values() else entry

    def end_plainly(self, name: str, producer_id: int, epoch: int, commit: bool) -> int:
        """EndTxn of versions before 5."""
        entry = self.entries.get(name)
        if entry is None or entry.producer_id != producer_id:
            return Code.INVALID_PRODUCER_ID_MAPPING
        if entry.epoch != epoch:
            return Code.PRODUCER_FENCED
        if entry.state == ONGOING:
            self._prepare(name, entry, commit, fences=False)
            return Code.NONE
        if entry.state == _PREPARED[commit]:
            return Code.CONCURRENT_TRANSACTIONS
        return Code.NONE if entry.state == _COMPLETE[commit] else Code.INVALID_TXN_STATE

    def end(self, name: str, producer_id: int, epoch: int, commit: bool) -> tuple[int, int, int]:
        """EndTxn of version 5."""
        entry = self.entries.get(name)
        if entry is None or entry.producer_id != producer_id:
            return Code.INVALID_PRODUCER_ID_MAPPING, -1, -1
        bumped = entry.epoch == epoch + 1
        if not self._is_valid(entry, epoch):
            return Code.PRODUCER_FENCED, -1, -1
        done = Code.NONE, producer_id, entry.epoch
        if entry.state == ONGOING:
            self._prepare(name, entry, commit, fences=True)
            return Code.NONE, producer_id, entry.epoch
        if entry.state == _PREPARED[commit]:
            return Code.CONCURRENT_TRANSACTIONS, -1, -1
        if entry.state == _COMPLETE[commit] and bumped:
            return done
        if not commit and not bumped and entry.state not in _PREPARED.values():
            entry.epoch += 1  # an abort of nothing fences all the same
            entry.state = _COMPLETE[False]
            return Code.NONE, producer_id, entry.epoch
        return Code.INVALID_TXN_STATE, -1, -1

    def _is_valid(self, entry: Entry, epoch: int) -> bool:
        if entry.state in _PREPARED.values():
            return entry.epoch == epoch + 1
        if entry.state in _COMPLETE.values():
            return entry.epoch in (epoch, epoch + 1)
        return entry.epoch == epoch

    def _prepare(self, name: str, entry: Entry, commit: bool, *, fences: bool) -> None:
        if any(entry.producer_id in self._partitions[place].open for place in entry.places):
            entry.fates[entry.epoch] = commit
        entry.fates.setdefault(entry.epoch, commit)
        entry.state = _PREPARED[commit]
        entry.epoch += fences
        self._world.note(f"{name} {entry.state}")
        self._world.at(self._markers_s(), self._complete, entry, commit)

    def _complete(self, entry: Entry, commit: bool) -> None:
        for place in sorted(entry.places):
            self._partitions[place].mark(entry.producer_id, entry.epoch, commit)
        if commit:
            for group, offsets in entry.groups.items():
                self.offsets.setdefault(group, {}).update(offsets)
        entry.state = _COMPLETE[commit]
        entry.places, entry.groups = set(), {}

    def _time_out(self, name: str, begun: int) -> None:
        entry = self.entries[name]
        if entry.state == ONGOING and entry.begun == begun:
            self.timed_out.add((name, entry.epoch))
            self._prepare(name, entry, commit=False, fences=True)
