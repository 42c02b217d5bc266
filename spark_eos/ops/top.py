"""``spark-eos top``: the current state of a query: rates of the last seconds, a bar for each micro-batch, the lag, and
the transactions that hold back last stable offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spark_eos.base.printable import in_lines
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import CommandError, EosError
from spark_eos.kafka.admin.open_transactions import oldest_open_transaction
from spark_eos.ledger.owners import Cluster, Transaction, find
from spark_eos.ops.answer import Answer, duration
from spark_eos.ops.metrics.hub import Event
from spark_eos.ops.metrics.queries import is_held
from spark_eos.ops.timeline import BatchAttempt, EventReader, Timeline, TopicLag, chosen, timeline_of

#: How many events are used, the newest.
_LATEST = 5_000
#: Partitions whose open transactions are looked up; one transaction mostly holds back several.
_MOST_ASKED = 5
_SHOWN = 15
_WIDTH = 40
#: The seconds over which rates are measured.
_RATE_S = 30.0
_STEPS = {"prepare": "cyan", "verify": "bright_black", "decide": "blue", "EndTxn": "green", "rest": "white"}
_COLOURS = {"committed": "green", "replayed": "magenta", "repaired": "yellow", "": "cyan"}


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
        console.print(as_lines(now))
    return Answer(as_json(now), captured.get().rstrip())


def watch(source: str, query: str | None, cluster: Cluster | None, every_s: float) -> int:
    """Show a query in the terminal until Ctrl-C, and look again every ``every_s`` seconds. Raises OptionError if there
    is nothing to show at first."""
    reader = EventReader(source, _LATEST)
    first = as_lines(_now(reader, query, cluster))
    with suppress(KeyboardInterrupt), Live(first, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            try:
                live.update(as_lines(_now(reader, query, cluster)), refresh=True)
            except CommandError as error:  # the query may be started again
                live.update(Text(str(error), style="red"), refresh=True)
    return 0


def _now(reader: EventReader, query: str | None, cluster: Cluster | None) -> Now:
    events = reader.read()[-_LATEST:]
    timeline = timeline_of(events, chosen(events, query, reader.source))
    running = bool(timeline.runs) and timeline.runs[-1].how is None
    return now_of(timeline, blocking_transactions(cluster, events) if cluster is not None and running else None)


def now_of(timeline: Timeline, blocking: Sequence[BlockingTransaction] | None = None, at: float | None = None) -> Now:
    """The query at a moment, in seconds since 1970; by default now."""
    at = time.time() if at is None else at
    recent = [b for b in timeline.batches if b.done and b.outcome != "replayed" and b.span[1] > at - _RATE_S]
    begin = max(at - _RATE_S, min((run.begin for run in timeline.runs), default=at))
    seconds = max(1.0, at - begin)
    run = timeline.runs[-1] if timeline.runs else None
    state = "not started" if run is None else run.how or f"running for {duration(at - run.begin)}"
    told = {lag.source: lag.at for lag in timeline.lags}
    newest = {lag.topic: lag for lag in timeline.lags if run and lag.at == told[lag.source] and lag.at >= run.begin}
    rows = sum(batch.rows for batch in recent)
    lags = [] if run is None or run.how else list(newest.values())
    return Now(timeline, at, state, rows / seconds, timeline.count(recent) / seconds, lags, blocking)


def as_json(now: Now) -> dict[str, Any]:
    """Times are in seconds, ``at`` since 1970."""
    timeline = now.timeline
    return {
        "query": timeline.query,
        "at": now.at,
        "state": now.state,
        "runs": len(timeline.runs),
        "rows_per_s": round(now.rows_per_s, 3),
        "batches_per_s": round(now.batches_per_s, 3),
        "lag": [_lag_as_json(lag) for lag in now.lags],
        "blocking": None if now.blocking is None else [vars(transaction) for transaction in now.blocking],
        "batches": [_batch_as_json(batch) for batch in timeline.batches[-_SHOWN:]],
    }


def _lag_as_json(lag: TopicLag) -> dict[str, Any]:
    return {"topic": lag.topic, "stable": lag.stable, "high": lag.high, "stalled_s": lag.stalled}


def _batch_as_json(batch: BatchAttempt) -> dict[str, Any]:
    steps = {name: round(seconds, 6) for name, seconds in _seconds(batch).items()}
    what = {
        "batch": batch.number,
        "sink": batch.sink or None,
        "rows": batch.rows,
        "outcome": batch.outcome or "running",
    }
    return {**what, "seconds": round(batch.seconds, 6), "steps": steps}


def as_lines(now: Now) -> RenderableType:
    """The view for a terminal."""
    timeline = now.timeline
    alive = now.state.startswith("running")
    head = Text.assemble(
        (timeline.query, "bold"),
        "  ",
        (now.state, "green" if alive else "red" if now.state != "stopped" else "yellow"),
        f"  ·  run {len(timeline.runs)}",
        f"  ·  {_short(now.rows_per_s)} rows/s  ·  {now.batches_per_s:.2g} micro-batches/s",
    )
    return Group(head, Text(), _lag_table(now), Text(), _bars(timeline.batches[-_SHOWN:]), Text(), _legend())


def _lag_table(now: Now) -> RenderableType:
    if not now.lags:
        return Text(
            "no lag known: the query does not read with eos-kafka, or has not begun to read", style="bright_black"
        )
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("topic")
    for column in ("lag to the LSO", "lag to the high watermark", "LSO held for"):
        table.add_column(column, justify="right")
    table.add_column("held by")
    for lag in now.lags:
        stalled = Text(duration(lag.stalled), style="yellow") if lag.stalled else Text("-")
        table.add_row(lag.topic, f"{lag.stable:,}", f"{lag.high:,}", stalled, _who(now, lag))
    return table


def _who(now: Now, lag: TopicLag) -> Text:
    if not lag.stalled:
        return Text("-")
    if now.blocking is None:
        return Text("spark-eos --bootstrap-servers … top shows it", style="bright_black")
    own = [transaction for transaction in now.blocking if transaction.topic == lag.topic]
    lines = [f"{one.topic}-{one.partition}: {_owner(one)}{one.text}" for one in own]
    return Text(in_lines(lines) or "ended by now", style="yellow" if lines else "bright_black")


def _owner(transaction: BlockingTransaction) -> str:
    if transaction.query is None:
        return ""
    batch = "" if transaction.batch is None else f", micro-batch {transaction.batch}"
    decided = {True: ", decided", False: ", not decided", None: ""}[transaction.decided]
    return f"query {transaction.query}{batch}{decided}: "


def _bars(batches: Sequence[BatchAttempt]) -> RenderableType:
    if not batches:
        return Text("no micro-batch yet", style="bright_black")
    longest = max(batch.seconds for batch in batches) or 1.0
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("batch", "rows", "time"):
        table.add_column(column, justify="right")
    table.add_column("")
    for batch in reversed(batches):
        name = f"{batch.sink} {batch.number}" if batch.sink else str(batch.number)
        bar = Text()
        for step, seconds in _seconds(batch).items():
            bar.append("█" * _cells(seconds / longest), style=_STEPS[step])
        if batch.outcome != "committed":
            bar.append(f" {batch.outcome or 'commits'}", style=_COLOURS.get(batch.outcome, "red"))
        table.add_row(name, f"{batch.rows:,}", duration(batch.seconds), bar)
    return table


def _cells(share: float) -> int:
    """The cells of a bar for this share of the longest: at least one for any time at all."""
    return max(1, round(share * _WIDTH)) if share > 0 else 0


def _seconds(batch: BatchAttempt) -> Mapping[str, float]:
    """The seconds of each step; ``rest``: Spark's time before and after the steps."""
    seconds = {name: span[1] - span[0] if span is not None else 0.0 for name, span in batch.steps.items()}
    return seconds | {"rest": max(0.0, batch.seconds - sum(seconds.values()))}


def _legend() -> Text:
    return Text("  ").join(Text.assemble(("█ ", colour), name) for name, colour in _STEPS.items())


def _short(number: float) -> str:
    for factor, unit in ((1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {unit}"
    return f"{number:.3g}"


def blocking_transactions(cluster: Cluster, events: Sequence[Event]) -> list[BlockingTransaction]:
    """The transactions that hold back last stable offsets, for partitions that are held by the newest events. Never
    raises EosError."""
    held = list(_held(events))[:_MOST_ASKED]
    if not held:
        return []
    try:
        ours = {transaction.id: transaction for transaction in find(cluster)}
    except EosError:
        ours = {}  # the leaders may still answer
    return [one for topic, partition in held for one in _holders(cluster, topic, partition, ours)]


def _held(events: Sequence[Event]) -> Iterator[TopicPartition]:
    newest = {event["source"]: event for event in events if event["event"] == "lag"}
    for event in newest.values():
        for topic, partitions in event["lag"].items():
            yield from ((topic, int(number)) for number, place in partitions.items() if is_held(place))


def _holders(cluster: Cluster, topic: str, partition: int, ours: dict[str, Transaction]) -> list[BlockingTransaction]:
    try:
        found = oldest_open_transaction(cluster.client, topic, partition)
    except EosError as error:
        return [BlockingTransaction(topic, partition, f"unknown: {error.condition}")]
    blocking = []
    for one in found:
        own = ours.get(one.transactional_id or "")
        name = (own.query, own.batch, own.decided) if own is not None else (None, None, None)
        blocking.append(BlockingTransaction(topic, partition, str(one), *name))
    return blocking
