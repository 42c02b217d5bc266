"""ListOffsets and Fetch of the ledger topic, for the library's own reader of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spark_eos.errors import ConnectionFailed
from spark_eos.ledger.reader import Fetched

from .codes import OK, OUT_OF_RANGE
from .coordinator import Cluster
from .partition_log import Place
from .world import Reply, World

LEDGER_TOPIC = "__spark_eos_ledger"
#: Record batches in an answer to Fetch.
BATCHES = 3


class SimulatedLog:
    """The port of `LedgerReader`."""

    topic = LEDGER_TOPIC
    seconds = 60.0

    def __init__(self, world: World, cluster: Cluster) -> None:
        self._world, self._cluster = world, cluster

    def partitions(self) -> int:
        return self._ask("partitions", lambda: Reply(OK, self._cluster.ledger_partitions))

    def topic_id(self, known_to: str | int | None = None) -> str:
        """All but the leaders hear later of a new topic; so may the coordinator, which knows topics by their names."""

        def known() -> Reply:
            lost, late = self._cluster.ledgers_lost, self._world.now < self._cluster.ledger_told_ms
            return Reply(OK, lost - 1 if late and not isinstance(known_to, int) else lost)

        return str(self._ask("topic", known))

    def begin(self, partition: int) -> int:
        return self._ask("begin", lambda: self._begin((LEDGER_TOPIC, partition)))

    def end(self, partition: int) -> int:
        return self._ask("end", lambda: self._end((LEDGER_TOPIC, partition)))

    def fetch(self, partition: int, offset: int) -> Fetched | None:
        place = LEDGER_TOPIC, partition
        reply = self._world.call("ledger fetch", lambda: self._fetch(place, offset))
        if reply is None or reply.code is None:
            return None
        if reply.code != OK:
            return Fetched(reply.code)
        rows, after = reply.value
        return Fetched(OK, [(at, key.encode(), value) for at, (key, value) in rows], after)

    def retrying(self) -> Iterator[None]:
        return self._world.retrying()

    def _ask(self, what: str, handle: Callable[[], Reply]) -> int:
        for _ in self._world.retrying():
            reply = self._world.call(f"ledger {what}", handle)
            if reply is not None and reply.code == OK:
                assert isinstance(reply.value, int)
                return reply.value
        raise ConnectionFailed("EOS_KAFKA_UNREACHABLE", f"No answer about the {what} of the ledger.", hint="Later.")

    # What a leader answers

    def _begin(self, place: Place) -> Reply:
        code = self._cluster.leaders.code(place)
        return Reply(code) if code is not None else Reply(OK, self._cluster.log(place).begin)

    def _end(self, place: Place) -> Reply:
        self._world.current.looked = self._world.step
        code = self._cluster.leaders.code_of_offsets(place)
        if (end := self._cluster.leaders.isolated_at(place)) is not None:
            return Reply(OK, end)
        return Reply(code) if code is not None else Reply(OK, self._cluster.log(place).end)

    def _fetch(self, place: Place, offset: int) -> Reply:
        leaders, log = self._cluster.leaders, self._cluster.log(place)
        if (end := leaders.isolated_at(place)) is not None:
            return Reply(OUT_OF_RANGE) if offset > end else Reply(OK, log.visible(offset, end, BATCHES))
        code = leaders.code(place)
        if code is None and not log.begin <= offset <= log.end:
            code = OUT_OF_RANGE
        if code is not None:
            return Reply(code)
        return Reply(OK, log.visible(offset, leaders.stable(place, log), BATCHES))
