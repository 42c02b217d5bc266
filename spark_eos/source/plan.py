"""Decides where the next micro-batch ends, and what of a logged micro-batch can be read. Pure: no I/O, no clock.

The source can lose or repeat rows here, so the decision depends on its arguments and on answers alone. A decision that
needs more than its arguments say *asks*: `initial_position`, `next_batch` and `readable` are generators that yield a
question (`spark_eos.source.questions`) and are sent its answer. So Kafka is asked only what the decision at hand needs,
and the reader (`spark_eos.source.reader`) and the simulation (``tests/simulation/source``) run the same code::

    position, a Look, options ─→ next_batch ─→ Next(end, losses, …)
                                  ↑      │
                             answer      question        the reader asks the brokers, the simulation its model

What must hold:

- A range begins at an offset that the offset log has, so a replay begins where the first attempt began. Offsets at
  which reading starts or moves (a new query, a new partition, a log that was cut) are logged before they are read.
- A partition moves back, or forward over what was not read, only with a loss that is reported.
- Offsets are used with the topic id, the cluster and the leader epochs that they were noted with, or not at all.
- A loss is raised where ``failOnDataLoss`` is true. Otherwise it is in the result, whatever else that says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from spark_eos.checkpoint.offset_log import Position, TopicIds
from spark_eos.errors import EosError
from spark_eos.options.bounds import ByTime
from spark_eos.options.offsets import LATEST
from spark_eos.options.parse import SourceOptions
from spark_eos.source import left_topics, range_math
from spark_eos.source.losses import check_cluster, data_loss, log_diverged
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
from spark_eos.topic_partition import OffsetRange, PartitionOffsets, TopicPartition, flat, nested

#: Milliseconds to wait before each further look for a topic that may be hidden only for a moment; five seconds in all.
HIDDEN_WAITS_MS = (0, 10, 20, 50, 100, 200, 400, *[500] * 8, 220)
#: More offsets than a partition can have.
NO_LIMIT = 2**63 - 1


# What a decision is made from


@dataclass(frozen=True)
class EpochSeen:
    """The leader epoch of the record before an offset, as this run saw it first; None where that is not known."""

    offset: int
    epoch: int | None


@dataclass(frozen=True)
class Run:
    """What a run of the query remembers from one plan to the next. The offset log has none of it.

    ``begun``: the offset log has the position where the query begins. ``last_batch_s``: when a micro-batch was planned
    last. ``epochs``: for positions that the offset log has no leader epoch of.
    """

    begun: bool = False
    last_batch_s: float = float("-inf")
    epochs: Mapping[TopicPartition, EpochSeen] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """What is known before anything is asked. ``ends``: of the partitions of ``topics``, the last stable offsets, or
    the high watermarks for a query that reads uncommitted rows. ``time_s``: by a clock that never goes back.
    ``pinned``: topics and ends are those of the run's begin, as for Trigger.AvailableNow. ``max_rows``: what Spark lets
    the micro-batch read; None where it wants all in one. ``only_batch``: Spark may never ask for another micro-batch.
    """

    topics: Topics
    ends: PartitionOffsets
    time_s: float
    run: Run = field(default_factory=Run)
    pinned: bool = False
    max_rows: int | None = NO_LIMIT
    only_batch: bool = False


# What comes of it


@dataclass(frozen=True)
class Next:
    """``end``: the line for the offset log at which the next micro-batch ends; None: there is none, and the query stays
    where it is. ``caught_up``: as there is nothing to read. ``look_again``: as the look is outdated. ``losses``: to be
    warned of. ``taken_up``: topics that come back, as sentences for the log. ``run``: for the next plan of this run."""

    end: Position | None
    run: Run
    caught_up: bool = False
    look_again: bool = False
    losses: tuple[EosError, ...] = ()
    taken_up: tuple[str, ...] = ()


@dataclass(frozen=True)
class Readable:
    """What is left of the ranges of a micro-batch, and the losses to be warned of."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[EosError, ...] = ()


class _Losses:
    """The losses that a plan finds. Where a query must not lose data, the first one is raised."""

    def __init__(self, fail: bool) -> None:
        self._fail = fail
        self.found: list[EosError] = []

    def report(self, loss: EosError) -> None:
        if self._fail:
            raise loss
        self.found.append(loss)


# The first position


def initial_position(options: SourceOptions, *, pinned: bool) -> Plan[Position]:
    """Where a new query begins, and in which topics: they were the same before and after the offsets were resolved.
    Where all is pinned, the plan of the first micro-batch finds what has changed since."""
    while True:
        before: Topics = yield TopicsThere(now=False)
        offsets: PartitionOffsets = yield StartingOffsets()
        after: Topics = yield TopicsThere()
        are_known = offsets.keys() <= before.ids.keys()
        if pinned or (are_known and all(before.ids[topic] == after.ids.get(topic) for topic in offsets)):
            break
    epochs = yield EpochsBefore(flat(offsets))
    return Position(offsets, before.ids, options.report_group, before.cluster, epochs=nested(epochs))


# The next micro-batch


def next_batch(position: Position, look: Look, options: SourceOptions) -> Plan[Next]:
    """The end of the micro-batch that begins at ``position``.

    1. The first micro-batch of a query records where the query begins, and reads nothing.
    2. What is gone, new, cut or diverged since ``position`` was noted moves where reading goes on.
    3. Limits say how far it may read, or that it waits for more.
    4. Partitions that are new, or are back, are added at the offset where their reading begins.
    5. Topics and leaders are looked at once more: the ends are theirs only if they are still the same.

    Raises DataLossError where the query must not lose data, and CheckpointError (EOS_SOURCE_CLUSTER_CHANGED).
    """
    losses = _Losses(options.fail_on_data_loss)
    if not look.run.begun and not (look.only_batch and start_is_fixed(options)):
        return Next(None, replace(look.run, begun=True))

    start = yield from _start(position, look, options, losses)
    going, cut, run = start.position, start.cut, start.run

    # A range begins at an offset of the log, so a partition that was cut is only moved now, and read the next time.
    ends = nested(flat(look.ends) | {place: going.offsets[place[0]][place[1]] for place in cut})
    may_wait = look.max_rows is not None and going.left == position.left and not cut
    if may_wait and _waits_for_more(going.offsets, ends, look, options):
        return Next(None, run, losses=tuple(losses.found))
    end = yield from _limited(going.offsets, ends, look.max_rows, options)

    new, taken_up = yield from _newcomers(going, look.topics)
    end = range_math.merge(end, new)
    # A topic that was recreated may end, or be limited, at the very offsets that were reached in the old one.
    if end == going.offsets == position.offsets and not cut:
        return Next(None, run, True, losses=tuple(losses.found), taken_up=taken_up)

    still = yield from _still_there(position, look, end, options, losses)
    result = Next(None, run, losses=tuple(losses.found), taken_up=taken_up)
    if still is None:
        return result
    if (yield start.asked) != start.diverged:  # by a leader that was heard of since
        return replace(result, look_again=True)
    end, ids = still
    epochs = yield from _epochs_at(end, going)
    left = left_topics.still_left(going.left, end, ids)
    noted = Position(end, ids, options.report_group, look.topics.cluster, left=left, epochs=epochs)
    return replace(result, end=noted, run=replace(run, last_batch_s=look.time_s))


def start_is_fixed(options: SourceOptions) -> bool:
    """Whether a query that begins once more begins at the same offsets, so its first micro-batch may read rows.

    There may be no second one to read them in: Trigger.Once has none. (What retention takes between a crash of that one
    micro-batch and its replay is not noticed; Trigger.AvailableNow notices.)
    """
    starting = options.starting
    if isinstance(starting, ByTime):
        return False
    if isinstance(starting, str):
        return starting == "earliest"
    return not any(at == LATEST for partitions in starting.values() for at in partitions.values())


@dataclass(frozen=True)
class _Start:
    """Where the next micro-batch starts. ``cut``: the partitions whose log is another one than before. ``asked``,
    ``diverged``: what was asked of the leaders about that, and their answer."""

    position: Position
    cut: Collection[TopicPartition]
    run: Run
    asked: DivergedFrom
    diverged: Mapping[TopicPartition, int]


def _start(position: Position, look: Look, options: SourceOptions, losses: _Losses) -> Plan[_Start]:
    """Where reading goes on, by what is there now. What is not there is reported as lost, and noted as left."""
    there = look.topics
    yield from _report_gone(position, there, options, losses)
    position = left_topics.left_behind(position, there.partitions, there.ids)
    at = flat(_recreated_from_zero(position, there.ids))
    epochs, run = yield from _known_epochs(position, at, look)
    ends = flat(look.ends)
    asked = DivergedFrom(dict(at), dict(epochs))
    answer: Mapping[TopicPartition, int] = yield asked
    diverged = dict(answer)
    short = yield from _shorter(at, ends, options)
    for place, high in short.items():
        if diverged.get(place, high) >= ends[place]:  # nothing was written anew
            losses.report(data_loss(*place, at[place], high, range_math.ends_early(high)))
            at[place] = ends[place]
            epochs.pop(place, None)
            diverged.pop(place, None)
    for place, offset in diverged.items():
        losses.report(log_diverged(*place, at[place], offset, epochs.pop(place)))
        at[place] = offset
    position = replace(position, offsets=nested(at), epochs=nested(epochs))
    return _Start(position, diverged.keys(), run, asked, answer)


def _known_epochs(
    position: Position, at: Mapping[TopicPartition, int], look: Look
) -> Plan[tuple[dict[TopicPartition, int], Run]]:
    """The leader epochs of the records before ``at``: as they are noted, or as they were when this run saw the offset
    first. Those of another topic of that name say nothing."""
    before, ids = flat(position.offsets), look.topics.ids
    noted = {
        place: epoch
        for place, epoch in flat(position.epochs).items()
        if place in at
        and at[place] == before[place]
        and not left_topics.differ(position.ids.get(place[0]), ids.get(place[0]))
    }
    lacking = {place: offset for place, offset in at.items() if place not in noted}
    seen = look.run.epochs
    new = {place: offset for place, offset in lacking.items() if place not in seen or seen[place].offset != offset}
    if new:
        found = yield EpochsBefore(new)
        seen = {**seen, **{place: EpochSeen(offset, found.get(place)) for place, offset in new.items()}}
    known = {place: epoch for place in lacking if (epoch := seen[place].epoch) is not None}
    return noted | known, replace(look.run, epochs=seen)


def _shorter(
    at: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], options: SourceOptions
) -> Plan[dict[TopicPartition, int]]:
    """The high watermarks of the partitions whose log ends before the offset that was reached.

    None where an open transaction only holds the last stable offset before a start that the user gave.
    """
    behind = {place: offset for place, offset in at.items() if ends.get(place, offset) < offset}
    return (yield from _still_shorter(behind, options))


def _still_shorter(behind: Mapping[TopicPartition, int], options: SourceOptions) -> Plan[dict[TopicPartition, int]]:
    """The high watermarks of the partitions whose log ends before these offsets. A new leader may know less for a
    moment, so it is asked again."""
    short: dict[TopicPartition, int] = {}
    for attempt in range(options.offset_tries if behind else 0):
        high = yield HighWatermarks(behind.keys(), options.offset_retry_ms if attempt else 0)
        short = {place: high[place] for place, offset in behind.items() if high[place] < offset}
        if not short:
            break
    return short


def _waits_for_more(at: PartitionOffsets, ends: PartitionOffsets, look: Look, options: SourceOptions) -> bool:
    """Whether there are fewer offsets than ``minOffsetsPerTrigger``, and still time to wait for more."""
    least = options.min_offsets_per_trigger
    if least is None or look.pinned:
        return False
    waited_s = look.time_s - look.run.last_batch_s
    return waited_s < options.max_trigger_delay_s and sum(range_math.in_wait(at, ends).values()) < least


def _limited(
    at: PartitionOffsets, ends: PartitionOffsets, max_rows: int | None, options: SourceOptions
) -> Plan[PartitionOffsets]:
    """Where a micro-batch from ``at`` ends. Without any limit where Spark wants all in one."""
    if max_rows is None:
        return range_math.advance(at, ends, NO_LIMIT)
    end, most = range_math.advance(at, ends, max_rows), options.max_bytes_per_trigger
    if most is None:
        return end
    within: PartitionOffsets = yield WithinBytes(at, end, most)
    return within


def _newcomers(going: Position, looked: Topics) -> Plan[tuple[PartitionOffsets, tuple[str, ...]]]:
    """Partitions and topics that are not in the position, with the offset at which they are taken up; and what the log
    is told of those that were left before.

    One that was left, and is still the same topic, goes on where it was left. Another new partition of a known topic
    begins at 0: in both cases, if its log begins later, that shows as the data loss that it is.
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
    position: Position, look: Look, end: PartitionOffsets, options: SourceOptions, losses: _Losses
) -> Plan[tuple[PartitionOffsets, TopicIds] | None]:
    """The end, and the ids to note with it, if the topics are still those whose ends were looked at: then they were
    when the ends were asked for. None where nothing is to be read.

    If they are not, the next look is at what is there now. Where all is pinned there is no other look: what is gone is
    reported as lost, and stays where and what it is.
    """
    now: Topics = yield TopicsThere()
    check_cluster(look.topics.cluster, now.cluster)
    ids = {**position.ids, **look.topics.ids}
    gone = [topic for topic in end if look.topics.ids.get(topic) != now.ids.get(topic)]
    if not gone:
        return end, ids
    if not look.pinned:
        return None
    yield from _report_gone(position, now, options, losses)
    end = {topic: offsets for topic, offsets in end.items() if topic not in gone or topic in position.offsets}
    for topic in gone:
        ids.pop(topic, None)
        if topic in end:
            end[topic] = dict(position.offsets[topic])
        if topic in position.ids:
            ids[topic] = position.ids[topic]
    return (end, ids) if end != position.offsets else None


def _epochs_at(end: PartitionOffsets, going: Position) -> Plan[PartitionOffsets]:
    """The leader epochs of the records before the end of a micro-batch that begins at ``going``."""
    offsets, known, before = flat(end), flat(going.epochs), flat(going.offsets)
    kept = {place: epoch for place, epoch in known.items() if offsets.get(place) == before[place]}
    for topic, was in going.left.items():
        kept |= {(topic, p): was.epochs[p] for p in was.epochs if offsets.get((topic, p)) == was.offsets[p]}
    moved = {place: offset for place, offset in offsets.items() if place not in kept}
    return nested(kept | (yield EpochsBefore(moved, known)))


# What is gone


def _report_gone(position: Position, there: Topics, options: SourceOptions, losses: _Losses) -> Plan[None]:
    """Report what the query has a position in and cannot read on: topics that were recreated, partitions that are not
    there, and those that the selection no longer includes."""
    missing = [topic for topic in position.offsets if topic not in there.partitions]
    if missing:
        dropped: Collection[str] = yield DroppedOnPurpose(missing)
        kept = {topic: offsets for topic, offsets in position.offsets.items() if topic not in dropped}
        position = replace(position, offsets=kept)
    yield from _report_recreated(position, there, losses)
    for topic, partitions in position.offsets.items():
        for p, offset in partitions.items():
            if p not in there.partitions.get(topic, ()):
                losses.report(data_loss(topic, p, offset, None, _why_not_there(topic, there, options)))


def _report_recreated(position: Position, there: Topics, losses: _Losses) -> Plan[None]:
    """A topic that was created anew has nothing of what the query has not read of the old one; nor has one of the same
    name on another cluster, which nobody may take for the same."""
    check_cluster(position.cluster, there.cluster)
    for topic, known in position.ids.items():
        if left_topics.differ(known, there.ids.get(topic)):
            p, offset = min(position.offsets[topic].items())
            found = None
            if p in there.partitions.get(topic, ()):
                found = (yield HighWatermarks([(topic, p)]))[topic, p]
            ending = f"the log ends at {found}" if found is not None else "it has no such partition"
            what = f"the topic was recreated: its id was {known} and is now {there.ids[topic]}; {ending}"
            losses.report(data_loss(topic, p, offset, found, what))


def _why_not_there(topic: str, there: Topics, options: SourceOptions) -> str:
    if topic in there.partitions:
        return f"the partition is gone; the partitions read of its topic are {there.partitions[topic]}"
    return f"it does not exist: the topic was deleted, or {options.selection} no longer includes it"


def _recreated_from_zero(position: Position, ids: TopicIds) -> PartitionOffsets:
    """The offsets of ``position``; 0 for the partitions of topics that have another id by ``ids``: they are new."""
    result: PartitionOffsets = {}
    for topic, offsets in position.offsets.items():
        recreated = left_topics.differ(position.ids.get(topic), ids.get(topic))
        result[topic] = dict.fromkeys(offsets, 0) if recreated else dict(offsets)
    return result


# A micro-batch of the offset log


def ranges_between(before: Position, after: Position) -> list[OffsetRange]:
    """The ranges of the micro-batch between two lines of the offset log, whatever is left of them. A topic that is
    another one in the second line is read from 0."""
    first = {
        topic: epochs
        for topic, epochs in before.epochs.items()
        if not left_topics.differ(before.ids.get(topic), after.ids.get(topic))
    }
    return range_math.ranges(_recreated_from_zero(before, after.ids), after.offsets, first, after.epochs, after.ids)


def missing_at_the_begin(begin: Position, logged: Position, options: SourceOptions) -> tuple[EosError, ...]:
    """What the replay of micro-batch 0 lacks: partitions that the offset log has at its end, and that are not there
    when the query resolves once more where it begins. There may be rows of them before that end only if the begin is
    fixed."""
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
    """What of the ranges of a micro-batch that ends at ``logged`` the cluster still has; the rest is reported as lost.

    What was logged is read as it was logged, also of a topic that the selection no longer includes. ``there``: of the
    topics that are to be read. ``planned_now``: this run has planned the micro-batch, and its ends with it, unless they
    are ``pinned`` and so older. Raises as `next_batch` does.
    """
    losses = _Losses(options.fail_on_data_loss)
    there = yield from _waiting_for_hidden(ranges, logged, there, options)
    yield from _report_recreated(logged, there, losses)
    kept = []
    for r in ranges:
        if r.partition not in there.partitions.get(r.topic, ()):
            losses.report(data_loss(r.topic, r.partition, r.start, None, _why_not_there(r.topic, there, options)))
        elif not left_topics.differ(logged.ids.get(r.topic), there.ids[r.topic]):
            kept.append(r)
    places = [(r.topic, r.partition) for r in kept]
    if kept:
        kept = range_math.from_the_log(kept, nested((yield FirstOffsets(places))), losses.report)
    if kept and not planned_now:
        ends = {(r.topic, r.partition): r.end for r in kept}
        for (topic, p), found in (yield DivergedFrom(ends, flat(logged.epochs))).items():
            end, epoch = logged.offsets[topic][p], logged.epochs[topic][p]
            losses.report(log_diverged(topic, p, end, found, epoch))  # where the query goes on, tasks stop
    if kept and (pinned or not planned_now):
        ends = {(r.topic, r.partition): r.end for r in kept}
        short = yield from _still_shorter(ends, options)
        kept = range_math.up_to_the_end(kept, nested({**ends, **short}), losses.report)
    return Readable(tuple(kept), tuple(losses.found))


def _waiting_for_hidden(
    ranges: Collection[OffsetRange], logged: Position, there: Topics, options: SourceOptions
) -> Plan[Topics]:
    """What is there of the topics to read. What is left out of a micro-batch is behind the query for good, so something
    that is not there, or is another topic, is looked for once more; for some seconds where a loss does not stop the
    query."""
    names = {r.topic for r in ranges}
    for after_ms in (0,) if options.fail_on_data_loss else HIDDEN_WAITS_MS:
        same = not any(left_topics.differ(logged.ids.get(name), there.ids.get(name)) for name in names)
        if same and all(r.partition in there.partitions.get(r.topic, ()) for r in ranges):
            break
        there = yield TopicsNamed(names, after_ms)
    return there
