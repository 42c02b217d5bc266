"""Mistakes that a source can make with its offsets, as patches that put them back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from spark_eos.base.topic_partition import OffsetRange, flat, nested
from spark_eos.checkpoint import offset_log
from spark_eos.errors import EosError
from spark_eos.kafka.requests.offset_for_leader_epoch import UNKNOWN
from spark_eos.source import diagnosis, epochs, left_topics, plan, questions, range_math, reader
from tests.simulation.breaking import instead_of


def recreated_topic_goes_on(patch: pytest.MonkeyPatch) -> None:
    """A topic is known by its name: one that was created anew is read on at the offset of the old one."""
    patch.setattr(left_topics, "differ", lambda one, other: False)


@instead_of(plan, "_report_recreated")
def recreated_topic_is_no_loss(*_: Any) -> Iterator[Any]:
    """What was not read of the old topic is not worth a word."""
    yield from ()


@instead_of(reader, "next_batch")
def caught_up_by_offsets_alone(next_batch: Any, position: Any, look: Any, options: Any) -> Any:
    """A recreated topic whose limit, or end, is at the very offset that was reached in the old one is not read."""
    found = yield from next_batch(position, look, options)
    if found.end is not None and found.end.offsets == position.offsets and found.end.ids != position.ids:
        return replace(found, end=None, caught_up=True)
    return found


def returned_topic_begins_at_0(patch: pytest.MonkeyPatch) -> None:
    """A topic that comes back is taken for a new one."""
    patch.setattr(left_topics, "come_back", lambda *_: {})


@instead_of(left_topics, "left_behind")
def left_topics_are_forgotten(left_behind: Any, *of: Any) -> Any:
    """Where a topic was left is not noted, so it begins anew when it comes back."""
    return replace(left_behind(*of), left={})


@instead_of(plan, "_report_gone")
def gone_topics_are_no_loss(_: Any, position: Any, there: Any, options: Any, losses: Any) -> Any:
    """A topic that is deleted is dropped silently."""
    yield from plan._report_recreated(position, there, losses)


@instead_of(plan, "_start")
def shorter_log_begins_anew(start: Any, position: Any, look: Any, *more: Any) -> Any:
    """A log that ends before the position is taken for a new one, and read from its beginning."""
    found = yield from start(position, look, *more)
    going = found.position
    reached, ends = flat(position.offsets), flat(look.ends)
    short = {place for place in flat(going.offsets) if ends.get(place, 0) < reached.get(place, 0)}
    offsets = {place: 0 if place in short else at for place, at in flat(going.offsets).items()}
    return replace(found, position=replace(going, offsets=nested(offsets)), cut={*found.cut, *short})


@instead_of(plan, "_still_shorter")
def lag_is_loss(still_shorter: Any, behind: Any, options: Any) -> Any:
    """A leader that knows less for a moment is believed the first time."""
    return (yield from still_shorter(behind, replace(options, offset_tries=1)))


@instead_of(reader, "answered")
def epochs_ignored(answered: Any, asking: Any, answer: Any) -> Any:
    """Offsets alone say whether a log is the one that was read."""
    of_epochs = questions.DivergedFrom | questions.EpochsBefore
    return answered(asking, lambda question: {} if isinstance(question, of_epochs) else answer(question))


@instead_of(plan, "_start")
def diverged_log_is_read_at_once(start: Any, *of: Any) -> Any:
    """Where a log was cut, reading goes back in the same micro-batch, so that a replay begins elsewhere."""
    return replace((yield from start(*of)), cut=())


@instead_of(plan, "_newcomers")
def newcomers_begin_at_the_end(newcomers: Any, going: Any, looked: Any) -> Any:
    """A topic that is new is taken up where it ends now."""
    found, taken_up = yield from newcomers(going, looked)
    new = [(t, p) for t, offsets in found.items() for p in offsets if t not in going.left]
    high = (yield questions.HighWatermarks(new)) if new else {}
    return {t: {p: high.get((t, p), at) for p, at in found[t].items()} for t in found}, taken_up


@instead_of(plan, "_newcomers")
def _newcomers_end_where_they_do(newcomers: Any, going: Any, looked: Any) -> Any:
    found, taken_up = yield from newcomers(going, looked)
    new = [(t, p) for t, offsets in found.items() for p in offsets]
    high = (yield questions.HighWatermarks(new)) if new else {}
    return {t: {p: high[t, p] for p in found[t]} for t in found}, taken_up


@instead_of(reader, "ranges_between", _newcomers_end_where_they_do)
def newcomers_are_read_at_once(ranges_between: Any, before: Any, after: Any) -> Any:
    """A partition is read in the micro-batch that adds it, from its first offset, which moves."""
    known = {(t, p) for t, offsets in before.offsets.items() for p in offsets}
    new = [(t, p, at) for t, offsets in after.offsets.items() for p, at in offsets.items() if (t, p) not in known]
    return ranges_between(before, after) + [OffsetRange(t, p, 0, at) for t, p, at in new if at]


def _every_start_is_fixed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "start_is_fixed", lambda _: True)


@instead_of(reader, "next_batch", _every_start_is_fixed)
def first_micro_batch_reads(next_batch: Any, position: Any, look: Any, options: Any) -> Any:
    """Micro-batch 0 has rows, though its replay may begin elsewhere."""
    return next_batch(position, replace(look, run=replace(look.run, begun=True)), options)


def _nothing_is_pinned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reader.TopicWatch, "pinned", property(lambda self: False))


@instead_of(reader.TopicWatch, "pin", _nothing_is_pinned)
def pinned_end_moves(_: Any, self: Any) -> None:
    """A run with availableNow reads what comes meanwhile."""
    self._topics_until = self._ends_until = 0.0
    self.ends()


@instead_of(reader, "ranges_between")
def limit_that_skips(ranges_between: Any, before: Any, after: Any) -> Any:
    """The limit says what is read, and the position goes to the end."""
    return [r.cut(r.start, min(r.end, r.start + 4)) for r in ranges_between(before, after)]


@instead_of(range_math, "advance")
def limit_goes_past_the_end(advance: Any, start: Any, ends: Any, most: int) -> Any:
    """A partition with a backlog gets its share, and one more."""
    found = advance(start, ends, most)
    return {t: {p: at + (at > start[t][p]) for p, at in found[t].items()} for t in found}


@instead_of(range_math, "from_the_log")
def expired_rows_are_skipped(from_the_log: Any, reads: Any, begin: Any, report: Any) -> Any:
    """What retention has taken out of a range is no loss."""
    return from_the_log(reads, begin, lambda _: None)


@instead_of(reader, "initial_position")
def first_position_has_no_ids(initial_position: Any, *of: Any, **more: Any) -> Any:
    """A new query begins at offsets of topics whose ids it has not seen."""
    return replace((yield from initial_position(*of, **more)), ids={})


@instead_of(range_math, "ranges")
def read_by_name(ranges: Any, *given: Any) -> Any:
    """Tasks read from the topic that has the name by then."""
    return [replace(r, topic_id="") for r in ranges(*given)]


@instead_of(plan, "_still_there", read_by_name)
def last_look_left_out(_: Any, position: Any, look: Any, end: Any, options: Any, losses: Any) -> Any:
    """The ends that were asked for are taken for those of the topics that were seen before; and so they are by tasks,
    which would notice."""
    yield from ()
    return end, {**position.ids, **look.topics.ids}


@instead_of(plan, "_lacks_hidden")
def one_look_is_enough(*_: Any) -> Any:
    """A topic or partition that a broker does not tell of has been deleted."""
    yield from ()
    return False


def hidden_is_gone(patch: pytest.MonkeyPatch) -> None:
    """A topic that a broker does not tell of is left out of a micro-batch at once."""
    patch.setattr(plan, "HIDDEN_WAITS_MS", ())


@instead_of(offset_log, "to_spark")
def ids_are_not_noted(to_spark: Any, position: Any) -> Any:
    """The offset log has offsets and nothing else, as that of the built-in source."""
    return to_spark(replace(position, ids={}, left={}))


@instead_of(reader.TopicWatch, "look")
def stable_end_ignored(look: Any, self: Any) -> Any:
    """Open transactions are skipped: their rows come too late."""
    there, ends = look(self)
    return there, self.high_watermarks({t: list(ends[t]) for t in ends}) if ends else ends


@instead_of(epochs.LeaderEpochs, "_insist_on_first_batch")
def silence_is_another_log(_: Any, self: Any, place: Any, offset: int) -> tuple[int, int]:
    """A leader that does not show its records has others."""
    try:
        return self._ask.first_batch(place, offset)
    except epochs.Unanswered:
        return offset, UNKNOWN


@instead_of(diagnosis, "data_loss")
def early_end_is_a_later_begin(
    data_loss: Any, topic: str, p: int, expected: int, found: int, what: str, readable: tuple[int, int]
) -> EosError:
    """A task that is told where its log ends goes on there, as if the log began there."""
    if expected <= found:
        return data_loss(topic, p, expected, found, what, readable)
    rest = (found, expected) if readable[0] < found else None
    return data_loss(topic, p, readable[0], found, what, rest)


@instead_of(plan, "_start")
def one_short_look_is_enough(start: Any, position: Any, look: Any, *more: Any) -> Any:
    """Where a log was cut is where it ended when it was looked at first."""
    found = yield from start(position, look, *more)
    ends = flat(look.ends)
    offsets = {place: min(at, ends.get(place, at)) for place, at in flat(found.position.offsets).items()}
    return replace(found, position=replace(found.position, offsets=nested(offsets)))


@instead_of(reader.TopicWatch, "high_watermarks")
def metadata_alone_tells_the_leader(high_watermarks: Any, self: Any, *asked: Any) -> Any:
    """Offsets of a group are noted with the epoch of the leader that some broker knows."""
    with pytest.MonkeyPatch.context() as deaf:
        deaf.setattr(reader.TopicWatch, "_note_epochs", lambda *_: None)
        return high_watermarks(self, *asked)
