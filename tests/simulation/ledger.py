"""The protocol's ports over the simulated cluster: the ledger as a topic partition, the coordinator, the data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NoReturn

from spark_eos.errors import ConnectionFailed, KafkaError
from spark_eos.protocol.head import Head, Offsets, Pair, Probe, decode, encode
from spark_eos.protocol.names import is_task_name, ledger_name
from spark_eos.protocol.ports import Description, EndTxnAnswer, Found, NotPublished, PartitionState, Ports, State

from .client import OURS, Producer, Refused
from .codes import (
    CONCURRENT,
    FENCED,
    ID_NOT_FOUND,
    INVALID_EPOCH,
    INVALID_STATE,
    LOADING,
    MOVED,
    NOT_AVAILABLE,
    OK,
    UNKNOWN_MAPPING,
)
from .coordinator import Cluster
from .partition_log import PartitionLog, Place
from .world import Reply, World

PREFIX = "eos"
QUERY = "q"
LEDGER: Place = ("__spark_eos_ledger", 0)
GROUP: Place = ("__consumer_offsets", 0)
LEDGER_TRANSACTION_MS = 10_000

_ANSWERS = {
    **dict.fromkeys((None, LOADING, NOT_AVAILABLE, MOVED, CONCURRENT), EndTxnAnswer.PENDING),
    OK: EndTxnAnswer.DONE,
    INVALID_STATE: EndTxnAnswer.SAYS_NOTHING,
    FENCED: EndTxnAnswer.SAYS_NOTHING,
    INVALID_EPOCH: EndTxnAnswer.SAYS_NOTHING,
    UNKNOWN_MAPPING: EndTxnAnswer.SAYS_NOTHING,
}


def committed(log: PartitionLog, key: str) -> bytes | None:
    """The newest value under the key that a read_committed reader can see."""
    for record in reversed(log.records[: log.stable]):
        if record.visible and record.payload[0] == key:
            return record.payload[1]
    return None


class SimulatedLedger:
    def __init__(self, world: World, cluster: Cluster, group: str | None = None) -> None:
        self._world, self._cluster, self.group = world, cluster, group
        self.transaction_name = ledger_name(PREFIX, QUERY)

    def read(self) -> Head | None:
        """Notes the high watermark, and counts only once everything below it is stable."""
        log = self._cluster.log(LEDGER)
        mark: int | None = None
        for _ in self._world.retrying():
            reply = self._world.call("fetch ledger", lambda: Reply(OK, (log.end, log.stable, committed(log, QUERY))))
            if reply is None:
                continue
            end, stable, value = reply.value
            mark = end if mark is None else mark
            if stable >= mark:
                return None if value is None else decode(value)
        raise KafkaError("EOS_LEDGER_HELD", "The ledger is held by an open transaction.", hint="Abort it.")

    def take(self) -> SimulatedTerm:
        producer = Producer(self._world, self._cluster, self.transaction_name, LEDGER_TRANSACTION_MS, OURS)
        producer.init()
        return SimulatedTerm(self, producer)


class SimulatedTerm:
    def __init__(self, ledger: SimulatedLedger, producer: Producer) -> None:
        self._ledger, self._producer = ledger, producer

    def read(self) -> Head | None:
        return self._ledger.read()

    def publish(self, head: Head, offsets: Offsets | None = None) -> None:
        try:
            self._producer.produce(LEDGER, (QUERY, encode(head)))
            if offsets is not None:
                self._producer.produce(GROUP, (self._ledger.group, offsets))
        except Refused as refused:
            self._producer.abort()
            raise NotPublished(str(refused)) from None
        try:
            self._producer.end(commit=True)
        except Refused as refused:
            raise NotPublished(str(refused)) from None


class SimulatedCoordinator:
    """Kafka's answers, as ``spark_eos.kafka.ports.coordinator`` understands them. ``version``: of EndTxn."""

    def __init__(self, world: World, cluster: Cluster, version: int = 5) -> None:
        self._world, self._cluster = world, cluster
        self.version = version

    def describe(self, ids: Collection[str]) -> Mapping[str, Description]:
        found = {name: self._describe(name) for name in sorted(ids)}
        return {name: description for name, description in found.items() if description is not None}

    def _describe(self, name: str) -> Description | None:
        for _ in self._world.retrying():
            reply = self._world.call(f"describe {name}", lambda: self._cluster.describe(name))
            if reply is not None and reply.code == OK:
                entry = reply.value
                return Description(
                    Pair(name, entry.producer_id, entry.epoch),
                    entry.state,
                    entry.started_ms,
                    entry.timeout_ms,
                    tuple(sorted(entry.places)),
                )
            if reply is not None and reply.code == ID_NOT_FOUND:
                return None
        raise _silent("describe")

    def ongoing(
        self, *, before: int | None = None, of: tuple[int, int] | None = None, empty: bool = False
    ) -> Collection[Description]:
        states = (State.ONGOING, State.EMPTY) if empty else (State.ONGOING,)
        for _ in self._world.retrying():
            reply = self._world.call("list", lambda: self._cluster.list_in(f"{PREFIX}-{QUERY}-", states))
            if reply is not None and reply.code == OK:
                own = [name for name in reply.value if is_task_name(PREFIX, QUERY, name, before=before, of=of)]
                found = self.describe(own).values()
                return [d for d in found if d.state is State.ONGOING or (d.state in states and not d.expires)]
        raise _silent("list")

    def begin_ongoing(self, *, empty: bool = False) -> Callable[[], Collection[Description]]:
        """Asked at once, or as late as may be: in truth it is somewhere between."""
        if self._world.step % 2:
            return partial(self.ongoing, empty=empty)
        try:
            found = self.ongoing(empty=empty)
        except ConnectionFailed as error:
            return partial(_raise, error)
        return lambda: found

    def end(self, pairs: Collection[Pair], *, commit: bool) -> Mapping[Pair, EndTxnAnswer]:
        return {pair: self._end(pair, commit) for pair in sorted(pairs, key=lambda pair: (pair.id, pair.epoch))}

    def _end(self, pair: Pair, commit: bool) -> EndTxnAnswer:
        who = self._world.current.name
        reply = self._world.call(
            f"end {pair.id}",
            lambda: self._cluster.end(
                pair.id, pair.producer_id, pair.epoch, commit=commit, version=self.version, who=who
            ),
        )
        return _ANSWERS[None if reply is None else reply.code]

    def first_record(self, pair: Pair, places: Iterable[Place]) -> Probe | None:
        """DescribeProducers: where the open transaction of ``pair`` begins in one of these partitions."""
        for place in places:
            log = self._cluster.log(place)
            reply = self._world.call("producers", lambda log=log: Reply(OK, _began(log, pair)))
            if reply is not None and reply.value is not None:
                return Probe(*place, reply.value)
        return None


def _began(log: PartitionLog, pair: Pair) -> int | None:
    producer = log.producers.get(pair.producer_id)
    return log.open.get(pair.producer_id) if producer is not None and producer.epoch == pair.epoch else None


class SimulatedData:
    def __init__(self, world: World, cluster: Cluster) -> None:
        self._world, self._cluster = world, cluster

    def look(self, pair: Pair, probe: Probe) -> Found | None:
        log = self._cluster.log((probe.topic, probe.partition))
        reply = self._world.call("fetch data", lambda: Reply(OK, _found(log, pair, probe.offset)))
        return None if reply is None else reply.value

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        log = self._cluster.log((topic, partition))
        reply = self._world.call("producers", lambda: Reply(OK, _state(log)))
        return None if reply is None else reply.value


def _state(log: PartitionLog) -> PartitionState:
    return PartitionState(log.begin, {(id, log.producers[id].epoch): begin for id, begin in log.open.items()})


def _found(log: PartitionLog, pair: Pair, offset: int) -> Found | None:
    if offset < log.begin:
        return Found.GONE
    if log.stable <= offset:
        return None
    record = log.records[offset]
    if (record.producer_id, record.epoch) != (pair.producer_id, pair.epoch):
        return Found.GONE
    return Found.THERE if record.visible else Found.MISSING


def _raise(error: Exception) -> NoReturn:
    raise error


def _silent(call: str) -> ConnectionFailed:
    return ConnectionFailed("EOS_COORDINATOR_UNREACHABLE", f"No answer to {call}.", hint="Start the query again.")


def ports(world: World, cluster: Cluster, group: str | None = None) -> Ports:
    """What the steps of the protocol need, for one process."""

    def reach(point: str) -> None:
        world.point(point)

    return Ports(
        ledger=SimulatedLedger(world, cluster, group),
        coordinator=SimulatedCoordinator(world, cluster),
        data=SimulatedData(world, cluster),
        retrying=world.retrying,
        now_ms=lambda: world.now,
        reach=reach,
    )
