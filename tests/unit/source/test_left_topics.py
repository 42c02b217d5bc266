"""Topics that a query leaves and comes back to, by its position."""

from __future__ import annotations

import json
from dataclasses import replace

from spark_eos.checkpoint import offset_log
from spark_eos.checkpoint.offset_log import LeftAt, Position
from spark_eos.source.left_topics import come_back, left_behind, still_left

AT = Position({"a": {0: 5, 1: 6}, "b": {0: 7}}, {"a": "A", "b": "B"})


def test_what_is_there_stays():
    """A position without a loss is the same one; what the cluster has besides is not of it."""
    assert left_behind(AT, {"a": [0, 1, 2], "b": [0], "c": [0]}, {"a": "A", "b": "B", "c": "C"}) == AT


def test_what_is_gone_is_noted_with_its_id():
    """A whole topic, and a partition of one that stays; again, when more of it goes."""
    once = left_behind(AT, {"a": [0]}, {"a": "A"})
    assert once.offsets == {"a": {0: 5}}
    assert once.left == {"a": LeftAt("A", {1: 6}), "b": LeftAt("B", {0: 7})}
    assert left_behind(once, {}, {}).left == {"a": LeftAt("A", {0: 5, 1: 6}), "b": LeftAt("B", {0: 7})}


def test_partitions_that_a_topic_of_another_id_does_not_have_are_gone_for_good():
    """There is nothing to come back to."""
    going = left_behind(AT, {"a": [0], "b": [0]}, {"a": "other", "b": "B"})
    assert going.offsets == {"a": {0: 5}, "b": {0: 7}}
    assert going.left == {}


def test_a_topic_of_another_id_that_goes_takes_the_place_of_what_was_left_of_the_first():
    """Offsets of two topics are never mixed."""
    going = left_behind(Position({"a": {0: 1}}, {"a": "other"}, left={"a": LeftAt("A", {0: 5, 1: 6})}), {}, {})
    assert going.left == {"a": LeftAt("other", {0: 1})}


def test_what_comes_back_is_where_it_was_left():
    """Only of the same topic, and what the selection includes."""
    left = {"a": LeftAt("A", {0: 5, 1: 6}), "b": LeftAt("B", {0: 7}), "c": LeftAt("C", {0: 8})}
    there, ids = {"a": [1, 2], "b": [0]}, {"a": "A", "b": "other"}
    assert come_back(left, there, ids) == {"a": {1: 6}}


def test_what_is_read_again_is_no_longer_left():
    """Partitions that are read again are dropped, and so is all of a topic that was recreated."""
    left = {"a": LeftAt("A", {0: 5, 1: 6}), "b": LeftAt("B", {0: 7}), "c": LeftAt("C", {0: 8})}
    assert still_left(left, {"a": {1: 6}, "b": {1: 0}}, {"a": "A", "b": "other"}) == {
        "a": LeftAt("A", {0: 5}),
        "c": LeftAt("C", {0: 8}),
    }
    assert still_left(left, {}, {"a": "A", "b": "other"}) == left  # seen, by a broker that lags perhaps, and not read


def test_topics_without_an_id_count_as_the_same():
    """The built-in source logs none: the ends of the logs tell, as for topics that were never left."""
    gone = left_behind(Position({"a": {0: 5}}), {}, {})
    assert gone.left == {"a": LeftAt(None, {0: 5})}
    assert come_back(gone.left, {"a": [0]}, {"a": "A"}) == {"a": {0: 5}}


def test_leader_epochs_stay_with_the_offsets_at_which_partitions_were_left():
    """So that a log that was cut meanwhile is recognised when it comes back."""
    before = Position({"a": {0: 5, 1: 6, 2: 7}}, {"a": "A"}, epochs={"a": {0: 3, 1: 4}})
    gone = left_behind(before, {"a": [2]}, {"a": "A"})
    assert gone.left == {"a": LeftAt("A", {0: 5, 1: 6}, {0: 3, 1: 4})}
    assert still_left(gone.left, {"a": {0: 9}}, {"a": "A"}) == {"a": LeftAt("A", {1: 6}, {1: 4})}
    text = json.dumps(offset_log.to_spark(replace(gone, epochs={})))
    assert offset_log.from_spark(json.loads(text)).left == gone.left
    again = left_behind(replace(gone, offsets={"a": {0: 8}}, epochs={}), {}, {})
    assert again.left == {"a": LeftAt("A", {0: 8, 1: 6}, {1: 4})}  # the old epoch is not that of the new offset
