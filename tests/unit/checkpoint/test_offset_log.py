"""The format of the offset log: what sources write there, and what others read of it."""

from __future__ import annotations

import json

import pytest

from spark_eos.checkpoint import offset_log
from spark_eos.checkpoint.offset_log import (
    BUILT_IN,
    OTHER,
    OURS,
    LeftAt,
    Position,
    entry_of,
    marks_of,
    merged,
    source_line,
    topic_twice,
    with_offsets,
)


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
    """For the sink, which must not have the same one."""
    text = json.dumps(offset_log.to_spark(Position({"a": {0: 2}}, {"a": "X"}, "lag")))
    assert text == '{"#group": {"id": "lag"}, "#ids": {"a": "X"}, "a": {"0": 2}}'
    assert offset_log.from_spark(json.loads(text)) == Position({"a": {0: 2}}, {"a": "X"}, "lag")


def test_what_the_built_in_source_logged_is_understood():
    """Its JSON has no blanks and no order."""
    position = offset_log.from_spark(json.loads('{"b":{"0":1},"a":{"10":3,"9":2}}'))
    assert position == Position({"b": {0: 1}, "a": {10: 3, 9: 2}}, {})


def test_the_offset_log_names_the_cluster():
    """Before all else, where it is known."""
    text = json.dumps(offset_log.to_spark(Position({"a": {0: 2}}, {"a": "X"}, "lag", "C")))
    assert text == '{"#cluster": {"id": "C"}, "#group": {"id": "lag"}, "#ids": {"a": "X"}, "a": {"0": 2}}'
    assert offset_log.from_spark(json.loads(text)) == Position({"a": {0: 2}}, {"a": "X"}, "lag", "C")
    assert offset_log.to_spark(Position({"a": {0: 2}}, cluster="")) == {"a": {"0": 2}}


def test_the_offset_log_marks_copies():
    """So that progress tells whether Spark counts rows or ranges."""
    text = json.dumps(offset_log.to_spark(Position({"a": {0: 2}}, copy=True)))
    assert text == '{"#copy": {}, "a": {"0": 2}}'
    assert offset_log.from_spark(json.loads(text)) == Position({"a": {0: 2}}, copy=True)


def test_leader_epochs_are_noted_where_they_are_known():
    """Under a key that no topic can have, sorted; lines without them are read, too."""
    position = Position({"b": {0: 1}, "a": {10: 2, 9: 3}}, epochs={"a": {10: 4, 9: 5}, "gone": {0: 1}})
    text = json.dumps(offset_log.to_spark(position))
    assert text == '{"#epochs": {"a": {"9": 5, "10": 4}}, "a": {"9": 3, "10": 2}, "b": {"0": 1}}'
    assert offset_log.from_spark(json.loads(text)).epochs == {"a": {9: 5, 10: 4}}
    assert offset_log.from_spark({"a": {"0": 1}}).epochs == {}


# Lines of any source


def test_lines_of_several_sources():
    """Marks show the lines of this source; lines without are the built-in one's."""
    ours = source_line('{"#epochs": {"t": {"0": 7}}, "#ids": {"t": "x"}, "t": {"0": 4, "1": 5}}')
    built_in = source_line('{"t":{"1":3},"u":{"0":6}}')
    assert (ours.kind, ours.position) == (OURS, Position({"t": {0: 4, 1: 5}}, {"t": "x"}, epochs={"t": {0: 7}}))
    assert (built_in.kind, built_in.position) == (BUILT_IN, Position({"t": {1: 3}, "u": {0: 6}}))
    assert merged([ours, built_in]) == {"t": {0: 4, 1: 3}, "u": {0: 6}}
    assert topic_twice([ours, built_in]) == "t"
    assert topic_twice([ours]) is None


def test_a_line_without_topics_may_be_ours():
    """All topics are gone, and the line says where the query was in them."""
    line = source_line('{"#cluster": {"id": "c"}, "#left": {"t": {"id": "x", "offsets": {"1": 5, "0": 7}}}}')
    assert (line.kind, line.position) == (OURS, Position({}, cluster="c", left={"t": LeftAt("x", {0: 7, 1: 5})}))


@pytest.mark.parametrize(
    "text", ['{"logOffset":3}', "", "-", "17", "{}", "[]", '{"t":{"x":1}}', '{"t":{"0":"1"}}', '{"t":{"0":true}}']
)
def test_lines_of_other_sources(text):
    """They say nothing about Kafka, and nothing is wrong with them."""
    line = source_line(text)
    assert (line.kind, line.position, line.damaged) == (OTHER, Position({}), False)


@pytest.mark.parametrize(
    "text",
    [
        *("{", '{"t":{"0":1}', '{"#left":{"t":{"0":7}},"t":{"0":1}}', '{"#ids":7,"t":{"0":1}}'),
        *('{"t":{"0":5,"00":7}}', '{"t":{"0":5},"t":{"0":9}}', '{"t":{"0":5,"0":9}}', '{"t":{"0":-7}}'),
        *('{"t":{"0":5},"#epochs":{"t":{"00":1}}}', f'{{"t":{{"{"9" * 20}":5}}}}', '{"t":' * 100_000),
    ],
)
def test_damaged_lines(text):
    """Each may have been a Kafka source's: whoever needs all offsets must stop."""
    assert source_line(text).damaged


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"#epochs":{"t":{"0":4,"1":4}},"t":{"0":9,"1":9}}', '{"#epochs":{"t":{"1":4}},"t":{"0":5,"1":9}}'),
        ('{"#ids": {"t": "x"}, "t": {"0": 9, "1": 9}}', '{"#ids": {"t": "x"}, "t": {"0": 5, "1": 9}}'),
        ('{"t":{"1":9,"0":9}}', '{"t":{"1":9,"0":5}}'),
    ],
)
def test_a_line_with_other_offsets(before, after):
    """Its source would write it so; the leader epoch of an offset that moved is gone."""
    assert with_offsets(source_line(before), {"t": {0: 5, 1: 9}}) == after


@pytest.mark.parametrize("text", [None, "", "-", "17", "{", '{"t":{"0":1}}'])
def test_text_without_marks(text):
    """Other sources have none, nor has progress before the first offsets."""
    assert marks_of(text) == {}


def test_marks_beside_offsets():
    """A source reports them for the query's progress."""
    reported = offset_log.to_spark(Position({"t": {0: 1}})) | offset_log.as_marks({"losses": 0, "source": "s"})
    assert marks_of(json.dumps(reported)) == {"losses": 0, "source": "s"}


@pytest.mark.parametrize("text", ["", "v1", "v1\n{}", "{}\n{}\n{}"])
def test_incomplete_files(text):
    """What a full disk or a power cut leaves."""
    with pytest.raises(ValueError, match="version"):
        entry_of(text)


def test_a_file_of_the_offset_log():
    """Version, metadata, and the lines of the sources in the query's order."""
    entry = entry_of('v1\n{}\n{"t":{"0":1}}\n-')
    assert (entry.version, entry.metadata, entry.lines) == ("v1", "{}", ('{"t":{"0":1}}', "-"))
