"""The timeline of a query, for `spark-eos plot` and `spark-eos top`: runs, micro-batches with their steps, and lag.

It is made of the events that `spark_eos.metrics` writes to a file, or serves at its endpoint.
"""

from __future__ import annotations

import math
import urllib.error
import urllib.request
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path

from spark_eos.errors import stop
from spark_eos.ops.metrics.hub import Event, parsed
from spark_eos.ops.metrics.queries import BATCH_WRITE, Queries, is_held
from spark_eos.ops.metrics.recording import EventFile

_TIMEOUT_S = 10.0

#: Begin and end, in seconds since 1970.
Span = tuple[float, float]

#: The steps of a micro-batch, in their order.
STEPS = ("prepare", "verify", "decide", "EndTxn")


@dataclass(frozen=True)
class BatchAttempt:
    """An attempt of a run at a micro-batch. ``steps``: the time of each of `STEPS` that it has reached; ``whole``: the
    time of the micro-batch, by Spark. ``outcome``: "committed", "replayed", "repaired", "cut off", or the condition of
    the error that ended it; empty while it runs."""

    number: int
    run: str
    sink: str
    rows: int
    steps: Mapping[str, Span]
    outcome: str = ""
    whole: Span | None = None

    @property
    def done(self) -> bool:
        """True if it was committed."""
        return self.outcome in ("committed", "replayed", "repaired")

    @property
    def span(self) -> Span:
        """``whole``, or else from the begin of the first task to the end of the last step."""
        return self.whole or (self.steps["prepare"][0], list(self.steps.values())[-1][1])

    @property
    def seconds(self) -> float:
        begin, end = self.span
        return end - begin


@dataclass(frozen=True)
class QueryRun:
    """A start of the query. ``how`` it ended: "killed", "stopped", the condition of an error, or None if it has not
    ended; ``end``: the time of its last event."""

    id: str
    begin: float
    end: float
    how: str | None


@dataclass(frozen=True)
class TopicLag:
    """The lag of a topic in offsets: ``stable`` to the last stable offsets, ``high`` to the high watermarks.
    ``stalled``: the seconds for which an open transaction has held back a last stable offset, of the partitions
    ``held``; ``source``: the source that reads the topic, and reports the lag of all its topics at once."""

    at: float
    topic: str
    stable: int
    high: int
    stalled: float
    held: Sequence[int]
    source: str


@dataclass(frozen=True)
class Timeline:
    """Runs, attempts at micro-batches, and lag of a query, in the order of time."""

    query: str
    runs: Sequence[QueryRun]
    batches: Sequence[BatchAttempt]
    lags: Sequence[TopicLag]

    @property
    def done(self) -> list[BatchAttempt]:
        """The attempts by which each sink has committed, without replays of earlier commits."""
        first: dict[tuple[str, str, int], BatchAttempt] = {}
        for batch in self.batches:
            if batch.done:
                first.setdefault((batch.sink, *self._micro_batch(batch)), batch)
        return list(first.values())

    def count(self, attempts: Iterable[BatchAttempt]) -> int:
        """Return how many micro-batches these are: within foreachBatch, each sink has an attempt."""
        return len(set(map(self._micro_batch, attempts)))

    def _micro_batch(self, attempt: BatchAttempt) -> tuple[str, int]:
        # Each batch write has a micro-batch 0 of its own.
        return attempt.run if self.query == BATCH_WRITE else "", attempt.number


class EventReader:
    """Reads ``source``: all events of a file, or the latest ones of an endpoint, ``http://HOST:PORT``. ``most``: how
    many events of a file are kept, the newest ones; None for all."""

    def __init__(self, source: str, most: int | None = None) -> None:
        self.source = source
        self._file = None if source.startswith(("http://", "https://")) else EventFile(Path(source), most)

    def read(self) -> list[Event]:
        """Return the events by now, without lines of other programs and versions. Raises OptionError."""
        try:
            return [event for event in (self._ask() if self._file is None else self._file.read()) if _is_known(event)]
        except (OSError, ValueError, HTTPException) as error:  # most errors of urllib are OSErrors
            of_system = getattr(error, "strerror", None) or error
            why = error.reason if isinstance(error, urllib.error.URLError) else of_system
            raise stop("EOS_PLOT_IMPOSSIBLE.unreadable", source=self.source, why=why) from None

    def _ask(self) -> list[Event]:
        address = f"{self.source.rstrip('/').removesuffix('/metrics')}/events"
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
            return list(parsed(answer.read()))


_TEXT, _MAYBE_TEXT, _WHOLE, _NUMBER = (str,), (str, type(None)), (int,), (int, float)
_PREPARED = {"run": _TEXT, "batch": _WHOLE, "rows": _WHOLE, "prepare_began": _NUMBER, "prepare_ended": _NUMBER}
_TIMES = dict.fromkeys(("verify_s", "decide_s", "end_s"), _NUMBER)
#: The fields of each kind of event that a timeline is made of, with their types.
_FIELDS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "started": {"run": _TEXT},
    "terminated": {"condition": _MAYBE_TEXT},
    "progress": {
        "run": _TEXT,
        "batch": _WHOLE,
        "ran": (bool,),
        "began": _NUMBER,
        "batch_s": _NUMBER,
        "sources": (list,),
    },
    "failed": {"run": _TEXT, "batch": _WHOLE, "condition": _TEXT},
    "lag": {"source": _TEXT, "lag": (dict,)},
    "prepared": _PREPARED,
    "committed": {**_PREPARED, **_TIMES, "replayed": (bool,), "transactions": _WHOLE},
}


def _is_known(event: Event) -> bool:
    """Return whether an event has all that a timeline is made of."""
    kind = event["event"]
    if not isinstance(kind, str) or not _is(event["at"], _NUMBER):
        return False
    if not all(_is(event.get(name), _MAYBE_TEXT) for name in ("query", "run", "sink", "name")):
        return False
    if not all(name in event and _is(event[name], types) for name, types in _FIELDS.get(kind, {}).items()):
        return False
    if kind == "progress":
        return all(isinstance(source, str) for source in event["sources"])
    try:
        return kind != "lag" or all(_is(lag.stable + lag.high + lag.stalled, _NUMBER) for lag in _lags(event))
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def _is(value: object, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and not (isinstance(value, float) and not math.isfinite(value))


def chosen(events: Sequence[Event], query: str | None, source: str) -> str:
    """Return the label of the query to show: ``query``, or the one with most events. Raises OptionError."""
    labels = queries_in(events)
    if not labels:
        raise stop("EOS_PLOT_IMPOSSIBLE.empty", source=source, query="every query", then=" yet")
    if query is not None and query not in labels:
        raise stop("EOS_PLOT_IMPOSSIBLE.no_query", source=source, query=query, queries=", ".join(labels))
    return query or labels[-1]


def queries_in(events: Sequence[Event]) -> list[str]:
    """Return the labels of all queries that have events, the one with most events last."""
    known = _learnt(events)
    counts: dict[str, int] = {}
    for event in events:
        label = _label(known, event) if event["event"] in ("prepared", "committed", "lag") else None
        if label is not None:
            counts[label] = counts.get(label, 0) + 1
    return sorted(counts, key=lambda label: counts[label])


def timeline_of(events: Sequence[Event], query: str) -> Timeline:
    """Return the timeline of the query with this label, as in `queries_in`."""
    known = _learnt(events)
    own = sorted((event for event in events if _label(known, event) == query), key=lambda event: float(event["at"]))
    processes = [(float(e["at"]), e["event"] == "exit") for e in events if e["event"] in ("process", "exit")]
    runs = _runs(own, processes, are_batches=query == BATCH_WRITE)
    lags = [lag for event in own if event["event"] == "lag" for lag in _lags(event)]
    return Timeline(query, runs, _attempts(own, {run.id for run in runs if run.how is None}), lags)


def cut(timeline: Timeline, begin: float) -> Timeline:
    """Return the part of a timeline that begins at a moment."""
    return replace(
        timeline,
        runs=[run for run in timeline.runs if run.end >= begin],
        batches=[batch for batch in timeline.batches if batch.span[1] >= begin],
        lags=[lag for lag in timeline.lags if lag.at >= begin],
    )


def _learnt(events: Iterable[Event]) -> Queries:
    known = Queries()
    for event in events:
        known.learn(event)
    return known


def _label(known: Queries, event: Event) -> str | None:
    if event["event"] == "lag":
        query = known.of_source(event["source"])
        return None if query is None else known.label(query)
    return known.label(event["query"]) if "query" in event else None


def _runs(events: Sequence[Event], processes: Sequence[tuple[float, bool]], *, are_batches: bool) -> list[QueryRun]:
    """Return the runs. ``processes``: the times at which a process began, or, with True, ended by itself.
    ``are_batches``: batch writes, whose end is no event of Spark."""
    runs: dict[str, QueryRun] = {}
    for event in events:
        id = event.get("run")
        if id is not None:
            run = runs.setdefault(id, QueryRun(id, event["at"], event["at"], None))
            how = (event["condition"] or "stopped") if event["event"] == "terminated" else run.how
            runs[id] = replace(run, end=event["at"], how=how)
    ordered = sorted(runs.values(), key=lambda run: run.begin)

    def end_of(run: QueryRun) -> str | None:
        """Return how a run has ended: without an event for it, together with its process, which ended by itself or was
        killed."""
        later = [by_itself for at, by_itself in processes if at >= run.end]
        if run.how is not None or are_batches:
            return run.how or "stopped"
        if later:
            return "stopped" if later[0] else "killed"
        return None if run is ordered[-1] else "killed"

    return [replace(run, how=end_of(run)) for run in ordered]


def _attempts(events: Sequence[Event], running: Collection[str]) -> list[BatchAttempt]:
    """Return the attempts, in the order of their first events. ``running``: the runs that have not ended."""
    attempts: dict[tuple[str, int], dict[str, BatchAttempt]] = {}  # by run and micro-batch, then by sink
    for event in events:
        kind, sink = event["event"], event.get("sink") or ""
        if kind not in ("prepared", "committed", "failed", "progress"):
            continue
        by_sink = attempts.setdefault((event["run"], event["batch"]), {})
        if kind in ("prepared", "committed"):
            prepare = {"prepare": (event["prepare_began"], event["prepare_ended"])}
            attempt = by_sink.get(sink) or BatchAttempt(event["batch"], event["run"], sink, event["rows"], prepare)
            by_sink[sink] = _committed(attempt, event) if kind == "committed" else attempt
        elif kind == "failed" and sink in by_sink:
            by_sink[sink] = replace(by_sink[sink], outcome=event["condition"])
        elif kind == "progress" and event["ran"]:
            whole = event["began"], event["began"] + event["batch_s"]
            by_sink |= {name: replace(attempt, whole=whole) for name, attempt in by_sink.items()}
    return [
        attempt if attempt.outcome or attempt.run in running else replace(attempt, outcome="cut off")
        for by_sink in attempts.values()
        for attempt in by_sink.values()
    ]


def _committed(batch: BatchAttempt, event: Event) -> BatchAttempt:
    """Return the attempt with its steps, which follow one another and end with the commit."""
    ended = event["at"]
    decided = ended - event["end_s"]
    verified = decided - event["decide_s"]
    steps = {**batch.steps, "verify": (verified - event["verify_s"], verified)}
    if event["replayed"] and not event["transactions"]:  # it was only compared with the decision
        return replace(batch, steps=steps, outcome="replayed")
    steps |= {"decide": (verified, decided), "EndTxn": (decided, ended)}
    return replace(batch, steps=steps, outcome="repaired" if event["replayed"] else "committed")


def _lags(event: Event) -> list[TopicLag]:
    """Return the lag of each topic of a source. Raises KeyError, TypeError, ValueError or AttributeError where a field
    is missing, or of another type."""
    lags = []
    for topic, by_number in event["lag"].items():
        partitions = {int(number): partition for number, partition in by_number.items()}
        held = [number for number, partition in partitions.items() if is_held(partition)]
        stalled = max((partitions[number]["heldMs"] for number in held), default=0) / 1000
        stable, high = (sum(partition[end] for partition in partitions.values()) for end in ("stable", "high"))
        lags.append(TopicLag(event["at"], topic, stable, high, stalled, held, event["source"]))
    return lags
