"""Offsets as the offset log of a query holds them."""

from __future__ import annotations

import json

from spark_eos.checkpoint import offset_log
from spark_eos.checkpoint.offset_log import Position


def test_the_offset_log_gets_sorted_keys():
    """Spark compares offsets as text; partition 10 comes after partition 9."""
    unsorted = {"b": {0: 1}, "a": {10: 3, 9: 2}}
    assert json.dumps(offset_log.to_spark(Position(unsorted))) == '{"a": {"9": 2, "10": 3}, "b": {"0": 1}}'


def test_the_offset_log_keeps_the_ids_of_its_topics():
    """Under a key that no topic can have; of topics that it does not hold, none."""
    position = Position({"b": {0: 1}, "a": {0: 2}}, {"c": "Z", "b": "Y", "a": "X"})
    text = json.dumps(offset_log.to_spark(position))
    assert text == '{"#ids": {"a": "X", "b": "Y"}, "a": {"0": 2}, "b": {"0": 1}}'
    assert offset_log.from_spark(json.loads(text)) == Position({"a": {0: 2}, "b": {0: 1}}, {"a": "X", "b": "Y"})


def test_the_offset_log_names_the_group_that_the_source_reports_to():
    """For the sink, which must not have the same one; the source takes it from its options."""
    text = json.dumps(offset_log.to_spark(Position({"a": {0: 2}}, {"a": "X"}, "lag")))
    assert text == '{"#group": {"id": "lag"}, "#ids": {"a": "X"}, "a": {"0": 2}}'
    assert offset_log.from_spark(json.loads(text)) == Position({"a": {0: 2}}, {"a": "X"})


def test_what_the_built_in_source_logged_is_understood():
    """Its JSON has no blanks and no order."""
    position = offset_log.from_spark(json.loads('{"b":{"0":1},"a":{"10":3,"9":2}}'))
    assert position == Position({"b": {0: 1}, "a": {10: 3, 9: 2}}, {})


def test_the_offset_log_names_the_cluster():
    """Before all else, where it is known."""
    text = json.dumps(offset_log.to_spark(Position({"a": {0: 2}}, {"a": "X"}, "lag", "C")))
    assert text == '{"#cluster": {"id": "C"}, "#group": {"id": "lag"}, "#ids": {"a": "X"}, "a": {"0": 2}}'
    assert offset_log.from_spark(json.loads(text)) == Position({"a": {0: 2}}, {"a": "X"}, cluster="C")
    assert offset_log.to_spark(Position({"a": {0: 2}}, cluster="")) == {"a": {"0": 2}}


def test_the_offset_log_marks_copies():
    """So that progress tells whether Spark counts rows or ranges."""
    text = json.dumps(offset_log.to_spark(Position({"a": {0: 2}}, copy=True)))
    assert text == '{"#copy": {}, "a": {"0": 2}}'
    assert offset_log.from_spark(json.loads(text)) == Position({"a": {0: 2}})


def test_leader_epochs_are_noted_where_they_are_known():
    """Under a key that no topic can have, sorted; lines without them are read, too."""
    position = Position({"b": {0: 1}, "a": {10: 2, 9: 3}}, epochs={"a": {10: 4, 9: 5}, "gone": {0: 1}})
    text = json.dumps(offset_log.to_spark(position))
    assert text == '{"#epochs": {"a": {"9": 5, "10": 4}}, "a": {"9": 3, "10": 2}, "b": {"0": 1}}'
    assert offset_log.from_spark(json.loads(text)).epochs == {"a": {9: 5, 10: 4}}
    assert offset_log.from_spark({"a": {"0": 1}}).epochs == {}
