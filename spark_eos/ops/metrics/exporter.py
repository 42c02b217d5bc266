"""Events as Prometheus metrics. docs/metrics.md explains each.

Labels are names of queries, of sinks within foreachBatch, of topics, and conditions of errors: none grows with
micro-batches, runs or transactional ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from spark_eos._version import __version__
from spark_eos.ops.metrics.hub import Event
from spark_eos.ops.metrics.queries import Queries, is_held

_P = "spark_eos_"
_SHORT = {"buckets": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)}
_LONG = {"buckets": (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)}
_OUTCOMES = ("committed", "aborted", "lost")
_SINK, _QUERY, _CONDITION, _TOPIC = ("query", "sink"), ("query",), ("query", "condition"), ("query", "topic")

Metric = Counter | Gauge | Histogram

#: Every metric by its name without prefix: its kind, labels and description.
_METRICS: Mapping[str, tuple[type[Metric], Sequence[str], str]] = {
    "batches": (Counter, _SINK, "Micro-batches that the sink has committed, each counted once."),
    "rows": (Counter, _SINK, "Rows of these micro-batches."),
    "bytes": (Counter, _SINK, "Bytes of keys and values of these rows, before compression."),
    "dead_letters": (Counter, _SINK, "Rows of these that went to the dead-letter topic."),
    "dropped_records": (Counter, _SINK, "Records that a transform rejected and that were left out."),
    "replays": (Counter, _SINK, "Micro-batches that were decided before, and were compared with that."),
    "repairs": (Counter, _SINK, "Replays that wrote rows again whose decided transaction was lost."),
    "aborts": (Counter, _SINK, "Micro-batches that were given up."),
    "transactions": (Counter, (*_SINK, "outcome"), "Transactions of tasks, by what became of them."),
    "prepare_duration_seconds": (Histogram, _SINK, "Time that the slowest task of a micro-batch took."),
    "verify_duration_seconds": (Histogram, _SINK, "Time to take the ledger and to look at what the tasks wrote."),
    "decide_duration_seconds": (Histogram, _SINK, "Time of the ledger transaction that decides a micro-batch."),
    "end_txn_duration_seconds": (Histogram, _SINK, "Time to commit all transactions of a micro-batch."),
    "commit_duration_seconds": (Histogram, _SINK, "Time of the whole commit of a micro-batch, on the driver."),
    "open_transactions": (Gauge, _SINK, "Transactions that the sink could not abort, when it looked last."),
    "last_commit_timestamp_seconds": (
        Gauge,
        _SINK,
        "When the sink last committed; before its first commit, when the query began.",
    ),
    "query_running": (Gauge, _QUERY, "Whether the query runs."),
    "query_generation": (
        Gauge,
        _QUERY,
        "Rises by one with each start of the query, and with each run that is given up.",
    ),
    "batch_duration_seconds": (Histogram, _QUERY, "Time of a whole micro-batch, by Spark."),
    "input_rows": (Counter, _QUERY, "Rows that Spark has read."),
    "failures": (Counter, _CONDITION, "Ends of the query by an error."),
    "restarts": (Counter, _CONDITION, "Restarts by spark_eos.run."),
    "source_lso_lag_offsets": (Gauge, _TOPIC, "Offsets to the last stable offsets, not planned yet."),
    "source_high_watermark_lag_offsets": (Gauge, _TOPIC, "Offsets to the high watermarks, not planned yet."),
    "source_lso_stalled_seconds": (
        Gauge,
        _TOPIC,
        "For how long an open transaction has kept a last stable offset from moving.",
    ),
    "source_held_partitions": (
        Gauge,
        _TOPIC,
        "Partitions whose last stable offset an open transaction holds back.",
    ),
    "source_data_losses": (Counter, _QUERY, "Data losses that the source has reported."),
}
_OF_SINK = tuple(name for name, (kind, labels, _) in _METRICS.items() if kind is Counter and labels == _SINK)
_OF_TOPIC = tuple(name for name, (_, labels, _) in _METRICS.items() if labels == _TOPIC)


class Exporter:
    """Keeps the metrics in ``registry`` by the events that it takes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queries = Queries()
        self._losses: dict[str, int] = {}
        self._topics: dict[str, dict[str, set[str]]] = {}  # by the query's label, then by source
        self._commits: dict[str, bool] = {}  # by the query's label: whether a sink of this library has committed
        self._counted: dict[tuple[str, str | None], int] = {}
        self._metrics: dict[str, Any] = {}
        for name, (kind, labels, text) in _METRICS.items():
            buckets: Any = {} if kind is not Histogram else _LONG if labels == _QUERY else _SHORT
            self._metrics[name] = kind(_P + name, text, labels, registry=registry, **buckets)
        build = Gauge(_P + "build_info", "1, with the version of spark-eos.", ["version"], registry=registry)
        build.labels(__version__).set(1)

    def take(self, event: Event) -> None:
        """Count one event; other kinds of events are ignored."""
        self._queries.learn(event)
        takers: dict[str, Callable[[Event], None]] = {
            "committed": self._committed,
            "failed": self._failed,
            "aborted": self._aborted,
            "progress": self._progress,
            "terminated": self._terminated,
            "restart": self._restart,
            "lag": self._lag,
        }
        taker = takers.get(event["event"])
        if taker is not None:
            taker(event)
        for label in map(self._queries.label, self._queries.running):
            self._metric("query_running", label).set(1)
            if label not in self._commits:
                self._finished(label, event)
                self._begin(label)

    def _metric(self, name: str, *labels: str) -> Any:  # noqa: ANN401  # a metric of any kind
        """Return the metric with these labels, which begins at 0 if it is new."""
        return self._metrics[name].labels(*labels)

    def _labels(self, event: Event) -> tuple[str, str]:
        return self._queries.label(event["query"]), event["sink"] or ""

    def _committed(self, event: Event) -> None:
        labels = self._labels(event)
        repaired = event["replayed"] and event["transactions"] > 0
        counts = {"replays": event["replayed"], "repairs": repaired, "aborts": 0, "dead_letters": event["dead_letters"]}
        if self._is_new(event):
            counts |= {
                "batches": 1,
                "rows": event["rows"],
                "bytes": event["bytes"],
                "dropped_records": event["dropped"],
            }
        for name, count in counts.items():
            self._metric(name, *labels).inc(count)
        ended = {"committed": event["transactions"], "aborted": event["leftovers"] - event["open"], "lost": 0}
        for outcome, count in ended.items():
            self._metric("transactions", *labels, outcome).inc(count)
        self._metric("open_transactions", *labels).set(event["open"])
        self._committed_at(labels, event)
        steps = ["prepare", "commit", "verify"]
        if not event["replayed"] or repaired:
            steps += ["decide", "end"]
        for step in steps:
            name = "end_txn" if step == "end" else step
            self._metric(f"{name}_duration_seconds", *labels).observe(event[f"{step}_s"])
        if event["generation"] is not None:
            self._metric("query_generation", labels[0]).set(event["generation"])

    def _begin(self, label: str) -> None:
        """Create the query's counters with 0, so that their first event is seen as a rise."""
        for name in ("input_rows", "source_data_losses"):
            self._metric(name, label)
        for name in _OF_SINK:
            self._metric(name, label, "")
        for outcome in _OUTCOMES:
            self._metric("transactions", label, "", outcome)

    def _leave_begin(self, label: str) -> None:
        """Remove the query's metrics without a sink, as its sinks have their own from now on."""
        for name in ("last_commit_timestamp_seconds", *_OF_SINK):
            self._metrics[name].remove(label, "")
        for outcome in _OUTCOMES:
            self._metrics["transactions"].remove(label, "", outcome)

    def _committed_at(self, labels: tuple[str, str], event: Event) -> None:
        if self._commits.get(labels[0]) is False and labels[1]:
            self._leave_begin(labels[0])
        self._commits[labels[0]] = True
        self._metric("last_commit_timestamp_seconds", *labels).set(event["at"])

    def _finished(self, label: str, event: Event) -> None:
        """Note that the query begins, or that Spark has finished a micro-batch. This counts until a sink of this
        library commits, so that a query that hangs in its first micro-batch is seen, and a query with another sink is
        not taken for one that hangs."""
        if not self._commits.setdefault(label, False):
            self._metric("last_commit_timestamp_seconds", label, "").set(event["at"])

    def _is_new(self, event: Event) -> bool:
        """Return whether a micro-batch is not counted yet. If its first commit has failed, its replay is counted."""
        if event["query"] is None:
            return not event["replayed"]
        key = event["query"], event["sink"]
        new: bool = event["batch"] > self._counted.get(key, -1)
        self._counted[key] = max(event["batch"], self._counted.get(key, -1))
        return new

    def _failed(self, event: Event) -> None:
        self._metric("transactions", *self._labels(event), "lost").inc(event["lost"])

    def _aborted(self, event: Event) -> None:
        labels = self._labels(event)
        self._metric("aborts", *labels).inc()
        self._metric("transactions", *labels, "aborted").inc(event["transactions"])
        self._metric("open_transactions", *labels).set(event["open"])

    def _progress(self, event: Event) -> None:
        label = self._queries.label(event["query"])
        if self._queries.is_ours(event["query"]) and event["ran"]:
            self._metric("batch_duration_seconds", label).observe(event["batch_s"])
            self._metric("input_rows", label).inc(event["rows_in"])
            self._finished(label, event)

    def _terminated(self, event: Event) -> None:
        query, condition = event["query"], event["condition"]
        label = self._queries.label(query)
        ours = self._queries.is_ours(query) or (condition or "").startswith("EOS_")
        if ours:
            self._metric("query_running", label).set(0)
        if ours and condition is not None:
            self._metric("failures", label, condition).inc()
        self._forget(label, set().union(*self._topics.pop(label, {}).values()))

    def _forget(self, label: str, topics: Iterable[str]) -> None:
        for topic in topics:
            for name in _OF_TOPIC:
                self._metrics[name].remove(label, topic)

    def _restart(self, event: Event) -> None:
        self._metric("restarts", self._queries.label(event["query"]), event["condition"]).inc()

    def _lag(self, event: Event) -> None:
        query = self._queries.of_source(event["source"])
        if query is None:
            return
        label = self._queries.label(query)
        losses = event["losses"] - self._losses.get(event["source"], 0)
        self._losses[event["source"]] = event["losses"]
        self._metric("source_data_losses", label).inc(max(0, losses))
        if query in self._queries.running:  # else it has just ended, and its lag would never be removed
            self._show_lag(label, event)

    def _show_lag(self, label: str, event: Event) -> None:
        by_source = self._topics.setdefault(label, {})
        before = by_source.get(event["source"], set())
        by_source[event["source"]] = set(event["lag"])
        self._forget(label, before.difference(*by_source.values()))
        for topic, partitions in event["lag"].items():
            lags = partitions.values()
            held = [lag["heldMs"] for lag in lags if is_held(lag)]
            values = {
                "lso_lag_offsets": sum(lag["stable"] for lag in lags),
                "high_watermark_lag_offsets": sum(lag["high"] for lag in lags),
                "lso_stalled_seconds": max(held, default=0) / 1000,
                "held_partitions": len(held),
            }
            for name, value in values.items():
                self._metric(f"source_{name}", label, topic).set(value)
