"""A query's starts on one checkpoint, by Spark's rules: an offset log, a commit log, and a sink that writes each
micro-batch once. The reader is the library's own, and so is what a task does when it cannot read on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.checkpoint.offset_log import Position, from_spark
from spark_eos.errors import DataLossError, KafkaError
from spark_eos.kafka.records.batches import OtherEpoch
from spark_eos.options.parse import SinkOptions, stream_options
from spark_eos.options.selection import Pattern
from spark_eos.pipelines.copy import task as copy_task
from spark_eos.pipelines.copy.plan import CopyPlan
from spark_eos.pipelines.copy.source import RangeStreamReader
from spark_eos.pipelines.copy.task import RangeWriter
from spark_eos.source import readable
from spark_eos.source import reader as reader_module
from spark_eos.source import task as source_task
from spark_eos.source.byte_limit import SampledBatch, Sizes
from spark_eos.source.diagnosis import check_epoch, why_not
from spark_eos.source.epochs import RangeEpochs
from spark_eos.source.fetching import Fetching
from spark_eos.source.losses import Losses, epoch_diverged, log_diverged
from spark_eos.source.range_reader import RangesOfTask
from spark_eos.source.readable import ReadableRanges
from spark_eos.source.reader import EosKafkaStreamReader
from spark_eos.source.task import resuming

from .admin import CLUSTER_ID
from .cluster import MOST_PARTITIONS, NAMES, Cluster, Ends, Log

#: How often an idle query is polled before its start ends, and for how long each time.
POLLS, POLL_MS = 6, 1_200
#: More than any start has to read.
MOST_BATCHES = 200
_BYTES_PER_OFFSET = 100


class Trigger(Enum):
    DEFAULT = "one micro-batch after the other"
    AVAILABLE_NOW = "what is there at the begin"
    ONCE = "all in one micro-batch, without limits"


@dataclass(frozen=True)
class Start:
    """One start of the query: ``batches`` new ones at the most. ``options``: beside those of the query."""

    trigger: Trigger = Trigger.DEFAULT
    fail: bool = True
    batches: int = MOST_BATCHES
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Reported:
    """A loss, and what it was reported of: the ids that the offset log has, and the ranges of the micro-batch, if one
    was about to be read."""

    error: DataLossError
    raised: bool
    ids: dict[str, str]
    ranges: tuple[OffsetRange, ...]
    step: int

    @property
    def place(self) -> tuple[str, int]:
        return self.error.parameters["topic"], self.error.parameters["partition"]

    @property
    def expected(self) -> int:
        return int(self.error.parameters["expected"])

    @property
    def found(self) -> int | None:
        found = self.error.parameters["found"]
        return None if found is None else int(found)

    @property
    def recreated(self) -> bool:
        return "recreated: its id" in self.error.message or "deleted or recreated" in self.error.message


@dataclass(frozen=True)
class Line:
    """A line of the offset log, when it was written."""

    text: str
    step: int
    position: Position


@dataclass(eq=False)
class Query:
    """``old_spark``: without admission control, as before Spark 4.2. ``by_id``: tasks get ranges, and read topics by
    their ids. ``pins``: for each micro-batch that a pinned run has planned, the ends that there were by then.
    ``begin``: from where micro-batch 0 was planned."""

    cluster: Cluster
    options: dict[str, str]
    old_spark: bool = False
    by_id: bool = False
    lines: list[Line] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    written: dict[int, list[int]] = field(default_factory=dict)
    pins: dict[int, Ends] = field(default_factory=dict)
    begin: Position | None = None
    replay_begin: Position | None = None
    losses: list[Reported] = field(default_factory=list)
    selected: dict[str, list[int]] = field(default_factory=dict)
    reported: Callable[[Reported], None] = lambda _: None
    _ranges: tuple[OffsetRange, ...] = ()
    _pinned: Ends | None = None

    def run(self, start: Start) -> None:
        """One start, until it has nothing to read, or as many micro-batches as it is given. Raises EosError, Crash."""
        reader = self._reader(start)
        self._pinned = None
        if start.trigger is Trigger.AVAILABLE_NOW:
            reader.prepareForTriggerAvailableNow()
        newest = len(self.lines) - 1
        if newest >= 0 and newest not in self.committed:
            self._batch(reader, newest)
        elif newest >= 0 and self.old_spark:
            end = self._offset(newest)
            assert reader.partitions(end, end) == []
        polls = 0
        while len(self.lines) - 1 - newest < start.batches and polls < POLLS:
            end = self._latest(reader, start)
            if self.lines and json.dumps(end) == self.lines[-1].text:
                if self._pinned is not None or start.trigger is Trigger.ONCE:
                    return
                polls += 1
                self.cluster.point("idle", POLL_MS)
                continue
            polls = 0
            self._log(reader, end)
            self._batch(reader, len(self.lines) - 1)
            if start.trigger is Trigger.ONCE:
                return

    def lost(self, error: DataLossError, *, raised: bool) -> None:
        self.losses.append(Reported(error, raised, self._known_ids(), self._ranges, self.cluster.step))
        self.reported(self.losses[-1])

    def _known_ids(self) -> dict[str, str]:
        ids: dict[str, str] = {}
        for line in self.lines[-2:]:
            ids |= {topic: was.id for topic, was in line.position.left.items() if was.id} | line.position.ids
        return ids

    def _offset(self, batch: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.lines[batch].text)
        return found

    def _latest(self, reader: EosKafkaStreamReader, start: Start) -> dict[str, Any]:
        self._ranges = ()
        if self.old_spark:
            end = reader.latestOffset()
        else:
            at = self._offset(-1) if self.lines else reader.initialOffset()
            if not self.lines:
                self.cluster.point("begin", 60)
            limit = reader_module.ReadAllAvailable() if start.trigger is Trigger.ONCE else reader.getDefaultReadLimit()
            end = reader.latestOffset(at, limit)
        found: dict[str, Any] = json.loads(json.dumps(end))
        return found

    def _log(self, reader: EosKafkaStreamReader, end: dict[str, Any]) -> None:
        self.cluster.point("offset log")
        if not self.lines:
            self.begin = from_spark(reader.initialOffset())
        self.lines.append(Line(json.dumps(end), self.cluster.step, from_spark(end)))
        if self._pinned is not None:
            self.pins[len(self.lines) - 1] = self._pinned

    def _batch(self, reader: EosKafkaStreamReader, batch: int) -> None:
        end, start = self._offset(batch), self._offset(batch - 1) if batch else reader.initialOffset()
        self.replay_begin = self.replay_begin if batch else from_spark(start)
        self.cluster.point("micro-batch", 50)
        self.cluster.replays = True
        self._ranges = tuple(reader_module.ranges_between(from_spark(start), from_spark(end)))
        rows = [row for task in reader.partitions(start, end) for row in self._read(reader, task)]
        self.cluster.replays = False
        self.cluster.point("task")
        self.written.setdefault(batch, rows)
        self.cluster.point("commit log")
        self.committed.add(batch)

    def _reader(self, start: Start) -> _Reader:
        given = {**self.options, **dict(start.options), "failOnDataLoss": str(start.fail)}
        options = stream_options({"kafka.bootstrap.servers": "127.0.0.1:1", **given})
        chosen = options.selection
        names = chosen.matching(NAMES) if isinstance(chosen, Pattern) else chosen.topics
        self.selected = {name: list(chosen.partitions_of(name, MOST_PARTITIONS)) for name in names}
        plan = CopyPlan(options, SinkOptions(options.kafka), None, CLUSTER_ID)
        reader = _CopyReader(plan) if self.by_id else _Reader(options)
        reader.belongs_to(self, fail=start.fail)
        return reader

    # Tasks

    def _read(self, reader: _Reader, task: Any) -> Iterator[int]:
        if not self.by_id:
            for range_ in task.ranges:
                yield from resuming(reader.fetching(), range_, self._read_range)
            return
        assert isinstance(reader, _CopyReader) and isinstance(task, RangesOfTask)
        rows: list[int] = []
        ranges = _RangeReader(self, reader._plan, {r.topic: r.topic_id for r in task.ranges}, rows)
        for _ in ranges.written(task.ranges):
            pass
        yield from rows

    def _read_range(self, fetching: Fetching, range_: OffsetRange) -> Iterator[int]:
        """Read a range as leaders serve it, with the checks of their responses."""
        place = range_.topic, range_.partition
        self.cluster.point("fetch")
        log = self.cluster.log(*place)
        if log is None or range_.topic_id not in ("", log.topic_id):
            raise KafkaError("EOS_SOURCE_RECREATED", f"There is no {place}.", hint="Start again.")
        client: Any = None
        self._check_begin(client, log, range_)
        epochs = RangeEpochs(range_)
        for offset in range(range_.start, range_.end):
            if not log.first <= offset < log.end:
                raise why_not(client, range_, offset)
            row = next(self.cluster.rows_of(log, offset, offset + 1), None)
            if row is None:
                continue
            if row.visible is None:
                raise why_not(client, range_, offset)
            try:
                batch = SimpleNamespace(base=offset, last=offset, leader_epoch=self._epoch(log, offset))
                epochs.see(batch)  # type: ignore[arg-type]
            except OtherEpoch as other:
                raise epoch_diverged(*place, offset, other) from None
            if row.visible:
                yield row.number
        if not epochs.at_end:
            check_epoch(client, range_, range_.end, range_.last_epoch)

    def _check_begin(self, client: Any, log: Log, range_: OffsetRange) -> None:
        place, before, epoch = (range_.topic, range_.partition), range_.start - 1, range_.first_epoch
        if not log.first <= before < log.end:
            return
        if log.replica.log[before] is None:
            check_epoch(client, range_, range_.start, epoch)
        elif epoch not in (-1, self._epoch(log, before)):
            raise log_diverged(*place, range_.start, before, epoch)

    @staticmethod
    def _epoch(log: Log, offset: int) -> int:
        record = log.replica.log[offset]
        return -1 if record is None else record[1]


class _Recording(Losses):
    def __init__(self, fail: bool, query: Query) -> None:
        super().__init__(fail)
        self._query = query

    def report(self, loss: DataLossError) -> None:
        if self.fail:
            raise loss
        self._query.lost(loss, raised=False)


class _Reader(EosKafkaStreamReader):
    """Tells the query of losses, and of ends that are pinned."""

    def belongs_to(self, query: Query, *, fail: bool) -> None:
        self._losses = _Recording(fail, query)
        self._sizes = Sizes(
            lambda wanted: {place: [SampledBatch(at, at + 2, 2 * _BYTES_PER_OFFSET)] for place, at in wanted.items()}
        )
        self._lag = SimpleNamespace(watch=lambda ends: False)  # type: ignore[assignment]
        watch, cluster = self._watch, query.cluster
        pin, topics = watch.pin, watch.topics

        def noted() -> None:
            """What was hidden from a run is pinned later."""
            pin()
            query._pinned = cluster.ends()

        def look(*, now: bool = False) -> Any:
            """What a start asks for once more is like a replay."""
            before, cluster.replays = cluster.replays, now or cluster.replays
            found = topics(now=now)
            cluster.replays = before
            return found

        watch.pin, watch.topics = noted, look  # type: ignore[method-assign]

    def fetching(self) -> Fetching:
        return Fetching.from_options(self._client, self._options)


class _CopyReader(_Reader, RangeStreamReader):
    def _prepare(self, ranges: Any, end: Any) -> None:
        """There are no targets."""


class _RangeReader(RangeWriter):
    """Reads, and writes nothing."""

    def __init__(self, query: Query, plan: CopyPlan, ids: dict[str, str], rows: list[int]) -> None:
        self._query, self._plan, self._rows = query, plan, rows
        self.readable = ReadableRanges.in_task(plan.source, plan.cluster, ids)

    def copied(self, range_: OffsetRange) -> Any:
        read = self._query._read_range
        self._rows.extend(resuming(self.readable._fetching, range_, read))
        return SimpleNamespace(rows=0, digest=0, oldest_ms=None)


def install(patch: pytest.MonkeyPatch, query: Query) -> None:
    """Record the losses of tasks, and log nothing."""
    silent = SimpleNamespace(warning=lambda *_: None, info=lambda *_: None)
    patch.setattr(reader_module, "logger", silent)
    for module in (source_task, readable):
        patch.setattr(module, "Losses", lambda fail: _Recording(fail, query))
    patch.setattr(copy_task, "digest_at", lambda *_: 0)
