"""Batches to brokers that answer late, with errors, or not at all: in the end each is written once, and in order.

The brokers are a model: leaders, logs, the last five batches of a producer, requests that are worked on after their
connection is gone. As brokers before Kafka 4.1 they take any sequence number for the first one of a partition.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_eos.base.retry import ANNOUNCED_AFTER_S
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import ConnectionFailed, EosError, stop
from spark_eos.kafka.producer.partition_queue import UNKNOWN_OFFSET
from spark_eos.kafka.producer.sender import Sender
from spark_eos.kafka.records.encode import Sealed
from spark_eos.kafka.requests.produce import ProduceResponse
from spark_eos.kafka.transactions import ProducerIdentity

NODES = 3
OK, OUT_OF_ORDER, DUPLICATE, NOT_LEADER, NOT_REPLICATED = 0, 45, 46, 6, 7
REFUSALS = (3, 6, 14, 19, 51, 56)

#: What befalls a request: worked on · worked on, but no answer comes and the connection goes · the connection goes, and
#: it is worked on later, or never · refused · written, but the replicas are late · all leaders move · worked on; but
#: where it comes after one at which the connection goes, that was because the brokers restarted.
FATES = ("works", "silent", "late", "never", "refused", "replicas", "moves", "restart")


@dataclass
class Partition:
    """``forgotten``: how many batches are from before the last start, but for the last one."""

    leader: int = 0
    log: list[Sealed] = field(default_factory=list)
    forgotten: int = 0

    def append(self, sealed: Sealed) -> int:
        if sealed in self.log[self.forgotten :][-5:]:
            return OK
        if self.log and sealed.sequence != self.log[-1].sequence + self.log[-1].count:
            return OUT_OF_ORDER
        self.log.append(sealed)
        return OK

    def offset_of(self, sealed: Sealed) -> int:
        return sum(before.count for before in self.log[: self.log.index(sealed)])


def append(partition: Partition, sealed: Sealed) -> int:
    return partition.append(sealed)


class Brokers:
    """``fates``: what befalls the next requests; when they are used up, everything works. ``take``: what a leader does
    with a batch. ``is_silent``: whether there is no answer on a connection, each time that somebody looks for one.
    ``life``: requests after which each connection is to be replaced; 0 for never."""

    silence_s = 30.0

    def __init__(
        self,
        fates: Iterable[tuple[str, int]] = (),
        take: Callable[[Partition, Sealed], int] = append,
        is_silent: Callable[[Connection], bool] = lambda _: False,
        life: int = 0,
    ) -> None:
        self.partitions: dict[TopicPartition, Partition] = {}
        self.fates, self.take, self.is_silent, self.life = deque(fates), take, is_silent, life
        self.zombies: deque[tuple[int, Mapping[TopicPartition, Sealed]]] = deque()
        self.known: dict[bytes, Sealed] = {}
        self.readable = os.eventfd(1)
        self.pool = SimpleNamespace(give_back=Connection.close, lost=Connection.close)

    @contextmanager
    def sender(self) -> Iterator[Sender]:
        """A sender to these brokers, within the block."""
        sender = Sender(self, "id", 60)
        try:
            yield sender
        finally:
            sender.close()
            os.close(self.readable)

    # As the client

    def connection(self, kind: type, node: int) -> Connection:
        return Connection(self, node)

    def leaders(self, places: list[TopicPartition]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        return {place: self.partitions[place].leader for place in places}, {}

    def forget_leader(self, topic: str, partition: int) -> None:
        pass

    def forget_versions(self, node: int) -> None:
        pass

    # As a broker

    def append(self, node: int, batches: Mapping[TopicPartition, Sealed]) -> dict[TopicPartition, int]:
        return {
            place: self.take(self.partitions[place], sealed) if self.partitions[place].leader == node else NOT_LEADER
            for place, sealed in batches.items()
        }

    def work(
        self, connection: Connection, batches: Mapping[TopicPartition, Sealed]
    ) -> dict[TopicPartition, int] | None:
        """The answer; None when the connection goes."""
        fate, number = self.fates.popleft() if self.fates else ("works", 0)
        if fate in ("late", "never"):
            if fate == "late":
                self.zombies.append((connection.node, batches))
            return None
        if fate == "refused":
            return dict.fromkeys(batches, REFUSALS[number % len(REFUSALS)])
        if fate == "moves":
            for partition in self.partitions.values():
                partition.leader = number % NODES
        errors = self.append(connection.node, batches)
        if fate == "silent":
            return None
        if fate == "replicas":
            return {place: error or NOT_REPLICATED for place, error in errors.items()}
        if self.zombies and number % 2:
            self.append(*self.zombies.popleft())
        return errors

    def lose(self, node: int, requests: list[Mapping[TopicPartition, Sealed]]) -> None:
        """Of what was sent behind a request whose connection goes, some is worked on at once and some later."""
        fate, number = self.fates.popleft() if self.fates else ("", 0)
        for batches in requests[:number]:
            self.append(node, batches)
        self.zombies.extend((node, batches) for batches in requests[number : 2 * number])
        if fate == "restart":
            for partition in self.partitions.values():
                partition.forgotten = max(0, len(partition.log) - 1)


class Connection:
    """As `ProduceConnection`. Requests are worked on when somebody looks for answers, some at a time."""

    sending = False
    moved_at = float("inf")

    def __init__(self, brokers: Brokers, node: int) -> None:
        self.node = node
        self._brokers = brokers
        self._asked: deque[tuple[int, dict[TopicPartition, Sealed]]] = deque()
        self._number = 0
        self._open = True

    def fileno(self) -> int:
        return self._brokers.readable

    @property
    def idle(self) -> bool:
        return not self._asked

    @property
    def due(self) -> bool:
        return 0 < self._brokers.life <= self._number

    def send(self, name: str, batches: Mapping[TopicPartition, bytes], timeout_ms: int) -> int:
        assert self._open and not self.due
        self._number += 1
        self._asked.append((self._number, {place: self._brokers.known[data] for place, data in batches.items()}))
        return self._number

    def push(self) -> None:
        assert self._open

    def answers(self) -> list[ProduceResponse]:
        assert self._open
        found = []
        if self._brokers.is_silent(self):
            return found
        while self._asked and len(found) < 2:
            number, batches = self._asked.popleft()
            errors = self._brokers.work(self, batches)
            if errors is None:
                self._brokers.lose(self.node, [later for _, later in self._asked])
                raise OSError("gone")
            offsets = {
                place: self._brokers.partitions[place].offset_of(sealed)
                for place, sealed in batches.items()
                if errors[place] == OK
            }
            found.append(ProduceResponse(number, errors, offsets))
        return found

    def close(self) -> None:
        self._open = False


def _deliver(
    brokers: Brokers, adds: list[int], bound: int = 10**9, every: int = 1
) -> dict[TopicPartition, list[Sealed]]:
    """Add a batch to the partitions of these numbers, one after the other, and wait after every so many of them; what
    was added."""
    added: dict[TopicPartition, list[Sealed]] = {}
    with brokers.sender() as sender:
        for count, partition in enumerate(adds, 1):
            place = "t", partition
            brokers.partitions.setdefault(place, Partition(partition % NODES))
            own = added.setdefault(place, [])
            sequence = own[-1].sequence + own[-1].count if own else 0
            sealed = Sealed(f"{partition}:{sequence}".encode(), sequence, 1 + sequence % 3)
            brokers.known[sealed.data] = sealed
            own.append(sealed)
            sender.add(place, sealed)
            if count % every == 0:
                sender.wait_until_below(bound)
        sender.wait_until_below(0)
    assert sender.size == 0
    for place, own in added.items():
        _check_runs(sender.runs(place), sum(sealed.count for sealed in own))
    return added


def _check_runs(runs: tuple[tuple[int, int], ...], rows: int) -> None:
    """Of a partition without other rows. Each is where it lies, or unknown, and no two runs could be one."""
    found = [first if first == UNKNOWN_OFFSET else first + i for first, count in runs for i in range(count)]
    assert len(found) == rows
    assert all(offset in (UNKNOWN_OFFSET, i) for i, offset in enumerate(found))
    assert all((before == UNKNOWN_OFFSET) != (after == UNKNOWN_OFFSET) for (before, _), (after, _) in pairwise(runs))


fates = st.lists(st.tuples(st.sampled_from(FATES), st.integers(0, 11)), max_size=40)


@given(
    fates=fates,
    adds=st.lists(st.integers(0, 3), max_size=40),
    bound=st.sampled_from([1, 12, 10**9]),
    every=st.sampled_from([1, 4, 100]),
    life=st.sampled_from([0, 1, 3]),
)
@example(fates=[("refused", 0)], adds=[0, 0, 0], bound=10**9, every=100, life=0)
@example(fates=[("works", 0), ("silent", 0), ("works", 9)], adds=[0] * 15, bound=10**9, every=100, life=0)
@example(fates=[("works", 0), ("silent", 0), ("restart", 9)], adds=[0] * 15, bound=10**9, every=100, life=0)
@example(fates=[("works", 0), ("silent", 0), ("restart", 2)], adds=[0] * 15, bound=10**9, every=100, life=0)
@example(fates=[("works", 0)] * 5 + [("moves", 0)], adds=[0] + [1] * 8 + [2] * 8, bound=10**9, every=100, life=0)
def test_every_batch_is_written_once_and_in_order(fates, adds, bound, every, life):
    """Whatever befalls the requests."""
    brokers = Brokers(fates, life=life)
    added = _deliver(brokers, adds, bound, every)
    while brokers.zombies:
        brokers.append(*brokers.zombies.popleft())
    assert {place: partition.log for place, partition in brokers.partitions.items()} == added


@pytest.mark.parametrize(
    ("error", "condition", "reason"),
    [
        (10, "EOS_ROW_TOO_LARGE", None),
        (18, "EOS_DELIVERY_FAILED", "RECORD_LIST_TOO_LARGE"),
        (2, "EOS_DELIVERY_FAILED", "CORRUPT_MESSAGE"),
        (29, "EOS_UNAUTHORIZED", "TOPIC_AUTHORIZATION_FAILED"),
        (OUT_OF_ORDER, "EOS_DELIVERY_FAILED", "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        (47, "EOS_FENCED", None),
        (48, "EOS_DELIVERY_FAILED", "INVALID_TXN_STATE"),
        (49, "EOS_DELIVERY_FAILED", "INVALID_PRODUCER_ID_MAPPING"),
        (59, "EOS_DELIVERY_FAILED", "UNKNOWN_PRODUCER_ID"),
        (87, "EOS_ROW_REFUSED", "INVALID_RECORD"),
        (90, "EOS_FENCED", None),
        (-1, "EOS_DELIVERY_FAILED", "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_errors_that_do_not_pass(error, condition, reason):
    """Raised at once, by their names."""
    with pytest.raises(EosError) as caught:
        _deliver(Brokers(take=lambda *_: error), [0])
    assert (caught.value.condition, caught.value.parameters.get("reason")) == (condition, reason)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (19, "NOT_ENOUGH_REPLICAS: fewer replicas are in sync than min.insync.replicas asks for"),
        (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND: fewer replicas are in sync than min.insync.replicas asks for"),
        (5, "LEADER_NOT_AVAILABLE: the partition has no leader"),
        (6, "NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_rows_that_wait_for_long_are_told_with_the_reason(error, why, clock, caplog):
    """Each partition once, with its topic and what the brokers say; and once more when they are written. When the
    brokers refuse the first, its time is up."""
    began = clock.now

    def take(partition: Partition, sealed: Sealed) -> int:
        clock.now = began + ANNOUNCED_AFTER_S
        return partition.append(sealed) if "t-0" in caplog.text and "t-1" in caplog.text else error

    with caplog.at_level("WARNING", "spark_eos"):
        _deliver(Brokers(take=take), [0, 0, 1], every=100)
    messages = [record.getMessage() for record in caplog.records]
    waiting = [message for message in messages if message.startswith("writing as id has waited for 10 s: ")]
    assert all(message.endswith(f" ({why})") for message in waiting)
    assert sorted(re.findall(r"t-\d", " ".join(waiting))) == ["t-0", "t-1"]
    over = [message for message in messages if message.startswith("writing as id goes on after 10 s: t-")]
    assert over and messages[-1] == over[-1] and len(waiting) + len(over) == len(messages)


def test_rows_without_any_answer_are_told_as_that(clock, caplog):
    """A leader that takes them, and whose followers do not."""

    def is_silent(_: Connection) -> bool:
        clock.now += 1
        return "has waited" not in caplog.text

    with caplog.at_level("WARNING", "spark_eos"):
        _deliver(Brokers(is_silent=is_silent), [0], every=100)
    told = [re.sub(r"after \d+ s", "after … s", record.getMessage()) for record in caplog.records]
    assert told == [
        "writing as id has waited for 10 s: t-0 (no answer from the leader)",
        "writing as id goes on after … s: t-0",
    ]


@pytest.mark.parametrize(
    ("error", "reason", "said"),
    [(3, "UNKNOWN_TOPIC_OR_PARTITION", ""), (19, "REQUEST_TIMED_OUT", r".*min\.insync\.replicas")],
)
def test_rows_that_were_never_written_are_told_with_the_reason(error, reason, said, clock):
    """A partition that is never known, or never has its replicas: the error at the end says what the brokers said."""

    def refuse(*_: object) -> int:
        clock.now += 25
        return error

    with pytest.raises(EosError, match=f"EOS_DELIVERY_FAILED.*1 row{said}") as caught:
        _deliver(Brokers(take=refuse), [0])
    assert caught.value.parameters["reason"] == reason


def test_a_duplicate_counts_as_written():
    """Brokers before Kafka 1.1 say so of a batch that they have, and more than five after it."""
    _deliver(Brokers(take=lambda *_: DUPLICATE), [0, 0, 1])


def test_a_pause_that_has_just_ended():
    """Is not slept through: nobody wakes us."""
    sender = Sender(Brokers(), "id", 60)
    sender.add(("t", 0), Sealed(b"", 0, 1))
    sender._queues["t", 0].not_before = time.monotonic() - 1
    assert sender._next_moment() < time.monotonic()


def test_a_broker_that_is_silent(clock):
    """Its connection is given up after as long as the client allows, and the batches go again on another one."""
    opened: list[Connection] = []

    def is_silent(connection: Connection) -> bool:
        clock.now += 1
        if connection not in opened:
            connection.moved_at = float("inf") if opened else clock.now
            opened.append(connection)
        return connection is opened[0]

    brokers, began = Brokers(is_silent=is_silent), clock.now
    brokers.silence_s = 5.0
    added = _deliver(brokers, [0, 0, 0])
    assert brokers.partitions["t", 0].log == added["t", 0]
    assert len(opened) == 2 and clock.now - began < 15


def test_a_broker_that_has_lost_what_it_acknowledged():
    """All that goes again is out of order, up to the last: an error, at once."""

    def lose(partition: Partition, sealed: Sealed) -> int:
        return partition.append(sealed) if sealed.sequence == 0 else OUT_OF_ORDER

    with pytest.raises(EosError, match=r"3 row.*OUT_OF_ORDER"):
        _deliver(Brokers([("works", 0), ("never", 0)], lose), [0, 0, 0], every=100)


def test_a_leader_that_has_lost_all_and_accepts_what_comes_next():
    """After an unclean election: it writes a later batch where an earlier one was acknowledged."""

    def lose(partition: Partition, sealed: Sealed) -> int:
        if len(partition.log) == 2:
            partition.log.clear()
        return partition.append(sealed)

    with pytest.raises(EosError, match="t-0 has lost rows up to offset 3 that were acknowledged, and goes on at 0"):
        _deliver(Brokers(take=lose), [0, 0, 0], bound=1)


def test_a_connection_that_is_due_for_one_partition_and_was_not_for_another():
    """Its session ends while the second one's leader is looked up, and the broker cannot be reached for a moment: the
    first one's batch waits, too."""
    failures = [OSError("gone")]

    class Expiring(Brokers):
        def leaders(self, places: list[TopicPartition]) -> Any:
            self.life = int(places == [("t", 3)])
            return super().leaders(places)

        def connection(self, kind: type, node: int) -> Connection:
            if self.life and failures:
                raise failures.pop()
            return super().connection(kind, node)

    brokers = Expiring()
    added = _deliver(brokers, [0, 0, 3], every=2)
    assert not failures
    assert {place: partition.log for place, partition in brokers.partitions.items()} == added


def test_a_cluster_that_nobody_hears_of_is_not_waited_for_as_long_as_transactions_live(clock):
    """Which is a quarter of an hour by default: the query would seem to hang, and its error says what is wrong."""

    class Silent(Brokers):
        def leaders(self, places: list[TopicPartition]) -> Any:
            clock.now += 15
            raise ConnectionFailed("EOS_KAFKA_UNREACHABLE", "No answer.", hint="Look.")

    began = clock.now
    with pytest.raises(ConnectionFailed), Silent().sender() as sender:
        sender.add(("t", 0), Sealed(b"rows", 0, 1))
        sender.wait_until_below(0)
    assert clock.now - began < 120


@pytest.mark.parametrize("error", [stop("EOS_LEDGER_BUSY"), ConnectionResetError("gone")], ids=["ours", "a socket's"])
def test_an_abort_that_fails_hides_no_error(error: Exception, caplog):
    """Whoever aborts has an error of its own to raise; the coordinator's timeout ends the transaction."""

    class Failing(Brokers):
        def coordinators(self, *_: object) -> Any:
            raise error

    brokers, sealed = Failing(), Sealed(b"rows", 0, 1)
    brokers.partitions["t", 0], brokers.known[sealed.data] = Partition(), sealed
    with brokers.sender() as sender:
        sender.add(("t", 0), sealed)
        sender.advance()
        sender.abort(ProducerIdentity("id", 1, 0))
    assert "id could not be aborted" in caplog.text
