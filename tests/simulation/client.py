"""A transactional producer: one retry after another, no epoch of its own making.

It adds partitions itself and ends transactions by EndTxn below version 5 where transaction.version is 0 or 1, and
leaves both to Produce 12 and EndTxn 5 where it is 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spark_eos.errors import ConnectionFailed
from spark_eos.kafka.transactions import FENCING_END, PLAIN_END
from spark_eos.protocol.head import Pair

from .codes import CONCURRENT, LOADING, MOVED, NOT_AVAILABLE, NOT_LEADER, OK, UNKNOWN_TOPIC
from .coordinator import Cluster
from .partition_log import UNNUMBERED, Place
from .world import Reply, World

RETRIES_MS = (50, 500, 3_000, 10_000)
#: A leader is waited for, for a minute.
PRODUCE_RETRIES_MS = (*RETRIES_MS, 20_000, 27_000)
INIT_RETRIES_MS = (50, 500, 500, 2_000, 8_000, 20_000)
_RETRIABLE = (None, CONCURRENT, LOADING, NOT_AVAILABLE, MOVED, NOT_LEADER, UNKNOWN_TOPIC)


class Refused(Exception):
    """A request of a producer failed for good. ``code`` is Kafka's; None when nobody answered."""

    def __init__(self, what: str, code: int | None) -> None:
        super().__init__(f"{what}: {code}")
        self.code = code


class Producer:
    """For one transaction. ``pair`` is known once it is initialised. ``version``: of EndTxn. ``firsts``: the offset of
    its first record in each partition; ``topic_ids``: those before it. ``handed_over_with``: the version of EndTxn that
    ends it once it is decided."""

    def __init__(self, world: World, cluster: Cluster, name: str, timeout_ms: int, version: int = PLAIN_END) -> None:
        self.name, self._timeout_ms, self.version = name, timeout_ms, version
        self._world, self._cluster = world, cluster
        self._pair: Pair | None = None
        self._added: set[Place] = set()
        self._begun = False
        self.firsts: dict[Place, int] = {}
        self.topic_ids: dict[str, str] = {}
        self._ends: dict[Place, int] = {}
        self.began_ms, self.handed_over_with = 0, version
        self._sequences: dict[Place, int] = {}

    @property
    def pair(self) -> Pair:
        assert self._pair is not None
        return self._pair

    def init(self) -> None:
        who = self._world.current.name
        try:
            reply = self._ask("init", lambda: self._cluster.init(self.name, self._timeout_ms, who), INIT_RETRIES_MS)
        except Refused as refused:
            raise ConnectionFailed(
                "EOS_KAFKA_UNREACHABLE", f"{self.name}: {refused}.", hint="Start the query again."
            ) from None
        self._pair = Pair(self.name, *reply.value)

    def produce(self, place: Place, payload: Any) -> int:
        """Acknowledged when it returns; the offset. Raises Refused."""
        if self.version < FENCING_END:
            self._add(place)
        if not self._begun:
            self._begun, self.began_ms = True, self._world.now
        self.topic_ids.setdefault(place[0], self._cluster.topic_id(place[0]))
        offset = self._send("produce", place, payload)
        if offset < self._ends.get(place, 0):
            raise Refused("an offset goes back", None)
        self._ends[place] = offset + 1
        self.firsts.setdefault(place, offset)
        return offset

    @property
    def lasts(self) -> dict[Place, int]:
        return {place: self._sequences[place] - 1 for place in self.firsts}

    def send_offsets(self, place: Place, payload: Any) -> None:
        """TxnOffsetCommit, which has no sequence numbers: what is sent again is there again. Raises Refused."""
        self._add(place)
        self._sequences[place] = UNNUMBERED
        self._send("offsets", place, payload)

    def _add(self, place: Place) -> None:
        own = self.pair
        if place not in self._added:

            def handle() -> Reply:
                if place[0] in self._cluster.leaders.deleted:
                    return Reply(UNKNOWN_TOPIC)
                return self._cluster.add(self.name, own.producer_id, own.epoch, place)

            self._ask("add", handle)
            self._added.add(place)

    def _send(self, what: str, place: Place, payload: Any) -> int:
        own, sequence = self.pair, self._sequences.setdefault(place, 0)

        def handle() -> Reply:
            refused = self._cluster.refuses_offsets
            if what == "offsets" and refused != OK:
                self._cluster.refuses_offsets = OK
                return Reply(refused)
            adds = what == "produce" and self.version >= FENCING_END
            produce = self._cluster.produce_adding if adds else self._cluster.produce
            return produce(self.name, own.producer_id, own.epoch, place, sequence, payload)

        reply = self._ask(what, handle, PRODUCE_RETRIES_MS if what == "produce" else RETRIES_MS)
        self._sequences[place] += 1
        assert isinstance(reply.value, int)
        return reply.value

    def end(self, commit: bool) -> None:
        """Raises Refused; when nobody answered, it may be done all the same."""
        own, who = self.pair, f"{self._world.current.name} itself"
        self._ask(
            "end",
            lambda: self._cluster.end(
                self.name, own.producer_id, own.epoch, commit=commit, version=self.version, who=who
            ),
        )

    def abort(self) -> None:
        """As well as it goes."""
        try:
            if self._begun:
                self.end(commit=False)
        except Refused:
            return

    def _ask(self, what: str, handle: Callable[[], Reply], retries: tuple[int, ...] = RETRIES_MS) -> Reply:
        code = None
        for ms in retries:
            reply = self._world.call(f"{what} {self.name}", handle)
            code = None if reply is None else reply.code
            if code == OK:
                assert reply is not None
                return reply
            if code not in _RETRIABLE:
                break
            self._world.sleep(ms)
        raise Refused(what, code)
