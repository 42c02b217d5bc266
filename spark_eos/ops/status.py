"""``spark-eos status``: the state of queries as text and JSON. Exit code: 0 if no query needs attention, 1 if one does,
2 if that is not known; the caller gives 2 for an error, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from spark_eos.base.printable import in_lines
from spark_eos.base.topic_partition import flat
from spark_eos.checkpoint.files import Checkpoint
from spark_eos.checkpoint.offset_log import with_text_keys
from spark_eos.ledger.owners import Cluster, Transaction, TransactionPart
from spark_eos.ops.answer import Answer, ago, range_as_json, table
from spark_eos.ops.heads import SinkHead
from spark_eos.ops.query_states import query_states, with_parts
from spark_eos.ops.state import CheckpointState, QueryState, describe, name_of
from spark_eos.ops.table_state import TableState
from spark_eos.pipelines.copy.ranges import CopiedFrom, copied_by, ranges_of
from spark_eos.protocol.checks import is_visible, offsets_text
from spark_eos.protocol.head import NOBODY, BatchWrite, Decision, Head, Verdict


def status(
    cluster: Cluster,
    checkpoint: Checkpoint | None,
    queries: Sequence[str],
    *,
    watch_s: float,
    quiet_s: float,
    open_for_s: float | None = None,
) -> Answer:
    """Return the query of a checkpoint, queries by their ids, or all queries. With ``open_for_s``: only transactions
    that have been open for at least that long, and their queries. Raises EosError."""
    named = checkpoint is not None or bool(queries)
    states = query_states(cluster, checkpoint, queries, watch_s=watch_s, quiet_s=quiet_s)
    if open_for_s is not None:
        states = [replace(s, open=[t for t in s.open if t.open_s >= open_for_s]) for s in states]
        states = [s for s in states if s.open]
        code = 1 if states else 0
    else:
        code = 1 if any(s.problems for s in states) else 2 if any(s.unknown for s in states) else 0
    if named:
        states = [with_parts(cluster, state) for state in states]
    if not states and open_for_s is not None:
        return Answer([], f"no transaction has been open for {open_for_s:,.0f} s")
    text = "\n\n".join(map(as_text, states)) if named else overview(states, cluster.ledger)
    return Answer([as_json(s) for s in states], text, code)


def as_json(state: QueryState) -> dict[str, Any]:
    """Convert to JSON. Times are in seconds, ``lag`` is in offsets. ``running`` and ``next`` are null where they are
    not known."""
    at, liveness = state.checkpoint, state.liveness
    return {
        "query": state.query,
        "checkpoint": None if at is None else asdict(at) | {"left": with_text_keys(at.left)},
        "running": liveness.running,
        "signs_of_life": list(liveness.signs),
        "last_sign_s": None if liveness.last_s is None else round(liveness.last_s, 3),
        "lag": None if at is None else at.lag,
        "table": None if state.table is None else state.table.as_json(),
        "sinks": [_sink_as_json(state, sink) for sink in state.sinks],
        "open": [transaction_as_json(t, state.parts.get(t.id)) for t in state.open],
        "problem": state.unread or None,
        "troubles": state.problems,
        "unknown": state.unknown or None,
        "next": state.next_action,
    }


def _sink_as_json(state: QueryState, sink: SinkHead) -> dict[str, Any]:
    """Convert a sink's head to JSON. ``state``: "open" means that a run has opened the query, not that it is alive.
    ``start``: how the next start treats the head; null without a checkpoint, which has the micro-batch."""
    head, start = sink.head, None if state.checkpoint is None else state.status(sink)
    data = {
        "ledger_key": sink.key,
        "sink": sink.name,
        "partition": sink.partition,
        "offset": sink.offset,
        "age_s": None if sink.age_s is None else round(sink.age_s, 3),
        "problem": sink.problem or None,
    }
    if head is None:
        return data
    return data | {
        "job": head.write.job_id if isinstance(head.write, BatchWrite) else None,
        "prefix": head.prefix,
        "partitioner": head.partitioner,
        "run": None if head.run == NOBODY else head.run,
        "generation": head.generation,
        "state": describe(head),
        "start": None if start is None else start.value,
        "given_up": head.unwritten,
        "decision": None if head.decision is None else _decision_as_json(head.decision),
        "marks": head.marks.as_json(),
    }


def _decision_as_json(last: Decision) -> dict[str, Any]:
    """Convert a decision to JSON. ``complete``: whether the ledger says that all of it is committed; in a running
    query, the next micro-batch notes that."""
    copied = copied_by(last)
    return {
        "batch": last.batch,
        "repairs": last.rev,
        "rows": last.rows,
        "offsets": last.offsets,
        "group": last.group,
        "transactions": _counts(last),
        "complete": is_visible(last),
        "copied_from": None if copied is None else _ranges_as_json(last, copied),
    }


def _counts(last: Decision) -> dict[str, int]:
    verdicts = [w.verdict for w in last.written]
    names = {"committed": Verdict.COMMITTED, "lost": Verdict.LOST, "without_verdict": None}
    return {name: verdicts.count(verdict) for name, verdict in names.items()}


def _ranges_as_json(last: Decision, copied_from: CopiedFrom) -> dict[str, Any]:
    """Return the ranges of offsets that a copy has read for its last decision. ``rows``: ``committed``, ``lost``, or
    ``none`` where a range had none; null where that is not noted yet."""
    read = [(r, w.verdict.value if w.verdict is not None else None) for w in last.written for r in ranges_of(w)]
    read += [(r, "none") for r in copied_from.ranges]
    ranges = [range_as_json(r) | {"rows": rows} for r, rows in sorted(read, key=lambda pair: pair[0])]
    return {"cluster": copied_from.cluster, "ranges": ranges}


def transaction_as_json(transaction: Transaction, parts: Sequence[TransactionPart] | None = None) -> dict[str, Any]:
    """Convert a transaction to JSON. ``timeout_s`` is null if the transaction never expires; ``first_offset`` if it was
    not looked up, or the leader has no open transaction of it."""
    if parts is None:
        parts = [TransactionPart(topic, partition, None) for topic, partition in transaction.places]
    return {
        "transactional_id": transaction.id,
        "query": transaction.query,
        "job": transaction.job,
        "kind": "ledger" if transaction.of_ledger else "task",
        "generation": transaction.generation,
        "run": transaction.run,
        "batch": transaction.batch,
        "decided": transaction.decided,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "epoch": transaction.epoch,
        "open_s": round(transaction.open_s, 3),
        "timeout_s": transaction.timeout_s,
        "partitions": [asdict(part) for part in parts],
        "problem": transaction.problem or None,
    }


def overview(states: Sequence[QueryState], ledger: str) -> str:
    """Show all queries: a table of their heads, and one of their open transactions."""
    if not states:
        return f"no query in the ledger topic {ledger}"
    heads = [(state, sink) for state in states for sink in state.sinks]
    lines = [*table([_HEADINGS, *(_row(state, sink) for state, sink in heads)]), ""] if heads else []
    open_ = [t for state in states for t in state.open]
    lines += _transactions(open_, "no open transactions")
    lines += [f"trouble     query {state.query}: {text}" for state in states for text in state.problems]
    return in_lines(lines)


_HEADINGS = ("query", "sink or job", "generation", "micro-batch", "published", "state", "open transactions", "run")


def _row(state: QueryState, sink: SinkHead) -> tuple[str, ...]:
    head, age = sink.head, ago(sink.age_s)
    count = str(sum(t.query == sink.key for t in state.open))
    if head is None:
        return sink.key, "?", "?", "?", age, sink.problem, count, "?"
    name = "-" if sink.name is None else sink.name or "all sinks"
    if isinstance(head.write, BatchWrite):
        name = f"job {head.write.job_id}"
    batch = "-" if head.decision is None else str(head.decision.batch)
    return sink.query, name, str(head.generation), batch, age, describe(head), count, head.run or "-"


def as_text(state: QueryState) -> str:
    """Show one query with all details."""
    at = state.checkpoint
    lines = [] if at is None else [f"checkpoint  {at.location}"]
    lines += [f"query       {state.query or 'none yet'}", f"running     {_running(state)}"]
    lines += [] if at is None else _checkpoint_as_text(at)
    lines += _sinks_as_text(state) if state.table is None else _table_as_text(state.table)
    lines += [f"trouble     {text}" for text in state.problems]
    lines += [f"unknown     {state.unknown}"] if state.unknown else []
    if not state.problems and not state.unknown:
        lines.append("trouble     none found; why a run ended is in the log of its driver")
    if state.next_action is not None and f"the next start {state.next_action}" not in state.problems:
        lines += ["", f"The next start {state.next_action.rstrip('.')}."]
    return in_lines(lines)


def _running(state: QueryState) -> str:
    liveness = state.liveness
    last = "no sign of a run" if liveness.last_s is None else f"the last sign of a run was {ago(liveness.last_s)}"
    if liveness.running:
        return f"yes: {', '.join(liveness.signs) or last}"
    if liveness.running is None:
        return f"unknown: {last}; a run that waits for rows gives none"
    return "no: its last run is closed" if state.sinks else "no: it has never run with this ledger topic"


def _checkpoint_as_text(at: CheckpointState) -> Iterator[str]:
    yield f"planned     {_span(at.planned)} (in the offset log)"
    yield f"committed   {_span(at.committed)} (in the commit log)"
    if at.stateful:
        yield "stateful    yes"
    yield from (f"source      {kind}" for kind in at.sources)
    if at.partitions:
        rows: list[tuple[str, ...]] = [("partition", "committed", "planned", "log begins", "log ends")]
        for p in at.partitions:
            numbers = (p.committed, p.planned, p.begin, p.end)
            rows.append((f"{p.topic}-{p.partition}", *("-" if n is None else str(n) for n in numbers)))
        yield from (f"  {line}" for line in table(rows))
    yield from (f"  {topic}: was deleted or recreated since it was read" for topic in at.recreated_topics)
    yield from (f"  {topic}: on another cluster; its log was not looked at" for topic in at.elsewhere)
    for (topic, partition), offset in sorted(flat(at.left).items()):
        yield f"  {topic}-{partition}: no longer read; if the query reads it again, it continues at offset {offset}"
    if at.partitions:
        lag = "unknown" if at.lag is None else f"{at.lag:,} offsets to the last stable offset"
        yield f"lag         {lag}, in {len(at.partitions)} partition(s)"


def _span(batches: Sequence[int]) -> str:
    if not batches:
        return "none"
    whole = len(batches) == batches[-1] - batches[0] + 1
    return f"micro-batches {batches[0]} to {batches[-1]}" + ("" if whole else f", {len(batches)} of them")


def _table_as_text(table: TableState) -> Iterator[str]:
    yield f"sink        {table.name}"
    if not table.problem:
        last = "nothing of this query" if table.last is None else f"micro-batches up to {table.last}"
        yield f"written     {last} (in the table)"


def _sinks_as_text(state: QueryState) -> list[str]:
    lines = [line for sink in state.sinks for line in _sink_as_text(sink)]
    if not state.sinks and not state.unread:
        lines.append("sink        no record of this query in the ledger topic")
    return [*lines, *_transactions(state.open, "open        no transactions"), *_held(state)]


def _sink_as_text(sink: SinkHead) -> list[str]:
    head = sink.head
    if head is None:
        return [f"{name_of(sink):<12}cannot be read: {sink.problem}"]
    write = head.write
    job = f", the batch write with job.id '{write.job_id}'" if isinstance(write, BatchWrite) else ""
    lines = [f"{name_of(sink):<12}{describe(head)}, published {ago(sink.age_s)}{job}"]
    lines.append(f"  run         {head.run or '-'} (generation {head.generation})")
    if head.marks.topic is not None:
        lines.append(f"  topic       {head.marks.topic}, and no other since its replay")
    return lines + [f"  {line}" for line in _decision_as_text(head)]


def _decision_as_text(head: Head) -> Iterator[str]:
    last = head.decision
    if last is None:
        yield "decided     nothing"
        return
    outcomes = {"without_verdict": "not known to be committed yet"}
    counts = ", ".join(f"{n} {outcomes.get(outcome, outcome)}" for outcome, n in _counts(last).items() if n)
    yield f"decided     micro-batch {last.batch}: {last.rows:,} row(s), transactions: {counts or 'none'}"
    if last.offsets is not None:
        yield f"offsets     {offsets_text(last.offsets)}" + (f" (group {last.group})" if last.group else "")


_OPEN_HEADINGS = ("decided", "micro-batch", "run", "state", "open for", "time-out", "producer", "transactional id")


def _transactions(open_: Sequence[Transaction], none: str) -> list[str]:
    if not open_:
        return [none]
    decided, oldest = sum(t.decided is True for t in open_), max(t.open_s for t in open_)
    counts = f"{len(open_)} transaction(s), {decided} of them decided"
    lines = [f"open        {counts}; the oldest has been open for {oldest:,.0f} s"]
    lines += [f"  {line}" for line in table([_OPEN_HEADINGS, *map(_open_row, open_)])]
    jobs = dict.fromkeys((t.query, t.job) for t in open_ if t.job is not None)
    lines += [f"  query {query} is the batch write with job.id '{job}'" for query, job in jobs]
    problems = dict.fromkeys(t.problem for t in open_ if t.problem)
    return [
        *lines,
        *(f"  warning: it is not known whether these transactions are decided: {text}" for text in problems),
    ]


def _open_row(t: Transaction) -> tuple[str, ...]:
    return (
        "ledger" if t.of_ledger else {True: "yes", False: "no", None: "?"}[t.decided],
        "-" if t.batch is None else str(t.batch),
        t.run or "-",
        t.state,
        f"{t.open_s:,.0f} s",
        "never" if t.timeout_s is None else f"{t.timeout_s:,.0f} s",
        f"id {t.producer_id}, epoch {t.epoch}",
        t.id,
    )


def _held(state: QueryState) -> list[str]:
    """Return the first open offset of each partition, at which read_committed consumers wait."""
    open_ = sorted(
        (part.topic, part.partition, part.first_offset, id_)
        for id_, parts in state.parts.items()
        for part in parts
        if part.first_offset is not None
    )
    first = {(topic, partition): (at, id_) for topic, partition, at, id_ in reversed(open_)}
    return [
        f"  {topic}-{partition}: read_committed consumers wait at offset {at} for {id_}"
        for (topic, partition), (at, id_) in sorted(first.items())
    ]
