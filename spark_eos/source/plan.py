"""Decides where the next micro-batch ends, and which ranges of a logged one can be read. Pure: no I/O, no clock.

The source can lose or repeat rows here, so a decision depends on nothing but its arguments and the answers to its
questions: `initial_position`, `next_batch` and `readable` are generators that yield a question
(`spark_eos.source.questions`) and are sent the answer. So Kafka gets only the requests that the decision at hand needs,
and the reader (`spark_eos.source.reader`) and the simulation (``tests/simulation/source``) run the same code::

    position, a BatchInput, options ─→ next_batch ─→ Next(end, losses, …)
                                 ↑      │
                            answer      question        the reader asks the brokers, the simulation its model

Invariants:

- A range begins at an offset that the offset log has, or that a replay resolves to the same one (`start_is_fixed`), so
  a replay begins where the first attempt began. Other offsets at which reading starts or moves (a new query, a new
  partition, a log that was cut) are logged before they are read.
- A partition moves back, or forward over offsets that were not read, only with a loss that is reported.
- Offsets are used with the topic id, the cluster and the leader epochs that they were noted with, or not at all.
- A loss is raised if ``failOnDataLoss`` is true. Otherwise it is always in the result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from spark_eos.base.topic_partition import OffsetRange, PartitionOffsets, TopicPartition, flat, nested
from spark_eos.checkpoint.offset_log import Position, TopicIds
from spark_eos.errors import EosError
from spark_eos.options.bounds import ByTime
from spark_eos.options.offsets import LATEST
from spark_eos.options.parse import SourceOptions
from spark_eos.source import left_topics, range_math
from spark_eos.source.losses import check_cluster, data_loss, ends_early, log_diverged
from spark_eos.source.questions import (
    DivergedFrom,
    DroppedOnPurpose,
    EpochsBefore,
    FirstOffsets,
    HighWatermarks,
    Plan,
    StartingOffsets,
    Topics,
    TopicsNamed,
    TopicsThere,
    WithinBytes,
)

#: Milliseconds to wait before each further look for a topic that may be hidden only for a moment; five seconds in all.
HIDDEN_WAITS_MS = (0, 10, 20, 50, 100, 200, 400, *[500] * 8, 220)
#: More offsets than a partition can have.
NO_LIMIT = 2**63 - 1


# Input of a decision


@dataclass(frozen=True)
class EpochSeen:
    """The leader epoch of the record before ``offset``, when this run first saw that offset; None if not known."""

    offset: int
    epoch: int | None


@dataclass(frozen=True)
class Run:
    """Memory of a run of the query from one plan to the next. The offset log has none of it.

    ``begun``: a first micro-batch that reads nothing was planned, any micro-batch runs, or Spark has named a later
    position than the initial one. ``last_batch_s``: when the last micro-batch was planned, by the clock of
    `BatchInput.time_s`. ``epochs``: for positions without a leader epoch in the offset log.
    """

    begun: bool = False
    last_batch_s: float = float("-inf")
    epochs: Mapping[TopicPartition, EpochSeen] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchInput:
    """Topics and ends before the first question, the memory of the run, and the limits of Spark.

    ``ends``: the last stable offset of each partition of ``topics``, or its high watermark for a query that reads
    uncommitted rows. ``time_s``: seconds by a monotonic clock. ``pinned``: topics and ends were read when the run
    began, as for Trigger.AvailableNow. ``max_rows``: how many rows Spark lets the micro-batch read; None if it wants
    all in one. ``only_batch``: Spark may never ask for another micro-batch.
    """

    topics: Topics
    ends: PartitionOffsets
    time_s: float
    run: Run = field(default_factory=Run)
    pinned: bool = False
    max_rows: int | None = NO_LIMIT
    only_batch: bool = False


# Output of a decision


@dataclass(frozen=True)
class Next:
    """The decision about the next micro-batch.

    ``end``: where it ends, for the offset log. None for a query's first one, which only logs where the query begins, so
    ends there, too; and if there is none, because there is nothing to read (``caught_up``), because the inputs are
    outdated (``outdated``), or because the query waits. ``hidden``: the inputs lack topics that exist; pinned ones are
    pinned anew then. ``losses``: for warnings. ``taken_up``: a sentence for the log for each topic that is back.
    ``run``: for the next plan of this run.
    """

    end: Position | None
    run: Run
    caught_up: bool = False
    outdated: bool = False
    hidden: bool = False
    losses: tuple[EosError, ...] = ()
    taken_up: tuple[str, ...] = ()


@dataclass(frozen=True)
class Readable:
    """The ranges of a micro-batch that can still be read, and the losses, for warnings."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[EosError, ...] = ()


class _Losses:
    """The losses of a plan. If ``fail``, the first one is raised."""

    def __init__(self, fail: bool) -> None:
        self._fail = fail
        self.reported: list[EosError] = []

    def report(self, loss: EosError) -> None:
        if self._fail:
            raise loss
        self.reported.append(loss)


# The first position


def initial_position(options: SourceOptions, *, pinned: bool) -> Plan[Position]:
    """Return where a new query begins, and in which topics: they were the same before and after the offsets were
    resolved. With pinned topics, the plan of the first micro-batch handles changes since."""
    while True:
        before: Topics = yield TopicsThere(now=False)
        offsets: PartitionOffsets = yield StartingOffsets()
        after: Topics = yield TopicsThere()
        are_known = offsets.keys() <= before.ids.keys()
        if pinned or (are_known and all(before.ids[topic] == after.ids.get(topic) for topic in offsets)):
            break
    epochs = yield EpochsBefore(flat(offsets))
    return Position(offsets, before.ids, options.report_group, before.cluster, epochs=nested(epochs), sink=options.sink)


# The next micro-batch


def next_batch(position: Position, inputs: BatchInput, options: SourceOptions) -> Plan[Next]:
    """Plan the micro-batch that begins at ``position``.

    1. The first micro-batch of a query records where the query begins, and reads nothing, unless it may be the only one
       and its beginning is fixed (`start_is_fixed`).
    2. Topics that are gone or recreated, and logs that were truncated, move the offsets where reading continues.
    3. Limits bound how far the micro-batch reads, or make it wait for more.
    4. Partitions that are new, or are back, are added at the offset where their reading begins.
    5. Topics and leaders are asked for once more: the ends belong to them only if they are still the same.

    Raises CheckpointError (EOS_SOURCE_CLUSTER_CHANGED), and DataLossError if ``failOnDataLoss`` is true.
    """
    losses = _Losses(options.fail_on_data_loss)
    if not inputs.run.begun and not (inputs.only_batch and start_is_fixed(options)):
        return Next(None, replace(inputs.run, begun=True))
    if (yield from _lacks_hidden(position, inputs.topics, options)):
        return Next(None, inputs.run, outdated=True, hidden=True)

    start = yield from _start(position, inputs, options, losses)
    going, cut, run = start.position, start.cut, start.run

    # A range begins at an offset of the log, so a partition that was cut is only moved now, and read the next time.
    ends = nested(flat(inputs.ends) | {partition: going.offsets[partition[0]][partition[1]] for partition in cut})
    # A partition that was left or cut is logged at once, without regard to `minOffsetsPerTrigger`.
    may_wait = inputs.max_rows is not None and going.left == position.left and not cut
    if may_wait and _waits_for_more(going.offsets, ends, inputs, options):
        return Next(None, run, losses=tuple(losses.reported))
    end = yield from _limited(going.offsets, ends, inputs.max_rows, options)

    new, taken_up = yield from _newcomers(going, inputs.topics)
    end = range_math.merge(end, new)
    # A topic that was recreated may end, or be limited, at the very offsets that were reached in the old one.
    if end == going.offsets == position.offsets and not cut:
        return Next(None, run, True, losses=tuple(losses.reported), taken_up=taken_up)

    still = yield from _still_there(position, inputs, end, options, losses)
    result = Next(None, run, losses=tuple(losses.reported), taken_up=taken_up)
    if still is None:
        return result
    if (yield start.log_question) != start.log_answer:  # as a partition has a new leader since
        return replace(result, outdated=True)
    end, ids = still
    epochs = yield from _epochs_at(end, going)
    left = left_topics.still_left(going.left, end, ids)
    cluster = inputs.topics.cluster
    noted = Position(end, ids, options.report_group, cluster, left=left, epochs=epochs, sink=options.sink)
    return replace(result, end=noted, run=replace(run, last_batch_s=inputs.time_s))


def start_is_fixed(options: SourceOptions) -> bool:
    """Return whether a query that begins once more begins at the same offsets, so its first micro-batch may read rows.

    There may be no second one to read them in: Trigger.Once has none. (Rows that retention takes between a crash of
    that one micro-batch and its replay are not noticed; Trigger.AvailableNow notices.)"""
    starting = options.starting
    if isinstance(starting, ByTime):
        return False
    if isinstance(starting, str):
        return starting == "earliest"
    return not any(at == LATEST for partitions in starting.values() for at in partitions.values())


@dataclass(frozen=True)
class _BatchStart:
    """Start of the next micro-batch. ``cut``: the partitions whose log was truncated and has grown again, by the
    question ``log_question`` and its answer ``log_answer``."""

    position: Position
    cut: Collection[TopicPartition]
    run: Run
    log_question: DivergedFrom
    log_answer: Mapping[TopicPartition, int]


def _start(position: Position, inputs: BatchInput, options: SourceOptions, losses: _Losses) -> Plan[_BatchStart]:
    """Return where reading continues in the partitions that exist now. Others are reported as lost, and noted as
    left."""
    there = inputs.topics
    yield from _report_gone(position, there, options, losses)
    position = left_topics.left_behind(position, there.partitions, there.ids)
    at = flat(_recreated_from_zero(position, there.ids))
    epochs, run = yield from _known_epochs(position, at, inputs)
    ends = flat(inputs.ends)
    log_question = DivergedFrom(dict(at), dict(epochs))
    answer: Mapping[TopicPartition, int] = yield log_question
    cut = dict(answer)
    # An open transaction may hold the last stable offset back before a start that the user gave: then no log is short.
    behind = {partition: offset for partition, offset in at.items() if ends.get(partition, offset) < offset}
    short = yield from _still_shorter(behind, options)
    for partition, high in short.items():
        if cut.get(partition, high) >= ends[partition]:  # behind the cut, there is nothing yet that may be read
            losses.report(data_loss(*partition, at[partition], high, ends_early(high)))
            # Up to where the logs are the same, records have been read, though the last stable offset may be before.
            at[partition] = cut.pop(partition, ends[partition])
            epochs.pop(partition, None)
    for partition, offset in cut.items():
        losses.report(log_diverged(*partition, at[partition], offset, epochs.pop(partition)))
        at[partition] = offset
    position = replace(position, offsets=nested(at), epochs=nested(epochs))
    return _BatchStart(position, cut.keys(), run, log_question, answer)


def _known_epochs(
    position: Position, at: Mapping[TopicPartition, int], inputs: BatchInput
) -> Plan[tuple[dict[TopicPartition, int], Run]]:
    """Return the leader epochs of the records before ``at``, from the position, or from when this run first saw the
    offset. Epochs of an earlier topic of that name do not count."""
    before, ids = flat(position.offsets), inputs.topics.ids
    noted = {
        partition: epoch
        for partition, epoch in flat(position.epochs).items()
        if partition in at
        and at[partition] == before[partition]
        and not left_topics.differ(position.ids.get(partition[0]), ids.get(partition[0]))
    }
    lacking = {partition: offset for partition, offset in at.items() if partition not in noted}
    seen = inputs.run.epochs
    new = {
        partition: offset
        for partition, offset in lacking.items()
        if partition not in seen or seen[partition].offset != offset
    }
    if new:
        epochs = yield EpochsBefore(new)
        seen = {**seen, **{partition: EpochSeen(offset, epochs.get(partition)) for partition, offset in new.items()}}
    known = {partition: epoch for partition in lacking if (epoch := seen[partition].epoch) is not None}
    return noted | known, replace(inputs.run, epochs=seen)


def _still_shorter(behind: Mapping[TopicPartition, int], options: SourceOptions) -> Plan[dict[TopicPartition, int]]:
    """Return the high watermarks of the partitions whose log ends before these offsets. A new leader may lag for a
    moment, so the question is repeated for logs that were too short each time."""
    short: dict[TopicPartition, int] = dict(behind)
    for attempt in range(options.offset_tries):
        if not short:
            break
        high = yield HighWatermarks(short.keys(), options.offset_retry_ms if attempt else 0)
        short = {partition: high[partition] for partition in short if high[partition] < behind[partition]}
    return short


def _waits_for_more(at: PartitionOffsets, ends: PartitionOffsets, inputs: BatchInput, options: SourceOptions) -> bool:
    """Return whether there are fewer offsets than ``minOffsetsPerTrigger``, and still time to wait for more."""
    least = options.min_offsets_per_trigger
    if least is None or inputs.pinned:
        return False
    waited_s = inputs.time_s - inputs.run.last_batch_s
    return waited_s < options.max_trigger_delay_s and sum(range_math.backlogs(at, ends).values()) < least


def _limited(
    at: PartitionOffsets, ends: PartitionOffsets, max_rows: int | None, options: SourceOptions
) -> Plan[PartitionOffsets]:
    """Return where a micro-batch from ``at`` ends. No limit applies if Spark wants all in one (``max_rows`` is
    None)."""
    if max_rows is None:
        return range_math.advance(at, ends, NO_LIMIT)
    end, most = range_math.advance(at, ends, max_rows), options.max_bytes_per_trigger
    if most is None:
        return end
    within: PartitionOffsets = yield WithinBytes(at, end, most)
    return within


def _newcomers(going: Position, looked: Topics) -> Plan[tuple[PartitionOffsets, tuple[str, ...]]]:
    """Return the partitions that are not in the position yet, with the offset where their reading begins; and sentences
    for the log about topics that are back.

    A partition that was left, of a topic with the same id, continues where it was left. Any other new partition of a
    known topic begins at 0. In both cases, a log that begins later is reported as data loss.
    """
    known, there = going.offsets, looked.partitions
    back = left_topics.come_back(going.left, there, looked.ids)
    unknown = [(t, p) for t, numbers in there.items() if t not in known and t not in back for p in numbers]
    result: PartitionOffsets = nested((yield FirstOffsets(unknown))) if unknown else {}
    for topic in known.keys() | back.keys():
        fresh = {p: 0 for p in there.get(topic, ()) if p not in known.get(topic, {})}
        if fresh:
            result[topic] = fresh | back.get(topic, {})
    taken_up = []
    for topic in sorted(result.keys() & going.left.keys()):
        how = "goes on where it was left" if topic in back else "is another one now, and begins at its beginning"
        taken_up.append(f"Topic {topic} is read again: it {how}, at {result[topic]}")
    return result, tuple(taken_up)


def _still_there(
    position: Position, inputs: BatchInput, end: PartitionOffsets, options: SourceOptions, losses: _Losses
) -> Plan[tuple[PartitionOffsets, TopicIds] | None]:
    """Return the end, and the topic ids to note with it, if ``inputs`` still has the present topics: then the ends are
    theirs. None if nothing is to be read.

    Other topics are left to the next plan. Pinned topics are looked up once: topics that are gone are reported as lost,
    and keep their offsets and ids.
    """
    now: Topics = yield TopicsThere()
    check_cluster(inputs.topics.cluster, now.cluster)
    ids = {**position.ids, **inputs.topics.ids}
    gone = _others(inputs.topics, now, end)
    for after_ms in HIDDEN_WAITS_MS if inputs.pinned else ():
        if not gone:
            break
        now = yield TopicsThere(after_ms=after_ms)
        gone = _others(inputs.topics, now, gone)  # one that was there before may be hidden now
    if not gone:
        return end, ids
    if not inputs.pinned:
        return None
    now = _as_before(now, inputs.topics, inputs.topics.ids.keys() & end.keys() - {*gone})
    yield from _report_gone(position, now, options, losses)
    end = {topic: offsets for topic, offsets in end.items() if topic not in gone or topic in position.offsets}
    for topic in gone:
        ids.pop(topic, None)
        if topic in end:
            end[topic] = dict(position.offsets[topic])
        if topic in position.ids:
            ids[topic] = position.ids[topic]
    return (end, ids) if end != position.offsets else None


def _others(looked: Topics, now: Topics, names: Iterable[str]) -> list[str]:
    """Return the topics that are not the ones ``looked`` up: they are missing, or were created anew."""
    return [topic for topic in names if looked.ids.get(topic) != now.ids.get(topic)]


def _epochs_at(end: PartitionOffsets, going: Position) -> Plan[PartitionOffsets]:
    """Return the leader epochs of the records before the end of a micro-batch that begins at ``going``."""
    offsets, known, before = flat(end), flat(going.epochs), flat(going.offsets)
    kept = {partition: epoch for partition, epoch in known.items() if offsets.get(partition) == before[partition]}
    for topic, was in going.left.items():
        kept |= {(topic, p): was.epochs[p] for p in was.epochs if offsets.get((topic, p)) == was.offsets[p]}
    moved = {partition: offset for partition, offset in offsets.items() if partition not in kept}
    return nested(kept | (yield EpochsBefore(moved, known)))


# Missing topics and partitions


def _lacks_hidden(position: Position, looked: Topics, options: SourceOptions) -> Plan[bool]:
    """Return whether brokers that are asked again, for some seconds, name partitions that ``looked`` lacks."""
    first = {partition for partition in _lacking(position, looked) if options.selection.includes(*partition)}
    left = first
    for after_ms in HIDDEN_WAITS_MS:
        if not left:
            break
        there: Topics = yield TopicsThere(after_ms=after_ms)
        left = left.intersection(_lacking(position, there))
    return left != first


def _lacking(position: Position, there: Topics) -> list[TopicPartition]:
    """Return the partitions in which the query has a position, and that do not exist."""
    missing = []
    for topic, offsets in position.offsets.items():
        numbers = set(there.partitions.get(topic, ()))
        missing += [(topic, p) for p in offsets if p not in numbers]
    return missing


def _report_gone(position: Position, there: Topics, options: SourceOptions, losses: _Losses) -> Plan[None]:
    """Report the partitions in which the query has a position and cannot continue: their topic was recreated, they do
    not exist, or the selection no longer includes them."""
    missing = [topic for topic in position.offsets if topic not in there.partitions]
    if missing:
        dropped: Collection[str] = yield DroppedOnPurpose(missing)
        kept = {topic: offsets for topic, offsets in position.offsets.items() if topic not in dropped}
        position = replace(position, offsets=kept)
    yield from _report_recreated(position, there, losses)
    for topic, p in _lacking(position, there):
        losses.report(_not_there(topic, p, position.offsets[topic][p], there, options))


def _report_recreated(position: Position, there: Topics, losses: _Losses) -> Plan[None]:
    """Report recreated topics, whose unread records are lost. Raises CheckpointError (EOS_SOURCE_CLUSTER_CHANGED):
    topics of the same names on another cluster are other topics."""
    check_cluster(position.cluster, there.cluster)
    for topic, known in position.ids.items():
        if left_topics.differ(known, there.ids.get(topic)):
            p, offset = min(position.offsets[topic].items())
            end = None
            if p in there.partitions.get(topic, ()):
                end = (yield HighWatermarks([(topic, p)]))[topic, p]
            ending = f"the log ends at {end}" if end is not None else "it has no such partition"
            cause = f"the topic was recreated: its id was {known} and is now {there.ids[topic]}; {ending}"
            losses.report(data_loss(topic, p, offset, end, cause))


def _not_there(topic: str, partition: int, expected: int, there: Topics, options: SourceOptions) -> EosError:
    """Return the loss of a partition that is gone, or that the options do not include: perhaps the checkpoint is
    another query's."""
    selected = topic in there.partitions or options.selection.includes(topic, partition)
    if topic in there.partitions:
        cause = f"the partition is gone; the partitions read of its topic are {there.partitions[topic]}"
    elif selected:
        cause = "it does not exist: the topic was deleted"
    else:
        cause = f"{options.selection} no longer includes it"
    return data_loss(topic, partition, expected, None, cause, selected=selected)


def _recreated_from_zero(position: Position, ids: TopicIds) -> PartitionOffsets:
    """Return the offsets of ``position``, with 0 for recreated topics, whose id in ``ids`` is another one."""
    result: PartitionOffsets = {}
    for topic, offsets in position.offsets.items():
        recreated = left_topics.differ(position.ids.get(topic), ids.get(topic))
        result[topic] = dict.fromkeys(offsets, 0) if recreated else dict(offsets)
    return result


# A micro-batch of the offset log


def ranges_between(before: Position, after: Position) -> list[OffsetRange]:
    """Return the ranges of the micro-batch between two lines of the offset log, whether or not they still exist. A
    topic that has another id in the second line is read from 0."""
    first = {
        topic: epochs
        for topic, epochs in before.epochs.items()
        if not left_topics.differ(before.ids.get(topic), after.ids.get(topic))
    }
    return range_math.ranges(_recreated_from_zero(before, after.ids), after.offsets, first, after.epochs, after.ids)


def missing_at_the_begin(begin: Position, logged: Position, options: SourceOptions) -> tuple[EosError, ...]:
    """Return the losses in a replay of micro-batch 0: partitions that are in the logged end, but not in the beginning,
    which was resolved again. The first attempt may have read rows of them only if the beginning is fixed."""
    if not start_is_fixed(options):
        return ()
    return tuple(
        data_loss(topic, p, 0, end, f"it is not there as micro-batch 0 is read again, which ends at {end}")
        for topic, offsets in sorted(logged.offsets.items())
        for p, end in sorted(offsets.items())
        if end and p not in begin.offsets.get(topic, {})
    )


def readable(
    ranges: Collection[OffsetRange],
    logged: Position,
    there: Topics,
    options: SourceOptions,
    *,
    planned_now: bool,
    pinned: bool,
) -> Plan[Readable]:
    """Return the parts of the ranges that the cluster still has; the rest is reported as lost. ``logged``: where the
    micro-batch ends, by the offset log.

    Logged ranges are read as logged, even of a topic that the selection no longer includes. ``there``: the topics of
    the ranges. ``planned_now``: this run has planned the micro-batch, so its ends are new, unless they are ``pinned``.
    Raises the errors of `next_batch`.
    """
    losses = _Losses(options.fail_on_data_loss)
    there = yield from _waiting_for_hidden(ranges, logged, there)
    yield from _report_recreated(logged, there, losses)
    kept = []
    for r in ranges:
        if r.partition not in there.partitions.get(r.topic, ()):
            losses.report(_not_there(r.topic, r.partition, r.start, there, options))
        elif not left_topics.differ(logged.ids.get(r.topic), there.ids[r.topic]):
            kept.append(r)
    partitions = [(r.topic, r.partition) for r in kept]
    if kept:
        kept = range_math.from_the_log(kept, nested((yield FirstOffsets(partitions))), losses.report)
    if kept and not planned_now:
        ends = {(r.topic, r.partition): r.end for r in kept}
        for (topic, p), differs_at in (yield DivergedFrom(ends, flat(logged.epochs))).items():
            end, epoch = logged.offsets[topic][p], logged.epochs[topic][p]
            # If the query goes on, the range's task stops at the first record of the other log.
            losses.report(log_diverged(topic, p, end, differs_at, epoch))
    if kept and (pinned or not planned_now):
        ends = {(r.topic, r.partition): r.end for r in kept}
        short = yield from _still_shorter(ends, options)
        kept = range_math.up_to_the_end(kept, nested({**ends, **short}), losses.report)
    return Readable(tuple(kept), tuple(losses.reported))


def _waiting_for_hidden(ranges: Collection[OffsetRange], logged: Position, there: Topics) -> Plan[Topics]:
    """Return the topics of the ranges. A range that a micro-batch leaves out is never read again, so if a topic or
    partition is missing or recreated, the question is repeated for some seconds."""
    for after_ms in HIDDEN_WAITS_MS:
        lacking = {
            r.topic
            for r in ranges
            if left_topics.differ(logged.ids.get(r.topic), there.ids.get(r.topic))
            or r.partition not in there.partitions.get(r.topic, ())
        }
        if not lacking:
            break
        there = _as_before((yield TopicsNamed(lacking, after_ms)), there, there.ids.keys() - lacking)
    return there


def _as_before(now: Topics, before: Topics, names: Iterable[str]) -> Topics:
    """Return ``now``, with these topics as they were ``before``: since then, one may be hidden for a moment."""
    partitions = {name: before.partitions[name] for name in names}
    ids = {name: before.ids[name] for name in partitions}
    return replace(now, partitions=now.partitions | partitions, ids=now.ids | ids)
