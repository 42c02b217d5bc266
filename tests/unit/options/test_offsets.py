"""Offsets as the user writes them, and whether they fit the partitions that are there."""

from __future__ import annotations

import json

import pytest

from spark_eos.errors import OptionError
from spark_eos.options.bounds import parse_start
from spark_eos.options.offsets import check_known, fill_in
from spark_eos.options.parse import source_options
from tests.support.judges.conditions import raises

BEGIN = {"a": {0: 5, 1: 0}, "b": {0: 7}}
END = {"a": {0: 50, 1: 0}, "b": {0: 70}}


def parse(text: str):
    return parse_start("startingOffsets", text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":{"0":23,"1":-2},"b":{"0":-1}}', {"a": {0: 23, 1: 0}, "b": {0: 70}}),
        ('{"b":{"0":-2},"a":{"1":-1,"0":5}}', {"a": {0: 5, 1: 0}, "b": {0: 7}}),
    ],
)
def test_starting_offsets_resolve(text, expected):
    """Numbers, -2 for earliest and -1 for latest."""
    assert fill_in("startingOffsets", parse(text), BEGIN, END) == expected


@pytest.mark.parametrize("text", ["earliest", " Latest ", "GROUP"])
def test_words(text):
    """In whatever case, as with the built-in source."""
    assert parse(text) == text.strip().lower()


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [('{"a":{"0":1}', 1, 13), ('{"a":\n {"0":1,}}', 2, 9), ('{"a":{"0":x}}', 1, 11), ('{"a":{"0":1}} b', 1, 15)],
)
def test_malformed_json_is_an_error_with_its_position(text, line, column):
    """So that one finds the comma in a long text."""
    with raises("EOS_OPTION_INVALID", f"at line {line}, column {column}"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("newest", "'newest'"),
        ("[1]", "[1]"),
        ('{"a":5}', "'a'"),
        ('{"a":{}}', "'a'"),
        ('{"a":{"x":1}}', "'x'"),
        ('{"a":{"-1":1}}', "'-1'"),
        ('{"a":{"0":5,"00":7}}', "'00'"),
        ('{"a":{"²":7}}', "'²'"),
        ('{"a":{"1_0":7}}', "'1_0'"),
        ('{"a":{"0":"1"}}', '"1" for a-0'),
        ('{"a":{"0":1.5}}', "1.5 for a-0"),
        ('{"a":{"0":true}}', "true for a-0"),
        ('{"a":{"0":-3}}', "-3 for a-0"),
        ('{"a":{"0":1,"0":2}}', "'0' twice"),
        ('{"a":{"0":1},"a":{"0":2}}', "'a' twice"),
    ],
)
def test_wrong_offsets_are_named(text, named):
    """Every refusal says which topic and partition it means."""
    with raises("EOS_OPTION_INVALID", named):
        parse(text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"a":{"0":1,"1":1},"b":{"0":1},"c":{"0":1}}', "'c'"),
        ('{"a":{"0":1,"1":1}}', "b-0"),
        ('{"a":{"0":1},"b":{"0":1}}', "a-1"),
        ('{"a":{"0":1,"1":1,"2":1},"b":{"0":1}}', "a-2"),
    ],
)
def test_offsets_must_name_the_partitions_that_are_there(text, named):
    """Neither unknown topics or partitions nor gaps."""
    with raises("EOS_OPTION_INVALID", named):
        fill_in("startingOffsets", parse(text), BEGIN, END)


@pytest.mark.parametrize(("at", "fits"), [(4, False), (5, True), (50, True), (51, False)])
def test_offsets_must_lie_inside_the_partition(at, fits):
    """The end itself is allowed: the next record to come."""
    offsets = {"a": {0: at}}
    if fits:
        check_known("startingOffsets", offsets, BEGIN, END)
    else:
        with pytest.raises(OptionError, match=r"a-0, which has the offsets 5 to 50"):
            check_known("startingOffsets", offsets, BEGIN, END)


@pytest.mark.parametrize("option", ["startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"])
@pytest.mark.parametrize(("number", "fits"), [(2**63 - 1, True), (2**63, False), (10**20, False)])
def test_numbers_are_those_that_a_request_can_hold(option, number, fits):
    """Of 64 bits; larger ones would fail where they are sent."""
    text = str(number) if option == "startingTimestamp" else json.dumps({"t": {"0": number}})
    given = {"kafka.bootstrap.servers": "b:9", "subscribe": "t", option: text}
    if fits:
        source_options(given)
        return
    with raises("EOS_OPTION_INVALID"):
        source_options(given)
