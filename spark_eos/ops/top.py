"""``spark-eos top``: the current state of a query: rates of the last seconds, a bar for each micro-batch, the lag, and
the transactions that hold back last stable offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spark_eos.base.printable import in_lines
from spark_eos.errors import CommandError, EosError
from spark_eos.kafka.admin.open_transactions import oldest_open_transaction
from spark_eos.ledger.owners import Cluster, Transaction, find
from spark_eos.ops.answer import Answer, duration
from spark_eos.ops.timeline import STEPS, BatchAttempt, EventReader, Timeline, TopicLag, chosen, timeline_of

#: How many events are used, the newest.
_LATEST = 5_000
#: Partitions whose open transactions are looked up; one transaction mostly holds back several.
_MOST_ASKED = 5
_SHOWN = 15
_WIDTH = 40
#: The seconds over which rates are measured.
_RATE_S = 30.0
_STEPS = dict(zip((*STEPS, "rest"), ("cyan", "bright_black", "blue", "green", "white"), strict=True))
_COLOURS = {"committed": "green", "replayed": "magenta", "repaired": "yellow", "": "cyan"}
_FAINT = "bright_black"


@dataclass(frozen=True)
class BlockingTransaction:
    """An open transaction that holds back the last stable offset of a partition, as ``text``. ``query``, ``batch`` and
    ``decided``: if it belongs to a query of this library."""

    topic: str
    partition: int
    text: str
    query: str | None = None
    batch: int | None = None
    decided: bool | None = None


@dataclass(frozen=True)
class Now:
    """A query at one moment. ``rows_per_s``, ``batches_per_s``: of the last 30 s; ``lags``: the newest of each topic;
    ``blocking``: None without a cluster to look them up."""

    timeline: Timeline
    at: float
    state: str
    rows_per_s: float
    batches_per_s: float
    lags: Sequence[TopicLag]
    blocking: Sequence[BlockingTransaction] | None = None


def top(source: str, query: str | None, cluster: Cluster | None) -> Answer:
    """Print the current state of a query. Raises OptionError."""
    now = _now(EventReader(source, _LATEST), query, cluster)
    console = Console(width=120, color_system=None)
    with console.capture() as captured:
        console.print(_as_lines(now))
    return Answer(as_json(now), captured.get().rstrip())


def watch(source: str, query: str | None, cluster: Cluster | None, every_s: float) -> int:
    """Show a query in the terminal until Ctrl-C, and look again every ``every_s`` seconds. Raises OptionError if there
    is nothing to show at first."""
    reader = EventReader(source, _LATEST)
    first = _as_lines(_now(reader, query, cluster))
    with suppress(KeyboardInterrupt), Live(first, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            try:
                live.update(_as_lines(_now(reader, query, cluster)), refresh=True)
            except CommandError as error:  # the query may be started again
                live.update(Text(str(error), style="red"), refresh=True)
    return 0


def _now(reader: EventReader, query: str | None, cluster: Cluster | None) -> Now:
    events = reader.read()[-_LATEST:]
    return now_of(timeline_of(events, chosen(events, query, reader.source)), cluster)


def now_of(timeline: Timeline, cluster: Cluster | None = None, at: float | None = None) -> Now:
    """Return the query at a moment, in seconds since 1970; by default now."""
    at = time.time() if at is None else at
    recent = [b for b in timeline.batches if b.done and b.outcome != "replayed" and b.span[1] > at - _RATE_S]
    seconds = max(1.0, at - max(at - _RATE_S, min((run.begin for run in timeline.runs), default=at)))
    run = timeline.runs[-1] if timeline.runs else None
    state = "not started" if run is None else run.how or f"running for {duration(at - run.begin)}"
    lags: list[TopicLag] = []
    blocking: Sequence[BlockingTransaction] | None = None
    if run is not None and run.how is None:
        newest = {lag.source: lag.at for lag in timeline.lags}
        lags = [lag for lag in timeline.lags if lag.at == newest[lag.source] and lag.at >= run.begin]
        lags = list({lag.topic: lag for lag in lags}.values())
        blocking = None if cluster is None else blocking_transactions(cluster, lags)
    rows = sum(batch.rows for batch in recent)
    return Now(timeline, at, state, rows / seconds, timeline.count(recent) / seconds, lags, blocking)


def as_json(now: Now) -> dict[str, Any]:
    """Convert to JSON. Times are in seconds, ``at`` since 1970."""
    timeline = now.timeline
    return {
        "query": timeline.query,
        "at": now.at,
        "state": now.state,
        "runs": len(timeline.runs),
        "rows_per_s": round(now.rows_per_s, 3),
        "batches_per_s": round(now.batches_per_s, 3),
        "lag": [{"topic": t.topic, "stable": t.stable, "high": t.high, "stalled_s": t.stalled} for t in now.lags],
        "blocking": None if now.blocking is None else list(map(asdict, now.blocking)),
        "batches": [
            {
                "batch": batch.number,
                "sink": batch.sink or None,
                "rows": batch.rows,
                "outcome": batch.outcome or "running",
                "seconds": round(batch.seconds, 6),
                "steps": {name: round(seconds, 6) for name, seconds in _seconds(batch).items()},
            }
            for batch in timeline.batches[-_SHOWN:]
        ],
    }


def _seconds(batch: BatchAttempt) -> Mapping[str, float]:
    """Return the seconds of each step; ``rest``: Spark's time before and after the steps."""
    seconds = dict.fromkeys(STEPS, 0.0) | {name: end - begin for name, (begin, end) in batch.steps.items()}
    return seconds | {"rest": max(0.0, batch.seconds - sum(seconds.values()))}


def _as_lines(now: Now) -> RenderableType:
    """Return the view for a terminal."""
    colour = "green" if now.state.startswith("running") else "yellow" if now.state == "stopped" else "red"
    rates = f"{_short(now.rows_per_s)} rows/s  ·  {now.batches_per_s:.2g} micro-batches/s"
    head = Text.assemble(
        (now.timeline.query, "bold"), "  ", (now.state, colour), f"  ·  run {len(now.timeline.runs)}  ·  {rates}"
    )
    legend = Text("  ").join(Text.assemble(("█ ", colour), name) for name, colour in _STEPS.items())
    return Group(head, Text(), _lag_table(now), Text(), _bars(now.timeline.batches[-_SHOWN:]), Text(), legend)


def _table(*columns: str) -> Table:
    """Return a table without lines, whose last column has the longest texts."""
    table = Table(box=None, pad_edge=False, header_style=_FAINT)
    for column in columns:
        table.add_column(column, justify="left" if column in ("topic", columns[-1]) else "right")
    return table


def _lag_table(now: Now) -> RenderableType:
    if not now.lags:
        return Text("no lag known: the query does not read with eos-kafka, or has not begun to read", style=_FAINT)
    table = _table("topic", "lag to the LSO", "lag to the high watermark", "LSO held for", "held by")
    for lag in now.lags:
        stalled = Text(duration(lag.stalled), style="yellow") if lag.stalled else Text("-")
        table.add_row(lag.topic, f"{lag.stable:,}", f"{lag.high:,}", stalled, _held_by(now, lag))
    return table


def _held_by(now: Now, lag: TopicLag) -> Text:
    if not lag.stalled:
        return Text("-")
    if now.blocking is None:
        return Text("spark-eos --bootstrap-servers … top shows it", style=_FAINT)
    lines = [f"{t.topic}-{t.partition}: {_owner(t)}{t.text}" for t in now.blocking if t.topic == lag.topic]
    return Text(in_lines(lines) or "ended by now", style="yellow" if lines else _FAINT)


def _owner(transaction: BlockingTransaction) -> str:
    if transaction.query is None:
        return ""
    batch = "" if transaction.batch is None else f", micro-batch {transaction.batch}"
    decided = {True: ", decided", False: ", not decided", None: ""}[transaction.decided]
    return f"query {transaction.query}{batch}{decided}: "


def _bars(batches: Sequence[BatchAttempt]) -> RenderableType:
    if not batches:
        return Text("no micro-batch yet", style=_FAINT)
    longest = max(batch.seconds for batch in batches) or 1.0
    table = _table("batch", "rows", "time", "")
    for batch in reversed(batches):
        bar = Text()
        for step, seconds in _seconds(batch).items():
            if seconds > 0:
                bar.append("█" * max(1, round(seconds / longest * _WIDTH)), style=_STEPS[step])
        if batch.outcome != "committed":
            bar.append(f" {batch.outcome or 'commits'}", style=_COLOURS.get(batch.outcome, "red"))
        table.add_row(f"{batch.sink} {batch.number}".strip(), f"{batch.rows:,}", duration(batch.seconds), bar)
    return table


def _short(number: float) -> str:
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.3g}"


def blocking_transactions(cluster: Cluster, lags: Sequence[TopicLag]) -> list[BlockingTransaction]:
    """Return the open transactions that hold back the partitions with this lag. Never raises EosError."""
    held = [(lag.topic, partition) for lag in lags for partition in lag.held][:_MOST_ASKED]
    owned: dict[str, Transaction] = {}
    with suppress(EosError):  # the leaders may still answer
        owned = {transaction.id: transaction for transaction in find(cluster)} if held else {}
    oldest = (_oldest(cluster, topic, partition, owned) for topic, partition in held)
    return [transaction for transaction in oldest if transaction is not None]


def _oldest(
    cluster: Cluster, topic: str, partition: int, owned: Mapping[str, Transaction]
) -> BlockingTransaction | None:
    try:
        oldest = oldest_open_transaction(cluster.client, topic, partition)
    except EosError as error:
        return BlockingTransaction(topic, partition, f"unknown: {error.condition}")
    if oldest is None:
        return None
    own = owned.get(oldest.transactional_id or "")
    names = (None, None, None) if own is None else (own.query, own.batch, own.decided)
    return BlockingTransaction(topic, partition, str(oldest), *names)
