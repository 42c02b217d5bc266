"""Scenarios of a producer and its coordinator, as functions of a world: what is answered must be the same in each.

`Wire` is our own I/O against any brokers, those of `cluster` or real ones; `Modelled` is the model of
`tests/simulation`. An answer that only says "not yet" is asked for again. That a producer is fenced is said by two
codes, which one depends on who says it: here they are one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from spark_eos.base import system
from spark_eos.base.retry import retrying
from spark_eos.kafka.codes import FENCED, OK, Code
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.net.connection import wait
from spark_eos.kafka.records.encode import Encoder, Rows
from spark_eos.kafka.requests import produce
from spark_eos.kafka.requests.describe_transactions import TransactionState, describe_transactions
from spark_eos.kafka.requests.end_txn import end_txns
from spark_eos.kafka.requests.init_producer_id import ask_init
from spark_eos.kafka.transactions import FENCING_END, NEVER_MS, PLAIN_END
from spark_eos.protocol.ports import State
from tests.simulation import coordinator as model
from tests.simulation.world import World as ModelWorld

from .scenarios import Scene, read_back

_LATER = {Code.CONCURRENT_TRANSACTIONS, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE}
_NOT_YET = _LATER | {Code.NOT_COORDINATOR, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_LEADER_OR_FOLLOWER}
_WAIT_S = 20.0
TIMEOUT_MS = 60_000
SHORT_MS = 2_000


@dataclass(frozen=True)
class Own:
    """What a producer was given."""

    name: str
    producer_id: int
    epoch: int


class Anywhere(Protocol):
    """``write``: one row, by its sequence number. ``visible``: the rows of the partition, read_committed. ``outlast``:
    wait until the coordinator has aborted this transaction for its age. ``timeout_ms``: as the coordinator has it."""

    def init(self, name: str, timeout_ms: int = TIMEOUT_MS, *, two_phase: bool = False) -> Own: ...
    def write(self, own: Own, sequence: int, row: str) -> int: ...
    def end(self, own: Own, commit: bool, version: int = FENCING_END) -> int: ...
    def describe(self, name: str) -> tuple[str, int]: ...
    def timeout_ms(self, name: str) -> int: ...
    def outlast(self, name: str) -> None: ...
    def visible(self) -> list[str]: ...


def _settled(ask: Callable[[], int | None]) -> int:
    """The answer, once it is one."""
    code: int | None = None
    for _ in retrying(_WAIT_S):
        code = ask()
        if code is not None and code not in _NOT_YET:
            return min(FENCED) if code in FENCED else code
    raise AssertionError(f"no answer, but {code}")


class Wire:
    """Rows and ids have this scene's prefix, as others may write beside it."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._client = broker_client(scene.kafka)

    def init(self, name: str, timeout_ms: int = TIMEOUT_MS, *, two_phase: bool = False) -> Own:
        given: list[Own] = []

        def ask() -> int | None:
            answer = ask_init(self._client, self._name(name), timeout_ms, two_phase=two_phase)
            given.extend([Own(name, *answer[1:])] if answer is not None and answer[0] == OK else [])
            return None if answer is None else answer[0]

        assert _settled(ask) == OK
        return given[0]

    def write(self, own: Own, sequence: int, row: str) -> int:
        rows = Rows(
            pa.nulls(1, pa.binary()), pa.array([self._name(row).encode()]), np.array([int(system.time_of_day() * 1000)])
        )
        encoder = Encoder(own.producer_id, own.epoch, "none")
        ((_, sealed),) = encoder.encode(rows, [1], [sequence])
        return _settled(lambda: self._produce(own, sealed.data))

    def _produce(self, own: Own, data: bytes) -> int | None:
        place = self._scene.topic, 0
        leader = self._client.leader(*place)
        if leader is None:
            return None
        connection = self._client.connection(produce.ProduceConnection, leader)
        connection.send(self._name(own.name), {place: data}, 5_000)
        until = system.monotonic() + _WAIT_S
        while not (answers := connection.answers()) and system.monotonic() < until:
            wait([connection], until)
        self._client.pool.give_back(connection)
        return answers[0].errors[place] if answers else None

    def end(self, own: Own, commit: bool, version: int = FENCING_END) -> int:
        name = self._name(own.name)
        who = name, own.producer_id, own.epoch
        return _settled(lambda: end_txns(self._client, [who], commit, version=version)[name])

    def describe(self, name: str) -> tuple[str, int]:
        state = self._described(name, lambda state: not state.transaction_state.startswith("Prepare"))
        return state.transaction_state, state.producer_epoch

    def timeout_ms(self, name: str) -> int:
        return int(self._described(name, lambda _: True).transaction_timeout_ms)

    def outlast(self, name: str) -> None:
        self._described(name, lambda state: state.transaction_state == State.COMPLETE_ABORT.value)

    def _described(self, name: str, wanted: Callable[[TransactionState], bool]) -> TransactionState:
        for _ in retrying(_WAIT_S):
            for state in describe_transactions(self._client, [self._name(name)]):
                if state.error_code == OK and wanted(state):
                    return state
        raise AssertionError(f"{name} does not come to rest")

    def visible(self) -> list[str]:
        before = self._name("").encode()
        for _ in retrying(_WAIT_S):
            read = read_back(self._scene, 0)
            if read.whole:
                return [row.removeprefix(before).decode() for row in read.rows if row.startswith(before)]
        raise AssertionError("the partition cannot be read to its end")

    def _name(self, name: str) -> str:
        return f"{self._scene.prefix}:{name}"


class Modelled:
    """The same on the model, where a leader asks for the partition before it takes the first row."""

    _PLACE = "t", 0

    def __init__(self) -> None:
        self._world = ModelWorld((), 1)
        self._cluster = model.Cluster(self._world)

    def init(self, name: str, timeout_ms: int = TIMEOUT_MS, *, two_phase: bool = False) -> Own:
        given: list[tuple[int, int]] = []

        def ask() -> int | None:
            reply = self._cluster.init(name, NEVER_MS if two_phase else timeout_ms, "test")
            given.extend([reply.value] if reply.code == OK else [])
            return reply.code

        assert _settled(ask) == OK
        return Own(name, *given[0])

    def write(self, own: Own, sequence: int, row: str) -> int:
        who = own.name, own.producer_id, own.epoch, self._PLACE
        added = _settled(lambda: self._cluster.add(*who).code)
        return added or _settled(lambda: self._cluster.produce(*who, sequence, row).code)

    def end(self, own: Own, commit: bool, version: int = FENCING_END) -> int:
        who = own.name, own.producer_id, own.epoch
        return _settled(lambda: self._cluster.end(*who, commit=commit, version=version, who="test").code)

    def describe(self, name: str) -> tuple[str, int]:
        entry = self._cluster.describe(name).value
        assert isinstance(entry.state, State)
        return entry.state.value, entry.epoch

    def timeout_ms(self, name: str) -> int:
        return self._cluster.describe(name).value.timeout_ms

    def outlast(self, name: str) -> None:
        self._world.spawn("time", "nobody", lambda: self._world.sleep(self.timeout_ms(name) + 2_000))
        self._world.run()
        assert self.describe(name)[0] == State.COMPLETE_ABORT.value

    def visible(self) -> list[str]:
        log = self._cluster.log(self._PLACE)
        return [record.payload for record in log.records[: log.stable] if record.visible]


# Scenarios: what was answered, in order


def committed(world: Anywhere) -> list[object]:
    """To commit again is answered in the same way, to abort now is not possible."""
    own = world.init("a")
    told: list[object] = [world.write(own, 0, "x"), world.write(own, 1, "y"), world.visible()]
    told += [world.end(own, True), world.end(own, True), world.end(own, False), world.describe("a")]
    return [*told, world.visible()]


def aborted(world: Anywhere) -> list[object]:
    own = world.init("a")
    told: list[object] = [world.write(own, 0, "x"), world.end(own, False), world.end(own, False)]
    return [*told, world.end(own, True), world.describe("a"), world.visible()]


def fenced(world: Anywhere) -> list[object]:
    """Who takes the name aborts what is open under it; whoever had it can do nothing more."""
    first = world.init("a")
    told: list[object] = [world.write(first, 0, "x")]
    second = world.init("a")
    told += [second.epoch - first.epoch, world.write(first, 1, "y"), world.end(first, True)]
    told += [world.write(second, 0, "z"), world.end(second, True), world.describe("a")]
    return [*told, world.visible()]


def nothing_written(world: Anywhere) -> list[object]:
    """There is nothing to commit; to abort nothing fences all the same."""
    own = world.init("a")
    told: list[object] = [world.end(own, True), world.describe("a"), world.end(own, False), world.describe("a")]
    return [*told, world.end(own, True), world.write(own, 0, "x")]


def numbers(world: Anywhere) -> list[object]:
    """What is there already is not written again; what leaves a gap is refused."""
    own = world.init("a")
    told: list[object] = [world.write(own, n, f"row {n}") for n in (0, 1, 1, 3, 2, 3)]
    return [*told, world.end(own, True), world.describe("a"), world.visible()]


def late_row(world: Anywhere) -> list[object]:
    """A row that comes after the end does not begin the transaction again."""
    own = world.init("a")
    told: list[object] = [world.write(own, 0, "x"), world.end(own, True), world.describe("a")]
    return [*told, world.write(own, 1, "y"), world.describe("a"), world.visible()]


def two_at_once(world: Anywhere) -> list[object]:
    """Nothing behind the first open row is visible, whoever has committed."""
    first, second = world.init("a"), world.init("b")
    told: list[object] = [world.write(first, 0, "x"), world.write(second, 0, "y"), world.end(second, True)]
    told += [world.describe("b"), world.visible(), world.end(first, False), world.describe("a")]
    return [*told, world.visible()]


def opened_once_more(world: Anywhere) -> list[object]:
    """Where an end does not fence, a row that is sent again after it opens the transaction again, and is not written
    again: so what is committed or aborted then has no row."""
    told: list[object] = []
    for name, commit in (("a", True), ("b", False)):
        own = world.init(name)
        told += [world.write(own, 0, name), world.write(own, 1, name * 2), world.end(own, commit, PLAIN_END)]
        told += [world.describe(name), world.write(own, 0, name), world.describe(name), world.visible()]
        told += [world.end(own, commit, PLAIN_END), world.end(own, not commit, PLAIN_END), world.describe(name)]
    return [*told, world.visible()]


def ended_by_either(world: Anywhere) -> list[object]:
    """The epoch rises with the one version and not with the other; then neither repeats what the other did."""
    told: list[object] = []
    for name, first, second in (("a", PLAIN_END, FENCING_END), ("b", FENCING_END, PLAIN_END)):
        own = world.init(name)
        told += [world.write(own, 0, name), world.end(own, True, first), world.describe(name)]
        told += [world.end(own, True, second), world.describe(name), world.visible()]
    return told


def outlives(world: Anywhere) -> list[object]:
    """A transaction of two-phase commit is open when a plain one with the same timeout, which began later, was aborted.
    It is committed by what was noted of it. Whoever takes its name aborts it, with the option or without, and a plain
    producer's next transaction expires as any other."""
    held, plain = world.init("a", SHORT_MS, two_phase=True), world.init("b", SHORT_MS)
    told: list[object] = [world.timeout_ms("a"), world.timeout_ms("b")]
    told += [world.write(held, 0, "x"), world.write(plain, 0, "y")]
    world.outlast("b")
    told += [world.end(plain, True), world.describe("b"), world.describe("a"), world.visible()]
    told += [world.write(held, 1, "z"), world.end(held, True), world.end(held, True), world.describe("a")]
    for two_phase in (True, False):
        first = world.init("c", SHORT_MS, two_phase=True)
        told += [world.write(first, 0, "c"), world.describe("c")]
        second = world.init("c", SHORT_MS, two_phase=two_phase)
        told += [second.epoch - first.epoch, world.end(first, True), world.describe("c"), world.timeout_ms("c")]
    told.append(world.write(second, 0, "d"))
    world.outlast("c")
    return [*told, world.end(second, True), world.visible()]


#: For clusters that offer two-phase commit.
TWO_PHASE_SCENARIOS: tuple[Callable[[Anywhere], list[object]], ...] = (outlives,)

SCENARIOS: tuple[Callable[[Anywhere], list[object]], ...] = (
    committed,
    aborted,
    fenced,
    nothing_written,
    numbers,
    late_row,
    two_at_once,
    opened_once_more,
    ended_by_either,
)
