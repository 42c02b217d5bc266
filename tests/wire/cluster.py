"""Brokers that answer in bytes, and what may happen to them. Where they depart from real ones:

- Replication is instant and loses nothing; a leader may only forget all but a producer's last batch, as by a restart.
  Followers hear of high watermarks at elections alone.
- All coordinators share one memory (`transactions`); that they move shows in their answers alone.
- Metadata is the same on every broker. No topic is ever made, no row ever expires.
- Of brokers' settings there is one, of two-phase commit (`two_phase`).
- What a client has sent whole before it closes a connection is worked on all the same, as it may be in truth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from . import answers
from .codec import OLD_VERSIONS, VERSIONS, Asked, read, write
from .faults import Fault, Kind, Schedule
from .partition import Partition
from .sockets import Line, Socket
from .transactions import Place, Transactions
from .two_phase import INIT, Offer
from .world import World

_SERVICE_S = 0.0005
_API_VERSIONS = 18
_AWAY_S = 40.0
_LARGEST = 1 << 27
#: Where a request has its topics.
_LISTED = ("topics", "topic_data", "v3_and_below_topics")


class Cluster:
    """The brokers of a schedule, with these topics (name → partitions)."""

    def __init__(self, world: World, schedule: Schedule, topics: dict[str, int]) -> None:
        self.world, self.schedule, self.topics = world, schedule, topics
        self.nodes = {node: Broker(self, node) for node in range(1, schedule.brokers + 1)}
        self.partitions: dict[Place, Partition] = {}
        for topic, count in topics.items():
            for number in range(count):
                node = 1 + number % schedule.brokers
                self.partitions[topic, number] = Partition(
                    node, strict=schedule.strict, says_duplicate=schedule.says_duplicate
                )
        self.transactions = Transactions(world, self.partitions, self._markers_s)
        self.offer = Offer(self, schedule.two_phase)
        self.shift = 0
        self.asked: Counter[int] = Counter()
        self.struck: list[Fault] = []
        self._faults = {(f.api, f.nth + i): f for f in schedule.faults for i in range(f.times)}
        self._lines = dict(schedule.lines)
        self._sockets: list[Socket] = []
        self.calm = False

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{broker.place[0]}:{broker.place[1]}" for broker in self.nodes.values())

    def coordinator(self, key: str) -> int:
        return 1 + (sum(key.encode()) + self.shift) % len(self.nodes)

    def level(self, node: int) -> int:
        """The transaction.version that this broker has heard of."""
        asked, levels = self.asked[_API_VERSIONS], self.schedule.levels
        return next((level for nth, level in reversed(levels) if asked > nth + 2 * node), self.schedule.level)

    def versions(self, node: int) -> dict[int, tuple[int, int]]:
        """First and last version that this broker speaks, by API key."""
        return OLD_VERSIONS if self.schedule.old else VERSIONS | self.offer.versions(node)

    def rest(self) -> None:
        """No more faults: all brokers are back, every partition has a leader, and no connection is slow any more."""
        self.calm = True
        for socket in self._sockets:
            socket.line = replace(socket.line, piece=None, pause_s=0.0)
        for broker in self.nodes.values():
            broker.answers = True
        for partition in self.partitions.values():
            if partition.leader is None:
                partition.elect(1, forgetful=True)

    def next_line(self, socket: Socket) -> Line:
        self._sockets.append(socket)
        return Line() if self.calm else self._lines.get(len(self._sockets) - 1, Line())

    def travelled(self) -> list[tuple[int, int]]:
        """Bytes to and from the brokers, by connection in the order in which they were opened."""
        return [(socket.up, socket.down) for socket in self._sockets]

    def next_fault(self, asked: Asked) -> Fault | None:
        nth = self.asked[asked.api]
        self.asked[asked.api] += 1
        fault = None if self.calm else self._faults.get((asked.api, nth))
        if fault is not None:
            self.struck.append(fault)
        return fault

    def move_leaders(self, places: list[Place], away: int | None = None) -> None:
        """These partitions get another leader, in turn; none where no other broker is there."""
        for place in places:
            partition = self.partitions[place]
            others = [n for n, b in self.nodes.items() if b.answers and n not in (partition.leader, away)]
            if others or away is not None:
                leader = others[partition.epoch % len(others)] if others else None
                partition.elect(leader, forgetful=away is not None)

    def _markers_s(self) -> float:
        return 0.0005 if self.calm else self.schedule.markers_s * (0.5 + self.world.chance.random())


class Broker:
    """One broker: a port, and the connections to it."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self.cluster, self.node = cluster, node
        self.place = f"broker{node}.{cluster.schedule.seed}", 9000 + node
        self.answers: bool | None = True
        #: Whether it takes connections and requests, and answers nothing, as where its process is stopped.
        self.silent = False
        self.connections: list[Connection] = []
        cluster.world.hosts[self.place] = self

    def accept(self, socket: Socket) -> tuple[Connection, Line]:
        connection = Connection(self, socket)
        self.connections.append(connection)
        return connection, self.cluster.next_line(socket)

    def restart(self, seconds: float) -> None:
        """All connections break, its partitions move; after a while it is back."""
        self.answers = False
        for connection in tuple(self.connections):
            connection.drop(reset=True)
        led = [place for place, p in self.cluster.partitions.items() if p.leader == self.node]
        self.cluster.move_leaders(led, away=self.node)
        self.cluster.world.at(min(seconds, _AWAY_S), self._back)

    def unplug(self, seconds: float) -> None:
        """Packets to it are dropped, and the others have not noticed: they still name it."""
        self.cluster.world.hosts[self.place] = Nobody()
        for connection in tuple(self.connections):
            connection.drop(reset=True)
        self.cluster.world.at(seconds, self.cluster.world.hosts.__setitem__, self.place, self)

    def _back(self) -> None:
        self.answers = True
        for partition in self.cluster.partitions.values():
            if partition.leader is None:
                partition.elect(self.node, forgetful=True)


class Nobody:
    """A host that drops packets."""

    answers = None

    def accept(self, socket: Socket) -> tuple[Connection, Line]:
        raise AssertionError("nobody is there")


class Connection:
    """The broker's end: requests are worked on one after the other, in the order in which they came."""

    def __init__(self, broker: Broker, socket: Socket) -> None:
        self._broker, self._socket = broker, socket
        self._world = broker.cluster.world
        self._received = bytearray()
        self._queue: list[Asked] = []
        self._busy = self._dropped = self._mute = self._unheard = False
        self._last = b""

    def take(self, data: bytes) -> None:
        if self._dropped:
            return
        self._received += data
        while len(self._received) >= 4:
            size = int.from_bytes(self._received[:4], "big")
            if not 0 < size < _LARGEST:
                self.drop(reset=False)
                return
            if len(self._received) < 4 + size:
                break
            asked = read(bytes(self._received[4 : 4 + size]))
            del self._received[: 4 + size]
            first, last = self._broker.cluster.versions(self._broker.node).get(asked.api, (0, -1))
            if not first <= asked.version <= last:
                self.drop(reset=False)
                return
            self._queue.append(asked)
        self._go_on()

    def gone(self) -> None:
        if self in self._broker.connections:
            self._broker.connections.remove(self)

    def drop(self, *, reset: bool) -> None:
        """The broker ends it: what was not worked on has no effect."""
        self._dropped = True
        self._queue.clear()
        self.gone()
        self._socket.end(reset)

    def _go_on(self) -> None:
        if self._queue and not self._busy and not self._mute and not self._broker.silent:
            self._busy = True
            self._world.at(_SERVICE_S, self._work, self._queue.pop(0))

    def _work(self, asked: Asked) -> None:
        if self._dropped:
            return
        fault = self._broker.cluster.next_fault(asked)
        self._world.note(f"{self._broker.node} {asked.name} {asked.number}{f' [{fault}]' if fault else ''}")
        if fault is None:
            self._reply(asked)
        else:
            _FATES[fault.kind](self, asked, fault)

    def _reply(
        self,
        asked: Asked,
        code: int | None = None,
        *,
        number: int | None = None,
        later_s: float = 0.0,
        throttle_s: float = 0.0,
        change: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """Work on it and answer. With a ``code`` there is no effect."""
        answer = answers.answer(self._broker.cluster, self._broker.node, asked, code, int(1000 * throttle_s))
        data = write(asked, answer, number)
        if change is not None:
            data = change(data)
        self._world.at(later_s, self._say, data, throttle_s)

    def _say(self, data: bytes, throttle_s: float) -> None:
        if not self._dropped and not self._unheard:
            self._socket.answer(data)
        self._last = data
        self._world.at(throttle_s, self._next)

    def _next(self) -> None:
        self._busy = False
        self._go_on()

    # Faults

    def _lost(self, asked: Asked, fault: Fault) -> None:
        self.drop(reset=fault.amount > 1)

    def _answer_lost(self, asked: Asked, fault: Fault) -> None:
        answers.answer(self._broker.cluster, self._broker.node, asked, None, 0)
        self.drop(reset=fault.amount > 1)

    def _silent(self, asked: Asked, fault: Fault) -> None:
        self._mute = True

    def _answer_silent(self, asked: Asked, fault: Fault) -> None:
        self._unheard = True
        self._reply(asked)

    def _late(self, asked: Asked, fault: Fault) -> None:
        self._world.at(fault.amount, self._reply_late, asked)

    def _reply_late(self, asked: Asked) -> None:
        if asked.api == INIT and self not in self._broker.connections:
            self._broker.cluster.transactions.note_late_init(asked.body.transactional_id)
        self._reply(asked)

    def _answer_late(self, asked: Asked, fault: Fault) -> None:
        self._reply(asked, later_s=fault.amount)

    def _code(self, asked: Asked, fault: Fault) -> None:
        self._reply(asked, int(fault.amount))

    def _code_after(self, asked: Asked, fault: Fault) -> None:
        answers.answer(self._broker.cluster, self._broker.node, asked, None, 0)
        self._reply(asked, int(fault.amount))

    def _other_number(self, asked: Asked, fault: Fault) -> None:
        self._reply(asked, number=asked.number + (1 if fault.amount > 1 else -1))

    def _repeated(self, asked: Asked, fault: Fault) -> None:
        last = self._last
        self._reply(asked, change=lambda data: last + data)

    def _size(self, asked: Asked, fault: Fault) -> None:
        size = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00")[int(fault.amount) % 3]
        self._reply(asked, change=lambda data: size + data[4:])

    def _torn(self, asked: Asked, fault: Fault) -> None:
        def tear(data: bytes) -> bytes:
            left = data[4 : 4 + (len(data) - 4) * 2 // 3]
            return len(left).to_bytes(4, "big") + left

        self._reply(asked, change=tear)

    def _flipped(self, asked: Asked, fault: Fault) -> None:
        def flip(data: bytes) -> bytes:
            # Of the last value, where there are records: behind it are its number of headers, and three times no tags.
            return data[:-5] + bytes((data[-5] ^ 1,)) + data[-4:]

        with_records = len(answers.records_of(self._broker.cluster, asked)) > 0
        self._reply(asked, change=flip if with_records else None)

    def _throttled(self, asked: Asked, fault: Fault) -> None:
        self._reply(asked, throttle_s=fault.amount)

    def _leader_moves(self, asked: Asked, fault: Fault) -> None:
        places = answers.places_of(asked) or list(self._broker.cluster.partitions)
        self._broker.cluster.move_leaders([place for place in places if place in self._broker.cluster.partitions])
        self._reply(asked)

    def _restart(self, asked: Asked, fault: Fault) -> None:
        if fault.amount > 1:
            answers.answer(self._broker.cluster, self._broker.node, asked, None, 0)
        self._broker.restart(fault.amount)

    def _incomplete(self, asked: Asked, fault: Fault) -> None:
        listed = next(name for name in _LISTED if hasattr(asked.body, name))
        fewer = replace(asked.body, **{listed: getattr(asked.body, listed)[:-1]})
        self._reply(replace(asked, body=fewer))

    def _coordinators_move(self, asked: Asked, fault: Fault) -> None:
        self._broker.cluster.shift += 1
        self._reply(asked)


_FATES: dict[Kind, Any] = {kind: getattr(Connection, "_" + kind.name.lower()) for kind in Kind}
