"""What our code is asked to do, against any cluster: one function each, which tells what it was told.

None of them repeats what has failed: that is the protocol's affair. What it is told must be true, and come in time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from spark_eos.base import system
from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import EosError
from spark_eos.kafka.codes import OK
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.producer.arrow import ArrowProducer, _Topic
from spark_eos.kafka.producer.partitioner import Partitioner
from spark_eos.kafka.records.batches import Damage, walk_batches
from spark_eos.kafka.records.rows import read_rows
from spark_eos.kafka.requests import fetch
from spark_eos.kafka.requests.describe_producers import describe_producers, open_begins
from spark_eos.kafka.requests.describe_transactions import describe_transactions
from spark_eos.kafka.requests.end_txn import end_own_txn
from spark_eos.kafka.transactions import FENCING_END
from spark_eos.ledger.lookup import RecordLookup
from spark_eos.protocol.head import Pair, Probe
from spark_eos.protocol.ports import State, Visibility
from spark_eos.source.fetching import Fetching
from spark_eos.source.small_ranges import gather, take

from .two_phase import TwoPhase

T = TypeVar("T")

TIMEOUT_MS = 60_000
TRANSACTIONS = 2
END_S = 20.0


@dataclass(frozen=True)
class Scene:
    """A cluster, and what is ours on it: a topic of so many partitions, a ledger of two, the ids with this prefix, and
    perhaps a group that gets offsets; and whether two-phase commit is asked for."""

    kafka: KafkaProperties
    topic: str
    ledger: str
    partitions: int
    prefix: str
    chance: random.Random = field(compare=False, repr=False)
    with_group: bool = False
    two_phase: TwoPhase | None = None


@dataclass
class Attempt:
    """One transaction, as its writer knows it. ``rows``: by partition, in order. ``code``: what EndTxn answered last;
    None for no answer. ``error``: what was raised, and then nothing was ended. ``found``: what the look-up said.
    ``two_phase``: whether it was to be one that never expires."""

    number: int
    name: str
    rows: dict[int, list[bytes]]
    pair: Pair | None = None
    version: int = FENCING_END
    asked: bool = False
    code: int | None = None
    error: BaseException | None = None
    probe: Probe | None = None
    found: Visibility | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    two_phase: bool = False

    def timed(self, call: str, do: Callable[[], T]) -> T:
        began = system.monotonic()
        try:
            return do()
        finally:
            self.seconds[call] = system.monotonic() - began


class Work(Protocol):
    """What transactions write."""

    def rows(self, scene: Scene, number: int) -> dict[int, list[bytes]]:
        """By partition, of the transaction of this number; some in the first one."""

    def write(self, scene: Scene, attempt: Attempt, producer: ArrowProducer) -> None:
        """Write them all. Raises EosError."""


def write_and_commit(scene: Scene, *, first_sequence: int = 0, work: Work | None = None) -> list[Attempt]:
    """Transactions one after the other, by default each of several batches in each partition; then each is looked
    for."""
    attempts = []
    for number in range(TRANSACTIONS):
        two_phase = scene.two_phase is not None and scene.two_phase.used(number)
        name = f"{scene.prefix}-{0 if scene.two_phase is not None and scene.two_phase.same_name else number}"
        attempt = Attempt(number, name, (work.rows if work else _rows)(scene, number), two_phase=two_phase)
        attempts.append(attempt)
        try:
            _write(scene, attempt, first_sequence, work.write if work else _write_all)
        except EosError as error:
            attempt.error = error
            continue
        attempt.asked = True
        _sleep(scene, attempt, 1)
        _end(scene, attempt)
    for attempt in attempts:
        if attempt.asked and attempt.code != OK and attempt.probe is not None:
            _look(scene, attempt)
    return attempts


def _rows(scene: Scene, number: int) -> dict[int, list[bytes]]:
    counts = [scene.chance.choice((0, 1, 3, 17, 40)) for _ in range(scene.partitions)]
    counts[0] = counts[0] or 2
    return {p: [f"{number}.{p}.{i}".encode() for i in range(n)] for p, n in enumerate(counts) if n}


def _write(
    scene: Scene, attempt: Attempt, first_sequence: int, write: Callable[[Scene, Attempt, ArrowProducer], None]
) -> None:
    in_flight = scene.chance.choice((300, 8 << 20))
    producer = ArrowProducer(
        broker_client(scene.kafka), attempt.name, TIMEOUT_MS, two_phase=attempt.two_phase, in_flight_bytes=in_flight
    )
    try:
        attempt.timed("init", producer.init)
        attempt.pair, attempt.version = producer.identity(), producer.endtxn_version
        if first_sequence:
            sequences = np.full(scene.partitions, first_sequence, np.int64)
            producer._topics[scene.topic] = _Topic(Partitioner(scene.partitions, producer._partitioner), sequences)
        attempt.timed("write", lambda: write(scene, attempt, producer))
        attempt.probe = _first_place(scene, attempt)
        if attempt.two_phase:
            _more(scene, attempt, producer)
    except EosError:
        attempt.timed("abort", producer.abort)
        raise
    finally:
        producer.close()


def _write_all(scene: Scene, attempt: Attempt, producer: ArrowProducer) -> None:
    left = {p: list(rows) for p, rows in attempt.rows.items()}
    while left:
        some = [(p, left[p].pop(0)) for p in sorted(left) for _ in range(min(7, len(left[p])))]
        left = {p: rows for p, rows in left.items() if rows}
        numbers, values = zip(*some, strict=True)
        producer.write(
            scene.topic,
            scene.partitions,
            value=pa.array(values, pa.binary()),
            partition=pa.array(numbers, pa.int32()),
        )
    producer.flush()


def _more(scene: Scene, attempt: Attempt, producer: ArrowProducer) -> None:
    """One more row, when the writer has slept."""
    _sleep(scene, attempt, 0)
    row = f"{attempt.name} late".encode()
    attempt.rows[0].append(row)
    producer.write(scene.topic, scene.partitions, value=pa.array([row]), partition=pa.array([0], pa.int32()))
    attempt.timed("more", producer.flush)


def _sleep(scene: Scene, attempt: Attempt, which: int) -> None:
    if scene.two_phase is not None and attempt.two_phase:
        system.sleep(scene.two_phase.sleeps[which])


def _first_place(scene: Scene, attempt: Attempt) -> Probe | None:
    assert attempt.pair is not None
    own = attempt.pair.producer_id, attempt.pair.epoch
    for partition in attempt.rows:
        begins = open_begins(describe_producers(broker_client(scene.kafka), scene.topic, partition))
        if own in begins:
            return Probe(scene.topic, partition, begins[own])
    return None


def _end(scene: Scene, attempt: Attempt) -> None:
    assert attempt.pair is not None
    client, transaction = broker_client(scene.kafka), astuple(attempt.pair)
    attempt.code = attempt.timed("end", lambda: end_own_txn(client, transaction, True, END_S, attempt.version))


def settle(scene: Scene, attempts: Sequence[Attempt]) -> None:
    """End what no timeout does, by what was noted of it: commit where that was asked for, abort the others."""
    client = broker_client(scene.kafka)
    for attempt in attempts:
        for state in describe_transactions(client, [attempt.name]) if attempt.pair is not None else ():
            pair = Pair(attempt.name, state.producer_id, state.producer_epoch)
            if state.transaction_state == State.ONGOING.value and pair == attempt.pair:
                code = end_own_txn(client, astuple(pair), attempt.asked, END_S, attempt.version)
                attempt.code = code if attempt.asked else attempt.code


def _look(scene: Scene, attempt: Attempt) -> None:
    assert attempt.pair is not None and attempt.probe is not None
    pair, probe = attempt.pair, attempt.probe
    try:
        attempt.found = attempt.timed("look", lambda: RecordLookup(broker_client(scene.kafka)).look(pair, probe))
    except EosError as error:
        attempt.error = error


@dataclass
class Read:
    """The committed rows of a partition, up to the offset ``end``; ``whole``: that is the last stable offset."""

    rows: list[bytes] = field(default_factory=list)
    end: int = 0
    whole: bool = False


def read_back(scene: Scene, partition: int) -> Read:
    """All committed rows of a partition by our own Fetch, read_committed."""
    read = Read()
    for _ in range(50):
        limit = scene.chance.choice((1, 400, 1 << 20))
        fetched = fetch.fetch_once(broker_client(scene.kafka), scene.topic, partition, read.end, limit)
        if fetched is None or fetched[0].error != OK:
            continue
        answer, data = fetched
        try:
            for batch in walk_batches(data, answer.size, answer.aborted):
                if batch.visible and batch.base >= read.end:
                    read.rows += [value for _, _, value in read_rows(data, batch) if value is not None]
                read.end = max(read.end, batch.last + 1)
        except Damage:
            continue
        if read.end >= answer.stable:
            read.whole = True
            break
    return read


def read_together(scene: Scene, before: Sequence[Read]) -> dict[int, list[bytes]]:
    """The rows of all partitions once more, by one request to each leader; those that have come whole."""
    ranges = [OffsetRange(scene.topic, partition, 0, read.end) for partition, read in enumerate(before) if read.end]
    fetching = Fetching(broker_client(scene.kafka))
    answers = gather(fetching, ranges)
    taken = {r.partition: take(fetching, r, answers) for r in ranges}
    return {
        partition: [value for batch in batches for value in batch["value"].to_pylist() if value is not None]
        for partition, batches in taken.items()
        if batches is not None
    }
