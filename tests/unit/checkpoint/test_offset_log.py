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
    lowest_offsets,
    marks_of,
    source_line,
    topic_twice,
    with_offsets,
)

AT = {"a": {0: 2}}


@pytest.mark.parametrize(
    ("position", "text"),
    [
        (Position({"b": {0: 1}, "a": {10: 3, 9: 2}}), '{"a": {"9": 2, "10": 3}, "b": {"0": 1}}'),
        (Position(AT, {"a": "X"}), '{"#ids": {"a": "X"}, "a": {"0": 2}}'),
        (Position(AT, {"a": "X"}, "lag"), '{"#group": {"id": "lag"}, "#ids": {"a": "X"}, "a": {"0": 2}}'),
        (Position(AT, group="lag", cluster="C"), '{"#cluster": {"id": "C"}, "#group": {"id": "lag"}, "a": {"0": 2}}'),
        (Position(AT, copy=True), '{"#copy": {}, "a": {"0": 2}}'),
        (Position(AT, epochs={"a": {0: 0}}), '{"#epochs": {"a": {"0": 0}}, "a": {"0": 2}}'),
        (
            Position({}, left={"b": LeftAt(None, {0: 7}), "a": LeftAt("A", {10: 5, 9: 6}, {9: 4})}),
            '{"#left": {"a": {"id": "A", "offsets": {"9": 6, "10": 5}, "epochs": {"9": 4}}, '
            '"b": {"offsets": {"0": 7}}}}',
        ),
    ],
)
def test_a_position_is_read_as_it_was_written(position, text):
    """With sorted keys, as Spark compares offsets as text, and partition 10 comes after partition 9. Marks are under
    keys that no topic can have: ids of topics, the group that the source reports to, the cluster, whether it is a
    copy, leader epochs, and where topics were left."""
    assert json.dumps(offset_log.to_spark(position)) == text
    assert offset_log.from_spark(json.loads(text)) == position


def test_what_a_position_does_not_hold_is_not_written():
    """Ids and epochs of other topics, epochs that are not known, and a cluster that brokers do not name."""
    epochs = {"a": {0: -1}, "b": {0: 4}, "gone": {0: 1}}
    position = Position({**AT, "b": {0: 3}}, {"c": "Z"}, cluster="", epochs=epochs)
    assert offset_log.to_spark(position) == {"#epochs": {"b": {"0": 4}}, "a": {"0": 2}, "b": {"0": 3}}


# Lines of any source


def test_lines_of_several_sources():
    """Marks show the lines of this source; lines without are the built-in one's."""
    ours = source_line('{"#epochs": {"t": {"0": 7}}, "#ids": {"t": "x"}, "t": {"0": 4, "1": 5}}')
    built_in = source_line('{"t":{"1":3},"u":{"0":6}}')
    assert (ours.kind, ours.position) == (OURS, Position({"t": {0: 4, 1: 5}}, {"t": "x"}, epochs={"t": {0: 7}}))
    assert (built_in.kind, built_in.position) == (BUILT_IN, Position({"t": {1: 3}, "u": {0: 6}}))
    assert lowest_offsets([ours, built_in]) == {"t": {0: 4, 1: 3}, "u": {0: 6}}
    assert topic_twice([ours, built_in]) == "t"
    assert topic_twice([ours]) is None
    left = source_line('{"#cluster": {"id": "c"}, "#left": {"t": {"id": "x", "offsets": {"0": 7}}}}')
    assert (left.kind, left.position.left) == (OURS, {"t": LeftAt("x", {0: 7})})  # all topics are gone


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
