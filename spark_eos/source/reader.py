"""The streaming source on the driver: offsets in, offsets out, ranges for the tasks.

What Spark calls, in a Python process of its own that lives as long as the query::

    new query    initialOffset → latestOffset → [micro-batch 0: partitions] → latestOffset → [1: partitions] → …
    restart      partitions of the last logged micro-batch → latestOffset → …
    restart that finds micro-batch 0 logged but not committed: initialOffset → partitions → latestOffset → …

A Spark without admission control (4.1) calls latestOffset without saying where the micro-batch starts or whether it
will ask again: its triggers Once and AvailableNow are one micro-batch. There, a restart begins with partitions of an
empty range at the last logged offset.

Spark does not tell a Python source where its checkpoint is, and asks again for the initial offset in the last case. See
`spark_eos.source.planning` for why that skips and repeats nothing: micro-batch 0 reads nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_eos.events import NOWHERE, Events
from spark_eos.kafka.requests.offset_for_leader_epoch import UNKNOWN
from spark_eos.log import logger
from spark_eos.options.bounds import ByTime
from spark_eos.options.offsets import LATEST
from spark_eos.options.parse import SourceOptions
from spark_eos.retry import retrying
from spark_eos.source import leaving, planning
from spark_eos.source import offsets as formats
from spark_eos.source.epochs import Noted
from spark_eos.source.group import GroupReport
from spark_eos.source.lag import LagWatch
from spark_eos.source.limits import resolve_start
from spark_eos.source.losses import HIDDEN_S, Losses, check_cluster, data_loss, log_diverged
from spark_eos.source.offsets import Position, TopicIds
from spark_eos.source.sizes import Sizes, look_at
from spark_eos.source.watch import Topics, TopicWatch
from spark_eos.spark import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    worker_uses_tcp,
)
from spark_eos.topic_partition import PartitionOffsets, TopicPartition, by_topic, flat, nested
from spark_eos.tracebacks import hidden_traceback

_NO_LIMIT = 2**63 - 1
_NOWHERE = Noted(UNKNOWN, UNKNOWN)

SparkOffset = dict[str, dict[str, Any]]


class EosKafkaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``readStream.format("eos-kafka")``. Holds no client, and travels to the tasks as its options only. ``events``:
    who is told of the lag."""

    def __init__(self, options: SourceOptions, events: Events = NOWHERE) -> None:
        self._options, self._events = options, events
        self._name = uuid.uuid4().hex  # by which events and progress find together, as no source knows its query
        self._losses = Losses(options.fail_on_data_loss)
        self._initial: SparkOffset | None = None
        self._begun = False  # the offset log holds where the query begins
        self._planned: SparkOffset | None = None
        self._reached: SparkOffset | None = None
        self._hinted = False
        self._seen_at: dict[TopicPartition, Noted] = {}  # where the offset log has no epoch
        self._last_batch = float("-inf")

    def __reduce__(self) -> tuple[Any, ...]:
        return EosKafkaStreamReader, (self._options,)

    @cached_property
    def _watch(self) -> TopicWatch:
        return TopicWatch(self._options.kafka, self._options.selection, self._options.isolation)

    @cached_property
    def _lag(self) -> LagWatch:
        return LagWatch(self._options.kafka, self._watch, self._options.open_transaction_warn_ms / 1000)

    @cached_property
    def _sizes(self) -> Sizes:
        return Sizes(look_at(self._options.kafka, self._options.isolation))

    @cached_property
    def _group(self) -> GroupReport | None:
        group = self._options.report_group
        return GroupReport(self._options.kafka, group) if group else None

    # On the driver

    @hidden_traceback()
    def initialOffset(self) -> SparkOffset:
        """Where a new query begins. Asked for more than once; the answer of this run stays the same."""
        if self._initial is None:
            start, there = self._resolved()
            position = Position(start, there.ids, epochs=nested(self._watch.epochs_at(flat(start), {})))
            self._initial = formats.to_spark(self._noting(position, there))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """Always a number of rows: so ReadAllAvailable can only mean that the engine wants all in one micro-batch."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or _NO_LIMIT)

    @hidden_traceback()
    def prepareForTriggerAvailableNow(self) -> None:
        """This run reads what is there and stable now, and then ends."""
        self._watch.pin()

    @hidden_traceback()
    def latestOffset(self, start: SparkOffset | None = None, limit: ReadLimit | None = None) -> SparkOffset:
        """Where the next micro-batch ends; ``start`` itself when there is nothing to do. What is before ``start`` has
        been processed by then, whatever the sink. Both are missing where Spark has no admission control.

        Raises CheckpointError (EOS_SOURCE_CLUSTER_CHANGED), DataLossError."""
        self._hint()
        start = start or self._reached or self.initialOffset()
        position = formats.from_spark(start)
        check_cluster(position.cluster, self._watch.topics().cluster)
        may_be_the_last = limit is None or isinstance(limit, ReadAllAvailable)
        limit = limit or self.getDefaultReadLimit()
        if self._group is not None:
            self._group.reach(position.offsets)
        once = may_be_the_last and self._start_stays()
        if not self._begun and not once and start == self._initial:
            self._begun = True
            return start
        there, ends = self._watch.look()
        if self._lag.watch(ends) and self._events:
            report = self._lag.report(position.offsets, ends, self._losses.count)
            self._events.tell("lag", source=self._name, **_unmarked(report))
        going, diverged = self._go_on_from(position, there, ends)
        # A range begins at an offset of the log, so that such a partition is only moved now, and read the next time.
        ends = nested(flat(ends) | {(topic, p): going.offsets[topic][p] for topic, p in diverged})
        waits = not isinstance(limit, ReadAllAvailable) and going.left == position.left and not diverged
        if waits and self._waits_for_more(going.offsets, ends):
            return start
        end = self._limited(going.offsets, ends, limit)
        end = planning.merge(end, self._newcomers(going, there))
        if end == position.offsets and not diverged:
            self._planned = start
            if self._group is not None and self._watch.pinned:
                self._group.finish()  # Spark ends this process when there is nothing left
            return start
        ids = self._still_there(position, there, end)
        if ids is None:
            return start
        if self._watch.diverged(flat(going.offsets), flat(going.epochs)):
            return self.latestOffset(start, limit)  # of a leader that was heard of since
        self._last_batch = time.monotonic()
        left = leaving.still_left(going.left, end, ids)
        epochs = self._epochs_at(end, going)
        self._planned = formats.to_spark(self._noting(Position(end, ids, left=left, epochs=epochs), there))
        return self._planned

    @hidden_traceback()
    def partitions(self, start: SparkOffset, end: SparkOffset) -> list[planning.Task]:
        """The ranges of one micro-batch. Raises DataLossError (EOS_SOURCE_DATA_LOSS) and CheckpointError
        (EOS_SOURCE_CLUSTER_CHANGED) before any task."""
        reads = self._logged(start, end)
        check_cluster(formats.from_spark(start).cluster, formats.from_spark(end).cluster or "")
        if reads:
            reads = self._readable(reads, formats.from_spark(end), planned_now=end == self._planned)
        return planning.tasks(reads, self._options.min_partitions, self._options.max_records_per_partition)

    def reportLatestOffset(self) -> SparkOffset | None:
        """For the query's progress: the last stable offsets seen last, and beside them the lag of each partition."""
        ends = self._watch.known_ends()
        if not ends:
            return None
        position = formats.from_spark(self._planned or self._initial or {})
        name = {formats.MARK + "source": self._name} if self._events else {}
        return formats.to_spark(Position(ends)) | self._lag.report(position.offsets, ends, self._losses.count) | name

    def commit(self, end: SparkOffset) -> None:
        """Nothing to do: the offset log is the one place where offsets are kept."""

    def stop(self) -> None:
        """Nothing to do: the clients belong to the process."""

    # In the tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the records of its ranges, as Arrow. Raises EosError."""
        from spark_eos.source.fetch import read_task  # which the driver's process has no use for

        assert isinstance(partition, planning.Task)
        with hidden_traceback():
            yield from read_task(self._options.fetching, partition)

    # Steps

    def _resolved(self) -> tuple[PartitionOffsets, Topics]:
        """Where a new query begins, and in which topics: they were the same before and after. Where all is pinned, the
        plan of the first micro-batch finds what has changed since."""
        while True:
            before = self._watch.topics()
            start = resolve_start(self._options, self._watch, self._losses)
            after = self._watch.topics(now=True)
            if self._watch.pinned or all(before.ids.get(topic) == after.ids.get(topic) for topic in start):
                return start, before

    def _noting(self, position: Position, there: Topics) -> Position:
        """With what else the offset log is to say."""
        return replace(position, group=self._options.report_group, cluster=there.cluster)

    def _logged(self, start: SparkOffset, end: SparkOffset) -> list[planning.OffsetRange]:
        """The ranges of a micro-batch as the offset log has them, whatever is left of them."""
        self._begun, self._reached = True, end
        return self._between(start, end)

    def _between(self, start: SparkOffset, end: SparkOffset) -> list[planning.OffsetRange]:
        before, after = formats.from_spark(start), formats.from_spark(end)
        first = {
            topic: epochs
            for topic, epochs in before.epochs.items()
            if not leaving.differ(before.ids.get(topic), after.ids.get(topic))
        }
        return planning.ranges(_reborn_at_zero(before, after.ids), after.offsets, first, after.epochs)

    def _hint(self) -> None:
        """What would make the query faster, once for each start of it."""
        if not self._hinted and worker_uses_tcp():
            logger.info(
                "Spark talks to Python workers over TCP, which costs up to 40 ms in each stage and a fifth of the "
                "source's speed; set spark.python.unix.domain.socket.enabled=true when the session is created"
            )
        self._hinted = True

    def _limited(self, at: PartitionOffsets, ends: PartitionOffsets, limit: ReadLimit) -> PartitionOffsets:
        """Where a micro-batch from ``at`` ends. Without any limit where Spark wants all in one."""
        if not isinstance(limit, ReadMaxRows):
            return planning.advance(at, ends, _NO_LIMIT)
        most = self._options.max_bytes_per_trigger
        end = planning.advance(at, ends, limit.max_rows)
        return end if most is None else self._sizes.within(at, end, most)

    def _start_stays(self) -> bool:
        """Whether a replay of micro-batch 0 would begin where the first try began, so that it may read rows at once.

        There may be no second micro-batch to read them in: Trigger.Once has none. (What retention takes between a crash
        of that one micro-batch and its replay is not noticed; Trigger.AvailableNow notices.)
        """
        wanted = self._options.starting
        if isinstance(wanted, ByTime):
            return False
        if isinstance(wanted, str):
            return wanted == "earliest"
        return not any(at == LATEST for partitions in wanted.values() for at in partitions.values())

    def _go_on_from(
        self, position: Position, there: Topics, ends: PartitionOffsets
    ) -> tuple[Position, set[TopicPartition]]:
        """From where to go on, by what is there now, and the partitions whose log is another one than before. What is
        not there is reported as lost, and left."""
        self._check_there(position, there)
        position = leaving.left_behind(position, there.partitions, there.ids)
        at = _reborn_at_zero(position, there.ids)
        behind = {
            topic: [p for p, offset in partitions.items() if ends.get(topic, {}).get(p, offset) < offset]
            for topic, partitions in at.items()
        }
        epochs = self._known_epochs(position, at, there)
        diverged = self._watch.diverged(flat(at), epochs)
        for topic, p, high in self._really_behind(at, {t: numbers for t, numbers in behind.items() if numbers}):
            if diverged.get((topic, p), high) >= ends[topic][p]:  # nothing was written anew
                self._losses.report(data_loss(topic, p, at[topic][p], high, planning.ends_early(high)))
                at[topic][p] = ends[topic][p]
                epochs.pop((topic, p), None)
                diverged.pop((topic, p), None)
        for (topic, p), found in diverged.items():
            self._losses.report(log_diverged(topic, p, at[topic][p], found, epochs.pop((topic, p))))
            at[topic][p] = found
        return replace(position, offsets=at, epochs=nested(epochs)), set(diverged)

    def _known_epochs(self, position: Position, at: PartitionOffsets, there: Topics) -> dict[TopicPartition, int]:
        """The leader epochs of the records before ``at``: as they are noted, or as they were when this run saw the
        position first. Those of another topic of that name say nothing."""
        offsets, before = flat(at), flat(position.offsets)
        noted = {
            place: epoch
            for place, epoch in flat(position.epochs).items()
            if place in offsets
            and offsets[place] == before[place]
            and not leaving.differ(position.ids.get(place[0]), there.ids.get(place[0]))
        }
        lacking = {place: offset for place, offset in offsets.items() if place not in noted}
        seen = self._seen_at
        new = {place: offset for place, offset in lacking.items() if seen.get(place, _NOWHERE).offset != offset}
        found = self._watch.epochs_at(new, {}) if new else {}
        seen |= {place: Noted(offset, found.get(place, UNKNOWN)) for place, offset in new.items()}
        return noted | {place: seen[place].epoch for place in lacking if seen[place].epoch != UNKNOWN}

    def _epochs_at(self, end: PartitionOffsets, going: Position) -> PartitionOffsets:
        """The leader epochs of the records before the end of a micro-batch that begins at ``going``."""
        offsets, known, before = flat(end), flat(going.epochs), flat(going.offsets)
        kept = {place: epoch for place, epoch in known.items() if offsets.get(place) == before[place]}
        for topic, was in going.left.items():
            kept |= {(topic, p): was.epochs[p] for p in was.epochs if offsets.get((topic, p)) == was.offsets[p]}
        moved = {place: offset for place, offset in offsets.items() if place not in kept}
        return nested(kept | self._watch.epochs_at(moved, known))

    def _really_behind(self, at: PartitionOffsets, behind: dict[str, list[int]]) -> list[tuple[str, int, int]]:
        """(topic, partition, high watermark) where the log ends before the query's offset.

        Not so where an open transaction only holds the stable end before a start that the user gave. And a new leader
        may know less for a moment, so it is asked again.
        """
        for attempt in range(self._options.offset_tries if behind else 0):
            if attempt:
                time.sleep(self._options.offset_retry_ms / 1000)
            high = self._watch.high_watermarks(behind)
            found = [(t, p, high[t][p]) for t, numbers in behind.items() for p in numbers if high[t][p] < at[t][p]]
            if not found:
                return []
        return found if behind else []

    def _still_there(self, position: Position, planned: Topics, end: PartitionOffsets) -> TopicIds | None:
        """The ids to note with the end, if the topics are still those whose ends were looked at: then they were when
        the ends were asked for. None where nothing is to be read.

        If they are not, the next look is at what is there now. Where all is pinned there is no other look: what is gone
        is reported as lost, and stays where and what it is. Raises CheckpointError (EOS_SOURCE_CLUSTER_CHANGED).
        """
        now = self._watch.topics(now=True)
        check_cluster(planned.cluster, now.cluster)
        ids = {**position.ids, **planned.ids}
        gone = [topic for topic in end if planned.ids.get(topic) != now.ids.get(topic)]
        if not gone:
            return ids
        if not self._watch.pinned:
            return None
        self._check_there(position, now)
        for topic in gone:
            del end[topic]
            ids.pop(topic, None)
            if topic in position.offsets:
                end[topic] = dict(position.offsets[topic])
            if topic in position.ids:
                ids[topic] = position.ids[topic]
        return ids if end != position.offsets else None

    def _check_there(self, position: Position, there: Topics) -> None:
        self._check_lives(position, there)
        for topic, partitions in position.offsets.items():
            for p, offset in partitions.items():
                if p not in there.partitions.get(topic, ()):
                    self._losses.report(data_loss(topic, p, offset, None, self._why_not_there(topic, there)))

    def _check_lives(self, position: Position, there: Topics) -> None:
        """A topic that was created anew has nothing of what the query has not read of the old one; nor has one of the
        same name on another cluster, which nobody may take for the same."""
        check_cluster(position.cluster, there.cluster)
        ids = there.ids
        for topic, known in position.ids.items():
            if leaving.differ(known, ids.get(topic)):
                p, offset = min(position.offsets[topic].items())
                found = None  # of the partitions that are read, it may have none
                if p in there.partitions.get(topic, ()):
                    found = self._watch.high_watermarks({topic: [p]})[topic][p]
                ending = f"the log ends at {found}" if found is not None else "it has no such partition"
                what = f"the topic was recreated: its id was {known} and is now {ids[topic]}; {ending}"
                self._losses.report(data_loss(topic, p, offset, found, what))

    def _why_not_there(self, topic: str, there: Topics) -> str:
        if topic in there.partitions:
            return f"the partition is gone; the partitions read of its topic are {there.partitions[topic]}"
        return f"it does not exist: the topic was deleted, or {self._options.selection} no longer includes it"

    def _waits_for_more(self, at: PartitionOffsets, ends: PartitionOffsets) -> bool:
        """Whether there are fewer offsets than ``minOffsetsPerTrigger``, and still time to wait for more."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._watch.pinned:
            return False
        waited_s = time.monotonic() - self._last_batch
        return waited_s < self._options.max_trigger_delay_s and sum(planning.in_wait(at, ends).values()) < least

    def _newcomers(self, going: Position, looked: Topics) -> PartitionOffsets:
        """Partitions and topics that are not in the position, with the offset at which they are taken up.

        One that was left, and is still the same topic, goes on where it was left. Another new partition of a known
        topic begins at 0: in both cases, if its log begins later, that shows as the data loss that it is.
        """
        known, there, ids = going.offsets, looked.partitions, looked.ids
        back = leaving.come_back(going.left, there, ids)
        new_topics = {topic: numbers for topic, numbers in there.items() if topic not in known and numbers}
        begins = {topic: numbers for topic, numbers in new_topics.items() if topic not in back}
        result = self._watch.begins(begins) if begins else {}
        for topic in known.keys() | back.keys():
            fresh = {p: 0 for p in there.get(topic, ()) if p not in known.get(topic, {})}
            if fresh:
                result[topic] = fresh | back.get(topic, {})
        for topic in result.keys() & going.left.keys():
            how = "goes on where it was left" if topic in back else "is another one now, and begins at its beginning"
            logger.warning("Topic %s is read again: it %s, at %s", topic, how, result[topic])
        return result

    def _readable(
        self, reads: list[planning.OffsetRange], logged: Position, *, planned_now: bool
    ) -> list[planning.OffsetRange]:
        # What was logged is read as it was logged, also of a topic that the selection no longer includes.
        there = self._there_of(reads, logged, planned_now=planned_now)
        self._check_lives(logged, there)
        kept = []
        for r in reads:
            if r.partition not in there.partitions.get(r.topic, ()):
                what = self._why_not_there(r.topic, there)
                self._losses.report(data_loss(r.topic, r.partition, r.start, None, what))
            elif not leaving.differ(logged.ids.get(r.topic), there.ids[r.topic]):
                kept.append(r)
        if not kept:
            return []
        places = by_topic((r.topic, r.partition) for r in kept)
        kept = planning.from_the_log(kept, self._watch.begins(places), self._losses)
        if not planned_now:
            for (topic, p), found in self._watch.diverged(
                {(r.topic, r.partition): r.end for r in kept}, flat(logged.epochs)
            ).items():
                end, epoch = logged.offsets[topic][p], logged.epochs[topic][p]
                self._losses.report(log_diverged(topic, p, end, found, epoch))  # where it goes on, tasks stop
        if not planned_now or self._watch.pinned:
            kept = planning.up_to_the_end(kept, self._watch.high_watermarks(places), self._losses)
        return kept

    def _there_of(self, reads: list[planning.OffsetRange], logged: Position, *, planned_now: bool) -> Topics:
        """What is there of the topics that are to be read. What is left out of them now is behind the query for good,
        so that something that is only hidden for a moment is looked for once more."""
        names = {r.topic for r in reads}
        there = self._watch.topics() if planned_now else self._watch.found(names)
        for _ in retrying(0 if self._losses.fail else HIDDEN_S):
            same = not any(leaving.differ(logged.ids.get(name), there.ids.get(name)) for name in names)
            if same and all(r.partition in there.partitions.get(r.topic, ()) for r in reads):
                break
            there = self._watch.found(names)
        return there


def _reborn_at_zero(position: Position, ids: TopicIds) -> PartitionOffsets:
    """The offsets of ``position``; 0 for the partitions of topics that have another id by ``ids``: they are new."""
    known = position.ids
    return {
        topic: dict.fromkeys(offsets, 0) if leaving.differ(known.get(topic), ids.get(topic)) else dict(offsets)
        for topic, offsets in position.offsets.items()
    }


def _unmarked(report: dict[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(formats.MARK): value for key, value in report.items()}
