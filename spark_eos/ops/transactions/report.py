"""Transactions, plans and results as text and as plain data for JSON. Kafka properties are in neither."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spark_eos.ledger.owners import Transaction, TransactionPart
from spark_eos.ops.tables import table
from spark_eos.ops.transactions.ending import EndPlan, Result

_HEADINGS = ("decided", "micro-batch", "run", "state", "open for", "time-out", "transactional id")


def as_json(transaction: Transaction, parts: Sequence[TransactionPart] | None = None) -> dict[str, Any]:
    """Times are seconds; ``timeout_s`` is null where the transaction never expires."""
    data = {
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
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in transaction.places],
        "problem": transaction.problem or None,
    }
    return data if parts is None else data | {"partitions": [vars(part) for part in parts]}


def plan_as_json(plan: EndPlan) -> dict[str, Any]:
    return {
        "query": plan.query,
        "dry_run": True,
        "closes_run": plan.closes,
        "would_end": [as_json(t) for t in plan.ends],
        "stays": [as_json(t) for t in plan.stays],
    }


def result_as_json(result: Result) -> dict[str, Any]:
    return {
        "query": result.query,
        "dry_run": False,
        "ended": list(result.ended),
        "lost": list(result.lost),
        "left": [as_json(t) for t in result.left],
        "stays": [as_json(t) for t in result.stays],
    }


def as_text(transactions: Sequence[Transaction]) -> str:
    """A table for each query."""
    if not transactions:
        return "no open transaction"
    by_query: dict[str, list[Transaction]] = {}
    for transaction in transactions:
        by_query.setdefault(transaction.query, []).append(transaction)
    return "\n\n".join(_query_text(query, of) for query, of in by_query.items())


def _query_text(query: str, transactions: Sequence[Transaction]) -> str:
    lines = [_name(query, transactions[0].job)]
    lines += [f"  {line}" for line in table([_HEADINGS, *map(_row, transactions)])]
    problems = dict.fromkeys(t.problem for t in transactions if t.problem)
    return "\n".join([*lines, *(f"  warning: whether they are decided is not known: {text}" for text in problems)])


def _name(query: str, job: str | None) -> str:
    return f"query {query}" if job is None else f"query {query}, the batch write with job.id '{job}'"


def _row(t: Transaction) -> tuple[str, ...]:
    return (
        "ledger" if t.of_ledger else {True: "yes", False: "no", None: "?"}[t.decided],
        "-" if t.batch is None else str(t.batch),
        t.run or "-",
        t.state,
        f"{t.open_s:,.0f} s",
        "never" if t.timeout_s is None else f"{t.timeout_s:,.0f} s",
        t.id,
    )


def details_as_text(details: Mapping[Transaction, Sequence[TransactionPart]]) -> str:
    """One paragraph for each transaction, with its partitions."""
    return "\n\n".join(_details(t, parts) for t, parts in details.items()) or "no open transaction"


def _details(t: Transaction, parts: Sequence[TransactionPart]) -> str:
    decided, batch, run, state, open_for, timeout, _ = _row(t)
    lines = {
        "query": t.query if t.job is None else f"{t.query} (the batch write with job.id '{t.job}')",
        "run": run if t.run or t.of_ledger else f"none that is known (generation {t.generation})",
        "micro-batch": batch,
        "decided": decided,
        "state": state,
        "open for": open_for,
        "time-out": timeout,
        "producer": f"id {t.producer_id}, epoch {t.epoch}",
    }
    if t.problem:
        lines["warning"] = t.problem
    for part in parts:
        first = "nothing open by its leader" if part.first_offset is None else f"from offset {part.first_offset}"
        lines[f"{part.topic}-{part.partition}"] = first
    width = max(map(len, lines))
    return "\n".join([t.id, *(f"  {name.ljust(width)}  {value}" for name, value in lines.items())])


def plan_as_text(plan: EndPlan, verb: str) -> str:
    """``verb``: "abort", or what begins with "commit"."""
    lines = [f"query {plan.query}: would {verb} {len(plan.ends)} transaction(s)"]
    lines += [f"  {t.id}" for t in plan.ends]
    if plan.closes is not None and verb == "abort":
        lines.append(
            f"  It would first close run {plan.closes}: if that is alive, it stops, and its next start goes on."
        )
    if plan.stays:
        why = "decided, and only to be committed (settle)" if verb == "abort" else "not decided (abort)"
        if any(t.decided is None for t in plan.stays):
            why = "whether they are decided is known when the ledger can be read"
        lines.append(f"  {len(plan.stays)} open transaction(s) would stay: {why}")
    return "\n".join([*lines, "  Nothing was done: add --yes."])


def remaining(left: Sequence[str], lost: Sequence[str]) -> list[str]:
    """What the end of a query's transactions has left to be done, in sentences. ``left``: transactional ids that are
    still open; ``lost``: those that the brokers had aborted."""
    lines = []
    if left:
        lines.append(f"{len(left)} transaction(s) are still open: {', '.join(left)}")
    if lost:
        lines.append(
            f"{len(lost)} decided transaction(s) were aborted: {', '.join(lost)}. Start the query again, from its "
            "checkpoint: it writes their rows again."
        )
    return lines


def result_as_text(result: Result, verb: str) -> str:
    """``verb``: "aborted" or "committed"."""
    lines = [f"query {result.query}: {verb} {len(result.ended)} transaction(s)"]
    lines += [f"  {name}" for name in result.ended]
    lines += [f"  {line}" for line in remaining([t.id for t in result.left], result.lost)]
    if result.stays:
        lines.append(f"  {len(result.stays)} other transaction(s) of the query stay open")
    return "\n".join(lines)
