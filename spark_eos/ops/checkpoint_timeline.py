"""What a query leaves behind without being asked to: Spark's log files in its checkpoint, the records of its heads in
the ledger, and the markers of its transactions. Reads only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import EosError, LedgerError
from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.records.batches import Damage, UnsupportedFormat, walk_batches
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.ledger.ledger import ledger_partition
from spark_eos.ledger.log import KafkaLog
from spark_eos.ledger.owners import Cluster
from spark_eos.ledger.reader import LedgerReader
from spark_eos.ops.heads import heads_of
from spark_eos.protocol.head import Decision, Head, Written
from spark_eos.protocol.head_codec import decode

_FETCH_BYTES = 1 << 20
#: Of output that is read for markers, each of which is behind the rows of its transaction.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Published:
    """A head, and when it was written, in seconds of the epoch."""

    at: float
    head: Head


@dataclass(frozen=True)
class Traces:
    """Times are seconds of the epoch: ``planned`` and ``done`` of micro-batches, ``heads`` of each sink by its name (""
    for that of a stream), in order; ``markers``: when the last transaction of a decision ended, by sink, micro-batch
    and revision, where all of its markers were found."""

    query: str
    planned: dict[int, float]
    done: dict[int, float]
    heads: dict[str, list[Published]]
    markers: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def decisions(self) -> Iterator[tuple[float, str, Decision]]:
        """Each decision: when its head was written, the sink, and the decision."""
        for sink, heads in self.heads.items():
            for published in heads:
                if published.head.decision is not None:
                    yield published.at, sink, published.head.decision


def traces_of(checkpoint: Checkpoint, cluster: Cluster) -> Traces:
    """All there is. Raises EosError where checkpoint or ledger cannot be read."""
    query = checkpoint.query_id() or ""
    planned = {batch: _planned(checkpoint, batch) for batch in checkpoint.batches("offsets")}
    found = Traces(query, {b: at for b, at in planned.items() if at is not None}, checkpoint.times("commits"), {})
    for own in heads_of(cluster, query) if query else []:
        found.heads[own.sink or ""] = _history(cluster, own.key)
    budget = _Budget(_MOST_BYTES)
    for _, sink, decision in sorted(found.decisions(), key=lambda decided: decided[0], reverse=True):
        key = sink, decision.batch, decision.rev
        if key not in found.markers and (ended := _ended(cluster, decision, budget)) is not None:
            found.markers[key] = ended
    return found


def _planned(checkpoint: Checkpoint, batch: int) -> float | None:
    """By Spark's own note of when it began with the micro-batch."""
    try:
        noted = json.loads((checkpoint.read(f"offsets/{batch}") or "").splitlines()[1])["batchTimestampMs"]
        return float(noted) / 1000
    except (ValueError, KeyError, IndexError, TypeError):
        return None


def _history(cluster: Cluster, key: str) -> list[Published]:
    """The records of a query's heads that compaction has left, in order."""
    reader = LedgerReader(KafkaLog(cluster.kafka, cluster.ledger), ledger_partition(key, cluster.partitions), key)
    reader.read()  # which finds the partition
    return list(_readable(reader))


def _readable(reader: LedgerReader) -> Iterator[Published]:
    for dated in reader.history():
        try:
            head = decode(dated.value)
        except LedgerError:
            continue  # of another version: the newest one is known, or `read` had said so
        if dated.time_ms is not None:
            yield Published(dated.time_ms / 1000, head)


@dataclass
class _Budget:
    left: int


def _ended(cluster: Cluster, decision: Decision, budget: _Budget) -> float | None:
    """When the last marker was written, by the brokers' clocks; None where one was not found."""
    times = [_marker(cluster, written, budget) for written in decision.written]
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def _marker(cluster: Cluster, written: Written, budget: _Budget) -> float | None:
    probe, offset = written.probe, written.probe.offset
    while budget.left > 0:
        try:
            fetched = fetch_once(
                broker_client(cluster.kafka),
                probe.topic,
                probe.partition,
                offset,
                _FETCH_BYTES,
                isolation="read_uncommitted",
            )
        except EosError:
            return None  # the output is not this user's to read
        if fetched is None or fetched[0].error != OK:
            return None
        answer, data = fetched
        budget.left -= max(1, answer.size)
        before = offset
        try:
            for batch in walk_batches(data, answer.size, ()):
                if batch.control and batch.producer_id == written.pair.producer_id and batch.last >= probe.offset:
                    return batch.max_time / 1000
                offset = max(offset, batch.last + 1)
        except (Damage, UnsupportedFormat):
            return None
        if offset == before:
            return None  # the end: it is not written yet
    return None


def forgotten(traces: Traces) -> Sequence[int]:
    """Micro-batches of the checkpoint of which the ledger has no decision any more, or not yet."""
    return sorted(set(traces.planned) - {decision.batch for _, _, decision in traces.decisions()})
