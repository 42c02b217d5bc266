"""The decision about the next micro-batch: by itself, and against a model that looks at each partition alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.base.topic_partition import OffsetRange, TopicPartition, flat, nested
from spark_eos.checkpoint.offset_log import LeftAt, Position
from spark_eos.errors import DataLossError
from spark_eos.options.parse import SourceOptions, stream_options
from spark_eos.options.selection import Pattern
from spark_eos.source import plan, questions
from spark_eos.source.plan import (
    BatchInput,
    Next,
    Readable,
    Run,
    missing_at_the_begin,
    next_batch,
    readable,
)
from spark_eos.source.questions import Topics, answered

BEGUN = Run(begun=True)


def options(**given: str) -> SourceOptions:
    return stream_options({"kafka.bootstrap.servers": "h:1", "subscribePattern": ".*", **given})


LENIENT = options(failOnDataLoss="false")


@dataclass(frozen=True)
class Log:
    """The log of one partition: its first offset, last stable offset and high watermark."""

    begin: int
    stable: int
    high: int


@dataclass
class World:
    """What the cluster has, and which questions it was asked. ``lags``: how often an end is told too early;
    ``replies``: what is answered instead, by the kind of question."""

    ids: dict[str, str]
    logs: dict[TopicPartition, Log]
    lags: int = 0
    asked: list[type] = field(default_factory=list)
    replies: dict[type, Callable[[Any], object]] = field(default_factory=dict)

    @property
    def topics(self) -> Topics:
        partitions = {topic: [p for t, p in self.logs if t == topic] for topic in self.ids}
        return Topics(partitions, self.ids, "c")

    def look(self, **more: Any) -> BatchInput:
        ends = nested({place: log.stable for place, log in self.logs.items()})
        return replace(BatchInput(self.topics, ends, 1000.0, BEGUN), **more)

    def answer(self, question: questions.Question) -> object:
        self.asked.append(type(question))
        if type(question) in self.replies:
            return self.replies[type(question)](question)
        match question:
            case questions.EpochsBefore() | questions.DivergedFrom():
                return {}
            case questions.HighWatermarks(partitions):
                self.lags -= 1
                return {place: self.logs[place].high - (1 if self.lags >= 0 else 0) for place in partitions}
            case questions.FirstOffsets(partitions):
                return {place: self.logs[place].begin for place in partitions}
            case questions.TopicsThere() | questions.TopicsNamed():
                return self.topics
        return ()

    def next(self, position: Position, options: SourceOptions = LENIENT, **more: Any) -> Next:
        return answered(next_batch(position, self.look(**more), options), self.answer)

    def readable(self, ranges: list[OffsetRange], logged: Position, options: SourceOptions = LENIENT) -> Readable:
        return answered(readable(ranges, logged, self.topics, options, planned_now=False, pinned=False), self.answer)


def test_the_first_micro_batch_records_where_the_query_begins():
    """It asks nothing and reads nothing, unless there may be no second one, and its replay begins where it did."""
    world = World({"t": "id"}, {("t", 0): Log(0, 9, 9)})
    begin = Position({"t": {0: 0}}, {"t": "id"})
    found = world.next(begin, run=Run())
    assert (found.end, found.run.begun, world.asked) == (None, True, [])
    for starting, end in (("earliest", {"t": {0: 9}}), ("latest", None)):
        once = world.next(begin, options(startingOffsets=starting), run=Run(), only_batch=True, max_rows=None)
        assert (once.end and once.end.offsets) == end


@pytest.mark.parametrize(
    ("reached", "after_s", "pinned", "planned"),
    [(7, 0.9, False, False), (7, 1.0, False, True), (6, 0.9, False, True), (7, 0.9, True, True)],
    ids=["two rows", "for long", "three rows", "pinned"],
)
def test_a_minimum_waits_for_more_and_not_for_ever(reached, after_s, pinned, planned):
    """Nor where there will be no more."""
    world, patient = (
        World({"t": "id"}, {("t", 0): Log(0, 9, 9)}),
        {"minOffsetsPerTrigger": "3", "maxTriggerDelay": "1s"},
    )
    run = replace(BEGUN, last_batch_s=1000.0 - after_s)
    found = world.next(Position({"t": {0: reached}}, {"t": "id"}), options(**patient), run=run, pinned=pinned)
    assert (found.end is not None) == planned
    assert found.run.last_batch_s == (1000.0 if planned else run.last_batch_s)


@pytest.mark.parametrize("lags", [0, 1, 2, 3])
def test_a_leader_that_lags_is_asked_again_before_anything_is_lost(lags):
    """For a new micro-batch and for a replay; three times, as fetchOffset.numRetries says."""
    at = Position({"t": {0: 5}}, {"t": "id"})
    logs = {("t", 0): Log(0, 5, 5)}
    behind = World({"t": "id"}, logs, lags)
    planned = behind.next(at, ends={"t": {0: 4}})
    replayed = World({"t": "id"}, logs, lags).readable([OffsetRange("t", 0, 1, 5)], at)
    assert len(planned.losses) == len(replayed.losses) == (lags == 3)
    assert [(r.start, r.end) for r in replayed.ranges] == [(1, 4 if lags == 3 else 5)]


def test_a_leader_that_lags_in_the_last_look_only_has_lost_nothing():
    """Of two partitions, each is too short in one look."""
    world = World({"t": "id"}, {("t", p): Log(0, 9, 9) for p in range(2)})
    looks = iter([{("t", 0): 5, ("t", 1): 9}, {("t", 0): 9, ("t", 1): 5}])
    world.replies[questions.HighWatermarks] = lambda _: next(looks)
    assert not world.next(Position({"t": {0: 9, 1: 9}}, {"t": "id"}), ends={"t": {0: 4, 1: 4}}).losses


def test_what_the_replay_of_micro_batch_0_does_not_find_any_more_is_lost():
    """It begins where the query would begin now, without topics that are hidden, deleted or left out."""
    begin = Position({"t": {0: 0}}, {"t": "id"})
    logged = Position({"t": {0: 9, 1: 7}, "u": {0: 3, 1: 0}}, {"t": "id", "u": "id-u"})
    lost = missing_at_the_begin(begin, logged, options(startingOffsets="earliest"))
    assert [(e.parameters["topic"], e.parameters["partition"], e.parameters["found"]) for e in lost] == [
        ("t", 1, 7),
        ("u", 0, 3),
    ]
    assert missing_at_the_begin(begin, logged, options(startingOffsets="latest")) == ()


def test_a_topic_that_changes_before_the_last_look_is_not_planned():
    """The ends are those of another topic; where they are pinned, it stays where it was, with its id."""
    before = World({"t": "id", "u": "id-u"}, {("t", 0): Log(0, 9, 9), ("u", 0): Log(0, 4, 4)})
    after = World({"t": "other", "u": "id-u"}, before.logs)
    at = Position({"t": {0: 5}, "u": {0: 1}}, before.ids)
    assert answered(next_batch(at, before.look(), LENIENT), after.answer).end is None
    pinned = answered(next_batch(at, before.look(pinned=True), LENIENT), after.answer)
    assert pinned.end is not None
    assert (pinned.end.offsets, pinned.end.ids) == ({"t": {0: 5}, "u": {0: 4}}, before.ids)
    assert [loss.parameters["topic"] for loss in pinned.losses] == ["t"]


def test_a_topic_that_one_look_has_is_not_gone_because_the_last_one_lacks_it():
    """While a deleted one is looked for: the micro-batch is planned once more."""
    logs = {("t", 0): Log(0, 9, 9), ("u", 0): Log(0, 9, 9)}
    neither, one = World({}, {}), World({"t": "id-t"}, logs)
    looks = iter([one.topics])
    neither.replies[questions.TopicsThere] = lambda _: next(looks, neither.topics)
    found = neither.next(Position({"t": {0: 5}, "u": {0: 5}}, {"t": "id-t", "u": "id-u"}))
    assert found.outdated and found.hidden and not found.losses


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_a_log_that_is_cut_once_more_while_it_is_planned_is_looked_at_again(again):
    """Else the epoch of the newest leader would be noted for an offset that is another one's."""
    world = World({"t": "id"}, {("t", 0): Log(0, 9, 9)})
    ends = iter((7, 4 if again else 7))
    world.replies[questions.DivergedFrom] = lambda _: {("t", 0): next(ends)}
    found = world.next(Position({"t": {0: 8}}, {"t": "id"}, epochs={"t": {0: 1}}))
    assert (found.outdated, found.end and found.end.offsets) == (again, None if again else {"t": {0: 7}})


# Against a model

TOPICS = ("t", "u")
PLACES = [(topic, p) for topic in TOPICS for p in range(2)]
logs = st.tuples(st.integers(0, 6), st.integers(0, 8), st.integers(0, 2)).map(
    lambda s: Log(s[0], s[0] + s[1], s[0] + s[1] + s[2])
)
offsets = st.dictionaries(st.sampled_from(PLACES), st.integers(0, 16))
topic_ids = st.fixed_dictionaries({topic: st.sampled_from(("one", "two")) for topic in TOPICS})


@st.composite
def positions(draw: st.DrawFn) -> Position:
    """With what was left of topics, each partition in one place only."""
    at, left, ids = draw(offsets), draw(offsets), draw(topic_ids)
    left = {place: offset for place, offset in left.items() if place not in at}
    noted = {topic: LeftAt(ids[topic], found) for topic, found in nested(left).items()}
    return Position(nested(at), {topic: ids[topic] for topic, _ in at}, left=noted)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    found = draw(st.dictionaries(st.sampled_from(PLACES), logs))
    ids = draw(topic_ids)
    return World({topic: ids[topic] for topic, _ in found}, found)


@dataclass(frozen=True)
class Expected:
    """What must happen to one partition: where reading begins, where it ends at most, and whether that is a loss."""

    start: int
    most: int
    lost: bool = False


def expected(position: Position, world: World, place: TopicPartition) -> Expected | None:
    """What to do with one partition; None where it is not there."""
    topic, p = place
    reached = position.offsets.get(topic, {}).get(p)
    log = world.logs.get(place)
    if log is None:
        return None
    is_same = position.ids.get(topic, world.ids[topic]) == world.ids[topic]
    if reached is not None:
        if not is_same:
            return Expected(0, log.stable)
        if log.high < reached:
            return Expected(log.stable, log.stable, lost=True)
        return Expected(reached, max(reached, log.stable))
    was = position.left.get(topic)
    if was is not None and was.id == world.ids[topic]:
        if p in was.offsets:
            return Expected(was.offsets[p], was.offsets[p])
        if any((topic, other) in world.logs for other in was.offsets):
            return Expected(0, 0)
    stays = any(t == topic and other in position.offsets.get(topic, {}) for t, other in world.logs)
    return Expected(0, 0) if stays else Expected(log.begin, log.begin)


def lost_places(position: Position, world: World) -> set[TopicPartition]:
    found = set()
    for topic, partitions in position.offsets.items():
        for p in partitions:
            seen = expected(position, world, (topic, p))
            if seen is None or seen.lost:
                found.add((topic, p))
        if topic in world.ids and world.ids[topic] != position.ids[topic]:
            found.add((topic, min(partitions)))
    return found


@given(positions(), worlds(), st.integers(1, 40))
def test_each_partition_goes_where_a_model_says(position: Position, world: World, limit: int):
    """Whatever came, went, came back, was recreated or cut: the same starts, losses and ends."""
    found = world.next(position, max_rows=limit)
    want = {place: seen for place in PLACES if (seen := expected(position, world, place)) is not None}
    assert {(e.parameters["topic"], e.parameters["partition"]) for e in found.losses} == lost_places(position, world)
    waiting = sum(seen.most - seen.start for seen in want.values())
    if found.end is None:
        assert found.caught_up and waiting == 0
        assert {place: seen.start for place, seen in want.items()} == flat(position.offsets)
        return
    ends = flat(found.end.offsets)
    assert ends.keys() == want.keys()
    assert all(seen.start <= ends[place] <= seen.most for place, seen in want.items())
    read = sum(ends[place] - seen.start for place, seen in want.items())
    assert min(waiting, 1) <= read <= limit + len(want)
    assert found.end.ids.items() >= world.ids.items()
    left = {(topic, p): at for topic, was in found.end.left.items() for p, at in was.offsets.items()}
    assert not left.keys() & ends.keys()
    gone = {place: at for place, at in flat(position.offsets).items() if place not in world.logs}
    noted = {p: at for p, at in gone.items() if world.ids.get(p[0], position.ids[p[0]]) == position.ids[p[0]]}
    assert left.items() >= noted.items()


@given(positions(), worlds(), st.integers(1, 40))
def test_a_query_that_must_not_lose_data_stops_where_another_one_warns(position: Position, world: World, limit: int):
    """With the first of the same losses; without one, both plan the same."""
    lenient = world.next(position, max_rows=limit)
    if not lenient.losses:
        assert world.next(position, options(), max_rows=limit) == lenient
        return
    with pytest.raises(DataLossError) as caught:
        world.next(position, options(), max_rows=limit)
    assert caught.value.parameters == lenient.losses[0].parameters


@given(positions(), worlds(), st.integers(1, 40))
def test_from_plan_to_plan_everything_is_read(position: Position, world: World, limit: int):
    """Each range begins where the one before ended, and a world that rests is read to its end."""
    at = position
    for _ in range(100):
        found = world.next(at, max_rows=limit)
        if found.end is None:
            break
        for r in plan.ranges_between(at, found.end):
            assert 0 <= r.start < r.end <= world.logs[r.topic, r.partition].high
        at = found.end
    ends = {place: log.stable for place, log in world.logs.items()}
    reached = flat(at.offsets)
    assert reached.keys() == ends.keys()
    assert all(reached[place] >= ends[place] for place in ends)


# Epochs, and ends that are pinned


def test_an_epoch_that_this_run_has_seen_is_of_one_offset():
    """Of another one, which the offset log has no epoch of, it would say that the log was cut, or that it was not."""
    world = World({"t": "id"}, {("t", 0): Log(0, 9, 9)})
    asked: list[questions.DivergedFrom] = []
    world.replies[questions.EpochsBefore] = lambda question: dict.fromkeys(question.offsets, 3)
    world.replies[questions.DivergedFrom] = lambda question: asked.append(question) or {}
    seen = replace(BEGUN, epochs={("t", 0): plan.EpochSeen(5, 1)})
    for reached, epoch in ((8, 3), (5, 1)):
        found = world.next(Position({"t": {0: reached}}, {"t": "id"}), run=seen)
        assert (dict(asked[0].offsets), dict(asked[0].epochs)) == ({("t", 0): reached}, {("t", 0): epoch})
        assert found.run.epochs == {("t", 0): plan.EpochSeen(reached, epoch)}
        asked.clear()


@pytest.mark.parametrize("pinned", [False, True])
def test_ends_that_are_pinned_are_looked_at_again_when_their_ranges_are_made(pinned):
    """They are those of the run's beginning, and the log may have lost its newest records since; ends that were just
    planned are not."""
    world = World({"t": "id"}, {("t", 0): Log(0, 4, 4)})
    logged = Position({"t": {0: 5}}, {"t": "id"})
    plans = readable([OffsetRange("t", 0, 1, 5)], logged, world.topics, LENIENT, planned_now=True, pinned=pinned)
    found = answered(plans, world.answer)
    assert [(r.start, r.end) for r in found.ranges] == [(1, 4 if pinned else 5)]
    assert [loss.parameters["found"] for loss in found.losses] == ([4] if pinned else [])
    assert (questions.HighWatermarks in world.asked) == pinned


def test_what_is_there_is_not_looked_for_in_the_selection(monkeypatch):
    """Each partition would cost a micro-batch as much as the selection has topics."""
    world = World({"t": "id"}, {("t", p): Log(0, 9, 9) for p in range(3)})
    asked = []
    monkeypatch.setattr(Pattern, "includes", lambda *of: bool(asked.append(of)))
    there = Position({"t": dict.fromkeys(range(3), 5)}, {"t": "id"}, cluster="c")
    assert world.next(there).end is not None and not asked
    world.next(replace(there, offsets={"t": dict.fromkeys(range(4), 5)}))
    assert [of[1:] for of in asked] == [("t", 3)]
