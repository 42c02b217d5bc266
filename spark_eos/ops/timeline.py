"""The timeline of a query, from its events: runs, micro-batches with their steps, lag.

The events come from a file that `spark_eos.metrics` writes, or from the endpoint that it serves.
"""

from __future__ import annotations

import math
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path

from spark_eos.base.whole_numbers import plain_number
from spark_eos.errors import EosError, stop
from spark_eos.ops.metrics.hub import Event, parsed
from spark_eos.ops.metrics.queries import BATCH_WRITE, Queries, is_held
from spark_eos.ops.metrics.recording import EventFile

_TIMEOUT_S = 10.0

#: Begin and end, in seconds since 1970.
Span = tuple[float, float]


@dataclass(frozen=True)
class BatchAttempt:
    """One attempt of a run at a micro-batch. ``prepare`` to ``end``: its steps, None where it did not reach them;
    ``whole``: all of it, by Spark. ``outcome``: "committed", "replayed", "repaired", "cut off", or the condition of the
    error that ended it; empty while it runs."""

    number: int
    run: str
    sink: str
    rows: int
    prepare: Span
    outcome: str
    verify: Span | None = None
    decide: Span | None = None
    end: Span | None = None
    whole: Span | None = None

    @property
    def steps(self) -> dict[str, Span | None]:
        """The steps by their names, in order."""
        return {"prepare": self.prepare, "verify": self.verify, "decide": self.decide, "EndTxn": self.end}

    @property
    def done(self) -> bool:
        """Whether it was committed."""
        return self.outcome in ("committed", "replayed", "repaired")

    @property
    def span(self) -> Span:
        """``whole``, or else from the begin of the first task to the end of the last step."""
        return self.whole or (self.prepare[0], (self.end or self.verify or self.prepare)[1])

    @property
    def seconds(self) -> float:
        begin, end = self.span
        return end - begin


@dataclass(frozen=True)
class QueryRun:
    """One start of the query. ``how`` it ended: "killed", "stopped", the condition of an error, or None if it has not
    ended; ``end``: then the time of its last event."""

    id: str
    begin: float
    end: float
    how: str | None


@dataclass(frozen=True)
class TopicLag:
    """The lag of one topic in offsets. ``stable``: to the last stable offsets; ``high``: to the high watermarks;
    ``stalled``: the seconds for which an open transaction has held back a last stable offset; ``source``: whose it
    is, which tells it of all its topics at once."""

    at: float
    topic: str
    stable: int
    high: int
    stalled: float
    source: str


@dataclass(frozen=True)
class Timeline:
    """What happened to a query, in the order of time. ``unknown``: sentences on what is not known, if no events were
    recorded (`spark_eos.ops.checkpoint_timeline`); then ``prepare`` is from Spark's plan to the decision, and
    ``decide`` has no length."""

    query: str
    runs: Sequence[QueryRun]
    batches: Sequence[BatchAttempt]
    lags: Sequence[TopicLag]
    unknown: Sequence[str] = ()

    @property
    def done(self) -> list[BatchAttempt]:
        """The attempts by which each sink has committed, without replays of what was committed before."""
        found: dict[tuple[str, str, int], BatchAttempt] = {}
        for batch in self.batches:
            if batch.done:
                found.setdefault((batch.sink, *self._micro_batch(batch)), batch)
        return list(found.values())

    def count(self, attempts: Iterable[BatchAttempt]) -> int:
        """How many micro-batches these are: within foreachBatch, each sink has an attempt."""
        return len(set(map(self._micro_batch, attempts)))

    def _micro_batch(self, attempt: BatchAttempt) -> tuple[str, int]:
        # Each batch write has a micro-batch 0 of its own.
        return attempt.run if self.query == BATCH_WRITE else "", attempt.number


class EventReader:
    """Reads ``source``: all events of a file, or the latest ones of an endpoint, ``http://HOST:PORT``. ``most``: so
    many events of a file are kept, the newest; None for all."""

    def __init__(self, source: str, most: int | None = None) -> None:
        self.source = source
        self._file = None if source.startswith(("http://", "https://")) else EventFile(Path(source), most)

    def read(self) -> list[Event]:
        """The events by now, without those of another program or version, which lack what is needed of them. Raises
        OptionError."""
        try:
            return [event for event in (self._ask() if self._file is None else self._file.read()) if _is_whole(event)]
        except (OSError, ValueError, HTTPException) as error:  # most errors of urllib are OSErrors
            raise _unreadable(self.source, error) from None

    def _ask(self) -> list[Event]:
        address = f"{self.source.rstrip('/').removesuffix('/metrics')}/events"
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:
            return list(parsed(answer.read()))


_TEXT, _MAYBE_TEXT, _NUMBER = (str,), (str, type(None)), (int, float)
#: The fields that are used of each kind of event, with their types.
_NEEDED: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "started": {"run": _TEXT},
    "terminated": {"condition": _MAYBE_TEXT},
    "progress": {"run": _TEXT, "batch": (int,), "ran": (bool,), "began": _NUMBER, "batch_s": _NUMBER},
    "failed": {"run": _TEXT, "batch": (int,), "condition": _TEXT},
    "lag": {"source": _TEXT},
}
_PREPARED = {"run": _TEXT, "batch": (int,), "rows": (int,), "prepare_began": _NUMBER, "prepare_ended": _NUMBER}
_COMMITTED = {"verify_s": _NUMBER, "decide_s": _NUMBER, "end_s": _NUMBER, "replayed": (bool,), "transactions": (int,)}
_FIELDS = {**_NEEDED, "prepared": _PREPARED, "committed": {**_PREPARED, **_COMMITTED}}
_ANY = dict.fromkeys(("query", "run", "sink", "name"), _MAYBE_TEXT)


def _is_whole(event: Event) -> bool:
    """Whether an event has what a timeline takes from it, so that a line of another program is no error."""
    kind = event["event"]
    if not isinstance(kind, str) or not _is(event["at"], _NUMBER):
        return False
    if not all(_is(event.get(name), types) for name, types in _ANY.items()):
        return False
    if not all(name in event and _is(event[name], types) for name, types in _FIELDS.get(kind, {}).items()):
        return False
    if kind == "progress":
        sources = event.get("sources")
        return isinstance(sources, list) and all(isinstance(source, str) for source in sources)
    return kind != "lag" or _is_lag(event.get("lag"))


def _is(value: object, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and not (isinstance(value, float) and not math.isfinite(value))


def _is_lag(lag: object) -> bool:
    return isinstance(lag, dict) and all(isinstance(places, dict) and _are_places(places) for places in lag.values())


def _are_places(places: Mapping[str, object]) -> bool:
    return all(
        plain_number(number) is not None
        and isinstance(place, dict)
        and all(_is(place.get(name), (int,)) for name in ("stable", "high", "heldMs"))
        for number, place in places.items()
    )


def _unreadable(source: str, error: Exception) -> EosError:
    why = error.reason if isinstance(error, urllib.error.URLError) else getattr(error, "strerror", None) or error
    return stop("EOS_PLOT_IMPOSSIBLE.unreadable", source=source, why=why)


def chosen(events: Sequence[Event], query: str | None, source: str) -> str:
    """The label of the query to show: ``query``, or the one with most events. Raises OptionError."""
    there = queries_in(events)
    if not there:
        raise stop("EOS_PLOT_IMPOSSIBLE.empty", source=source, query="every query", then=" yet")
    if query is not None and query not in there:
        raise stop("EOS_PLOT_IMPOSSIBLE.no_query", source=source, query=query, queries=", ".join(there))
    return query or there[-1]


def queries_in(events: Sequence[Event]) -> list[str]:
    """The labels of all queries that have events, the one with most events last."""
    known = _learnt(events)
    counts: dict[str, int] = {}
    for event in events:
        if event["event"] in ("prepared", "committed", "lag"):
            label = _label(known, event)
            if label is not None:
                counts[label] = counts.get(label, 0) + 1
    return sorted(counts, key=lambda label: counts[label])


def timeline_of(events: Sequence[Event], query: str) -> Timeline:
    """The timeline of the query with this label, as in `queries_in`."""
    known = _learnt(events)
    own = sorted((e for e in events if _label(known, e) == query), key=lambda e: float(e["at"]))
    processes = [(float(e["at"]), e["event"] == "exit") for e in events if e["event"] in ("process", "exit")]
    runs = _runs(own, processes)
    return Timeline(
        query,
        runs,
        _batches(own, {run.id: run for run in runs}),
        [lag for event in own if event["event"] == "lag" for lag in _lags(event)],
    )


def cut(timeline: Timeline, begin: float) -> Timeline:
    """The part of a timeline that begins at a moment."""
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
    if "query" not in event:
        return None
    return BATCH_WRITE if event["query"] is None else known.label(event["query"])


def _runs(events: Sequence[Event], processes: Sequence[tuple[float, bool]]) -> list[QueryRun]:
    """``processes``: the times at which a process began, or, with True, ended by itself."""
    runs: dict[str, QueryRun] = {}
    for event in events:
        id = event.get("run")
        if id is None:
            continue
        run = runs.setdefault(id, QueryRun(id, event["at"], event["at"], None))
        how = run.how
        if event["event"] == "terminated":
            how = event["condition"] or "stopped"
        runs[id] = replace(run, end=event["at"], how=how)
    ordered = sorted(runs.values(), key=lambda run: run.begin)
    if events and events[0].get("query", "") is None:  # batch writes, whose end is no event of Spark
        return [replace(run, how=run.how or "stopped") for run in ordered]
    return [replace(run, how=run.how or _end_of(run, ordered[-1], processes)) for run in ordered]


def _end_of(run: QueryRun, last: QueryRun, processes: Sequence[tuple[float, bool]]) -> str | None:
    """How a run without a terminated event ended: with its process, which ended by itself, or was killed."""
    later = [by_itself for at, by_itself in processes if at >= run.end]
    if later:
        return "stopped" if later[0] else "killed"
    return None if run is last else "killed"


def _batches(events: Sequence[Event], runs: Mapping[str, QueryRun]) -> list[BatchAttempt]:
    tries: dict[tuple[str, int], dict[str, BatchAttempt]] = {}  # by run and micro-batch, then by sink
    for event in events:
        if event["event"] in ("prepared", "committed", "failed", "progress"):
            _add(tries.setdefault((event["run"], event["batch"]), {}), event)
    return [
        replace(batch, outcome="cut off") if batch.outcome == "" and _is_over(runs.get(batch.run)) else batch
        for by_sink in tries.values()
        for batch in by_sink.values()
    ]


def _is_over(run: QueryRun | None) -> bool:
    return run is None or run.how is not None


def _add(by_sink: dict[str, BatchAttempt], event: Event) -> None:
    sink = event.get("sink") or ""
    if event["event"] in ("prepared", "committed"):
        span = event["prepare_began"], event["prepare_ended"]
        known = by_sink.setdefault(sink, BatchAttempt(event["batch"], event["run"], sink, event["rows"], span, ""))
        by_sink[sink] = _committed(known, event) if event["event"] == "committed" else known
    elif event["event"] == "failed" and sink in by_sink:
        by_sink[sink] = replace(by_sink[sink], outcome=event["condition"])
    elif event["event"] == "progress" and event["ran"]:
        whole = event["began"], event["began"] + event["batch_s"]
        by_sink |= {name: replace(batch, whole=whole) for name, batch in by_sink.items()}


def _committed(batch: BatchAttempt, event: Event) -> BatchAttempt:
    """The attempt with its steps, which follow one another and end with the commit."""
    ended = event["at"]
    decided = ended - event["end_s"]
    verified = decided - event["decide_s"]
    repaired = event["replayed"] and event["transactions"]
    only_compared = event["replayed"] and not repaired
    return replace(
        batch,
        verify=(verified - event["verify_s"], verified),
        decide=None if only_compared else (verified, decided),
        end=None if only_compared else (decided, ended),
        outcome="repaired" if repaired else "replayed" if event["replayed"] else "committed",
    )


def _lags(event: Event) -> list[TopicLag]:
    return [
        TopicLag(
            event["at"],
            topic,
            sum(place["stable"] for place in partitions.values()),
            sum(place["high"] for place in partitions.values()),
            max((place["heldMs"] for place in partitions.values() if is_held(place)), default=0) / 1000,
            event["source"],
        )
        for topic, partitions in event["lag"].items()
    ]
