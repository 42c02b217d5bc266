"""The timeline of a query whose events nobody has recorded, from what it leaves behind: Spark's log files in its
checkpoint, the records of its heads in the ledger, and the markers of its transactions. Reads only.

Each micro-batch begins with Spark's plan, is decided by a record of the ledger, ends with the last marker of its
transactions, and is done when Spark notes it. A run begins with the first head of its generation. What a run does not
write down is not known: when its tasks ran, why it ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import EosError, LedgerError
from spark_eos.kafka.codes import OK
from spark_eos.kafka.records.batches import Damage, UnsupportedFormat, walk_batches
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.ledger.ledger import ledger_partition
from spark_eos.ledger.log import KafkaLog
from spark_eos.ledger.owners import Cluster
from spark_eos.ledger.reader import LedgerReader
from spark_eos.ops.heads import heads_of
from spark_eos.ops.timeline import BatchAttempt, QueryRun, Timeline
from spark_eos.protocol.head import NOBODY, Decision, Head, Written
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
        found.heads[own.name or ""] = _history(cluster, own.key)
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
    reader = LedgerReader(KafkaLog(cluster.client, cluster.ledger), ledger_partition(key, cluster.partitions), key)
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
                cluster.client,
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


@dataclass(frozen=True)
class _Decided:
    """``again``: it repairs a decision of before."""

    at: float
    decision: Decision
    again: bool


def timeline_from(traces: Traces) -> Timeline:
    """The timeline, with what is not known of it."""
    first = next(iter(traces.heads.values()), [])
    runs = _runs(first)
    batches = [
        batch
        for sink, heads in traces.heads.items() or [("", [])]
        for number, planned in traces.planned.items()
        for batch in _tries(traces, sink, number, planned, _decisions(heads, number), runs)
    ]
    return Timeline(
        traces.query,
        [replace(run, end=_end_of(run, batches)) for run in runs],
        sorted(batches, key=lambda batch: batch.prepare[0]),
        [],
        [],
        unknown=_unknown(traces, runs),
    )


def _runs(heads: Sequence[Published]) -> list[QueryRun]:
    """A run for each generation. Its end is that of its last head, for now."""
    runs: list[QueryRun] = []
    for published in heads:
        head = published.head
        if head.run == NOBODY:
            if runs:
                runs[-1] = replace(runs[-1], end=published.at, how="closed")
        elif not runs or runs[-1].id != head.run or runs[-1].how is not None:
            # Of the oldest record that compaction has left, nobody knows when its run began.
            runs.append(QueryRun(head.run, published.at, published.at, None))
        else:
            runs[-1] = replace(runs[-1], end=published.at)
    return runs


def _decisions(heads: Sequence[Published], number: int) -> list[_Decided]:
    """When a micro-batch was decided, and repaired: the first head with each revision."""
    found: dict[int, _Decided] = {}
    for published in heads:
        decision = published.head.decision
        if decision is not None and decision.batch == number and decision.rev not in found:
            found[decision.rev] = _Decided(published.at, decision, again=bool(found) or decision.rev > 0)
    return list(found.values())


def _tries(
    traces: Traces, sink: str, number: int, planned: float, decisions: Sequence[_Decided], runs: Sequence[QueryRun]
) -> list[BatchAttempt]:
    """One for each run that had the micro-batch under way; the last one may have finished it.

    A run publishes its first head when it has planned its first micro-batch, or found it planned: which of the two is
    known only of one that was decided before.
    """
    done = traces.done.get(number)
    first = min((d.at for d in decisions), default=None)
    begins = [planned]
    if first is not None:
        begins += [run.begin for run in runs if first < run.begin and (done is None or run.begin < done)]
    tries = []
    for begin, end in zip(begins, [*begins[1:], None], strict=True):
        own = [d for d in decisions if begin <= d.at and (end is None or d.at < end)]
        before = [d for d in decisions if d.at < begin]
        shown = own[-1].at if own else begin if before or done is None else done
        tries.append(_try(traces, sink, number, (begin, end), own, before, done, _run_at(runs, shown)))
    return tries


def _try(
    traces: Traces,
    sink: str,
    number: int,
    span: tuple[float, float | None],
    own: Sequence[_Decided],
    before: Sequence[_Decided],
    done: float | None,
    run: str,
) -> BatchAttempt:
    """``span``: of this run, until the next one begins."""
    begin, until = span
    decided = own[-1] if own else None
    known = decided or (before[-1] if before else None)
    ended = traces.markers.get((sink, number, known.decision.rev)) if known is not None else None
    if ended is not None and known is not None and not _is_own(ended, known.at, begin, until):
        ended = None
    last = max([begin, *([decided.at] if decided is not None else []), *([ended] if ended is not None else [])])
    finished = until is None and done is not None
    outcome = "cut off" if until is not None else ""
    if finished and decided is None and before:
        outcome = "replayed"
    elif finished:
        outcome = "repaired" if decided is not None and decided.again else "committed"
    return BatchAttempt(
        number,
        run,
        sink,
        known.decision.rows if known is not None else 0,
        (begin, decided.at if decided is not None else begin),
        outcome,
        decide=(decided.at, decided.at) if decided is not None else None,
        end=None if ended is None else (min(decided.at if decided is not None else ended, ended), ended),
        whole=(begin, max(begin, done) if finished and done is not None else last),
    )


def _is_own(ended: float, decided: float, begin: float, until: float | None) -> bool:
    """Whether the transactions of a decision were ended by this run. A later run ends what it finds before it publishes
    its first head: what is nearer to that than to the decision is by the later one."""
    if decided < begin:
        return begin - ended < ended - decided
    return until is None or ended - decided <= until - ended


def _run_at(runs: Sequence[QueryRun], at: float) -> str:
    return next((run.id for run in reversed(runs) if run.begin <= at), runs[0].id if runs else "")


def _end_of(run: QueryRun, batches: Sequence[BatchAttempt]) -> float:
    """The last that is known of a run."""
    return max([run.end, *(batch.whole[1] for batch in batches if batch.run == run.id and batch.whole is not None)])


def _unknown(traces: Traces, runs: Sequence[QueryRun]) -> list[str]:
    """What the picture cannot tell, in sentences."""
    notes = ["Times are by three clocks: the driver's (plan, decision), brokers' (EndTxn), the file system's (end)."]
    if len(runs) > 1:
        notes.append("Not recorded: when tasks ran, the lag, why runs ended, who planned a run's first micro-batch.")
    else:
        notes.append("Not recorded: when tasks ran, the lag.")
    missing = [number for number in forgotten(traces) if number in traces.done]
    if missing:
        notes.append(f"The ledger, which is compacted, no longer has a record of the decisions of {_some(missing)}.")
    decided = {(sink, decision.batch, decision.rev) for _, sink, decision in traces.decisions() if decision.written}
    lost = sorted({number for _, number, _ in decided - traces.markers.keys()})
    if lost:
        notes.append(f"No markers were found for the transactions of {_some(lost)}, or it took too much reading.")
    return notes


def _some(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"micro-batch {numbers[0]}"
    return f"{len(numbers)} micro-batches, {numbers[0]} to {numbers[-1]}"
