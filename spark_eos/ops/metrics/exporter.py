"""Events as Prometheus metrics. docs/metrics.md explains each.

Labels are names of queries, of sinks within foreachBatch, of topics, and conditions of errors: none grows with
micro-batches, runs or transactional ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from spark_eos._version import __version__
from spark_eos.ops.metrics.hub import Event
from spark_eos.ops.metrics.queries import Queries, is_held

_P = "spark_eos_"
_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_OUTCOMES = ("committed", "aborted", "lost")
_LONG = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Exporter:
    """Keeps the metrics in ``registry`` by the events that it takes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._queries = Queries()
        self._losses: dict[str, int] = {}
        self._topics: dict[str, dict[str, set[str]]] = {}  # by the query's label, then by source
        self._commits: dict[str, bool] = {}  # by the query's label: whether a sink of this library has committed
        self._counted: dict[tuple[str, str | None], int] = {}
        self._make_sink(registry)
        self._make_query(registry)
        self._make_source(registry)
        Gauge(_P + "build_info", "1, with the version of spark-eos.", ["version"], registry=registry).labels(
            __version__
        ).set(1)

    def take(self, event: Event) -> None:
        """Count one event; those that no metric is made of are ignored."""
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
            self._running.labels(label).set(1)
            if label not in self._commits:
                self._finished(label, event)
                self._begin(label)

    def _make_sink(self, registry: CollectorRegistry) -> None:
        labels = ["query", "sink"]

        def counter(name: str, text: str, more: Sequence[str] = ()) -> Counter:
            return Counter(_P + name, text, [*labels, *more], registry=registry)

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(_P + name + "_duration_seconds", text, labels, registry=registry, buckets=_SHORT)

        self._batches = counter("batches", "Micro-batches that the sink has committed, each counted once.")
        self._rows = counter("rows", "Rows of these micro-batches.")
        self._bytes = counter("bytes", "Bytes of keys and values of these rows, before compression.")
        self._letters = counter("dead_letters", "Rows of these that went to the dead-letter topic.")
        self._dropped = counter("dropped_records", "Records that a transform rejected and that were left out.")
        self._replays = counter("replays", "Micro-batches that were decided before, and were compared with that.")
        self._repairs = counter("repairs", "Replays that wrote rows again whose decided transaction was lost.")
        self._aborts = counter("aborts", "Micro-batches that were given up.")
        self._of_sink = (
            *(self._batches, self._rows, self._bytes, self._letters, self._dropped),
            *(self._replays, self._repairs, self._aborts),
        )
        self._transactions = counter("transactions", "Transactions of tasks, by what became of them.", ["outcome"])
        self._prepare = seconds("prepare", "Time that the slowest task of a micro-batch took.")
        self._verify = seconds("verify", "Time to take the ledger and to look at what the tasks wrote.")
        self._decide = seconds("decide", "Time of the ledger transaction that decides a micro-batch.")
        self._end = seconds("end_txn", "Time to commit all transactions of a micro-batch.")
        self._commit = seconds("commit", "Time of the whole commit of a micro-batch, on the driver.")
        self._open = Gauge(
            _P + "open_transactions",
            "Transactions that the sink could not abort, when it looked last.",
            labels,
            registry=registry,
        )
        self._last = Gauge(
            _P + "last_commit_timestamp_seconds",
            "When the sink last committed; before its first commit, when the query began.",
            labels,
            registry=registry,
        )

    def _make_query(self, registry: CollectorRegistry) -> None:
        self._running = Gauge(_P + "query_running", "Whether the query runs.", ["query"], registry=registry)
        self._generation = Gauge(
            _P + "query_generation",
            "Rises by one with each start of the query, and with each run that is given up.",
            ["query"],
            registry=registry,
        )
        self._duration = Histogram(
            _P + "batch_duration_seconds",
            "Time of a whole micro-batch, by Spark.",
            ["query"],
            registry=registry,
            buckets=_LONG,
        )
        self._rows_in = Counter(_P + "input_rows", "Rows that Spark has read.", ["query"], registry=registry)
        by_condition = ["query", "condition"]
        self._failures = Counter(_P + "failures", "Ends of the query by an error.", by_condition, registry=registry)
        self._restarts = Counter(_P + "restarts", "Restarts by spark_eos.run.", by_condition, registry=registry)

    def _make_source(self, registry: CollectorRegistry) -> None:
        labels = ["query", "topic"]

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(_P + "source_" + name, text, labels, registry=registry)

        self._stable = gauge("lso_lag_offsets", "Offsets to the last stable offsets, not planned yet.")
        self._high = gauge("high_watermark_lag_offsets", "Offsets to the high watermarks, not planned yet.")
        self._stalled = gauge(
            "lso_stalled_seconds", "For how long an open transaction has kept a last stable offset from moving."
        )
        self._held = gauge("held_partitions", "Partitions whose last stable offset an open transaction holds back.")
        self._data_losses = Counter(
            _P + "source_data_losses", "Data losses that the source has reported.", ["query"], registry=registry
        )

    def _labels(self, event: Event) -> tuple[str, str]:
        return self._queries.label(event["query"]), event["sink"] or ""

    def _committed(self, event: Event) -> None:
        labels = self._labels(event)
        repaired = event["replayed"] and event["transactions"] > 0
        if self._is_new(event):
            self._batches.labels(*labels).inc()
            self._rows.labels(*labels).inc(event["rows"])
            self._bytes.labels(*labels).inc(event["bytes"])
        self._letters.labels(*labels).inc(event["dead_letters"])
        self._dropped.labels(*labels).inc(event["dropped"])
        self._replays.labels(*labels).inc(event["replayed"])
        self._repairs.labels(*labels).inc(repaired)
        self._aborts.labels(*labels)  # a counter begins at 0, not with its first event
        ended = {"committed": event["transactions"], "aborted": event["leftovers"] - event["open"], "lost": 0}
        for outcome, count in ended.items():
            self._transactions.labels(*labels, outcome).inc(count)
        self._open.labels(*labels).set(event["open"])
        self._committed_at(labels, event)
        self._prepare.labels(*labels).observe(event["prepare_s"])
        self._commit.labels(*labels).observe(event["commit_s"])
        self._verify.labels(*labels).observe(event["verify_s"])
        if not event["replayed"] or repaired:
            self._decide.labels(*labels).observe(event["decide_s"])
            self._end.labels(*labels).observe(event["end_s"])
        if event["generation"] is not None:
            self._generation.labels(labels[0]).set(event["generation"])

    def _begin(self, label: str) -> None:
        """Counters begin at 0 with the query, so that their first event is seen as a rise."""
        self._rows_in.labels(label)
        self._data_losses.labels(label)
        for counter in self._of_sink:
            counter.labels(label, "")
        for outcome in _OUTCOMES:
            self._transactions.labels(label, "", outcome)

    def _leave_begin(self, label: str) -> None:
        """From here on the query's sinks have their own."""
        for metric in (self._last, *self._of_sink):
            metric.remove(label, "")
        for outcome in _OUTCOMES:
            self._transactions.remove(label, "", outcome)

    def _committed_at(self, labels: tuple[str, str], event: Event) -> None:
        if self._commits.get(labels[0]) is False and labels[1]:
            self._leave_begin(labels[0])
        self._commits[labels[0]] = True
        self._last.labels(*labels).set(event["at"])

    def _finished(self, label: str, event: Event) -> None:
        """The query begins, or Spark has finished a micro-batch: that counts until a sink of this library commits, so
        that a query that hangs in its first micro-batch is seen, and one with another sink is not taken for it."""
        if not self._commits.setdefault(label, False):
            self._last.labels(label, "").set(event["at"])

    def _is_new(self, event: Event) -> bool:
        """Whether the micro-batch is not counted yet. One whose first commit has failed is, when its replay has not."""
        if event["query"] is None:
            return not event["replayed"]
        key = event["query"], event["sink"]
        new: bool = event["batch"] > self._counted.get(key, -1)
        self._counted[key] = max(event["batch"], self._counted.get(key, -1))
        return new

    def _failed(self, event: Event) -> None:
        labels = self._labels(event)
        self._transactions.labels(*labels, "lost").inc(event["lost"])

    def _aborted(self, event: Event) -> None:
        labels = self._labels(event)
        self._aborts.labels(*labels).inc()
        self._transactions.labels(*labels, "aborted").inc(event["transactions"])
        self._open.labels(*labels).set(event["open"])

    def _progress(self, event: Event) -> None:
        label = self._queries.label(event["query"])
        if self._queries.is_ours(event["query"]) and event["ran"]:
            self._duration.labels(label).observe(event["batch_s"])
            self._rows_in.labels(label).inc(event["rows_in"])
            self._finished(label, event)

    def _terminated(self, event: Event) -> None:
        query, condition = event["query"], event["condition"]
        label = self._queries.label(query)
        ours = self._queries.is_ours(query) or (condition or "").startswith("EOS_")
        if ours:
            self._running.labels(label).set(0)
        if ours and condition is not None:
            self._failures.labels(label, condition).inc()
        self._forget(label, set().union(*self._topics.pop(label, {}).values()))

    def _forget(self, label: str, topics: Iterable[str]) -> None:
        for topic in topics:
            for gauge in (self._stable, self._high, self._stalled, self._held):
                gauge.remove(label, topic)

    def _restart(self, event: Event) -> None:
        self._restarts.labels(self._queries.label(event["query"]), event["condition"]).inc()

    def _lag(self, event: Event) -> None:
        query = self._queries.of_source(event["source"])
        if query is None:
            return
        label = self._queries.label(query)
        losses = event["losses"] - self._losses.get(event["source"], 0)
        self._losses[event["source"]] = event["losses"]
        self._data_losses.labels(label).inc(max(0, losses))
        if query in self._queries.running:  # else it has just ended, and nobody would take its lag back
            self._show_lag(label, event)

    def _show_lag(self, label: str, event: Event) -> None:
        by_source = self._topics.setdefault(label, {})
        before = by_source.get(event["source"], set())
        by_source[event["source"]] = set(event["lag"])
        self._forget(label, before.difference(*by_source.values()))
        for topic, partitions in event["lag"].items():
            places = partitions.values()
            self._stable.labels(label, topic).set(sum(place["stable"] for place in places))
            self._high.labels(label, topic).set(sum(place["high"] for place in places))
            held = [place for place in places if is_held(place)]
            self._stalled.labels(label, topic).set(max((place["heldMs"] for place in held), default=0) / 1000)
            self._held.labels(label, topic).set(len(held))
