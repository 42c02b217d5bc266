"""Mistakes that a source can make with its offsets, as patches that put them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spark_eos.base.topic_partition import OffsetRange, flat, nested
from spark_eos.checkpoint import offset_log
from spark_eos.errors import EosError
from spark_eos.kafka.requests.offset_for_leader_epoch import UNKNOWN
from spark_eos.source import diagnosis, epochs, left_topics, plan, questions, range_math, reader


def recreated_topic_goes_on(patch: pytest.MonkeyPatch) -> None:
    """A topic is known by its name: one that was created anew is read on at the offset of the old one."""
    patch.setattr(left_topics, "differ", lambda one, other: False)


def recreated_topic_is_no_loss(patch: pytest.MonkeyPatch) -> None:
    """What was not read of the old topic is not worth a word."""

    def silent(*_: Any) -> Any:
        yield from ()

    patch.setattr(plan, "_report_recreated", silent)


def caught_up_by_offsets_alone(patch: pytest.MonkeyPatch) -> None:
    """A recreated topic whose limit, or end, is at the very offset that was reached in the old one is not read."""
    next_batch = plan.next_batch

    def by_offsets(position: Any, look: Any, options: Any) -> Any:
        found = yield from next_batch(position, look, options)
        if found.end is not None and found.end.offsets == position.offsets and found.end.ids != position.ids:
            return replace(found, end=None, caught_up=True)
        return found

    patch.setattr(reader, "next_batch", by_offsets)


def returned_topic_begins_at_0(patch: pytest.MonkeyPatch) -> None:
    """A topic that comes back is taken for a new one."""
    patch.setattr(left_topics, "come_back", lambda *_: {})


def left_topics_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Where a topic was left is not noted, so it begins anew when it comes back."""
    left_behind = left_topics.left_behind
    patch.setattr(left_topics, "left_behind", lambda *of: replace(left_behind(*of), left={}))


def gone_topics_are_no_loss(patch: pytest.MonkeyPatch) -> None:
    """A topic that is deleted is dropped silently."""

    def only_recreated(position: Any, there: Any, options: Any, losses: Any) -> Any:
        yield from plan._report_recreated(position, there, losses)

    patch.setattr(plan, "_report_gone", only_recreated)


def shorter_log_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """A log that ends before the position is taken for a new one, and read from its beginning."""
    start = plan._start

    def from_0(position: Any, look: Any, *more: Any) -> Any:
        found = yield from start(position, look, *more)
        going = found.position
        reached, ends = flat(position.offsets), flat(look.ends)
        short = {place for place in flat(going.offsets) if ends.get(place, 0) < reached.get(place, 0)}
        offsets = {place: 0 if place in short else at for place, at in flat(going.offsets).items()}
        return replace(found, position=replace(going, offsets=nested(offsets)), cut={*found.cut, *short})

    patch.setattr(plan, "_start", from_0)


def lag_is_loss(patch: pytest.MonkeyPatch) -> None:
    """A leader that knows less for a moment is believed the first time."""
    still_shorter = plan._still_shorter

    def at_once(behind: Any, options: Any) -> Any:
        return (yield from still_shorter(behind, replace(options, offset_tries=1)))

    patch.setattr(plan, "_still_shorter", at_once)


def epochs_ignored(patch: pytest.MonkeyPatch) -> None:
    """Offsets alone say whether a log is the one that was read."""

    def answered(asking: Any, answer: Callable[[Any], Any]) -> Any:
        return questions.answered(
            asking, lambda q: {} if isinstance(q, questions.DivergedFrom | questions.EpochsBefore) else answer(q)
        )

    patch.setattr(reader, "answered", answered)


def diverged_log_is_read_at_once(patch: pytest.MonkeyPatch) -> None:
    """Where a log was cut, reading goes back in the same micro-batch, so that a replay begins elsewhere."""
    start = plan._start

    def nothing_cut(*of: Any) -> Any:
        return replace((yield from start(*of)), cut=())

    patch.setattr(plan, "_start", nothing_cut)


def newcomers_begin_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """A topic that is new is taken up where it ends now."""
    newcomers = plan._newcomers

    def latest(going: Any, looked: Any) -> Any:
        found, taken_up = yield from newcomers(going, looked)
        new = [(t, p) for t, offsets in found.items() for p in offsets if t not in going.left]
        high = (yield questions.HighWatermarks(new)) if new else {}
        return {t: {p: high.get((t, p), at) for p, at in found[t].items()} for t in found}, taken_up

    patch.setattr(plan, "_newcomers", latest)


def newcomers_are_read_at_once(patch: pytest.MonkeyPatch) -> None:
    """A partition is read in the micro-batch that adds it, from its first offset, which moves."""

    def from_where_it_is(before: Any, after: Any) -> Any:
        found = plan.ranges_between(before, after)
        known = {(t, p) for t, offsets in before.offsets.items() for p in offsets}
        new = [(t, p, at) for t, offsets in after.offsets.items() for p, at in offsets.items() if (t, p) not in known]
        return found + [OffsetRange(t, p, 0, at) for t, p, at in new if at]

    def to_the_end(going: Any, looked: Any) -> Any:
        found, taken_up = yield from newcomers(going, looked)
        new = [(t, p) for t, offsets in found.items() for p in offsets]
        high = (yield questions.HighWatermarks(new)) if new else {}
        return {t: {p: high[t, p] for p in found[t]} for t in found}, taken_up

    newcomers = plan._newcomers
    patch.setattr(plan, "_newcomers", to_the_end)
    patch.setattr(reader, "ranges_between", from_where_it_is)


def first_micro_batch_reads(patch: pytest.MonkeyPatch) -> None:
    """Micro-batch 0 has rows, though its replay may begin elsewhere."""
    patch.setattr(plan, "start_is_fixed", lambda _: True)
    next_batch = plan.next_batch

    def at_once(position: Any, look: Any, options: Any) -> Any:
        return next_batch(position, replace(look, run=replace(look.run, begun=True)), options)

    patch.setattr(reader, "next_batch", at_once)


def pinned_end_moves(patch: pytest.MonkeyPatch) -> None:
    """A run with availableNow reads what comes meanwhile."""
    patch.setattr(reader.TopicWatch, "pinned", property(lambda self: False))

    def pin(self: Any) -> None:
        self._topics_until = self._ends_until = 0.0
        self.ends()

    patch.setattr(reader.TopicWatch, "pin", pin)


def limit_that_skips(patch: pytest.MonkeyPatch) -> None:
    """The limit says what is read, and the position goes to the end."""
    ranges = plan.ranges_between

    def limited(before: Any, after: Any) -> Any:
        return [r.cut(r.start, min(r.end, r.start + 4)) for r in ranges(before, after)]

    patch.setattr(reader, "ranges_between", limited)


def limit_goes_past_the_end(patch: pytest.MonkeyPatch) -> None:
    """A partition with a backlog gets its share, and one more."""
    advance = range_math.advance

    def further(start: Any, ends: Any, most: int) -> Any:
        found = advance(start, ends, most)
        return {t: {p: at + (at > start[t][p]) for p, at in found[t].items()} for t in found}

    patch.setattr(range_math, "advance", further)


def expired_rows_are_skipped(patch: pytest.MonkeyPatch) -> None:
    """What retention has taken out of a range is no loss."""
    from_the_log = range_math.from_the_log
    patch.setattr(range_math, "from_the_log", lambda reads, begin, report: from_the_log(reads, begin, lambda _: None))


def first_position_has_no_ids(patch: pytest.MonkeyPatch) -> None:
    """A new query begins at offsets of topics whose ids it has not seen."""

    def without(*of: Any, **more: Any) -> Any:
        return replace((yield from plan.initial_position(*of, **more)), ids={})

    patch.setattr(reader, "initial_position", without)


def read_by_name(patch: pytest.MonkeyPatch) -> None:
    """Tasks read from the topic that has the name by then."""
    ranges = range_math.ranges
    patch.setattr(range_math, "ranges", lambda *given: [replace(r, topic_id="") for r in ranges(*given)])


def last_look_left_out(patch: pytest.MonkeyPatch) -> None:
    """The ends that were asked for are taken for those of the topics that were seen before; and so they are by tasks,
    which would notice."""
    read_by_name(patch)

    def unchanged(position: Any, look: Any, end: Any, options: Any, losses: Any) -> Any:
        yield from ()
        return end, {**position.ids, **look.topics.ids}

    patch.setattr(plan, "_still_there", unchanged)


def one_look_is_enough(patch: pytest.MonkeyPatch) -> None:
    """A topic or partition that a broker does not tell of has been deleted."""

    def no_other(position: Any, looked: Any, options: Any) -> Any:
        yield from ()
        return False

    patch.setattr(plan, "_lacks_hidden", no_other)


def hidden_is_gone(patch: pytest.MonkeyPatch) -> None:
    """A topic that a broker does not tell of is left out of a micro-batch at once."""
    patch.setattr(plan, "HIDDEN_WAITS_MS", ())


def ids_are_not_noted(patch: pytest.MonkeyPatch) -> None:
    """The offset log has offsets and nothing else, as that of the built-in source."""
    to_spark = offset_log.to_spark

    def plain(position: Any) -> Any:
        return to_spark(replace(position, ids={}, left={}))

    patch.setattr(offset_log, "to_spark", plain)


def stable_end_ignored(patch: pytest.MonkeyPatch) -> None:
    """Open transactions are skipped: their rows come too late."""
    look = reader.TopicWatch.look

    def high(self: Any) -> Any:
        there, ends = look(self)
        return there, self.high_watermarks({t: list(ends[t]) for t in ends}) if ends else ends

    patch.setattr(reader.TopicWatch, "look", high)


def silence_is_another_log(patch: pytest.MonkeyPatch) -> None:
    """A leader that does not show its records has others."""

    def at_once(self: epochs.LeaderEpochs, place: Any, offset: int) -> tuple[int, int]:
        try:
            return self._ask.first_batch(place, offset)
        except epochs.Unanswered:
            return offset, UNKNOWN

    patch.setattr(epochs.LeaderEpochs, "_insist_on_first_batch", at_once)


def early_end_is_a_later_begin(patch: pytest.MonkeyPatch) -> None:
    """A task that is told where its log ends goes on there, as if the log began there."""
    data_loss = diagnosis.data_loss

    def from_there(topic: str, p: int, expected: int, found: int, what: str, readable: tuple[int, int]) -> EosError:
        if expected <= found:
            return data_loss(topic, p, expected, found, what, readable)
        rest = (found, expected) if readable[0] < found else None
        return data_loss(topic, p, readable[0], found, what, rest)

    patch.setattr(diagnosis, "data_loss", from_there)


def one_short_look_is_enough(patch: pytest.MonkeyPatch) -> None:
    """Where a log was cut is where it ended when it was looked at first."""
    start = plan._start

    def from_the_look(position: Any, look: Any, *more: Any) -> Any:
        found = yield from start(position, look, *more)
        ends = flat(look.ends)
        offsets = {place: min(at, ends.get(place, at)) for place, at in flat(found.position.offsets).items()}
        return replace(found, position=replace(found.position, offsets=nested(offsets)))

    patch.setattr(plan, "_start", from_the_look)


def metadata_alone_tells_the_leader(patch: pytest.MonkeyPatch) -> None:
    """Offsets of a group are noted with the epoch of the leader that some broker knows."""
    high_watermarks = reader.TopicWatch.high_watermarks

    def unheard(self: Any, *asked: Any) -> Any:
        with pytest.MonkeyPatch.context() as deaf:
            deaf.setattr(reader.TopicWatch, "_note_epochs", lambda *_: None)
            return high_watermarks(self, *asked)

    patch.setattr(reader.TopicWatch, "high_watermarks", unheard)
