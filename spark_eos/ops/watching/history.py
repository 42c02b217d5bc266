"""The story of a query that nobody has recorded, put together from its traces.

Each micro-batch begins with Spark's plan, is decided by a record of the ledger, ends with the last marker of its
transactions, and is done when Spark notes it. A run begins with the first head of its generation. What a run does not
write down is not known: when its tasks ran, why it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_eos.ops.watching.story import BatchTry, QueryRun, Story
from spark_eos.ops.watching.traces import Published, Traces, forgotten
from spark_eos.protocol.head import NOBODY, Decision


@dataclass(frozen=True)
class _Decided:
    """``again``: it repairs a decision of before."""

    at: float
    decision: Decision
    again: bool


def story_from(traces: Traces) -> Story:
    """The story, with what is not known of it."""
    first = next(iter(traces.heads.values()), [])
    runs = _runs(first)
    batches = [
        batch
        for sink, heads in traces.heads.items() or [("", [])]
        for number, planned in traces.planned.items()
        for batch in _tries(traces, sink, number, planned, _decisions(heads, number), runs)
    ]
    return Story(
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
) -> list[BatchTry]:
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
) -> BatchTry:
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
    return BatchTry(
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


def _end_of(run: QueryRun, batches: Sequence[BatchTry]) -> float:
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
