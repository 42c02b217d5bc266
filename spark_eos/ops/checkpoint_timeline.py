"""The timeline of a query without recorded events, from the log files of its checkpoint, its records in the ledger
topic and the markers of its transactions. Reads only.

A micro-batch begins when Spark plans it, is decided by a record of the ledger, ends with the last marker of its
transactions, and is done when Spark writes it to the commit log. A run begins with the first head of its generation.
When its tasks ran and why it ended is not known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import EosError, LedgerError
from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.records.batches import Damage, UnsupportedFormat, walk_batches
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.ledger.ledger import ledger_partition
from spark_eos.ledger.log import KafkaLog
from spark_eos.ledger.owners import Cluster
from spark_eos.ledger.reader import LedgerReader
from spark_eos.ops.checkpoint_logs import Logs
from spark_eos.ops.heads import heads_of
from spark_eos.ops.table_state import sink_of
from spark_eos.ops.timeline import BatchAttempt, QueryRun, Timeline
from spark_eos.protocol.head import NOBODY, Decision, Head, Written
from spark_eos.protocol.head_codec import decode

_FETCH_BYTES = 1 << 20
#: Bytes of output to read in search of markers, which follow the rows of their transactions.
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Published:
    """A head, and when it was written, in seconds since 1970."""

    at: float
    head: Head


@dataclass(frozen=True)
class Traces:
    """What a query has left behind; times are in seconds since 1970. ``planned``, ``done``: when Spark planned and
    finished each micro-batch; ``heads``: the heads of each sink in order, by the sink's name, "" for a stream;
    ``markers``: when the last transaction of a decision ended, by sink, micro-batch and revision, if all of its markers
    were found; ``to_table``: the query writes to a table, and has no decisions."""

    query: str
    planned: dict[int, float]
    done: dict[int, float]
    heads: dict[str, list[Published]]
    markers: dict[tuple[str, int, int], float] = field(default_factory=dict)
    to_table: bool = False

    def decisions(self) -> Iterator[tuple[float, str, Decision]]:
        """Each decision: when its head was written, the sink, and the decision."""
        for sink, heads in self.heads.items():
            for published in heads:
                if published.head.decision is not None:
                    yield published.at, sink, published.head.decision


def traces_of(checkpoint: Checkpoint, cluster: Cluster) -> Traces:
    """The traces of a query. Raises EosError if its checkpoint or the ledger cannot be read."""
    query = checkpoint.query_id() or ""
    planned = {batch: _planned(checkpoint, batch) for batch in checkpoint.batches("offsets")}
    to_table = bool(sink_of(Logs(checkpoint)))
    known = {b: at for b, at in planned.items() if at is not None}
    found = Traces(query, known, checkpoint.times("commits"), {}, to_table=to_table)
    for own in heads_of(cluster, query) if query and not to_table else []:
        found.heads[own.name or ""] = _history(cluster, own.key)
    search = _MarkerSearch(cluster.client)
    for _, sink, decision in sorted(found.decisions(), key=lambda decided: decided[0], reverse=True):
        key = sink, decision.batch, decision.rev
        if key not in found.markers and (ended := search.last_marker(decision)) is not None:
            found.markers[key] = ended
    return found


def _planned(checkpoint: Checkpoint, batch: int) -> float | None:
    """When Spark planned a micro-batch, as it notes in the offset log."""
    try:
        noted = json.loads((checkpoint.read(f"offsets/{batch}") or "").splitlines()[1])["batchTimestampMs"]
        return float(noted) / 1000
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None


def _history(cluster: Cluster, key: str) -> list[Published]:
    """The heads of a sink that compaction has left, in order."""
    reader = LedgerReader(KafkaLog(cluster.client, cluster.ledger), ledger_partition(key, cluster.partitions), key)
    reader.read()  # finds the partition
    return list(_readable(reader))


def _readable(reader: LedgerReader) -> Iterator[Published]:
    for dated in reader.history():
        try:
            head = decode(dated.value)
        except LedgerError:
            continue  # of another version; `read` would have raised for the newest one
        if dated.time_ms is not None:
            yield Published(dated.time_ms / 1000, head)


class _MarkerSearch:
    """Looks for the markers of decided transactions, in up to `_MOST_BYTES` of output."""

    def __init__(self, client: BrokerClient) -> None:
        self._client, self._left = client, _MOST_BYTES

    def last_marker(self, decision: Decision) -> float | None:
        """When the last marker was written, by the brokers' clocks; None if one was not found."""
        times = [self._marker(written) for written in decision.written]
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None

    def _marker(self, written: Written) -> float | None:
        probe, offset = written.probe, written.probe.offset
        place = probe.topic, probe.partition
        while self._left > 0:
            try:
                fetched = fetch_once(self._client, *place, offset, _FETCH_BYTES, isolation="read_uncommitted")
            except EosError:
                return None  # this user may not read the output
            if fetched is None or fetched[0].error != OK:
                return None
            answer, data = fetched
            self._left -= max(1, answer.size)
            before = offset
            try:
                for batch in walk_batches(data, answer.size, ()):
                    if batch.control and batch.producer_id == written.pair.producer_id and batch.last >= probe.offset:
                        return batch.max_time / 1000
                    offset = max(offset, batch.last + 1)
            except (Damage, UnsupportedFormat):
                return None
            if offset == before:
                return None  # the end of the partition
        return None


def forgotten(traces: Traces) -> Sequence[int]:
    """The micro-batches of the checkpoint without a decision in the ledger, whether compacted or not made yet."""
    return sorted(set(traces.planned) - {decision.batch for _, _, decision in traces.decisions()})


@dataclass(frozen=True)
class _Decided:
    """A decision, when it was published, and whether it repairs an earlier one (``again``)."""

    at: float
    decision: Decision
    again: bool


def timeline_from(traces: Traces) -> Timeline:
    """The timeline, and what is not known of it."""
    first = next(iter(traces.heads.values()), [])
    runs = _runs(first)
    batches = [
        batch
        for sink, heads in traces.heads.items() or [("", [])]
        for number, planned in traces.planned.items()
        for batch in _attempts(traces, sink, number, planned, _decisions(heads, number), runs)
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
    """A run for each generation, which ends, for now, with its last head."""
    runs: list[QueryRun] = []
    for published in heads:
        head = published.head
        if head.run == NOBODY:
            if runs:
                runs[-1] = replace(runs[-1], end=published.at, how="closed")
        elif not runs or runs[-1].id != head.run or runs[-1].how is not None:
            # The run of the oldest record that compaction has left may have begun earlier.
            runs.append(QueryRun(head.run, published.at, published.at, None))
        else:
            runs[-1] = replace(runs[-1], end=published.at)
    return runs


def _decisions(heads: Sequence[Published], number: int) -> list[_Decided]:
    """The decisions on a micro-batch: the first head with each revision."""
    found: dict[int, _Decided] = {}
    for published in heads:
        decision = published.head.decision
        if decision is not None and decision.batch == number and decision.rev not in found:
            found[decision.rev] = _Decided(published.at, decision, again=bool(found) or decision.rev > 0)
    return list(found.values())


def _attempts(
    traces: Traces, sink: str, number: int, planned: float, decisions: Sequence[_Decided], runs: Sequence[QueryRun]
) -> list[BatchAttempt]:
    """An attempt for each run that worked on the micro-batch; the last one may have finished it.

    A run publishes its first head after it has planned its first micro-batch, or found it planned. Which of the two is
    only known of a micro-batch that was decided before.
    """
    done = traces.done.get(number)
    first = min((d.at for d in decisions), default=None)
    begins = [planned]
    if first is not None:
        begins += [run.begin for run in runs if first < run.begin and (done is None or run.begin < done)]
    attempts = []
    for begin, end in zip(begins, [*begins[1:], None], strict=True):
        own = [d for d in decisions if begin <= d.at and (end is None or d.at < end)]
        before = [d for d in decisions if d.at < begin]
        shown = own[-1].at if own else begin if before or done is None else done
        attempts.append(_attempt(traces, sink, number, (begin, end), own, before, done, _run_at(runs, shown)))
    return attempts


def _attempt(
    traces: Traces,
    sink: str,
    number: int,
    span: tuple[float, float | None],
    own: Sequence[_Decided],
    before: Sequence[_Decided],
    done: float | None,
    run: str,
) -> BatchAttempt:
    """``span``: from the begin of this run to that of the next one; ``own``: its decisions; ``before``: those of
    earlier runs; ``done``: when Spark finished the micro-batch."""
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
    """Whether this run ended the transactions of a decision. A later run ends them before it publishes its first head:
    an end that is nearer to that than to the decision is the later run's."""
    if decided < begin:
        return begin - ended < ended - decided
    return until is None or ended - decided <= until - ended


def _run_at(runs: Sequence[QueryRun], at: float) -> str:
    return next((run.id for run in reversed(runs) if run.begin <= at), runs[0].id if runs else "")


def _end_of(run: QueryRun, batches: Sequence[BatchAttempt]) -> float:
    """The time of the last trace of a run."""
    return max([run.end, *(batch.whole[1] for batch in batches if batch.run == run.id and batch.whole is not None)])


def _unknown(traces: Traces, runs: Sequence[QueryRun]) -> list[str]:
    """Sentences on what is not known."""
    if traces.to_table:
        clocks = "Times come from two clocks: the driver's (plan), the file system's (end)."
        return [clocks, "Not recorded: when tasks ran, when the table had the rows, the lag, runs and why they ended."]
    notes = ["Times come from three clocks: the driver's (plan, decision), brokers' (EndTxn), the file system's (end)."]
    if len(runs) > 1:
        notes.append("Not recorded: when tasks ran, the lag, why runs ended, who planned a run's first micro-batch.")
    else:
        notes.append("Not recorded: when tasks ran, the lag.")
    missing = [number for number in forgotten(traces) if number in traces.done]
    if missing:
        notes.append(f"The ledger topic, which is compacted, no longer has the decisions of {_some(missing)}.")
    decided = {(sink, decision.batch, decision.rev) for _, sink, decision in traces.decisions() if decision.written}
    lost = sorted({number for _, number, _ in decided - traces.markers.keys()})
    if lost:
        notes.append(
            f"No markers were found for the transactions of {_some(lost)} within {_MOST_BYTES >> 20} MiB of output."
        )
    return notes


def _some(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"micro-batch {numbers[0]}"
    return f"{len(numbers)} micro-batches, {numbers[0]} to {numbers[-1]}"
