"""What `spark-eos checkpoint show` prints, as text and as plain data for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from spark_eos.ops.checkpoint.heads import OwnHead
from spark_eos.ops.checkpoint.showing import Shown
from spark_eos.ops.tables import table
from spark_eos.ops.transactions import report as transactions
from spark_eos.protocol.checks import as_json as offsets_as_json
from spark_eos.protocol.head import NOBODY, Decision, Verdict


def as_json(shown: Shown) -> dict[str, Any]:
    return {
        "checkpoint": shown.location,
        "query": shown.query,
        "offsets": list(shown.planned),
        "commits": list(shown.done),
        "stateful": shown.stateful,
        "sources": list(shown.kinds),
        "partitions": [asdict(place) for place in shown.places],
        "recreated_topics": list(shown.recreated),
        "left": {topic: dict(partitions) for topic, partitions in shown.left.items()},
        "heads": [_head_as_json(own) for own in shown.heads],
        "open": [transactions.as_json(t) for t in shown.open],
        "next": shown.next,
    }


def _head_as_json(own: OwnHead) -> dict[str, Any]:
    head, last = own.head, own.head.decision
    return {
        "ledger_key": own.key,
        "sink": own.sink,
        "run": head.run if head.run != NOBODY else None,
        "generation": head.generation,
        "prefix": head.prefix,
        "partitioner": head.partitioner,
        **head.marks.as_json(),
        "decision": None
        if last is None
        else {
            "batch": last.batch,
            "repairs": last.rev,
            "rows": last.rows,
            "offsets": last.offsets,
            "group": last.group,
            "transactions": _counts(last),
        },
    }


def _counts(last: Decision) -> dict[str, int]:
    verdicts = [w.verdict for w in last.written]
    return {
        "committed": verdicts.count(Verdict.COMMITTED),
        "lost": verdicts.count(Verdict.LOST),
        "without_verdict": verdicts.count(None),
    }


def as_text(shown: Shown) -> str:
    lines = [f"checkpoint  {shown.location}", f"query       {shown.query or 'none yet'}"]
    lines += [f"offsets     {_span(shown.planned)}", f"commits     {_span(shown.done)}"]
    if shown.stateful:
        lines.append("state       yes")
    lines += [f"source      {kind}" for kind in shown.kinds]
    lines += _table(shown)
    lines += [f"  {topic}: was deleted or recreated since it was read" for topic in shown.recreated]
    lines += [
        f"  {topic}-{p}: no longer read; if it is again, the query goes on at offset {at}"
        for topic, partitions in sorted(shown.left.items())
        for p, at in sorted(partitions.items(), key=lambda item: int(item[0]))
    ]
    for own in shown.heads:
        lines += ["", *_head_as_text(own)]
    if not shown.heads:
        lines += ["", "The ledger knows nothing of the query."]
    lines += ["", transactions.as_text(shown.open), "", f"A start of the query {shown.next}."]
    return "\n".join(lines)


def _span(batches: Sequence[int]) -> str:
    if not batches:
        return "none"
    whole = len(batches) == batches[-1] - batches[0] + 1
    return f"{batches[0]} to {batches[-1]}" + ("" if whole else f", {len(batches)} of them")


def _table(shown: Shown) -> list[str]:
    if not shown.places:
        return []
    rows: list[tuple[str, ...]] = [("partition", "committed", "planned", "log begins", "log ends")]
    for place in shown.places:
        numbers = (place.committed, place.planned, place.begin, place.end)
        rows.append((f"{place.topic}-{place.partition}", *("-" if n is None else str(n) for n in numbers)))
    return [f"  {line}" for line in table(rows)]


def _head_as_text(own: OwnHead) -> list[str]:
    head, last, marks = own.head, own.head.decision, own.head.marks
    name = "of the stream" if own.sink is None else f"{own.sink or 'all of them'} (foreachBatch)"
    lines = [f"sink        {name}"]
    lines.append(f"  run         {head.run or 'closed'} (generation {head.generation})")
    if marks.successor is not None:
        lines.append(f"  retired     in favour of query {marks.successor.query} at {marks.successor.checkpoint}")
    if marks.unfinished is not None and marks.unfinished.drops:
        lines.append(f"  drop        of micro-batch {marks.unfinished.dropped}, not finished")
    elif marks.unfinished is not None:
        lines.append(f"  replay      of query {marks.unfinished.of} to {marks.unfinished.to}, not finished")
    if marks.topic is not None:
        lines.append(f"  only to     {marks.topic}")
    if head.unwritten is not None:
        lines.append(f"  given up    micro-batch {head.unwritten}")
    if last is None:
        return [*lines, "  decided     nothing"]
    counts = ", ".join(f"{n} {what.replace('_', ' ')}" for what, n in _counts(last).items() if n)
    lines.append(f"  decided     micro-batch {last.batch}: {last.rows:,} rows, transactions: {counts or 'none'}")
    if last.offsets is not None:
        lines.append(
            f"  offsets     {offsets_as_json(last.offsets)}" + (f" (group {last.group})" if last.group else "")
        )
    return lines
