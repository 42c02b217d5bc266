"""The timeline of a query without recorded events, from the log files of its checkpoint and its records in the ledger
topic. Reads only.

A micro-batch begins when Spark plans it, is decided by a record of the ledger, and is done when Spark writes it to the
commit log. A run begins with the first head of its generation. When its tasks ran and why it ended is not known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spark_eos.checkpoint.files import Checkpoint
from spark_eos.errors import LedgerError
from spark_eos.ledger.ledger import ledger_partition
from spark_eos.ledger.log import KafkaLog
from spark_eos.ledger.owners import Cluster
from spark_eos.ledger.reader import LedgerReader
from spark_eos.ops.checkpoint_logs import Logs
from spark_eos.ops.heads import heads_of
from spark_eos.ops.table_state import sink_of
from spark_eos.ops.timeline import BatchAttempt, QueryRun, Timeline
from spark_eos.protocol.head import NOBODY, Head
from spark_eos.protocol.head_codec import decode


@dataclass(frozen=True)
class Published:
    """A head, and when it was written, in seconds since 1970."""

    at: float
    head: Head


@dataclass(frozen=True)
class Traces:
    """What a query has left behind; times are in seconds since 1970. ``planned``, ``done``: when Spark planned and
    finished each micro-batch; ``heads``: the heads of each sink in order, by the sink's name, "" for a stream;
    ``to_table``: the query writes to a table, and has no decisions."""

    query: str
    planned: dict[int, float]
    done: dict[int, float]
    heads: dict[str, list[Published]]
    to_table: bool = False


def traces_of(checkpoint: Checkpoint, cluster: Cluster) -> Traces:
    """The traces of a query. Raises EosError if its checkpoint or the ledger cannot be read."""
    query = checkpoint.query_id() or ""
    planned = {batch: _planned(checkpoint, batch) for batch in checkpoint.batches("offsets")}
    to_table = bool(sink_of(Logs(checkpoint)))
    known = {b: at for b, at in planned.items() if at is not None}
    found = Traces(query, known, checkpoint.times("commits"), {}, to_table=to_table)
    for own in heads_of(cluster, query) if query and not to_table else []:
        found.heads[own.name or ""] = _history(cluster, own.key)
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


def forgotten(traces: Traces) -> Sequence[int]:
    """The micro-batches of the checkpoint without a decision in the ledger, whether compacted or not made yet."""
    decisions = [published.head.decision for heads in traces.heads.values() for published in heads]
    return sorted(set(traces.planned) - {decision.batch for decision in decisions if decision is not None})


def timeline_from(traces: Traces) -> Timeline:
    """The timeline, and what is not known of it."""
    first = next(iter(traces.heads.values()), [])
    runs = _runs(first)
    batches = [
        batch
        for sink, heads in traces.heads.items() or [("", [])]
        for number, planned in traces.planned.items()
        for batch in _attempts(sink, number, planned, traces.done.get(number), _decisions(heads, number), runs)
    ]
    return Timeline(
        traces.query,
        [replace(run, end=_end_of(run, batches)) for run in runs],
        sorted(batches, key=lambda batch: batch.prepare[0]),
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


def _decisions(heads: Sequence[Published], number: int) -> list[Published]:
    """The decisions on a micro-batch: the first head with each revision."""
    first: dict[int, Published] = {}
    for published in heads:
        decision = published.head.decision
        if decision is not None and decision.batch == number:
            first.setdefault(decision.rev, published)
    return list(first.values())


def _attempts(
    sink: str, number: int, planned: float, done: float | None, decisions: Sequence[Published], runs: Sequence[QueryRun]
) -> Iterator[BatchAttempt]:
    """An attempt for each run that worked on the micro-batch; the last one may have finished it (``done``).

    A run publishes its first head after it has planned its first micro-batch, or found it planned. Which of the two is
    only known of a micro-batch that was decided before.
    """
    begins = [planned]
    if decisions:
        begins += [run.begin for run in runs if decisions[0].at < run.begin and (done is None or run.begin < done)]
    for begin, end in zip(begins, [*begins[1:], None], strict=True):
        before = [d for d in decisions if d.at < begin]
        own = [d for d in decisions if begin <= d.at and (end is None or d.at < end)]
        shown = own[-1].at if own else begin if before or done is None else done
        yield _attempt(sink, number, _run_at(runs, shown), (begin, end), done, before, own)


def _attempt(
    sink: str,
    number: int,
    run: str,
    span: tuple[float, float | None],
    done: float | None,
    before: Sequence[Published],
    own: Sequence[Published],
) -> BatchAttempt:
    """``span``: from the begin of this run to that of the next one; ``done``: when Spark finished the micro-batch;
    ``before``: the decisions of earlier runs; ``own``: those of this run."""
    begin, until = span
    known = [*before, *own]
    decision = known[-1].head.decision if known else None
    decided = own[-1].at if own else begin
    whole, outcome = (begin, decided), "cut off" if until is not None else ""
    if until is None and done is not None:
        whole = begin, max(begin, done)
        repaired = own and decision is not None and (len(known) > 1 or decision.rev > 0)
        outcome = "repaired" if repaired else "replayed" if before and not own else "committed"
    return BatchAttempt(
        number,
        run,
        sink,
        0 if decision is None else decision.rows,
        (begin, decided),
        outcome,
        decide=(decided, decided) if own else None,
        whole=whole,
    )


def _run_at(runs: Sequence[QueryRun], at: float) -> str:
    return next((run.id for run in reversed(runs) if run.begin <= at), runs[0].id if runs else "")


def _end_of(run: QueryRun, batches: Sequence[BatchAttempt]) -> float:
    """The time of the last trace of a run."""
    return max([run.end, *(batch.whole[1] for batch in batches if batch.run == run.id and batch.whole is not None)])


def _unknown(traces: Traces, runs: Sequence[QueryRun]) -> list[str]:
    """Sentences on what is not known."""
    notes = ["Times come from two clocks: the driver's (plan, decision), and the file system's (end)."]
    if traces.to_table:
        return [*notes, "Not recorded: when tasks ran, when the table had the rows, the lag, runs and why they ended."]
    ran = "Not recorded: when tasks ran ('prepare' is from the plan to the decision), when transactions ended, the lag"
    notes.append(ran + (", why runs ended, who planned a run's first micro-batch." if len(runs) > 1 else "."))
    missing = [number for number in forgotten(traces) if number in traces.done]
    if missing:
        notes.append(f"The ledger topic, which is compacted, no longer has the decisions of {_some(missing)}.")
    return notes


def _some(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"micro-batch {numbers[0]}"
    return f"{len(numbers)} micro-batches, {numbers[0]} to {numbers[-1]}"
