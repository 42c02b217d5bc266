"""A job's messages on stderr while its query runs: one line for each micro-batch, and whether it is idle."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from dataclasses import dataclass
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

from spark_eos.checkpoint.offset_log import OTHER, SourceLine, marks_of, source_line
from spark_eos.copy.from_table.position import from_text
from spark_eos.topic_partition import flat

#: Name of the observation that counts the rows which go to the sink. Spark's progress has no such number for sinks
#: written in Python.
_OUT = "spark_eos_job_out"
#: That of the rows that do not parse and are left out.
_MALFORMED = "spark_eos_job_malformed"
_LINE = threading.Lock()


def say(line: str) -> None:
    """Print one line to stderr; stdout is for the job's results. A line that cannot be written, as to a full disk, is
    lost: rows do not depend on it."""
    with _LINE, contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def say_at_once(line: str) -> None:
    """The same in a handler of signals, which may interrupt whoever prints. A line that would have to wait is lost."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # the last one where stderr is no file
        fd = sys.stderr.fileno()
        if select.select([], [fd], [], 0)[1]:
            os.write(fd, f"{line}\n".encode())


def counted(rows: DataFrame, letters: str | None = None) -> DataFrame:
    """The same rows, and in each micro-batch's progress how many there were, and how many of them for the topic
    ``letters``."""
    counts = [F.count(F.lit(1)).alias("rows")]
    if letters is not None:
        counts.append(F.count_if(F.col("topic") == letters).alias("letters"))
    return rows.observe(_OUT, *counts)


def malformed_counted(rows: DataFrame, malformed: Column) -> DataFrame:
    """The same rows, and in each micro-batch's progress how many of them are malformed."""
    return rows.observe(_MALFORMED, F.count_if(malformed).alias("rows"))


@dataclass(frozen=True)
class Batch:
    """One micro-batch as its line shows it.

    ``rows_in``: rows that were read, those of each reading where the transform reads its input twice. ``lag``: offsets
    that were there to read when the micro-batch was planned, and that it left; None where the source does not say.
    ``held``: offsets behind these, which open transactions hold back. ``files``: how many were read, if any.
    ``letters``: rows that do not parse, among those that go out; ``malformed``: those that are left out. ``ranges``: of
    a query whose rows do not pass through Spark, which counts ranges of offsets as rows; ``rows_in`` are then offsets,
    and nobody tells how many rows go out. ``only_files``: Spark counts the files of a table as rows, and nobody tells
    how many rows these have.
    """

    number: int
    rows_in: int
    rows_out: int
    duration_s: float
    lag: int | None
    held: int
    files: int | None = None
    only_files: bool = False
    letters: int = 0
    ranges: int | None = None
    malformed: int = 0

    @classmethod
    def of(cls, progress: StreamingQueryProgress) -> Batch:
        sources = [(_line(source.latestOffset), _line(source.endOffset)) for source in progress.sources]
        of_kafka = all(latest.kind != OTHER for latest, _ in sources)
        observed, malformed = map(progress.observedMetrics.get, (_OUT, _MALFORMED))
        copy = any(end.position.copy for _, end in sources)
        if any(from_text(source.endOffset) is not None for source in progress.sources):
            duration_s = progress.batchDuration / 1000
            return cls(progress.batchId, 0, 0, duration_s, None, 0, files=progress.numInputRows, only_files=True)
        read = sum(_behind(_line(source.endOffset), _line(source.startOffset)) for source in progress.sources)
        return cls(
            number=progress.batchId,
            rows_in=read if copy else progress.numInputRows,
            ranges=progress.numInputRows if copy else None,
            rows_out=observed["rows"] if observed else 0,
            duration_s=progress.batchDuration / 1000,
            lag=sum(_behind(latest, end) for latest, end in sources) if of_kafka else None,
            held=sum(_held(latest) for latest, _ in sources),
            letters=observed["letters"] if observed and "letters" in observed else 0,
            malformed=malformed["rows"] if malformed else 0,
        )

    def __str__(self) -> str:
        parts = [] if self.files is None else [_plural(self.files, "file")]
        if self.only_files:
            return f"batch {self.number}: {parts[0]} of the table, {self.duration_s:.1f} s"
        if self.ranges is None:
            letters = f" ({_plural(self.letters, 'dead letter')})" if self.letters else ""
            parts += [f"{self.rows_in:,} in{_malformed(self.malformed)}", f"{self.rows_out:,} out{letters}"]
        else:
            parts += [f"{self.rows_in:,} offsets in {_plural(self.ranges, 'range')}"]
        if self.duration_s:
            unit = "rows" if self.ranges is None else "offsets"
            parts.append(f"{_short(self.rows_in / self.duration_s)} {unit}/s")
        if self.lag is not None:
            parts.append(f"lag {self.lag:,}" + (f" and {self.held:,} in open transactions" if self.held else ""))
        return f"batch {self.number}: {', '.join(parts)}"


class BatchLines(StreamingQueryListener):
    """Says one line for each micro-batch that had rows, and "idle" once when there are none to read.

    ``heard``: the moment (`time.monotonic`) of the last event.
    """

    def __init__(self) -> None:
        self.heard = time.monotonic()
        self._ended: set[UUID] = set()
        self._end = threading.Condition()
        self._idle = False
        self._batches = self._rows_in = self._rows_out = self._ranges = self._malformed = self._files = 0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self.heard = time.monotonic()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        batch = Batch.of(event.progress)
        if batch.rows_in or batch.rows_out or (batch.only_files and batch.files):
            self.add(batch)
        else:
            self.heard = time.monotonic()

    def add(self, batch: Batch) -> None:
        """A micro-batch is done."""
        self.heard = time.monotonic()
        self._idle = False
        self._batches += 1
        self._rows_in += batch.rows_in
        self._rows_out += batch.rows_out
        self._ranges += batch.ranges or 0
        self._malformed += batch.malformed
        self._files += (batch.files or 0) if batch.only_files else 0
        say(str(batch))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self.idle()

    def idle(self) -> None:
        """There is nothing to read now."""
        self.heard = time.monotonic()
        if not self._idle:
            self._idle = True
            say("idle: there is nothing to read")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._end:
            self._ended.add(event.runId)
            self._end.notify_all()

    def wait(self, run: UUID | str, timeout_s: float) -> None:
        """Until this run's last event has come, a moment after its end, or for so long."""
        with self._end:
            self._end.wait_for(lambda: str(run) in map(str, self._ended), timeout_s)

    @property
    def total(self) -> str:
        """The sums of all micro-batches so far."""
        if not self._batches:
            return "no rows"
        batches = _plural(self._batches, "micro-batch", "es")
        if self._ranges:
            return f"{self._rows_in:,} offsets read in {batches}"
        if self._files:
            return f"{_plural(self._files, 'file')} read in {batches}"
        return f"{self._rows_in:,} rows in{_malformed(self._malformed)}, {self._rows_out:,} out, in {batches}"


def _line(text: str | None) -> SourceLine:
    """Offsets of a source, as its progress has them."""
    return source_line(text or "")


def _behind(latest: SourceLine, end: SourceLine) -> int:
    """Offsets from ``end`` to ``latest``, in the partitions that both have."""
    reached = flat(end.position.offsets)
    return sum(max(0, at - reached.get(place, at)) for place, at in flat(latest.position.offsets).items())


def _held(latest: SourceLine) -> int:
    """Offsets behind the last stable one, by what eos-kafka reports beside the offsets."""
    partitions = (each for topic in marks_of(latest.text).get("lag", {}).values() for each in topic.values())
    return sum(max(0, each["high"] - each["stable"]) for each in partitions)


def _plural(number: int, noun: str, ending: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else ending}"


def _malformed(rows: int) -> str:
    return f" ({rows:,} malformed)" if rows else ""


def _short(number: float) -> str:
    """1,234,567 as 1.2 M: two digits that count."""
    for factor, unit in ((1e6, " M"), (1e3, " k")):
        if number >= 0.9995 * factor:
            scaled = number / factor
            return f"{scaled:.0f}{unit}" if scaled >= 9.95 else f"{scaled:.1f}{unit}"
    return f"{number:.0f}" if number >= 9.95 else f"{number:.1f}"
