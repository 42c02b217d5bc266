"""Leaders of partitions: away for a while, then behind with their high watermark, as a new one is.

A new leader has every record that was acknowledged, but does not know yet which those are: its high watermark follows
when its followers have fetched. Until then Fetch answers up to that watermark, and ListOffsets not at all (KIP-207);
what is written is acknowledged when the watermark has passed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .codes import NOT_LEADER, OFFSET_NOT_AVAILABLE, OK, UNKNOWN_TOPIC
from .partition_log import PartitionLog, Place
from .world import Reply, World


@dataclass(frozen=True)
class _New:
    """Nobody leads until ``away``, in milliseconds; until ``lags`` the high watermark is ``watermark``."""

    away: int
    lags: int
    watermark: int


class Leaders:
    def __init__(self, world: World) -> None:
        self._world = world
        self._new: dict[Place, _New] = {}
        self._isolated: dict[Place, tuple[int, int]] = {}
        self.deleted: set[str] = set()  # topics that nobody has created anew
        self._unheard: dict[str, int] = {}

    def move(self, place: Place, log: PartitionLog, away_ms: int, lags_ms: int, behind: int) -> None:
        """Another replica leads from now on; it is behind by so many records."""
        away = self._world.now + away_ms
        self._new[place] = _New(away, away + lags_ms, max(log.begin, self.watermark(place, log) - behind))

    def isolate(self, place: Place, log: PartitionLog, ms: int, behind: int) -> None:
        """For so long, who leads was replaced and has not noticed: its log ends where it ended then."""
        self._isolated[place] = self._world.now + ms, max(log.begin, log.end - behind)

    def isolated_at(self, place: Place) -> int | None:
        """Where the log of a leader ends that has not noticed that it was replaced."""
        until, end = self._isolated.get(place, (0, 0))
        return end if self._world.now < until else None

    def unheard(self, topic: str, ms: int) -> None:
        """For so long, whoever answers has not heard of the topic."""
        self._unheard[topic] = self._world.now + ms

    def heard_since(self, topic: str) -> int:
        """Since when everybody knows the topic, or will; 0 where it was never missing."""
        return self._unheard.get(topic, 0)

    def forget(self, place: Place) -> None:
        self._new.pop(place, None)
        self._isolated.pop(place, None)

    def code(self, place: Place) -> int | None:
        """The code of every answer while nobody leads."""
        if place[0] in self.deleted or self._world.now < self._unheard.get(place[0], 0):
            return UNKNOWN_TOPIC
        new = self._new.get(place)
        return NOT_LEADER if new is not None and self._world.now < new.away else None

    def code_of_offsets(self, place: Place) -> int | None:
        """The code of ListOffsets where it does not answer."""
        return self.code(place) or (OFFSET_NOT_AVAILABLE if self.acknowledged_in(place) else None)

    def acknowledged_in(self, place: Place) -> int:
        """In how many milliseconds what is written now is acknowledged."""
        new = self._new.get(place)
        return 0 if new is None else max(0, new.lags - self._world.now)

    def append(
        self, place: Place, log: PartitionLog, producer_id: int, epoch: int, sequence: int, payload: Any
    ) -> Reply:
        """Produce: answered when enough replicas have what was written; the value is its offset."""
        if (code := self.code(place)) is not None:
            return Reply(code)
        code = log.append(producer_id, epoch, sequence, payload)
        if code != OK:
            return Reply(code)
        reply, offset, ms = Reply(), log.written(producer_id), self.acknowledged_in(place)

        def answer() -> None:
            reply.code, reply.value = OK, offset

        if ms:
            self._world.at(ms, answer)
        else:
            answer()
        return reply

    def watermark(self, place: Place, log: PartitionLog) -> int:
        return self._new[place].watermark if self.acknowledged_in(place) else log.end

    def stable(self, place: Place, log: PartitionLog) -> int:
        """The last stable offset, for those who fetch: a transaction whose marker is not replicated is open."""
        if not self.acknowledged_in(place):
            return log.stable
        watermark = self.watermark(place, log)
        hidden = [begin for begin, marker in log.ended if marker >= watermark]
        return min(log.stable, watermark, *hidden)
