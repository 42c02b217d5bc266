"""A job's messages on stderr while its query runs: one line for each micro-batch, and whether it is idle."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from dataclasses import dataclass, replace
from uuid import UUID

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from spark_eos.base.topic_partition import flat
from spark_eos.checkpoint.offset_log import OTHER, SourceLine, marks_of, source_line
from spark_eos.ops.metrics.hub import Event
from spark_eos.pipelines.copy.from_table.position import from_text

#: Name of the observation that counts the rows which go to the sink. Spark's progress has no such number for sinks
#: written in Python.
_OUT = "spark_eos_job_out"
#: Seconds to wait for the event of a commit that Spark has reported.
_EVENT_S = 2.0
#: The name of the observation of rows that do not parse and are left out.
_MALFORMED = "spark_eos_job_malformed"
_LINE = threading.Lock()


def say(line: str) -> None:
    """Print one line to stderr; stdout is for the job's results. A line that cannot be written, as to a full disk, is
    lost: rows do not depend on it."""
    with _LINE, contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def say_at_once(line: str) -> None:
    """Print a line in a handler of signals, which may interrupt `say`. A line that would have to wait is lost."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # the last one where stderr is no file
        fd = sys.stderr.fileno()
        if select.select([], [fd], [], 0)[1]:
            os.write(fd, f"{line}\n".encode())


def counted(rows: DataFrame, letters: str | None = None) -> DataFrame:
    """Count the rows in each micro-batch's progress, and among them the rows for the topic
    ``letters``."""
    counts = [F.count(F.lit(1)).alias("rows")]
    if letters is not None:
        counts.append(F.count_if(F.col("topic") == letters).alias("letters"))
    return rows.observe(_OUT, *counts)


def malformed_counted(rows: DataFrame, malformed: Column) -> DataFrame:
    """Count the malformed rows in each micro-batch's progress."""
    return rows.observe(_MALFORMED, F.count_if(malformed).alias("rows"))


@dataclass(frozen=True)
class Batch:
    """One micro-batch as its line shows it.

    ``rows_in``: rows that were read, once each where the transform reads its input twice; ``rows_out``: rows of the
    output, ``dropped``: rows that were left out as they do not parse or were rejected, and ``letters``: such rows that
    became dead letters. ``lag``: offsets that were there to read when the micro-batch was planned, and that it left;
    None where the source does not say. ``held``: offsets behind these, which open transactions hold back. ``files``:
    how many were read, if any. ``uncounted``: describes the input, where its rows are not counted.
    """

    number: int
    rows_in: int
    rows_out: int
    duration_s: float
    lag: int | None = None
    held: int = 0
    files: int | None = None
    dropped: int = 0
    letters: int = 0
    uncounted: str = ""

    @classmethod
    def from_progress(cls, progress: StreamingQueryProgress, committed: Event | None = None) -> Batch:
        """Return the micro-batch of Spark's progress. ``committed``: the event of its commit; where rows do not pass
        through Spark, none is counted without it."""
        sources = [(_line(source.latestOffset), _line(source.endOffset)) for source in progress.sources]
        of_kafka = all(latest.kind != OTHER for latest, _ in sources)
        lag = sum(_behind(latest, end) for latest, end in sources) if of_kafka else None
        held = sum(_held(latest) for latest, _ in sources)
        duration_s = progress.batchDuration / 1000
        if is_past_the_jvm(progress):
            files = progress.numInputRows if _reads_files(progress) else None
            if committed is None:
                offsets = sum(
                    _behind(_line(source.endOffset), _line(source.startOffset)) for source in progress.sources
                )
                uncounted = f"{offsets:,} offsets" if files is None else _plural(files, "file")
                return cls(progress.batchId, 0, 0, duration_s, lag, held, uncounted=uncounted)
            rows, letters, dropped = (committed[name] for name in ("rows", "dead_letters", "dropped"))
            # A micro-batch that was decided before is not read again.
            read = rows if committed["replayed"] else committed["read"]
            return cls(progress.batchId, read, rows - letters, duration_s, lag, held, files, dropped, letters)
        observed, malformed = map(progress.observedMetrics.get, (_OUT, _MALFORMED))
        out, letters = (observed["rows"], observed.asDict().get("letters", 0)) if observed else (0, 0)
        read = max((source.numInputRows for source in progress.sources), default=progress.numInputRows)
        dropped = malformed["rows"] if malformed else 0
        letters += committed["dead_letters"] if committed else 0  # rows that brokers refused
        return cls(progress.batchId, read, out - letters, duration_s, lag, held, None, dropped, letters)

    def __str__(self) -> str:
        parts = [] if self.files is None else [_plural(self.files, "file")]
        parts += [self.uncounted] if self.uncounted else _counts(self)
        if self.uncounted:
            parts.append(f"{self.duration_s:.1f} s")
        elif self.duration_s:
            parts.append(f"{_short(self.rows_in / self.duration_s)} rows/s")
        if self.lag is not None:
            parts.append(f"lag {self.lag:,}" + (f" and {self.held:,} in open transactions" if self.held else ""))
        return f"batch {self.number}: {', '.join(parts)}"


def is_past_the_jvm(progress: StreamingQueryProgress) -> bool:
    """Return whether Spark counts ranges of offsets or files instead of rows, as rows do not pass through it."""
    return _reads_files(progress) or any(_line(source.endOffset).position.copy for source in progress.sources)


def _reads_files(progress: StreamingQueryProgress) -> bool:
    return any(from_text(source.endOffset) is not None for source in progress.sources)


def _counts(batch: Batch) -> list[str]:
    """Describe numbers of rows: read, written, dropped, dead letters."""
    parts = [f"{batch.rows_in:,} in", f"{batch.rows_out:,} out"]
    parts += [f"{batch.dropped:,} dropped"] if batch.dropped else []
    return [*parts, _plural(batch.letters, "dead letter")] if batch.letters else parts


class BatchLines(StreamingQueryListener):
    """Says one line for each micro-batch that had rows, and "idle" once when there are none to read.

    ``heard``: the moment (`time.monotonic`) of the last event.
    """

    def __init__(self) -> None:
        self.heard = time.monotonic()
        self._ended: set[UUID] = set()
        self._committed: dict[int, Event] = {}
        self._changed = threading.Condition()
        self._idle = False
        self._batches = self._uncounted = 0
        self._sum = Batch(0, 0, 0, 0.0)

    def take(self, event: Event) -> None:
        """Keep the event of a commit (`spark_eos.base.metrics_events`), which comes before Spark's progress."""
        if event["event"] == "committed":
            with self._changed:
                self._committed[event["batch"]] = event
                self._changed.notify_all()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self.heard = time.monotonic()
        if not self._batches and not self._idle:
            say("planning and running the first micro-batch …")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        past_the_jvm = bool(progress.numInputRows) and is_past_the_jvm(progress)
        batch = Batch.from_progress(progress, self._commit_of(progress.batchId, _EVENT_S if past_the_jvm else 0.0))
        if batch.rows_in or batch.rows_out or batch.uncounted:
            self.add(batch)
        else:
            self.heard = time.monotonic()

    def _commit_of(self, batch: int, patience_s: float) -> Event | None:
        """Return the event of the micro-batch's commit, which may not have arrived yet; None where it was lost, or
        belongs to another sink."""
        with self._changed:
            self._changed.wait_for(lambda: batch in self._committed, patience_s)
            counts = self._committed.get(batch)
            self._committed = {number: event for number, event in self._committed.items() if number > batch}
            return counts

    def add(self, batch: Batch) -> None:
        """Log a micro-batch that is done."""
        self.heard = time.monotonic()
        self._idle = False
        self._batches += 1
        self._uncounted += bool(batch.uncounted)
        self._sum = replace(
            self._sum,
            rows_in=self._sum.rows_in + batch.rows_in,
            rows_out=self._sum.rows_out + batch.rows_out,
            dropped=self._sum.dropped + batch.dropped,
            letters=self._sum.letters + batch.letters,
        )
        say(str(batch))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self.idle()

    def idle(self) -> None:
        """Note that there is nothing to read now."""
        self.heard = time.monotonic()
        if not self._idle:
            self._idle = True
            say("idle: there is nothing to read")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._changed:
            self._ended.add(event.runId)
            self._changed.notify_all()

    def wait(self, run: UUID | str, timeout_s: float) -> None:
        """Wait until this run's last event has come, a moment after its end, or until the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: str(run) in map(str, self._ended), timeout_s)

    @property
    def total(self) -> str:
        """The sums of all micro-batches so far."""
        if not self._batches:
            return "no rows"
        unknown = f", {self._uncounted} of them not counted" if self._uncounted else ""
        return f"{', '.join(_counts(self._sum))}, in {_plural(self._batches, 'micro-batch', 'es')}{unknown}"


def _line(text: str | None) -> SourceLine:
    """Return the offsets of a source, as its progress has them."""
    return source_line(text or "")


def _behind(latest: SourceLine, end: SourceLine) -> int:
    """Return the number of offsets from ``end`` to ``latest``, in the partitions that both have."""
    reached = flat(end.position.offsets)
    return sum(max(0, at - reached.get(partition, at)) for partition, at in flat(latest.position.offsets).items())


def _held(latest: SourceLine) -> int:
    """Return the number of offsets behind the last stable offset, which eos-kafka reports beside the offsets."""
    partitions = (each for topic in marks_of(latest.text).get("lag", {}).values() for each in topic.values())
    return sum(max(0, each["high"] - each["stable"]) for each in partitions)


def _plural(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def _short(number: float) -> str:
    """Return 1,234,567 as 1.2 M: with two significant digits."""
    for factor, unit in ((1e6, " M"), (1e3, " k")):
        if number >= 0.9995 * factor:
            scaled = number / factor
            return f"{scaled:.0f}{unit}" if scaled >= 9.95 else f"{scaled:.1f}{unit}"
    return f"{number:.0f}" if number >= 9.95 else f"{number:.1f}"
