"""What ``spark-eos ledger show`` answers. Exit code: 0; 2, by the caller, where the ledger cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spark_eos import system
from spark_eos.errors import LedgerError
from spark_eos.ledger.owners import Cluster
from spark_eos.ledger.reader import Dated
from spark_eos.ops.answer import Answer
from spark_eos.ops.tables import ago, table
from spark_eos.protocol.head import NOBODY, Decision, Direct, Head
from spark_eos.protocol.head_codec import decode


@dataclass(frozen=True)
class NewestHead:
    """A query's newest head, or why it cannot be read. ``age_s``: how long ago it was published, by the clocks of who
    did and of this machine."""

    key: str
    dated: Dated
    age_s: float | None
    head: Head | None
    problem: str = ""

    @property
    def query(self) -> str:
        """The query's id; that of the checkpoint, where the head is that of a sink within its foreachBatch."""
        each = self.head.marks.each if self.head is not None else None
        return each.query if each is not None else self.key


def show(cluster: Cluster, queries: Collection[str]) -> Answer:
    """The heads of these queries, or of all, the newest first. Raises EosError."""
    found = [e for e in entries(cluster) if not queries or {e.key, e.query} & set(queries)]
    return Answer([as_json(entry) for entry in found], as_text(found, cluster.ledger))


def entries(cluster: Cluster, keys: Collection[str] | None = None) -> list[NewestHead]:
    """Every head in the ledger, or those under these keys, the newest first. Raises EosError."""
    _ = cluster.partitions  # a topic that is not there is an error at once
    now_ms = 1000 * system.time_of_day()
    newest = cluster.heads.newest_of_all()
    found = [_entry(key, dated, now_ms) for key, dated in newest.items() if keys is None or key in keys]
    return sorted(found, key=lambda entry: entry.age_s if entry.age_s is not None else float("inf"))


def _entry(key: str, dated: Dated, now_ms: float) -> NewestHead:
    age_s = None if dated.time_ms is None else max(0.0, (now_ms - dated.time_ms) / 1000)
    try:
        return NewestHead(key, dated, age_s, decode(dated.value))
    except LedgerError as error:
        return NewestHead(key, dated, age_s, None, f"[{error.condition}] {error.message}")


def state_of(head: Head) -> str:
    """What a head says of its query, in a few words."""
    last, marks = head.decision, head.marks
    if marks.successor is not None:
        return f"retired, in favour of {marks.successor.query}"
    if marks.unfinished is not None:
        return "drop not finished" if marks.unfinished.drops else "replay not finished"
    if head.unwritten is not None:
        return f"micro-batch {head.unwritten} was given up"
    if last is not None and last.lost:
        return f"{len(last.lost)} transaction(s) lost: its next start writes them again"
    if head.job is not None and last is not None and not last.written:
        return "completed"
    return "closed" if head.run == NOBODY else "open"


def as_json(entry: NewestHead) -> dict[str, Any]:
    """Times are seconds; ``open`` says that a run has the query, not that it is alive."""
    data: dict[str, Any] = {
        "query": entry.query,
        "ledger_key": entry.key,
        "partition": entry.dated.partition,
        "offset": entry.dated.offset,
        "age_s": None if entry.age_s is None else round(entry.age_s, 3),
        "problem": entry.problem or None,
    }
    head = entry.head
    if head is None:
        return data
    last, each = head.decision, head.marks.each
    return data | {
        "sink": None if each is None else each.name,
        "job": None if head.job is None else head.job.id,
        "prefix": head.prefix,
        "run": None if head.run == NOBODY else head.run,
        "generation": head.generation,
        "batch": None if last is None else last.batch,
        "rows": None if last is None else last.rows,
        "state": state_of(head),
        "direct": None if last is None or last.direct is None else _ranges(last, last.direct),
    }


def _ranges(last: Decision, direct: Direct) -> dict[str, Any]:
    """Of the direct way: what the last decision has read, and what became of the rows: ``committed``, ``lost``, or
    ``none`` where there were none; null where that is not noted yet."""
    read = [(r, w.verdict.value if w.verdict is not None else None) for w in last.written for r in w.ranges]
    read += [(r, "none") for r in direct.ranges]
    ranges = [asdict(r) | {"rows": outcome} for r, outcome in sorted(read, key=lambda pair: pair[0])]
    return {"cluster": direct.cluster, "ranges": ranges}


def as_text(found: Sequence[NewestHead], ledger: str) -> str:
    """A table, a query in each row."""
    if not found:
        return f"no query in the ledger {ledger}"
    rows = [("query", "sink or job", "generation", "micro-batch", "published", "state", "run")]
    return "\n".join(table([*rows, *map(_row, found)]))


def _row(entry: NewestHead) -> tuple[str, ...]:
    head, age = entry.head, ago(entry.age_s)
    if head is None:
        return entry.key, "?", "?", "?", age, entry.problem, "?"
    each = head.marks.each
    name = each.name or "all sinks" if each is not None else "-"
    if head.job is not None:
        name = f"job {head.job.id}"
    batch = "-" if head.decision is None else str(head.decision.batch)
    return entry.query, name, str(head.generation), batch, age, state_of(head), head.run or "-"
