"""What ``spark-eos query status`` answers: how a query is. Changes nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from spark_eos.checkpoint import Checkpoint
from spark_eos.ledger.owners import Cluster
from spark_eos.ops.answer import Answer
from spark_eos.ops.checkpoint.heads import OwnHead
from spark_eos.ops.checkpoint.showing import Shown, show
from spark_eos.ops.ledger.command import state_of
from spark_eos.ops.query.life import Life, look_for_life
from spark_eos.ops.tables import ago
from spark_eos.protocol.head import Verdict


@dataclass(frozen=True)
class Status:
    """``shown``: all that checkpoint and ledger hold."""

    shown: Shown
    life: Life
    quiet_s: float

    @property
    def running(self) -> bool | None:
        """See `Life.running`."""
        return self.life.running(self.quiet_s)

    @property
    def lag(self) -> int | None:
        """Offsets from the end of the last committed micro-batch to the last stable offset, of all partitions; None
        where the query has read no topic, or a topic is gone."""
        lags = [max(0, p.end - (p.committed or p.begin or 0)) for p in self.shown.places if p.end is not None]
        return sum(lags) if lags and len(lags) == len(self.shown.places) else None

    @property
    def stops(self) -> str | None:
        """Why a start of the query would stop at once; None where it would not."""
        return self.shown.next if self.shown.next.startswith("stops (") else None

    @property
    def troubles(self) -> list[str]:
        """What needs somebody."""
        found = [self.stops] if self.stops is not None else []
        for own in self.shown.heads:
            last = own.head.decision
            if own.head.unwritten is not None or (last is not None and last.lost):
                found.append(f"{_name(own)}: {state_of(own.head)}")
        if self.running is not True and self.shown.open:
            found.append(
                f"{len(self.shown.open)} transaction(s) hold back readers, and the query does not seem to be running"
            )
        return found


def status(checkpoint: Checkpoint, cluster: Cluster, watch_s: float, quiet_s: float) -> Answer:
    """Exit code: 0 where all is well, 1 where it needs somebody. Raises EosError."""
    shown = show(checkpoint, cluster)
    found = Status(shown, look_for_life(checkpoint, cluster, shown.heads, watch_s), quiet_s)
    return Answer(as_json(found), as_text(found), 1 if found.troubles else 0)


def as_json(status: Status) -> dict[str, Any]:
    """``running`` is null where nobody can tell; ``lag`` is in offsets."""
    shown = status.shown
    return {
        "checkpoint": shown.location,
        "query": shown.query,
        "running": status.running,
        "signs_of_life": list(status.life.signs),
        "last_sign_s": None if status.life.last_s is None else round(status.life.last_s, 3),
        "planned": shown.planned[-1] if shown.planned else None,
        "committed": shown.done[-1] if shown.done else None,
        "sinks": [_sink_as_json(own) for own in shown.heads],
        "open": {
            "decided": [t.id for t in shown.open if t.decided],
            "undecided": [t.id for t in shown.open if t.decided is False],
            "unknown": [t.id for t in shown.open if t.decided is None],
        },
        "lag": status.lag,
        "partitions": [asdict(place) for place in shown.places],
        "troubles": status.troubles,
        "next": shown.next,
    }


def _sink_as_json(own: OwnHead) -> dict[str, Any]:
    head, last = own.head, own.head.decision
    return {
        "sink": own.sink,
        "run": head.run or None,
        "generation": head.generation,
        "state": state_of(head),
        "decided": None if last is None else last.batch,
        "completed": last is not None and completed(own),
    }


def completed(own: OwnHead) -> bool:
    """Whether the ledger knows that all of the last decision is committed. While a query runs, the next micro-batch
    says so of the one before."""
    last = own.head.decision
    return last is not None and all(w.verdict is Verdict.COMMITTED for w in last.written)


def as_text(status: Status) -> str:
    shown = status.shown
    planned, done = (str(of[-1]) if of else "none" for of in (shown.planned, shown.done))
    lines = [
        f"checkpoint  {shown.location}",
        f"query       {shown.query or 'none yet'}",
        f"running     {_running(status)}",
        f"batch       {planned} is planned, {done} is committed by Spark",
    ]
    for own in shown.heads:
        lines += [f"{_name(own):<12}{state_of(own.head)}, run {own.head.run or '-'}, generation {own.head.generation}"]
        lines += [f"{'':<12}{_decided(own)}"]
    if not shown.heads:
        lines.append("decided     nothing, by this ledger")
    lines.append(f"open        {_open(shown)}")
    if shown.places:
        lag = "unknown" if status.lag is None else f"{status.lag:,} offsets to the last stable offset"
        lines.append(f"lag         {lag}, in {len(shown.places)} partition(s)")
    lines += [f"trouble     {text}" for text in status.troubles]
    if not status.troubles:
        lines.append("trouble     none that is known here; what ended a run is in its log")
    return "\n".join([*lines, "", f"A start of the query {shown.next}."])


def _running(status: Status) -> str:
    life, running = status.life, status.running
    last = f"the last sign was {ago(life.last_s)}" if life.last_s is not None else "there is no sign of a run"
    if running:
        return f"yes: {', '.join(life.signs) or last}"
    if running is None:
        return f"unknown: {last}; one that waits for rows gives none"
    return "no: it is closed"


def _name(own: OwnHead) -> str:
    return "sink" if own.sink is None else f"sink {own.sink or 'all'}"


def _decided(own: OwnHead) -> str:
    last = own.head.decision
    if last is None:
        return "nothing is decided"
    rows = f"micro-batch {last.batch} is decided, {last.rows:,} row(s)"
    return f"{rows}, and committed" if completed(own) else f"{rows}; the ledger does not say yet that it is committed"


def _open(shown: Shown) -> str:
    if not shown.open:
        return "no transaction"
    decided = sum(t.decided is True for t in shown.open)
    oldest = max(t.open_s for t in shown.open)
    return f"{len(shown.open)} transaction(s), {decided} of them decided; the oldest for {oldest:,.0f} s"
